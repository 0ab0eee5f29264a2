#!/usr/bin/env bash
# Tests the commands of kubectl for running workloads: rollouts, scaling, jobs, drains, deletions of owners.
#
# usage: KUBECONFIG=... tests/clients/kubectl_living.sh KUBECTL      against a cluster with controllers and two nodes
source "$(dirname "$0")/lib.sh"

kubectl="$(realpath "${1:?usage: kubectl_living.sh KUBECTL}")"
minor="$("$kubectl" version --client -o json | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p')"
space="living-$minor"
timeout="--timeout=60s"

# Standard input is empty, because no command may wait for input of a user.
k() { "$kubectl" --namespace "$space" "$@" </dev/null; }
apply() { "$kubectl" --namespace "$space" apply -f - >/dev/null || surprise "the server refused an object"; }
at_least() { [ "$minor" -ge "$1" ]; }
image() { k get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image}'; }
ready() { k get deployment web -o 'jsonpath={.status.readyReplicas}'; }
nodes_of() { k get pods -l app=web -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort | uniq -c; }
uid() { k get "$@" -o 'jsonpath={.metadata.uid}'; }

at_exit '"$kubectl" delete namespace "$space" --ignore-not-found --wait=false'
at_exit '"$kubectl" uncordon node-0 node-1'

main() {
    run k create namespace "$space"
    rollouts
    scaling
    components
    services
    jobs
    drains
    cascades
    step "delete a namespace, and wait"
    run k delete namespace "$space" "$timeout"
    has "namespace \"$space\" deleted"
    refused k get namespace "$space"
    has "NotFound"
    finish
}

rollouts() {
    step "create deployment, rollout status"
    run k create deployment web --image=web:1 --replicas=3
    is "deployment.apps/web created"
    run k rollout status deployment/web "$timeout"
    has 'deployment "web" successfully rolled out'
    run ready
    is "3"
    run k wait --for=condition=Available deployment/web "$timeout"
    has "condition met"
    run k wait --for=condition=Ready pod -l app=web "$timeout"
    [ "$(grep -c 'condition met' <<<"$output")" = 3 ] || surprise "not all three pods are ready"

    step "set image, rollout history"
    run k annotate deployment web kubernetes.io/change-cause="the second"
    run k set image deployment/web web=web:2
    run k rollout status deployment/web "$timeout"
    run k annotate deployment web kubernetes.io/change-cause="the third" --overwrite
    run k set image deployment/web web=web:3
    run k rollout status deployment/web "$timeout"
    eventually "the third" k rollout history deployment/web
    has "REVISION" "the second"
    run k rollout history deployment/web --revision=2
    has "web:2" "pod-template-hash"

    step "rollout undo"
    run k rollout undo deployment/web
    has "rolled back"
    run k rollout status deployment/web "$timeout"
    run image
    is "web:2"
    run k rollout undo deployment/web --to-revision=1
    run k rollout status deployment/web "$timeout"
    run image
    is "web:1"
    refused k rollout undo deployment/web --to-revision=77
    has "unable to find specified revision 77"

    step "rollout pause and resume"
    run k rollout pause deployment/web
    run k set image deployment/web web=web:4
    refused k rollout undo deployment/web
    has "paused"
    refused k rollout restart deployment/web
    has "paused"
    # The controller has observed the new template, and creates no pod from it.
    eventually "$(k get deployment web -o 'jsonpath={.metadata.generation}')" \
        k get deployment web -o 'jsonpath={.status.observedGeneration}'
    run k get pods -l app=web -o 'jsonpath={.items[*].spec.containers[0].image}'
    is "web:1 web:1 web:1"
    run k rollout resume deployment/web
    run k rollout status deployment/web "$timeout"
    eventually "web:4 web:4 web:4" k get pods -l app=web -o 'jsonpath={.items[*].spec.containers[0].image}'

    step "rollout restart"
    local before
    before="$(k get pods -l app=web -o name | sort)"
    run k rollout restart deployment/web
    run k rollout status deployment/web "$timeout"
    for pod in $before; do
        eventually "NotFound" k get "$pod"
    done

    step "a rollout that exceeds its deadline"
    run k patch deployment web --type=merge -p '{"spec": {"progressDeadlineSeconds": 1, "template": {"metadata":
        {"annotations": {"simulate.holdfast.dev/ready-after": "never"}}}}}'
    refused k rollout status deployment/web "$timeout"
    has "exceeded its progress deadline"
    # On a busy machine a later rollout may take longer than a second between two steps.
    run k patch deployment web --type=merge -p '{"spec": {"progressDeadlineSeconds": 600}}'
    run k rollout undo deployment/web
    run k rollout status deployment/web "$timeout"

    step "rollout of daemon sets and stateful sets"
    for kind in DaemonSet StatefulSet; do
        apply <<YAML
