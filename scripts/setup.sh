#!/usr/bin/env bash
# Installs what building and testing need on Debian or Ubuntu: a C toolchain for the embedded store, and the
# languages that the client tests speak. Does nothing when everything is there.
#
# usage: scripts/setup.sh [build|test|long|dist]      build (default): to build and run; test: the clients' needs as well;
#                                                   long: those of the client in Java, too; dist: what `make dist` counts
#                                                   branches with as well
set -euo pipefail

build_packages=(g++ make pkg-config clang libclang-dev)
dist_packages=(git python3 unzip tar valgrind)
test_packages=(git openssl python3 python3-venv python3-pip python3-yaml nodejs npm unzip tar)
long_packages=(maven default-jdk-headless)
# Ubuntu has a browser as a snap alone, which no script can count on; its test is left out there.
grep -qs '^ID=ubuntu' /etc/os-release || test_packages+=(chromium)

main() {
    local wanted=("${build_packages[@]}")
    case "${1:-build}" in
        build) ;;
        test) wanted+=("${test_packages[@]}") ;;
        long) wanted+=("${test_packages[@]}" "${long_packages[@]}") ;;
        dist) wanted+=("${dist_packages[@]}") ;;
        *) echo "usage: scripts/setup.sh [build|test|long|dist]" >&2; exit 2 ;;
    esac
    install_packages "${wanted[@]}"
    install_rust
    [ "${1:-build}" != dist ] || install_profdata
}

# The reader of branch counts has to be as new as the compiler, so the toolchain's own comes first.
install_profdata() {
    find "$(rustc --print sysroot)" -name llvm-profdata | grep -q . && return
    command -v rustup >/dev/null && rustup component add llvm-tools && return
    install_packages llvm-19
}

# A tool counts as there when its command is, however it came: not everything is installed by dpkg.
present() {
    case "$1" in
        libclang-dev) compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || dpkg_has "$1" ;;
        python3-venv) command -v python3 >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null ;;
        python3-pip) command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 ;;
        python3-yaml) command -v python3 >/dev/null && python3 -c 'import yaml' 2>/dev/null ;;
        maven) command -v mvn >/dev/null ;;
        default-jdk-headless) command -v javac >/dev/null ;;
        llvm-19) command -v llvm-profdata-19 >/dev/null ;;
        nodejs) command -v node >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

dpkg_has() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_packages() {
    local missing=() package
    for package in "$@"; do
        present "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "setup: please install: ${missing[*]} (this script knows only apt-get)" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    as_root apt-get update -qq || echo "setup: could not refresh the package lists; going on with those there are" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" || {
        echo "setup: ${missing[*]} could not be installed: install them as this machine does, then run this again" >&2
        exit 1
    }
}

install_rust() {
    command -v cargo >/dev/null || export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    if command -v cargo >/dev/null; then
        new_enough
        return
    fi
    command -v rustup >/dev/null || install_packages rustup || true
    if ! command -v rustup >/dev/null; then
        echo "setup: no Rust toolchain, and no rustup package here: please install rustup, then run this again" >&2
        exit 1
    fi
    echo "setup: installing the stable Rust toolchain"
    rustup toolchain install stable --profile minimal --component clippy,rustfmt
    rustup default stable
}

# The manifest names the oldest toolchain that compiles Holdfast.
new_enough() {
    local wanted found
    wanted="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")"
    found="$(rustc --version | cut -d ' ' -f 2)"
    printf '%s\n' "$wanted" "${found%%-*}" | sort --version-sort --check=quiet && return 0
    echo "setup: Rust $found is too old, Holdfast needs $wanted: run \`rustup update stable\`, or install Rust from rustup.rs" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else echo "setup: need root or sudo for: $*" >&2; exit 1
    fi
}

main "$@"
