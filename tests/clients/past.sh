#!/usr/bin/env bash
# Tests unmodified clients with a past state of the cluster: the server URL in their kubeconfig contains the moment.
#
# usage: KUBECONFIG=... [HELM=...] tests/clients/past.sh KUBECTL
source "$(dirname "$0")/lib.sh"

kubectl="$(realpath "${1:?usage: past.sh KUBECTL}")"
helm="$(realpath "${HELM:-$(dirname "$kubectl")/helm-4}")"
space=past
export HELM_CACHE_HOME="$scratch/cache" HELM_CONFIG_HOME="$scratch/config" HELM_DATA_HOME="$scratch/data"

k() { "$kubectl" --namespace "$space" "$@" </dev/null; }
past() { KUBECONFIG="$scratch/past" "$kubectl" --namespace "$space" "$@" </dev/null; }
past_helm() { KUBECONFIG="$scratch/past" "$helm" --namespace "$space" "$@" </dev/null; }
# at MOMENT: sets the moment that `past` shows from now on.
at() { sed "s#^\( *server: .*\)\$#\1/at/$1#" "$KUBECONFIG" >"$scratch/past"; }

at_exit '"$kubectl" delete namespace "$space" --ignore-not-found --wait=false'

step "write some history"
run k create namespace "$space"
run k create deployment web --image=nginx:1
run k create configmap gone --from-literal=color=blue
run env -C "$scratch" "$helm" create chart
run "$helm" --namespace "$space" install demo "$scratch/chart" --set replicaCount=2
before="$(k create configmap marker -o 'jsonpath={.metadata.resourceVersion}')"
run k set image deployment/web nginx=nginx:2
run k delete configmap gone
run "$helm" --namespace "$space" upgrade demo "$scratch/chart" --set replicaCount=7
k get deployment web -o yaml >"$scratch/web.yaml"

step "get and describe past objects"
at "$before"
run past get deployments,configmaps -o wide
has "nginx:1" "configmap/gone"
lacks "nginx:2"
run past get configmap gone -o 'jsonpath={.data.color}'
has "blue"
run past describe deployment web
has "nginx:1"
run past get deployment demo-chart -o 'jsonpath={.spec.replicas}'
has "2"
refused k get configmap gone

step "compare a past object with the present one"
code 1 past diff -f "$scratch/web.yaml"
has "-      - image: nginx:1" "+      - image: nginx:2"

step "Helm shows its past releases"
run past_helm list
has "demo"
run past_helm get values demo
has "replicaCount: 2"
run past_helm history demo
lacks "upgrade"
refused past_helm upgrade demo "$scratch/chart" --set replicaCount=9
has "read-only view of the cluster as it was"

step "writes to the past are refused"
refused past delete deployment web
has "read-only view of the cluster as it was at version $before"
refused past scale deployment web --replicas=9
refused past create configmap new
run past create configmap new --dry-run=server -o name
has "configmap/new"
run k get deployment web -o 'jsonpath={.spec.replicas}'
has "1"

step "a watch of the past shows past objects"
output="$(timeout 3 env KUBECONFIG="$scratch/past" "$kubectl" --namespace "$space" get configmaps --watch 2>&1 || true)"
has "gone"

step "invalid moments are refused"
at "noon"
refused past get configmaps
at "99999999"
refused past get configmaps
finish
