#!/usr/bin/env bash
# Runs the containers of the conformance specs of Kubernetes that need no network between pods and no special image, and
# checks the results that the specs expect. docs/NODES.md lists these specs.
set -euo pipefail
kubectl="$1"

# pod NAME CONTAINERS [MORE FIELDS OF THE SPEC]: adds a pod to $pods, which the script creates with one command.
pods="" restart=Never
pod() {
  pods+="---
{apiVersion: v1, kind: Pod, metadata: {name: $1, labels: {name: foo}, annotations: {a: b}}, spec: {restartPolicy: $restart, containers: [$2]${3:+, $3}}}
"
}
failed=0
# is WHAT EXPECTED FOUND: the values must be equal.
is() { [ "$2" = "$3" ] || { failed=1; echo "$1: expected: $2; found: $3" >&2; }; }
# has WHAT PART FOUND: the value must contain the part.
has() { grep -qF -- "$2" <<<"$3" || { failed=1; echo "$1: no '$2' in: $3" >&2; }; }
# await PATTERN COMMAND...: repeats the command until its output matches the pattern.
await() {
  local pattern="$1" output=""; shift
  for _ in $(seq 900); do
    output="$("$@" 2>&1)" && grep -qE "$pattern" <<<"$output" && return
    sleep 0.1
  done
  failed=1; echo "$*: no line matches $pattern in: $output" >&2
}
phase() { await "^$2\$" "$kubectl" get pod "$1" -o 'jsonpath={.status.phase}'; }
log() { "$kubectl" logs "$@"; }

"$kubectl" create configmap settings --from-literal=data-1=value-1
"$kubectl" create secret generic secrets --from-literal=data-1=value-1
sh='command: [sh, -c, env]'

# Variable Expansion.
pod composes "{name: c, image: busybox, $sh, env: [{name: FOO, value: foo-value}, {name: BAR, value: bar-value}, {name: FOOBAR, value: '\$(FOO);;\$(BAR)'}]}"
pod commands '{name: c, image: busybox, command: [sh, -c, "TEST_VAR=wrong echo \"$(TEST_VAR)\""], env: [{name: TEST_VAR, value: test-value}]}'
pod arguments '{name: c, image: busybox, command: [sh, -c], args: ["TEST_VAR=wrong echo \"$(TEST_VAR)\""], env: [{name: TEST_VAR, value: test-value}]}'
pod subpath '{name: c, image: busybox, command: [sh, -c, "test -d /testcontainer/subpath;echo $?"], env: [{name: POD_NAME, value: subpath}],
  volumeMounts: [{name: v, mountPath: /logscontainer, subPathExpr: $(POD_NAME)}, {name: v, mountPath: /testcontainer}]}' 'volumes: [{name: v, emptyDir: {}}]'
pod written '{name: c, image: busybox, command: [sh, -c, "while true; do sleep 2; done"], env: [{name: POD_NAME, value: foo}, {name: ANNOTATION, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['"'a'"']"}}}],
  volumeMounts: [{name: v, mountPath: /subpath_mount, subPathExpr: $(ANNOTATION)/$(POD_NAME)}, {name: v, mountPath: /volume_mount}]}' 'volumes: [{name: v, emptyDir: {}}]'

# Downward API, ConfigMaps and Secrets as variables.
field() { echo "{name: $1, valueFrom: {fieldRef: {fieldPath: $2}}}"; }
resource() { echo "{name: $1, valueFrom: {resourceFieldRef: {resource: $2}}}"; }
pod downward "{name: c, image: busybox, $sh, resources: {requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 1250m, memory: 64Mi}}, env: [
  $(field POD_NAME metadata.name), $(field POD_NAMESPACE metadata.namespace), $(field POD_IP status.podIP), $(field HOST_IP status.hostIP), $(field POD_UID metadata.uid),
  $(resource CPU_LIMIT limits.cpu), $(resource MEMORY_LIMIT limits.memory), $(resource CPU_REQUEST requests.cpu), $(resource MEMORY_REQUEST requests.memory)]}"
pod variables "{name: c, image: busybox, $sh, env: [{name: CONFIG_DATA_1, valueFrom: {configMapKeyRef: {name: settings, key: data-1}}}, {name: SECRET_DATA, valueFrom: {secretKeyRef: {name: secrets, key: data-1}}}],
  envFrom: [{configMapRef: {name: settings}}, {prefix: p-, secretRef: {name: secrets}}]}"

# Kubelet, and Pods.
pod prints "{name: c, image: busybox, command: [sh, -c, \"echo 'Hello World' ; sleep 240\"]}"
pod fails '{name: c, image: busybox, command: [/bin/false]}'
pod hosts '{name: c, image: busybox, command: [/bin/sh, -c, "cat /etc/hosts; sleep 6000"]}' 'hostAliases: [{ip: 123.45.67.89, hostnames: [foo, bar]}]'
pod readonly '{name: c, image: busybox, command: [/bin/sh, -c, "echo test > /file; sleep 240"], securityContext: {readOnlyRootFilesystem: true}}'

