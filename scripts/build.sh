#!/usr/bin/env bash
# Builds the server $CARGO_TARGET_DIR/release/holdfast without symbols, and writes its symbols to holdfast.debug in the
# same folder. Debuggers, profilers and Holdfast's own backtraces find the names of functions in that file.
# If the build fails and the disk is full, the last line reports the full disk.
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
        echo "build: the disk of $target is full: free 4 GB there, or set CARGO_TARGET_DIR to a folder on another disk" >&2
    fi
    exit 1
fi

# The copy in Cargo's folder `deps` keeps its symbols. Each build links this copy to release/holdfast again.
binary="$target/release/holdfast"
stripped="$binary.stripped"
objcopy --only-keep-debug "$binary" "$binary.debug"
objcopy --strip-all --add-gnu-debuglink="$binary.debug" "$binary" "$stripped"
mv "$stripped" "$binary"
