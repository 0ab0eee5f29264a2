#!/usr/bin/env bash
# Installs a chart with Helm 3 or 4, upgrades it, rolls it back and uninstalls it.
#
# usage: KUBECONFIG=... [KUBECTL=...] tests/clients/helm.sh HELM
#        KUBECTL is by default kubectl-1.37 in the folder of HELM
source "$(dirname "$0")/lib.sh"

helm="$(realpath "${1:?usage: helm.sh HELM}")"
kubectl="$(realpath "${KUBECTL:-$(dirname "$helm")/kubectl-1.37}")"
major="$("$helm" version --template '{{.Version}}' | sed 's/^v\([0-9]*\).*/\1/')"
space="helm-$major"
# Helm writes its own files into the scratch folder, and not into the user's folders.
export HELM_CACHE_HOME="$scratch/cache" HELM_CONFIG_HOME="$scratch/config" HELM_DATA_HOME="$scratch/data"

h() { "$helm" --namespace "$space" "$@" </dev/null; }
k() { "$kubectl" --namespace "$space" "$@" </dev/null; }
replicas() { k get deployment demo-chart -o 'jsonpath={.spec.replicas}'; }

at_exit '"$kubectl" delete namespace "$space" --ignore-not-found --wait=false'

step "create a chart"
run env -C "$scratch" "$helm" create chart
cat >"$scratch/chart/templates/settings.yaml" <<'YAML'
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-settings
data:
  color: {{ .Values.color | default "blue" | quote }}
  {{- if .Values.size }}
  size: {{ .Values.size | quote }}
  {{- end }}
YAML

step "dry run"
run h install demo "$scratch/chart" --dry-run=server --create-namespace
has "kind: Deployment"

step "install"
run h install demo "$scratch/chart" --create-namespace --set size=large
has "STATUS: deployed" "REVISION: 1"
run replicas
is "1"

step "list and status"
run h list
has "demo" "deployed" "chart-0.1.0"
run h list -A -o json
has '"name":"demo"'
run h status demo
has "STATUS: deployed"

step "get"
run h get manifest demo
has "kind: Deployment" "kind: Service" "demo-settings"
run h get values demo
has "size: large"

step "install of the same name is refused"
refused h install demo "$scratch/chart"
has "cannot"

step "upgrade"
run h upgrade demo "$scratch/chart" --set replicaCount=3 --set color=green
has "REVISION: 2" "STATUS: deployed"
run replicas
is "3"
run k get configmap demo-settings -o 'jsonpath={.data}'
is '{"color":"green"}'

step "upgrade --install of an existing release"
run h upgrade --install demo "$scratch/chart" --set replicaCount=3 --set color=red
has "REVISION: 3"

step "history"
run h history demo
has "superseded" "deployed" "Install complete" "Upgrade complete"

step "rollback"
run h rollback demo 1
has "Rollback was a success"
run replicas
is "1"
run k get configmap demo-settings -o 'jsonpath={.data}'
is '{"color":"blue","size":"large"}'
run h history demo
has "Rollback to 1"

step "failed upgrade is reported"
refused h upgrade demo "$scratch/chart" --set service.port=70000
has "70000"
run h list --failed -o json
has '"status":"failed"'

step "uninstall"
run h uninstall demo
has 'release "demo" uninstalled'
run k get deployment,service,configmap,serviceaccount -l app.kubernetes.io/instance=demo -o name
is ""
run h list -o json
is "[]"

step "delete namespace"
run k delete namespace "$space" --timeout=60s

finish