# Container Runtime: termination messages.
message() { pod "$1" "{name: c, image: busybox, command: [/bin/sh, -c], args: ['$2'], terminationMessagePath: $3${4:+, terminationMessagePolicy: $4}}"; }
message custom '/bin/echo -n DONE > /dev/termination-custom-log' /dev/termination-custom-log
message fallback '/bin/echo -n DONE; /bin/false' /dev/termination-log FallbackToLogsOnError
message empty '/bin/echo -n DONE; /bin/true' /dev/termination-log FallbackToLogsOnError
message file '/bin/echo -n OK > /dev/termination-log; /bin/echo DONE; /bin/true' /dev/termination-log FallbackToLogsOnError

# InitContainers.
init='{name: a, image: busybox, command: [/bin/true]}, {name: b, image: busybox, command:'
pod inits '{name: c, image: busybox, command: [/bin/true]}' "initContainers: [$init [/bin/true]}]"
pod unstarted '{name: c, image: busybox, command: [/bin/true]}' "initContainers: [$init [/bin/false]}]"

# Probes by commands.
restart=Always
probed() { pod "$1" "{name: c, image: busybox, command: [/bin/sh, -c, '$2'], livenessProbe: {exec: {command: [cat, /tmp/health]}, initialDelaySeconds: 15, failureThreshold: 1}}"; }
probed ill 'echo ok >/tmp/health; sleep 10; rm -rf /tmp/health; sleep 600'
probed healthy 'echo ok >/tmp/health; sleep 600'
restart=Never

# EmptyDir volumes.
pod shared '{name: main, image: busybox, command: [/bin/sh], args: [-c, "trap exit TERM; while true; do sleep 1; done"], volumeMounts: [{name: v, mountPath: /usr/share/volumeshare}]},
  {name: sub, image: busybox, command: [/bin/sh], args: [-c, "echo Hello from the busy-box sub-container > /usr/share/volumeshare/shareddata.txt && sleep 6000"], volumeMounts: [{name: v, mountPath: /usr/share/volumeshare}]}' 'volumes: [{name: v, emptyDir: {}}]'

"$kubectl" apply -f - <<<"$pods"

for name in composes commands arguments subpath downward variables custom empty file inits; do phase "$name" Succeeded; done
has composes 'FOOBAR=foo-value;;bar-value' "$(log composes)"
is commands test-value "$(log commands)"
is arguments test-value "$(log arguments)"
is subpath 0 "$(log subpath)"
phase written Running
"$kubectl" exec written -- /bin/sh -c 'touch /volume_mount/b/foo/test.log' ||
  { failed=1; echo "written: cannot write a file into the volume" >&2; }
"$kubectl" exec written -- /bin/sh -c 'test -f /subpath_mount/test.log' ||
  { failed=1; echo "written: the file is not at the subpath" >&2; }

found="$(log downward)"
for variable in POD_NAME=downward POD_NAMESPACE=default CPU_LIMIT=2 MEMORY_LIMIT=67108864 CPU_REQUEST=1 MEMORY_REQUEST=33554432 \
  "POD_IP=$("$kubectl" get pod downward -o 'jsonpath={.status.podIP}')" "HOST_IP=$("$kubectl" get pod downward -o 'jsonpath={.status.hostIP}')" \
  "POD_UID=$("$kubectl" get pod downward -o 'jsonpath={.metadata.uid}')"; do has downward "$variable" "$found"; done
found="$(log variables)"
for variable in CONFIG_DATA_1=value-1 SECRET_DATA=value-1 data-1=value-1 p-data-1=value-1; do has variables "$variable" "$found"; done

phase prints Running
is prints 'Hello World' "$(log prints)"
phase fails Failed
is fails Error "$("$kubectl" get pod fails -o 'jsonpath={.status.containerStatuses[0].state.terminated.reason}')"
phase hosts Running
has hosts $'123.45.67.89\tfoo\tbar' "$(log hosts)"
phase readonly Running
has readonly "can't create /file: Read-only file system" "$(log readonly)"

phase fallback Failed
for pair in custom=DONE fallback=DONE empty= file=OK; do
  is "${pair%=*}" "${pair#*=}" "$("$kubectl" get pod "${pair%=*}" -o 'jsonpath={.status.containerStatuses[0].state.terminated.message}')"
done

is inits True "$("$kubectl" get pod inits -o 'jsonpath={.status.conditions[?(@.type=="Initialized")].status}')"
phase unstarted Failed
is unstarted false "$("$kubectl" get pod unstarted -o 'jsonpath={.status.containerStatuses[0].started}')"

phase shared Running
is shared 'Hello from the busy-box sub-container' "$("$kubectl" exec shared -c main -- cat /usr/share/volumeshare/shareddata.txt)"

await '^1$' "$kubectl" get pod ill -o 'jsonpath={.status.containerStatuses[0].restartCount}'
is healthy 0 "$("$kubectl" get pod healthy -o 'jsonpath={.status.containerStatuses[0].restartCount}')"
exit $failed
