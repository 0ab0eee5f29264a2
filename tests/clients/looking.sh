#!/usr/bin/env bash
# Tests kubectl with containers whose commands the simulated shell runs: logs, commands, files, ports.
set -euo pipefail
kubectl="$1"

fail() { echo "$*" >&2; exit 1; }
# Runs a command until its output matches a pattern.
await() {
  local pattern="$1" output=""; shift
  for _ in $(seq 600); do
    output="$("$@" 2>&1)" && grep -qE "$pattern" <<<"$output" && return
    sleep 0.1
  done
  fail "no line matches $pattern in: $output"
}
# is EXPECTED FOUND: the two texts must be equal.
is() { [ "$1" = "$2" ] || fail "expected: $1
found: $2"; }

"$kubectl" create configmap settings --from-literal=colour=blue
"$kubectl" create secret generic token --from-literal=key=s3cret
"$kubectl" apply -f - <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: c
    image: busybox
    command: [sh, -c, 'echo begun $COLOUR; echo wrong >&2; while [ ! -f /tmp/end ]; do sleep 1; done; echo over; exit 3']
    ports: [{containerPort: 80}]
    env:
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    volumeMounts: [{name: s, mountPath: /etc/token}, {name: d, mountPath: /data}]
  - {name: own, image: nginx}
  volumes: [{name: s, secret: {secretName: token}}, {name: d, emptyDir: {}}]
  restartPolicy: Never
---
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: c
        image: busybox
        command: [sh, -c, 'echo working; sleep 2 && echo gave up > /dev/termination-log; exit 7']
---
apiVersion: v1
kind: Pod
metadata: {name: crashes}
spec:
  containers: [{name: c, image: busybox, command: [sh, -c, 'echo run; sleep 2; echo dies; exit 1']}]
---
apiVersion: v1
kind: Pod
metadata: {name: talks, annotations: {simulate.holdfast.dev/log: 'line {n} of {pod}', simulate.holdfast.dev/log-every: 100ms}}
spec:
  containers: [{name: c, image: nginx}]
---
apiVersion: v1
kind: Pod
metadata: {name: shares}
spec:
  volumes: [{name: v, emptyDir: {}}]
  initContainers:
  - {name: first, image: busybox, command: [sh, -c, 'echo left here > /work/first'], volumeMounts: [{name: v, mountPath: /work}]}
  containers:
  - {name: writes, image: busybox, command: [sh, -c, 'while true; do date >> /out/log; sleep 1; done'], volumeMounts: [{name: v, mountPath: /out}]}
  - {name: reads, image: nginx, volumeMounts: [{name: v, mountPath: /html, readOnly: true}]}
  - {name: checks, image: busybox, command: [sh, -c, 'cat /in/first; sleep infinity'], volumeMounts: [{name: v, mountPath: /in}]}
---
apiVersion: v1
kind: Pod
metadata: {name: hooked}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: busybox, command: [sleep, infinity], lifecycle: {postStart: {exec: {command: [sh, -c, 'sleep 1; exit 1']}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: ails, annotations: {simulate.holdfast.dev/answer-code: "503"}}
spec:
  containers:
  - {name: c, image: nginx, ports: [{containerPort: 80}], readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}}
YAML
"$kubectl" wait --for=condition=Ready pod/web pod/talks pod/shares --timeout=60s

# Logs.
await 'begun' "$kubectl" logs web -c c
is $'begun blue\nwrong' "$("$kubectl" logs web -c c)"
is wrong "$("$kubectl" logs web -c c --tail=1)"
"$kubectl" logs web -c c --timestamps | grep -qE '^20[0-9-]+T[0-9:.]+Z begun blue$' ||
  fail "a log with --timestamps has no times"
is begu "$("$kubectl" logs web -c c --limit-bytes=4)"
"$kubectl" logs web -c own | grep -q 'no container runs here' ||
  fail "the log of nginx does not say that no container runs"
("$kubectl" logs web -c none 2>&1 || true) | grep -q 'none' ||
  fail "the log of a missing container is not refused with the name of the container"
await '^line 3 of talks$' "$kubectl" logs talks
# When head has read its lines, kubectl gets SIGPIPE and fails.
(timeout 20 "$kubectl" logs -f talks --tail=1 || true) | head -n 5 | tail -n 1 | grep -q '^line' ||
  fail "kubectl logs -f shows no new lines"

# Commands.
is 'web blue s3cret' "$("$kubectl" exec web -c c -- sh -c 'echo $NAME $COLOUR $(cat /etc/token/key)')"
is $'a\nb' "$(printf 'b\na\n' | "$kubectl" exec -i web -c c -- sort)"
code=0; "$kubectl" exec web -c c -- sh -c 'exit 5' || code=$?
is 5 "$code"
("$kubectl" exec web -c c -- nginx 2>&1 || true) | grep -q 'sh: nginx: not found' ||
  fail "an unknown command is not reported"
is hello "$("$kubectl" exec web -c own -- echo hello)"
head -c 300000 /dev/zero | "$kubectl" exec -i web -c c -- wc -c | grep -q '^300000$' ||
  fail "a command does not read all of its input"
is 20000 "$("$kubectl" exec web -c c -- seq 1 20000 | wc -l)"
if command -v script >/dev/null; then
  printf 'echo $((6*7))\nexit\n' | script -qec "$kubectl exec -it web -c c -- sh" /dev/null | grep -q 42 ||
    fail "a command on a terminal fails"
fi

# Copies files in both directions.
folder=$(mktemp -d)
mkdir -p "$folder/in/deep"; seq 1 5000 >"$folder/in/numbers"; echo x >"$folder/in/deep/x"
"$kubectl" cp "$folder/in" web:/data/in -c c
is x "$("$kubectl" exec web -c c -- cat /data/in/deep/x)"
"$kubectl" cp web:/data/in "$folder/out" -c c
diff -r "$folder/in" "$folder/out" || fail "copied files differ from the originals"

# Ports.
"$kubectl" port-forward pod/web 0:80 >"$folder/forward" 2>&1 & forward=$!
await 'Forwarding from 127.0.0.1' cat "$folder/forward"
port=$(grep -oE '127.0.0.1:[0-9]+' "$folder/forward" | cut -d: -f2)
curl -sS "http://127.0.0.1:$port/" | grep -q 'no container runs behind port 80 of pod default/web' ||
  fail "a forwarded port does not answer"
curl -sS "http://127.0.0.1:$port/" | grep -q 'no container runs' ||
  fail "a forwarded port does not answer a second request"
kill $forward; wait $forward 2>/dev/null || true

# Containers that end, and the status that shows it.
await 'Failed' "$kubectl" get job fails -o 'jsonpath={.status.conditions[*].type}'
is 'gave up 7' "$("$kubectl" get pods -l job-name=fails -o 'jsonpath={.items[0].status.containerStatuses[0].state.terminated.message} {.items[0].status.containerStatuses[0].state.terminated.exitCode}' | tr -s '\n ' ' ')"
is working "$("$kubectl" logs job/fails)"
await '[1-9]' "$kubectl" get pod crashes -o 'jsonpath={.status.containerStatuses[0].restartCount}'
is $'run\ndies' "$("$kubectl" logs crashes --previous)"

# A command creates the file for which the container's own command waits. That command ends, and an attached client
# receives its last output.
timeout 60 "$kubectl" attach web -c c >"$folder/attached" 2>&1 & attached=$!
sleep 1
"$kubectl" exec web -c c -- touch /tmp/end
await '^3$' "$kubectl" get pod web -o 'jsonpath={.status.containerStatuses[?(@.name=="c")].state.terminated.exitCode}'
is over "$("$kubectl" logs web -c c --tail=1)"
wait $attached || true
grep -q over "$folder/attached" || fail "an attached client does not receive the last output: $(cat "$folder/attached")"

# The containers of a pod share its volumes, which have the files that earlier containers have written.
is 'left here' "$("$kubectl" logs shares -c checks)"
is 'left here' "$("$kubectl" exec shares -c reads -- cat /html/first)"
"$kubectl" exec shares -c reads -- cat /html/log | grep -q 20 ||
  fail "a container does not see the file that another container writes"
"$kubectl" exec shares -c writes -- touch /out/mine
is $'first\nlog\nmine' "$("$kubectl" exec shares -c reads -- ls /html)"
("$kubectl" exec shares -c reads -- touch /html/x 2>&1 || true) | grep -q 'Read-only file system' ||
  fail "a read-only volume can be written"

# Events report failures of hooks and probes.
await '^137$' "$kubectl" get pod hooked -o 'jsonpath={.status.containerStatuses[0].state.terminated.exitCode}'
events() { "$kubectl" get events -o 'jsonpath={range .items[*]}{.involvedObject.name} {.reason} {.message}{"\n"}{end}'; }
await '^hooked FailedPostStartHook PostStartHook failed$' events
await '^ails Unhealthy Readiness probe failed: HTTP probe failed with statuscode: 503$' events
is false "$("$kubectl" get pod ails -o 'jsonpath={.status.containerStatuses[0].ready}')"

# The endpoints of the node itself.
"$kubectl" get --raw /api/v1/nodes/node-0/proxy/metrics/resource | grep -q 'container_memory_working_set_bytes{' ||
  fail "the metrics of a node lack the memory of containers"
# An API server in another process connects to an address without the name of a node, so the summary may name no node.
"$kubectl" get --raw /api/v1/nodes/node-0/proxy/stats/summary | grep -qE '"nodeName":"(node-0)?"' ||
  fail "a node has no summary"
"$kubectl" get --raw /api/v1/nodes/node-0/proxy/pods | grep -q '"kind":"PodList"' ||
  fail "a node does not list its pods"
