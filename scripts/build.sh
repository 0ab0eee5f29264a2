#!/usr/bin/env bash
# Builds the server: $CARGO_TARGET_DIR/release/holdfast, without symbols, and beside it holdfast.debug, which has the
# names of its functions. Debuggers, profilers and Holdfast's own backtraces find them there by themselves.
# When the build fails for want of disk space, the last line says so.
#
# usage: scripts/build.sh [ARGS FOR CARGO BUILD]...
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
mkdir -p "$target"

free_mib() {
    df --output=avail --block-size=1M "$target" | tail -n 1
}

if ! cargo build --release --locked --package holdfast "$@"; then
    if [ "$(free_mib)" -lt 200 ]; then
        echo "build: the disk of $target is full: free 4 GB there, or set CARGO_TARGET_DIR to a folder on another one" >&2
    fi
    exit 1
fi

# Cargo's own copy keeps its symbols: it is linked here anew by each build.
binary="$target/release/holdfast"
stripped="$binary.stripped"
objcopy --only-keep-debug "$binary" "$binary.debug"
objcopy --strip-all --add-gnu-debuglink="$binary.debug" "$binary" "$stripped"
mv "$stripped" "$binary"
