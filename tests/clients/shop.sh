#!/usr/bin/env bash
# Applies an application of about twenty manifests, changes it, compares the stored objects with the manifests, and
# deletes the application.
#
# usage: KUBECONFIG=... tests/clients/shop.sh KUBECTL
source "$(dirname "$0")/lib.sh"

kubectl="$(realpath "${1:?usage: shop.sh KUBECTL}")"
here="$(cd "$(dirname "$0")" && pwd)"
data="$here/../data"
# The RoleBinding's subject is in this namespace.
space=shop

k() { "$kubectl" --namespace "$space" "$@" </dev/null; }

at_exit '"$kubectl" delete namespace "$space" --ignore-not-found --wait=false'
at_exit '"$kubectl" delete -f "$data/shop/01-priorityclass.yaml" --ignore-not-found'
at_exit '"$kubectl" delete clusterrole shop-node-reader --ignore-not-found'

generations() {
    k get -f "$data/shop" -o 'jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{"\n"}{end}'
}

# compare FOLDER: compares the manifests in the folder with the server's objects.
compare() {
    k create --dry-run=client --validate=false -o json -f "$data/$1" >"$scratch/sent.json" 2>"$scratch/errors" ||
        { output="$(cat "$scratch/errors")"; surprise "cannot read the manifests"; }
    k get -f "$data/$1" -o json >"$scratch/live.json" 2>"$scratch/errors" ||
        { output="$(cat "$scratch/errors")"; surprise "cannot get the applied objects"; }
    run python3 "$here/compare.py" "$scratch/sent.json" "$scratch/live.json"
    has "objects are stored as they were sent"
}

step "create namespace"
run k create namespace "$space"

step "apply"
run k apply -f "$data/shop"
has "deployment.apps/catalog created" "statefulset.apps/database created" "cronjob.batch/report created"
lacks "unchanged"
# The only warnings are about objects that the server stores and does not enforce.
output="$(grep -v 'Warning: this [A-Za-z]* is stored but not enforced by this server' <<<"$output")"
lacks "Warning"
compare shop

# An object that kubectl reports as configured may be unchanged: kubectl sends 0.5 again, and the server has 500m.
step "apply again"
run generations
before="$output"
run k apply -f "$data/shop"
has "deployment.apps/cart unchanged" "configmap/settings unchanged" "ingress.networking.k8s.io/shop unchanged"
lacks "created"
run generations
is "$before"
compare shop

step "diff"
code 0 k diff -f "$data/shop"
code 1 k diff -f "$data/shop-changed"

step "apply the changes"
run k apply -f "$data/shop-changed"
has "deployment.apps/catalog configured" "service/frontend configured" "networkpolicy.networking.k8s.io/database unchanged"
lacks "created"
compare shop-changed
code 0 k diff -f "$data/shop-changed"

step "apply the original manifests again"
run k apply -f "$data/shop"
lacks "created"
compare shop

step "show lists of objects"
run k get all
has "deployment.apps/catalog" "service/database" "statefulset.apps/database" "daemonset.apps/logs" "cronjob.batch/report"
run k get ingress,pvc,hpa,pdb,networkpolicy,limits,quota
has "shop.example.test" "media"

step "delete"
run k delete -f "$data/shop" --timeout=60s
has 'deployment.apps "catalog" deleted'
run k get deployment,statefulset,daemonset,cronjob,ingress,hpa,pdb,networkpolicy -o name
is ""

step "delete namespace"
run k delete namespace "$space" --timeout=60s
refused k get namespace "$space"
has "NotFound"

finish
