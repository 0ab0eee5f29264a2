#!/usr/bin/env bash
# Installs the packages that building and testing need on Debian or Ubuntu: a C++ toolchain for RocksDB, a Rust
# toolchain, and the languages in which the client tests are written. The script installs only missing packages.
#
# usage: scripts/setup.sh [build|test|long|dist]      build (default): the packages to build and run Holdfast
#                                                   test: also the packages of the client tests
#                                                   long: also the packages of the client tests, and Java
#                                                   dist: also the packages with which `make dist` counts branches
set -euo pipefail

build_packages=(g++ make pkg-config clang libclang-dev)
dist_packages=(git python3 unzip tar valgrind)
test_packages=(git openssl python3 python3-venv python3-pip python3-yaml nodejs npm unzip tar)
long_packages=(maven default-jdk-headless)
# Ubuntu has the browser only as a snap, and a script cannot rely on snaps. So the test of the browser is skipped on
# Ubuntu.
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

# llvm-profdata must be as new as the compiler, so the toolchain's own program is preferred.
install_profdata() {
    find "$(rustc --print sysroot)" -name llvm-profdata | grep -q . && return
    command -v rustup >/dev/null && rustup component add llvm-tools && return
    install_packages llvm-19
}

# Succeeds if the command of a package exists, because not every tool is installed by dpkg.
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
        echo "setup: please install: ${missing[*]} (this script supports only apt-get)" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    as_root apt-get update -qq || echo "setup: could not update the package lists; using the present lists" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" || {
        echo "setup: ${missing[*]} could not be installed: install them by other means, then run this script again" >&2
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
        echo "setup: there is no Rust toolchain and no package rustup: please install rustup, then run this script again" >&2
        exit 1
    fi
    echo "setup: installing the stable Rust toolchain"
    rustup toolchain install stable --profile minimal --component clippy,rustfmt
    rustup default stable
}

# Checks that the toolchain is not older than `rust-version` in Cargo.toml.
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