apiVersion: apps/v1
kind: $kind
metadata: {name: all}
spec:
  selector: {matchLabels: {app: all-$kind}}
  $([ "$kind" = DaemonSet ] || echo "serviceName: all")
  template:
    metadata: {labels: {app: all-$kind}}
    spec: {containers: [{name: c, image: "all:1"}]}
YAML
        run k rollout status "$kind/all" "$timeout"
        run k set image "$kind/all" c=all:2
        run k rollout status "$kind/all" "$timeout"
        eventually "2" k rollout history "$kind/all"
        run k rollout undo "$kind/all"
        run k rollout status "$kind/all" "$timeout"
        run k get "$kind" all -o 'jsonpath={.spec.template.spec.containers[0].image}'
        is "all:1"
        run k rollout restart "$kind/all"
        run k rollout status "$kind/all" "$timeout"
        run k delete "$kind" all "$timeout"
    done
}

scaling() {
    step "scale"
    run k scale deployment web --replicas=5
    run k rollout status deployment/web "$timeout"
    run ready
    is "5"
    refused k scale deployment web --current-replicas=7 --replicas=1
    has "7"
    run k scale deployment web --current-replicas=5 --replicas=2
    eventually "2" ready
    if at_least 24; then
        run k wait --for=jsonpath='{.status.replicas}'=2 deployment/web "$timeout"
        has "condition met"
    fi
    step "autoscale"
    run k autoscale deployment web --min=4 --max=6 --cpu-percent=50
    eventually "4" ready
    run k describe horizontalpodautoscaler web
    has "SuccessfulRescale"
    run k delete horizontalpodautoscaler web
    step "autoscale a replication controller"
    apply <<'END'
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 1
  template:
    metadata: {labels: {app: old}}
    spec: {containers: [{name: c, image: old}]}
END
    run k autoscale rc old --min=3 --max=5
    eventually "3" k get rc old -o 'jsonpath={.status.readyReplicas}'
    run k get horizontalpodautoscaler old -o 'jsonpath={.spec.scaleTargetRef.apiVersion}'
    is "v1"
    run k label horizontalpodautoscaler old by=hand
    run k patch horizontalpodautoscaler old -p '{"spec": {"minReplicas": 4}}'
    eventually "4" k get rc old -o 'jsonpath={.status.readyReplicas}'
    run k delete horizontalpodautoscaler,rc old
}

# Tests the commands that show the cluster's own components.
components() {
    step "get componentstatuses"
    run k get componentstatuses
    has "Warning: v1 ComponentStatus is deprecated in v1.19+"
    grep -v Warning <<<"$output" | tr -s ' ' | sed 's/ $//' >"$scratch/components"
    diff - "$scratch/components" <<'END' || surprise "not all components are healthy"
NAME STATUS MESSAGE ERROR
controller-manager Healthy ok
etcd-0 Healthy ok
scheduler Healthy ok
END
    run k get cs scheduler -o 'jsonpath={.conditions[*].type} {.conditions[*].status} {.conditions[*].message}'
    has "Healthy True ok"
    run k get cs --field-selector=metadata.name=controller-manager -o name
    lacks "scheduler" "etcd-0"
    has "componentstatus/controller-manager"
    run k get cs -l app=scheduler -o name
    lacks "componentstatus/"
    refused k get cs kubelet
    has "NotFound"
}

services() {
    step "expose"
    run k expose deployment web --port=80 --target-port=8080
    eventually "10.128." k get endpoints web -o 'jsonpath={.subsets[0].addresses[*].ip}'
    run k get endpointslices -l kubernetes.io/service-name=web -o 'jsonpath={.items[0].ports[0].port}'
    is "8080"
    run k delete service web
    eventually "NotFound" k get endpoints web
}

