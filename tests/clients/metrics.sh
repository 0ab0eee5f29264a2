#!/usr/bin/env bash
# Tests the usage of nodes and pods that kubectl shows, and an autoscaler that follows this usage.
set -euo pipefail
kubectl="$1"

fail() { echo "$*" >&2; exit 1; }
# Runs a command until its output matches a pattern.
await() {
  local pattern="$1" output=""; shift
  for _ in $(seq 300); do
    output="$("$@" 2>&1)" && grep -qE "$pattern" <<<"$output" && return
    sleep 0.1
  done
  fail "no line matches $pattern in: $output"
}

await '^node-0 ' "$kubectl" top nodes
"$kubectl" apply -f - <<'YAML'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {kwok.x-k8s.io/usage-cpu: 250m, simulate.holdfast.dev/usage-memory: 300Mi}
    spec:
      containers:
      - {name: c, image: pause, resources: {requests: {cpu: 200m}}}
YAML
"$kubectl" rollout status deployment/web --timeout=30s
await '^web-[^ ]+ +250m +300Mi' "$kubectl" top pods
await '^web-[^ ]+ +c +250m +300Mi' "$kubectl" top pods --containers -l app=web
await '^node-0 +250m ' "$kubectl" top nodes
"$kubectl" top pods -l app=other 2>&1 | grep -q 'No resources found' || fail "the selector app=other selects pods"
("$kubectl" top pods no-such-pod 2>&1 || true) | grep -qi "not found" ||
  fail "the usage of a missing pod is not refused"
"$kubectl" get --raw /apis/metrics.k8s.io/v1beta1 | grep -q PodMetrics || fail "discovery does not list PodMetrics"

# The autoscaler counts a pod's CPU usage only if the pod was ready during the whole time of the measurement.
sleep 1.5
"$kubectl" autoscale deployment web --cpu-percent=50 --min=1 --max=3
await '^3$' "$kubectl" get deployment web -o 'jsonpath={.status.readyReplicas}'
"$kubectl" get events --field-selector reason=SuccessfulRescale | grep -q 'New size: 3; reason: cpu resource utilization' \
  || fail "the autoscaler writes no Event about the new size"
