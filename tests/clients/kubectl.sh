#!/usr/bin/env bash
# Tests the usual commands of kubectl, from 1.20 to the newest release.
#
# usage: KUBECONFIG=... tests/clients/kubectl.sh KUBECTL
source "$(dirname "$0")/lib.sh"

kubectl="$(realpath "${1:?usage: kubectl.sh KUBECTL}")"
minor="$("$kubectl" version --client -o json | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p')"
space="kubectl-$minor"
node="node-$minor"
prefix="kubectl-$minor"

# Standard input is empty, because no command may wait for input of a user.
k() { "$kubectl" --namespace "$space" "$@" </dev/null; }
at_least() { [ "$minor" -ge "$1" ]; }
serves() { k api-versions | grep -qx "$1"; }

at_exit '"$kubectl" delete namespace "$space" --ignore-not-found --wait=false'
at_exit '"$kubectl" delete node "$node" --ignore-not-found'
at_exit '"$kubectl" delete clusterrole,priorityclass "$prefix" --ignore-not-found'
at_exit '"$kubectl" delete clusterrolebinding "$prefix" --ignore-not-found'

main() {
    discovery
    apply_and_diff
    output_forms
    change_in_place
    patches
    generators
    workloads
    describe_everything
    watch_and_wait
    authorization
    nodes
    newer_clients
    deletion
    finish
}

discovery() {
    step "version"
    run k version
    has "Server Version"
    step "cluster-info"
    run k cluster-info
    has "is running at"
    step "api-versions"
    run k api-versions
    has "v1" "apps/v1" "batch/v1" "rbac.authorization.k8s.io/v1" "networking.k8s.io/v1"
    step "api-resources"
    run k api-resources
    has "configmaps" "deployments" "deploy" "StatefulSet" "ingresses"
    run k api-resources --api-group=apps --namespaced=true -o name
    has "deployments.apps" "replicasets.apps"
    lacks "configmaps"
    step "get --raw"
    run k get --raw /healthz
    is "ok"
    run k get --raw /version
    has '"gitVersion"' '"major"'
    run k get --raw /api
    has "APIVersions"
    run k get --raw /apis
    has "APIGroupList"
    refused k get --raw /api/v1/nonsense
    step "explain"
    run k explain deployment.spec.template
    has "Deployment" "spec" "metadata"
    run k explain deployment.spec.template --recursive
    has "containers" "livenessProbe" "topologySpreadConstraints"
    run k explain configmap.data
    has "data"
    refused k explain deployment.nonsense
    step "create namespace"
    run k create namespace "$space"
    is "namespace/$space created"
    refused k create namespace "$space"
    has "AlreadyExists"
}

apply_and_diff() {
    cat >"$scratch/web.yaml" <<YAML
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.example.test/web:1
        env:
        - {name: MODE, value: fast}
        - {name: OLD, value: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue, size: large}
YAML
    sed -e 's/web:1/web:2/' -e '/name: OLD/d' -e 's/blue, size: large/green/' "$scratch/web.yaml" >"$scratch/web-2.yaml"

    step "diff of new objects"
    code 1 k diff -f "$scratch/web.yaml"
    has "+  name: web"
    step "apply creates"
    run k apply -f "$scratch/web.yaml"
    has "deployment.apps/web created" "configmap/settings created"
    step "apply of the same changes nothing"
    run k apply -f "$scratch/web.yaml"
    has "deployment.apps/web unchanged" "configmap/settings unchanged"
    code 0 k diff -f "$scratch/web.yaml"
    step "dry run on the server changes nothing"
    run k apply --dry-run=server -f "$scratch/web-2.yaml"
    has "deployment.apps/web configured (server dry run)"
    run k get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image}'
    is "registry.example.test/web:1"
    step "diff of a change"
    code 1 k diff -f "$scratch/web-2.yaml"
    has "+        image: registry.example.test/web:2" "-  size: large"
    step "apply changes and removes"
    run k apply -f "$scratch/web-2.yaml"
    has "deployment.apps/web configured" "configmap/settings configured"
    run k get configmap settings -o 'jsonpath={.data}'
    is '{"color":"green"}'
    run k get deployment web -o 'jsonpath={.spec.template.spec.containers[0].env[*].name}'
    is "MODE"
    step "replace"
    run k replace -f "$scratch/web.yaml"
    has "deployment.apps/web replaced"
    run k get configmap settings -o 'jsonpath={.data.size}'
    is "large"
    step "refusals"
    refused k create -f "$scratch/web.yaml"
    has "AlreadyExists" 'deployments.apps "web" already exists'
    refused k get configmap missing
    has "NotFound" 'configmaps "missing" not found'
    refused k get gizmos
    has "the server doesn't have a resource type"
    sed 's/replicas: 2/replicaz: 2/' "$scratch/web.yaml" >"$scratch/bad.yaml"
    refused k apply -f "$scratch/bad.yaml"
    has "replicaz"
}

