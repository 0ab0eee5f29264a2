#!/usr/bin/env bash
# Tests Helm 3 or 4 with a chart whose quantities are spelled differently in each revision, whose cluster-scoped objects
# have a namespace, and whose objects contain exported metadata. The same values in another spelling change nothing.
#
# usage: KUBECONFIG=... [KUBECTL=...] tests/clients/helm_respelled.sh HELM
#        KUBECTL is by default kubectl-1.37 in the folder of HELM
source "$(dirname "$0")/lib.sh"

helm="$(realpath "${1:?usage: helm_respelled.sh HELM}")"
kubectl="$(realpath "${KUBECTL:-$(dirname "$helm")/kubectl-1.37}")"
space="respelled"
# Helm writes its own files into the scratch folder, and not into the user's folders.
export HELM_CACHE_HOME="$scratch/cache" HELM_CONFIG_HOME="$scratch/config" HELM_DATA_HOME="$scratch/data"
# This option has another name in Helm 4.
case "$("$helm" version --template '{{.Version}}')" in
v3*) atomic=--atomic ;;
*) atomic=--rollback-on-failure ;;
esac

h() { "$helm" --namespace "$space" "$@" </dev/null; }
k() { "$kubectl" --namespace "$space" "$@" </dev/null; }
generation() { k get deployment web -o 'jsonpath={.metadata.generation}'; }
replica_sets() { k get replicasets -l app=web -o name | wc -l | tr -d ' '; }
image() { k get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image}'; }

at_exit '"$kubectl" delete namespace "$space" --ignore-not-found --wait=false'
at_exit '"$kubectl" delete clusterrole,priorityclass -l chart=respelled --ignore-not-found'

step "write a chart"
mkdir -p "$scratch/web/templates"
cat >"$scratch/web/Chart.yaml" <<'YAML'
apiVersion: v2
name: web
version: 0.1.0
YAML
cat >"$scratch/web/values.yaml" <<'YAML'
image: web:1
memory: 64Mi
cpu: "1"
storage: 1Gi
port: 80
YAML
cat >"$scratch/web/templates/all.yaml" <<'YAML'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .Release.Namespace }}-reader
  namespace: {{ .Release.Namespace }}
  labels: {chart: respelled}
rules: []
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: {{ .Release.Namespace }}-high
  namespace: {{ .Release.Namespace }}
  labels: {chart: respelled}
value: 1000
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: exported
  creationTimestamp: "2020-01-01T00:00:00Z"
  generation: 7
  selfLink: /api/v1/namespaces/old/configmaps/exported
data: {port: {{ .Values.port | quote }}}
---
apiVersion: v1
kind: Service
metadata: {name: web, creationTimestamp: null}
spec: {selector: {app: web}, ports: [{port: {{ .Values.port }}}]}
status: {loadBalancer: {}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: {{ .Values.storage }}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  creationTimestamp: "2020-01-01T00:00:00Z"
  generation: 3
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  strategy: {}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec:
      initContainers: []
      nodeSelector: {}
      containers:
      - name: web
        image: {{ .Values.image | quote }}
        env: []
        resources:
          requests: {memory: {{ .Values.memory }}, cpu: {{ .Values.cpu }}}
          limits: {memory: {{ .Values.memory }}}
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
status: {}
YAML

step "install, and wait"
run h install web "$scratch/web" --create-namespace --wait --timeout 60s
has "STATUS: deployed"
run "$kubectl" get clusterrole "$space-reader" -o 'jsonpath={.metadata.namespace}'
is ""
run "$kubectl" get priorityclass "$space-high" -o 'jsonpath={.metadata.namespace}{.value}'
is "1000"
run k get configmap exported -o 'jsonpath={.metadata.creationTimestamp}'
lacks "2020"
run generation
is "1"

step "the same values in another spelling change nothing"
run h upgrade web "$scratch/web" --set memory=67108864 --set cpu=1000m --set storage=1024Mi --wait --timeout 60s
has "REVISION: 2"
run generation
is "1"
run replica_sets
is "1"

step "changed values are rolled out"
run h upgrade web "$scratch/web" --set image=web:2 --set memory=65536Ki --wait --timeout 60s
has "REVISION: 3"
run replica_sets
is "2"

step "an upgrade that fails is rolled back"
refused h upgrade web "$scratch/web" --set image=web:3 --set port=-1 "$atomic" --wait --timeout 60s
has "web"
run image
is "web:2"
run k get service web -o 'jsonpath={.spec.ports[0].port}'
is "80"

step "roll back, and wait"
run h rollback web 1 --wait --timeout 60s
has "Rollback was a success"
run image
is "web:1"
# The ReplicaSet of the first revision has the pods again. The ReplicaSets of the second and the failed revision remain.
run replica_sets
is "3"

step "an exported object replaces itself without a change"
run k get deployment web -o yaml
echo "$output" >"$scratch/exported.yaml"
before="$(generation)"
run k replace -f "$scratch/exported.yaml"
sed -i -e 's/creationTimestamp: .*/creationTimestamp: "2020-01-01T00:00:00Z"/' -e '/resourceVersion:/d' "$scratch/exported.yaml"
run k replace -f "$scratch/exported.yaml"
run generation
is "$before"

step "uninstall, and wait"
run h uninstall web --wait --timeout 60s
run "$kubectl" get clusterrole,priorityclass -l chart=respelled -o name
is ""

finish