jobs() {
    step "create job"
    run k create job once --image=once
    run k wait --for=condition=Complete job/once "$timeout"
    has "condition met"
    step "create cronjob, and a job from it"
    run k create cronjob often --image=often --schedule='*/5 * * * *'
    # kubectl 1.20 does not support CronJobs in batch/v1.
    if at_least 21; then
        run k create job by-hand --from=cronjob/often
        run k wait --for=condition=Complete job/by-hand "$timeout"
        run k get job by-hand -o 'jsonpath={.metadata.ownerReferences[0].name}'
        is "often"
    fi
    step "a job that fails"
    k create job fails --image=fails --dry-run=client -o json |
        sed 's/"template": {/"backoffLimit": 0, "template": {/; s/"metadata": {\s*"creationTimestamp": null\s*},//' >"$scratch/job"
    "$kubectl" --namespace "$space" patch --local -f "$scratch/job" --type=merge -o json -p '{"spec": {"template":
        {"metadata": {"annotations": {"simulate.holdfast.dev/exit-code": "3"}}}}}' >"$scratch/failing"
    run k apply -f "$scratch/failing"
    run k wait --for=condition=Failed job/fails "$timeout"
    run k delete cronjob often "$timeout"
    eventually "NotFound" k get job by-hand
    run k delete job --all "$timeout"
    run k get pods -l job-name -o name
}

drains() {
    step "cordon"
    run k scale deployment web --replicas=4
    run k rollout status deployment/web "$timeout"
    run k cordon node-1
    has "node/node-1 cordoned"
    run k rollout restart deployment/web
    run k rollout status deployment/web "$timeout"
    eventually "4 node-0" nodes_of
    lacks "node-1"
    run k uncordon node-1

    step "drain with a budget"
    run k create poddisruptionbudget web --selector=app=web --min-available=3
    apply <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec:
  nodeName: node-0
  containers: [{name: c, image: i}]
  volumes: [{name: v, emptyDir: {}}]
YAML
    eventually "1" k get poddisruptionbudget web -o 'jsonpath={.status.disruptionsAllowed}'
    refused k drain node-0 "$timeout"
    has "--delete-emptydir-data" "alone"
    run k drain node-0 --force --delete-emptydir-data --ignore-daemonsets "$timeout"
    has "evicting pod $space/web-" "node/node-0 "
    refused k get pod alone
    eventually "4 node-1" nodes_of
    lacks "node-0"
    # The new budget allows no disruption.
    run k patch poddisruptionbudget web --type=merge -p '{"spec": {"minAvailable": 4}}'
    eventually "0" k get poddisruptionbudget web -o 'jsonpath={.status.disruptionsAllowed}'
    run k uncordon node-0
    refused k drain node-1 --force --ignore-daemonsets --timeout=2s
    has "Cannot evict pod as it would violate the pod's disruption budget"
    run ready
    is "4"
    run k uncordon node-1
    run k delete poddisruptionbudget web
}

cascades() {
    step "delete --cascade=orphan"
    local set
    set="$(k get replicasets -l app=web -o 'jsonpath={range .items[?(@.spec.replicas>0)]}{.metadata.name}{end}')"
    run k delete deployment web --cascade=orphan "$timeout"
    run k get replicaset "$set" -o 'jsonpath={.metadata.ownerReferences}'
    is ""
    run k get pods -l app=web -o name
    [ "$(wc -l <<<"$output")" = 4 ] || surprise "the four pods were not all kept"
    step "a ReplicaSet adopts the orphaned pods"
    local kept
    kept="$(uid replicaset "$set")"
    k get replicaset "$set" -o 'jsonpath={.spec.template}' >"$scratch/template"
    run k delete replicaset "$set" --cascade=orphan "$timeout"
    run k get pods -l app=web -o 'jsonpath={.items[*].metadata.ownerReferences}'
    is ""
    apply <<YAML
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: again}
spec: {replicas: 4, selector: {matchLabels: {app: web}}, template: $(cat "$scratch/template")}
YAML
    eventually "again again again again" k get pods -l app=web -o 'jsonpath={.items[*].metadata.ownerReferences[*].name}'
    [ "$(uid replicaset again)" != "$kept" ] || surprise "the ReplicaSet has the UID of the old one"

    step "delete --cascade=foreground"
    run k delete replicaset again --cascade=foreground "$timeout"
    # All pods were deleted before the ReplicaSet.
    run k get pods -l app=web -o name
    is ""
    step "delete --cascade=background"
    run k create deployment web --image=web:1 --replicas=2
    run k rollout status deployment/web "$timeout"
    run k delete deployment web --cascade=background "$timeout"
    eventually "No resources found" k get replicasets,pods -l app=web
}

main