output_forms() {
    step "get as a table"
    run k get deployment
    has "NAME" "READY" "UP-TO-DATE" "AVAILABLE" "AGE" "web"
    run k get configmap settings --no-headers
    has "settings"
    lacks "NAME"
    run k get deployment -o wide
    has "CONTAINERS" "IMAGES" "SELECTOR" "registry.example.test/web:1" "app=web"
    run k get deployment --show-labels
    has "LABELS" "app=web"
    run k get deployment -L app
    has "APP"
    step "get as YAML and JSON"
    run k get deployment web -o yaml
    has "apiVersion: apps/v1" "kind: Deployment" "uid: "
    run k get deployment web -o json
    has '"apiVersion": "apps/v1"' '"resourceVersion":'
    run k get deployment,configmap -o json
    has '"kind": "List"'
    step "get as names"
    run k get deployment/web configmap/settings -o name
    is "$(printf 'deployment.apps/web\nconfigmap/settings')"
    step "get with templates"
    run k get configmap settings -o 'jsonpath={.metadata.name}/{.data.color}'
    is "settings/blue"
    run k get configmap settings -o 'go-template={{range $k, $v := .data}}{{$k}}={{$v}};{{end}}'
    is "color=blue;size=large;"
    run k get configmap settings -o custom-columns=NAME:.metadata.name,COLOR:.data.color --no-headers
    is "settings   blue"
    step "get with selectors"
    run k get deployment -l app=web -o name
    is "deployment.apps/web"
    run k get deployment -l 'app notin (web)' -o name
    is ""
    run k get deployment -l 'app in (web,api),!tier' -o name
    is "deployment.apps/web"
    run k get configmap --field-selector metadata.name=settings -o name
    is "configmap/settings"
    refused k get configmap --field-selector spec.nonsense=1
    has '"spec.nonsense" is not a known field selector'
    refused k get pods --field-selector spec.nonsense=1
    has "field label not supported: spec.nonsense"
    step "get in pages, sorted, everywhere"
    run k get configmap --chunk-size=1 --sort-by=.metadata.name
    has "settings"
    run k get configmap -A
    has "NAMESPACE" "$space"
    run k get all -A
    has "deployment.apps/web"
}

change_in_place() {
    step "edit"
    run env KUBE_EDITOR="sed -i s/blue/red/" "$kubectl" -n "$space" edit configmap settings
    has "configmap/settings edited"
    run k get configmap settings -o 'jsonpath={.data.color}'
    is "red"
    run env KUBE_EDITOR=true "$kubectl" -n "$space" edit configmap settings
    has "Edit cancelled, no changes made."
    step "label"
    run k label configmap settings tier=data
    has "configmap/settings labeled"
    refused k label configmap settings tier=other
    has "already has a value"
    run k label configmap settings tier=other --overwrite
    run k label configmap settings tier-
    run k get configmap settings -o 'jsonpath={.metadata.labels}'
    is ""
    refused k label configmap settings 'bad label=x'
    step "annotate"
    run k annotate configmap settings note='some words'
    has "configmap/settings annotated"
    run k get configmap settings -o 'jsonpath={.metadata.annotations.note}'
    is "some words"
    run k annotate configmap settings note-
    step "scale"
    run k scale deployment web --replicas=3
    has "deployment.apps/web scaled"
    run k get deployment web -o 'jsonpath={.spec.replicas}'
    is "3"
    refused k scale deployment web --replicas=5 --current-replicas=1
    has "Expected replicas to be 1, was 3"
    step "set"
    run k set image deployment/web web=registry.example.test/web:3
    has "deployment.apps/web image updated"
    run k set env deployment/web LEVEL=high
    has "deployment.apps/web env updated"
    run k set resources deployment/web --requests=cpu=100m
    has "deployment.apps/web resource requirements updated"
    run k get deployment web -o 'jsonpath={.spec.template.spec.containers[0]}'
    has "web:3" "LEVEL" "100m"
}

