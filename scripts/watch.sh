#!/usr/bin/env bash
# Keeps a cluster of the newest source running: builds, starts `holdfast up`, and whenever a source file changes builds
# again and restarts on the same data folder. The old server serves until the new one is built, and goes on when the
# build fails. Compiled lightly and piece by piece: what matters here is the time from a change to a running server.
#
# usage: scripts/watch.sh [ARGS FOR HOLDFAST UP]...
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
mkdir -p "$target"
stamp="$target/watch.stamp"
server=
trap 'stop; rm -f "$stamp" "$stamp.next"' EXIT
trap 'exit 130' INT TERM

stop() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" || true
    server=
}

build() {
    cargo --config scripts/watch-profile.toml build --release --locked --package holdfast
}

# What a build reads, and nothing that a build or a server writes.
changed() {
    [ -n "$(find . \( -path ./.git -o -path ./target -o -path ./holdfast-data -o -path ./tools/fuzz \) -prune \
        -o -type f -newer "$stamp" \( -name '*.rs' -o -name '*.toml' -o -name '*.txt' \) -print -quit)" ]
}

touch "$stamp"
until build; do
    until changed; do sleep 0.5; done
    touch "$stamp"
done
while true; do
    stop
    "$target/release/holdfast" up "$@" &
    server=$!
    while true; do
        until changed; do sleep 0.5; done
        # A file that is saved while the build runs is newer than this, and is built next.
        touch "$stamp.next"
        mv "$stamp.next" "$stamp"
        if build; then break; fi
        echo "watch: that does not build; the server before it goes on" >&2
    done
done
