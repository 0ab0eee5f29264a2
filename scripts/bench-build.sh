#!/usr/bin/env bash
# Measures the cost of building this source or another commit, and prints a table in Markdown. The first build starts
# with an empty target folder and an empty registry. Then the script changes one line at a time, as a developer does,
# and builds again. The script takes about an hour on two cores; run nothing else at the same time.
#
# usage: scripts/bench-build.sh [COMMIT]      without COMMIT: this folder, with uncommitted changes
#        PARTS="run test watch check" (default: all four) chooses the parts to measure
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
parts=" ${PARTS:-run test watch check} "
work="$(mktemp -d "${TMPDIR:-/tmp}/bench-build.XXXXXX")"
watch=
trap 'stop_watch; [ ! -d "$work/source/.git" ] && [ ! -f "$work/source/.git" ] || git -C "$root" worktree remove --force "$work/source"; rm -rf "$work"' EXIT
stop_watch() { [ -z "$watch" ] || { kill "$watch"; wait "$watch" || true; watch=; } 2>/dev/null; }

git -C "$root" worktree add --quiet --detach "$work/source" "${1:-HEAD}"
if [ $# -eq 0 ]; then
    git -C "$root" ls-files -z --cached --others --exclude-standard | (cd "$root" && xargs -0 -r ls -d 2>/dev/null) \
        | tar -C "$root" -c -f - -T - | tar -C "$work/source" -x -f -
fi
cd "$work/source"
export CARGO_HOME="$work/cargo" CARGO_TARGET_DIR="$work/target"
PATH="$HOME/.cargo/bin:$PATH"

# Runs a command, and prints "CLOCK USER SYSTEM": its time and the CPU time of all its processes, in seconds.
measured() {
    local TIMEFORMAT='%R %U %S'
    { time "$@" >"$work/log" 2>&1; } 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
}
row() { awk -v name="$1" '{ printf "| %s | %.1f CPU-minutes | %d s |\n", name, ($2 + $3) / 60, $1 }'; }
size() { awk -v name="$1" -v bytes="$(stat -c %s "$2")" 'BEGIN { printf "| %s | %.1f MB | |\n", name, bytes / 1e6 }'; }

# Inserts a statement at the beginning of a file's first function. Each call inserts a different statement.
change() { sed -i -E "0,/^( {4})?(pub(\(.*\))? )?fn .*\{\$/s//&\n    std::hint::black_box(${RANDOM}${RANDOM}u64);/" "$1"; }
files=(components/controllers/src/ttl_after_finished.rs components/scheduler/src/plugins/taint_toleration.rs transport-http/src/watch.rs core/src/pipeline/mod.rs)

echo "| build of $(git describe --always) | | clock |"
echo '| --- | --- | --- |'
cargo fetch --locked >/dev/null 2>&1 # the measured time contains no downloads
holdfast="$CARGO_TARGET_DIR/release/holdfast"

if [[ $parts == *" run "* ]]; then
    measured make build | row '`make build`'
    size 'binary' "$holdfast"
    strip -o "$work/stripped" "$holdfast"
    size 'binary, stripped' "$work/stripped"
    measured make build | row '`make build` again'
fi
if [[ $parts == *" test "* ]]; then
    if [ -e scripts/watch-profile.toml ]; then all='--workspace'; else all='--workspace --locked'; fi
    # shellcheck disable=SC2086 # the shell splits $all into words
    measured cargo --config scripts/test-profile.toml test --release $all --no-run | row 'compiling the tests after `make build`'
    grep -c '^ *Compiling' "$work/log" | awk '{ printf "| crates compiled for the tests | %d | |\n", $1 }'
    measured make build | row '`make build` after the tests'
fi
if [[ $parts == *" watch "* && -e scripts/watch.sh ]]; then
    ready() { grep -c '^ready' "$work/watch.log" || true; }
    scripts/watch.sh --data-dir "$work/data" --secure-port 0 --nodes 0 >"$work/watch.log" 2>&1 &
    watch=$!
    until [ "$(ready)" -ge 1 ]; do kill -0 $watch; sleep 0.2; done
    for file in "${files[@]}"; do
        before="$(ready)"
        change "$file"
        begun="$(date +%s.%N)"
        until [ "$(ready)" -gt "$before" ]; do kill -0 $watch; sleep 0.2; done
        awk -v file="$file" -v begun="$begun" -v ended="$(date +%s.%N)" \
            'BEGIN { printf "| one changed line in `%s`: time until the changed server is ready | | %d s |\n", file, ended - begun }'
    done
    stop_watch
fi
if [[ $parts == *" check "* ]]; then
    cargo check --locked --workspace >/dev/null 2>&1
    for file in "${files[@]}"; do
        change "$file"
        measured cargo check --locked --workspace | row "one changed line in \`$file\`: \`cargo check --workspace\`"
    done
fi