patches() {
    step "strategic merge patch"
    run k patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}'
    has "deployment.apps/web patched"
    run k get deployment web -o 'jsonpath={.spec.template.spec.containers[*].name}'
    has "web" "side"
    run k patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}'
    run k get deployment web -o 'jsonpath={.spec.template.spec.containers[*].name}'
    is "web"
    step "merge patch"
    run k patch configmap settings --type=merge -p '{"data":{"size":null,"shape":"round"}}'
    run k get configmap settings -o 'jsonpath={.data}'
    is '{"color":"red","shape":"round"}'
    run k patch configmap settings --type=merge -p '{"data":{"shape":"round"}}'
    has "patched (no change)"
    step "JSON patch"
    run k patch configmap settings --type=json \
        -p '[{"op":"test","path":"/data/shape","value":"round"},{"op":"move","from":"/data/shape","path":"/data/form"}]'
    run k get configmap settings -o 'jsonpath={.data.form}'
    is "round"
    refused k patch configmap settings --type=json -p '[{"op":"test","path":"/data/form","value":"square"}]'
    refused k patch configmap settings --type=json -p '[{"op":"remove","path":"/data/none"}]'
}

generators() {
    step "create deployment"
    run k create deployment api --image=registry.example.test/api:1 --replicas=2
    is "deployment.apps/api created"
    step "create configmap"
    echo "from a file" >"$scratch/file.txt"
    run k create configmap files --from-file="$scratch/file.txt" --from-literal=a=b
    is "configmap/files created"
    run k get configmap files -o 'jsonpath={.data.file\.txt}'
    is "from a file"
    step "create secret"
    run k create secret generic password --from-literal=password=secret
    is "secret/password created"
    run k get secret password -o 'jsonpath={.data.password}'
    is "$(printf secret | base64)"
    run k create secret docker-registry registry --docker-username=u --docker-password=p --docker-server=s
    run k get secret registry -o 'jsonpath={.type}'
    is "kubernetes.io/dockerconfigjson"
    step "create serviceaccount"
    run k create serviceaccount robot
    is "serviceaccount/robot created"
    step "create role and bindings"
    run k create role reader --verb=get,list --resource=pods,deployments.apps
    is "role.rbac.authorization.k8s.io/reader created"
    run k create rolebinding reader --role=reader --serviceaccount="$space:robot"
    is "rolebinding.rbac.authorization.k8s.io/reader created"
    run k create clusterrole "$prefix" --verb=get --resource=nodes
    is "clusterrole.rbac.authorization.k8s.io/$prefix created"
    run k create clusterrolebinding "$prefix" --clusterrole="$prefix" --user=jane
    is "clusterrolebinding.rbac.authorization.k8s.io/$prefix created"
    step "create quota"
    run k create quota small --hard=persistentvolumeclaims=5,services.loadbalancers=2
    has "resourcequota/small created"
    step "create job"
    run k create job once --image=registry.example.test/job:1 -- run it
    is "job.batch/once created"
    run k get job once -o 'jsonpath={.spec.template.spec.containers[0].command}'
    is '["run","it"]'
    if at_least 21 || serves batch/v1beta1; then
        step "create cronjob"
        run k create cronjob nightly --image=registry.example.test/job:1 --schedule='0 1 * * *'
        has "cronjob.batch/nightly created"
        if at_least 21; then
            run k create job now --from=cronjob/nightly
            has "job.batch/now created"
        fi
    fi
    step "create service"
    run k create service clusterip inner --tcp=80:8080
    is "service/inner created"
    run k create service nodeport outer --tcp=80
    run k get service outer -o 'jsonpath={.spec.ports[0].nodePort}'
    [ "$output" -ge 30000 ] && [ "$output" -le 32767 ] || surprise "the Service has no node port"
    run k create service externalname elsewhere --external-name=example.test
    run k get service inner -o 'jsonpath={.spec.clusterIP}'
    has "."
    step "create ingress"
    run k create ingress shop --rule='shop.example.test/*=inner:80'
    is "ingress.networking.k8s.io/shop created"
    if at_least 21 || serves policy/v1beta1; then
        step "create poddisruptionbudget"
        run k create poddisruptionbudget api --selector=app=api --min-available=1
        has "poddisruptionbudget.policy/api created"
    fi
    step "create priorityclass"
    run k create priorityclass "$prefix" --value=1000 --description='for the test'
    is "priorityclass.scheduling.k8s.io/$prefix created"
    if at_least 24; then
        step "create token"
        run k create token robot --duration=20m
        [ "$(tr -cd . <<<"$output")" = ".." ] || surprise "the output is not a token"
    fi
}

