#!/usr/bin/env bash
# Tests that Helm 3 or 4 waits until the objects of a chart are ready: a Deployment with a Service and a
# PersistentVolumeClaim, Jobs as hooks, a custom resource, and a test of the chart.
#
# usage: KUBECONFIG=... [KUBECTL=...] tests/clients/helm_living.sh HELM
#        KUBECTL is by default kubectl-1.37 in the folder of HELM
source "$(dirname "$0")/lib.sh"

helm="$(realpath "${1:?usage: helm_living.sh HELM}")"
kubectl="$(realpath "${KUBECTL:-$(dirname "$helm")/kubectl-1.37}")"
space="living"
# Helm writes its own files into the scratch folder, and not into the user's folders.
export HELM_CACHE_HOME="$scratch/cache" HELM_CONFIG_HOME="$scratch/config" HELM_DATA_HOME="$scratch/data"

h() { "$helm" --namespace "$space" "$@" </dev/null; }
k() { "$kubectl" --namespace "$space" "$@" </dev/null; }
ready() { k get deployment shop -o 'jsonpath={.status.readyReplicas} {.spec.template.spec.containers[0].image}'; }

at_exit '"$kubectl" delete namespace "$space" --ignore-not-found --wait=false'

step "write a chart"
mkdir -p "$scratch/shop/templates" "$scratch/shop/crds"
cat >"$scratch/shop/Chart.yaml" <<'YAML'
apiVersion: v2
name: shop
version: 0.1.0
YAML
cat >"$scratch/shop/values.yaml" <<'YAML'
image: shop:1
replicas: 2
YAML
cat >"$scratch/shop/crds/tills.yaml" <<'YAML'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tills.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {kind: Till, plural: tills}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
YAML
cat >"$scratch/shop/templates/all.yaml" <<'YAML'
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: c, image: {{ .Values.image | quote }}, volumeMounts: [{name: data, mountPath: /data}]}
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: shop.example.com/v1
kind: Till
metadata: {name: till}
spec: {image: {{ .Values.image | quote }}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations:
    helm.sh/hook: pre-install,pre-upgrade,pre-rollback
    helm.sh/hook-delete-policy: before-hook-creation
spec:
  backoffLimit: 0
  template:
    metadata:
      annotations: {simulate.holdfast.dev/exit-code: {{ .Values.migrates | default "0" | quote }}}
    spec: {restartPolicy: Never, containers: [{name: c, image: migrate}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: check
  annotations: {helm.sh/hook: test, simulate.holdfast.dev/run-for: 0s}
spec: {restartPolicy: Never, containers: [{name: c, image: check}]}
YAML

step "install, and wait"
run h install shop "$scratch/shop" --create-namespace --wait --timeout 60s
has "STATUS: deployed"
run ready
is "2 shop:1"
run k get persistentvolumeclaim data -o 'jsonpath={.status.phase} {.spec.storageClassName}'
is "Bound standard"
run k get job migrate -o 'jsonpath={.status.succeeded}'
is "1"

step "test"
run h test shop --timeout 60s
has "Phase:          Succeeded"

step "upgrade, and wait"
run h upgrade shop "$scratch/shop" --set image=shop:2 --set replicas=3 --wait --timeout 60s
has "REVISION: 2"
run ready
is "3 shop:2"
run k get till till -o 'jsonpath={.spec.image}'
is "shop:2"

step "a hook that fails ends the upgrade"
refused h upgrade shop "$scratch/shop" --set image=shop:3 --set-string migrates=1 --wait --timeout 60s
has "pre-upgrade hooks failed"
run ready
is "3 shop:2"

step "roll back, and wait"
run h rollback shop 1 --wait --timeout 60s
has "Rollback was a success"
run ready
is "2 shop:1"

step "uninstall, and wait"
run h uninstall shop --wait --timeout 60s
has 'release "shop" uninstalled'
run k get deployment,service,persistentvolumeclaim,pod -l '!job-name' -o name
is "pod/check"
run "$kubectl" get persistentvolumes -o name
is ""

finish
