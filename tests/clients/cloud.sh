#!/usr/bin/env bash
# Tests the effects of a cloud with kubectl: addresses of Services, data about nodes, taints, removed nodes, routes.
# usage: cloud.sh KUBECTL CLOUD    CLOUD: the file that describes the simulated cloud; the script changes this file
source "$(dirname "$0")/lib.sh"
kubectl="$1" cloud="$2"
taint=node.cloudprovider.kubernetes.io

service() { # NAME SPEC
    printf 'apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {type: LoadBalancer, selector: {app: x}, %s}\n' "$1" "$2"
}
# machine NAME: creates a node as a kubelet does that expects the cloud to initialize the node.
machine() {
    "$kubectl" apply -f - <<YAML
apiVersion: v1
kind: Node
metadata: {name: $1}
spec:
  taints: [{key: $taint/uninitialized, value: "true", effect: NoSchedule}]
status:
  conditions: [{type: Ready, status: "True", reason: Test}]
YAML
}
# state NAME READY: sets the node's condition Ready, as its kubelet does. An old kubectl cannot patch a status, so this
# function replaces the status, and tries again if another client has written the node in between.
state() {
    local ready='/"status": "/{N;s/"[A-Za-z]*",\(\n *"type": "Ready"\)/"'"$2"'",\1/}'
    for _ in $(seq 20); do
        "$kubectl" get node "$1" -o json | sed "$ready" >"$scratch/node.json"
        ! "$kubectl" replace --raw "/api/v1/nodes/$1/status" -f "$scratch/node.json" || return 0
    done
    surprise "the status of node $1 cannot be replaced"
}

step "a Service gets an address"
service web 'ports: [{port: 80}]' | "$kubectl" apply -f - >/dev/null
eventually 192.0.2. "$kubectl" get service web
run "$kubectl" get service web -o jsonpath='{.metadata.finalizers}{.status.loadBalancer.ingress[0].ipMode}'
is '["service.kubernetes.io/load-balancer-cleanup"]VIP'
eventually EnsuredLoadBalancer "$kubectl" describe service web
has EnsuringLoadBalancer service-controller

step "a Service gets the requested address, and its other settings take effect"
service dns 'loadBalancerIP: 192.0.2.53, externalTrafficPolicy: Local, sessionAffinity: ClientIP,
  loadBalancerSourceRanges: [10.0.0.0/8], ports: [{name: t, port: 53, protocol: TCP}, {name: u, port: 53, protocol: UDP}]' \
    | "$kubectl" apply -f - >/dev/null
eventually 192.0.2.53 "$kubectl" get service dns
run "$kubectl" patch service dns -p '{"spec":{"loadBalancerSourceRanges":["172.16.0.0/12"]}}'
eventually "[10.0.0.0/8] -> [172.16.0.0/12]" "$kubectl" describe service dns

step "a Service with a load balancer class is ignored"
service other 'loadBalancerClass: example.com/other, ports: [{port: 80}]' | "$kubectl" apply -f - >/dev/null
run "$kubectl" get service other -o jsonpath='{.metadata.finalizers}{.status.loadBalancer}'
is '{}'

step "an address of another load balancer is refused, and an Event names the address"
service twin 'loadBalancerIP: 192.0.2.53, ports: [{port: 80}]' | "$kubectl" apply -f - >/dev/null
eventually "the address 192.0.2.53 is another load balancer's" "$kubectl" describe service twin
has SyncLoadBalancerFailed

step "a Service of another type loses its load balancer, and Services can be deleted"
run "$kubectl" patch service web -p '{"spec":{"type":"ClusterIP"}}'
eventually "'{}'" "$kubectl" get service web -o jsonpath="'{.status.loadBalancer}'"
eventually "LoadBalancer -> ClusterIP" "$kubectl" describe service web
run "$kubectl" delete service dns twin --timeout=20s

step "a node gets the data of the cloud"
machine one >/dev/null
eventually simulated://i-one "$kubectl" get node one -o jsonpath='{.spec.providerID}'
run "$kubectl" get node one -o wide -L topology.kubernetes.io/zone,node.kubernetes.io/instance-type
has 10.0.0.1 zone-a m.large
eventually "Node synced successfully" "$kubectl" get events
run "$kubectl" describe node one
lacks uninitialized

step "a node that is shut down gets a taint, and a node without an instance is deleted"
sed -i 's/name: one,/name: one, shutDown: true,/' "$cloud"
state one Unknown >/dev/null
eventually $taint/shutdown "$kubectl" get node one -o jsonpath='{.spec.taints[*].key}'
sed -i 's/shutDown: true, //' "$cloud"
state one True >/dev/null
eventually "''" "$kubectl" get node one -o jsonpath="'{.spec.taints[?(@.key==\"$taint/shutdown\")].key}'"
sed -i '/name: one,/d' "$cloud"
state one Unknown >/dev/null
eventually "DeletingNode" "$kubectl" get events -o jsonpath='{.items[*].reason}'
eventually 'not found' "$kubectl" get node one

finish