workloads() {
    step "run"
    run k run shell --image=registry.example.test/shell:1 --labels=app=shell -- sleep 60
    is "pod/shell created"
    step "expose"
    run k expose deployment api --port=80 --target-port=8080
    is "service/api exposed"
    run k get service api -o 'jsonpath={.spec.selector.app}/{.spec.ports[0].targetPort}'
    is "api/8080"
    step "autoscale"
    run k autoscale deployment api --min=1 --max=3
    is "horizontalpodautoscaler.autoscaling/api autoscaled"
    step "rollout"
    run k rollout history deployment/web
    has "deployment.apps/web"
    run k rollout pause deployment/web
    has "deployment.apps/web paused"
    run k rollout resume deployment/web
    has "deployment.apps/web resumed"
    run k rollout restart deployment/web
    has "deployment.apps/web restarted"
    run k get deployment web -o yaml
    has "kubectl.kubernetes.io/restartedAt"
}

describe_everything() {
    step "describe"
    run k describe pod shell
    has "Name:" "shell" "Image:" "registry.example.test/shell:1"
    run k describe deployment web
    has "Selector:" "app=web" "Replicas:" "StrategyType:"
    run k describe service api
    has "Selector:" "app=api" "IP:"
    run k describe configmap settings
    has "Data" "color:"
    run k describe secret password
    has "password:" "6 bytes"
    lacks "c2VjcmV0"
    run k describe role reader
    has "PolicyRule:" "deployments.apps"
    run k describe namespace "$space"
    has "Status:" "Active"
    run k describe job once
    has "Parallelism:"
    run k describe serviceaccount robot
    has "robot"
    run k describe quota small
    # The usage is in the status of the quota, which a controller writes; none runs here.
    has "Resource" "Used" "Hard"
    run k get events
}

watch_and_wait() {
    step "watch"
    # This call does not use the function k, because killing a function would leave its kubectl running.
    "$kubectl" -n "$space" get configmap --watch --output-watch-events >"$scratch/watch" 2>&1 </dev/null &
    local watcher=$!
    at_exit "kill $watcher"
    eventually settings cat "$scratch/watch"
    run k create configmap seen --from-literal=a=b
    eventually seen cat "$scratch/watch"
    run k delete configmap seen
    eventually DELETED cat "$scratch/watch"
    has "ADDED"
    kill "$watcher"
    wait "$watcher" 2>/dev/null || true
    step "wait for deletion"
    run k create configmap leaving
    k wait --for=delete configmap/leaving --timeout=20s >"$scratch/wait" 2>&1 &
    local waiter=$!
    sleep 0.5
    run k delete configmap leaving
    wait "$waiter" || { output="$(cat "$scratch/wait")"; surprise "wait did not see the deletion"; }
    if at_least 24; then
        step "wait for status"
        k wait --for=condition=Ready pod/shell --timeout=20s >"$scratch/wait" 2>&1 &
        waiter=$!
        run k patch pod shell --subresource=status --type=merge \
            -p '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
        wait "$waiter" || { output="$(cat "$scratch/wait")"; surprise "wait did not see the condition"; }
        run k wait --for=jsonpath='{.status.phase}'=Running pod/shell --timeout=20s
        has "pod/shell condition met"
    fi
}

