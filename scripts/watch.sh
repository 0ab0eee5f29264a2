#!/usr/bin/env bash
# Keeps a cluster of the newest source running: builds Holdfast and starts `holdfast up`; whenever a source file
# changes, builds again and restarts the server on the same data folder. The old server serves until the new build is
# ready, and keeps running if the build fails. The build is incremental and optimises little, so the
# changed server runs soon.
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

# Succeeds if a file that a build reads is newer than the stamp. Folders into which builds and servers write are
# ignored.
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
        # A file that is saved during the build is newer than this stamp, so it starts the next build.
        touch "$stamp.next"
        mv "$stamp.next" "$stamp"
        if build; then break; fi
        echo "watch: the build failed; the previous server keeps running" >&2
    done
done