authorization() {
    step "auth can-i"
    run k auth can-i create deployments
    has "yes"
    run k auth can-i '*' '*'
    has "yes"
    run k auth can-i list pods --as="system:serviceaccount:$space:robot"
    has "yes"
    code 1 k auth can-i delete pods --as="system:serviceaccount:$space:robot"
    has "no"
    run k auth can-i get nodes --as=jane
    has "yes"
    run k auth can-i --list
    has "Resources" "Verbs"
    run k auth can-i --list --as="system:serviceaccount:$space:robot"
    has "deployments.apps"
    step "an impersonated user has only its own rights"
    refused k get secrets --as="system:serviceaccount:$space:robot"
    has "Forbidden" "cannot list resource \"secrets\" in API group \"\" in the namespace \"$space\""
    run k get pods --as="system:serviceaccount:$space:robot"
}

nodes() {
    cat >"$scratch/node.yaml" <<YAML
apiVersion: v1
kind: Node
metadata:
  name: $node
  labels: {kubernetes.io/os: linux}
spec:
  unschedulable: true
YAML
    step "create and describe a node"
    run k create -f "$scratch/node.yaml"
    is "node/$node created"
    run k get nodes
    has "STATUS" "ROLES" "VERSION" "$node" "SchedulingDisabled"
    run k get nodes -o wide
    has "INTERNAL-IP" "KERNEL-VERSION"
    run k describe node "$node"
    has "Unschedulable:" "true" "Taints:"
    step "taint"
    run k taint node "$node" only=tests:NoSchedule
    has "node/$node tainted"
    run k get node "$node" -o 'jsonpath={.spec.taints[?(@.key=="only")].effect}'
    is "NoSchedule"
    step "cordon and uncordon"
    run k uncordon "$node"
    has "node/$node uncordoned"
    run k cordon "$node"
    has "node/$node cordoned"
    run k cordon "$node"
    has "already cordoned"
    run k taint node "$node" only-
    has "untainted"
    run k delete node "$node"
    has "node \"$node\" deleted"
}

newer_clients() {
    at_least 24 || return 0
    cat >"$scratch/owned.yaml" <<YAML
apiVersion: v1
kind: ConfigMap
metadata: {name: owned, namespace: $space}
data: {a: "1", b: "2"}
YAML
    step "server-side apply"
    run k apply --server-side --field-manager=first -f "$scratch/owned.yaml"
    has "configmap/owned serverside-applied"
    run k get configmap owned -o yaml --show-managed-fields
    has "manager: first" "operation: Apply" "f:data"
    run k get configmap owned -o yaml
    lacks "managedFields"
    step "server-side apply conflicts with another manager"
    sed 's/^data: .*/data: {a: "one"}/' "$scratch/owned.yaml" >"$scratch/taken.yaml"
    refused k apply --server-side --field-manager=second -f "$scratch/taken.yaml"
    has "conflict" '"first"' ".data.a"
    run k apply --server-side --field-manager=second --force-conflicts -f "$scratch/taken.yaml"
    run k get configmap owned -o 'jsonpath={.data}'
    is '{"a":"one","b":"2"}'
    step "server-side apply removes fields that the manager no longer applies"
    grep -v '^data' "$scratch/owned.yaml" >"$scratch/less.yaml"
    run k apply --server-side --field-manager=first -f "$scratch/less.yaml"
    run k get configmap owned -o 'jsonpath={.data.b}'
    is ""
    step "create with strict validation"
    printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\ndatta: {}\n' >"$scratch/odd.yaml"
    refused k create --validate=strict -f "$scratch/odd.yaml"
    has 'unknown field "datta"'
    run k create --validate=warn -f "$scratch/odd.yaml"
    has 'Warning: unknown field "datta"' "configmap/odd created"
    step "auth whoami"
    run k auth whoami
    has "Username"
}

deletion() {
    step "delete"
    run k delete configmap settings
    has 'configmap "settings" deleted'
    refused k delete configmap settings
    has "NotFound"
    run k delete configmap settings --ignore-not-found
    is ""
    run k delete -f "$scratch/web.yaml" --ignore-not-found
    has 'deployment.apps "web" deleted'
    step "delete --all"
    run k delete deployment --all
    has 'deployment.apps "api" deleted'
    run k delete services,jobs,secrets --all
    run k get deployment -o name
    is ""
    step "delete namespace"
    run k delete namespace "$space" --timeout=60s
    has "namespace \"$space\" deleted"
    refused k get namespace "$space"
    has "NotFound"
}

main
