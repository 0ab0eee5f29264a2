#!/usr/bin/env bash
# Counts with callgrind the instructions that a server executes for one request of each kind. With several binaries, the
# table shows them side by side. Counts differ by less than a percent from run to run, even on a busy machine.
#
# usage: scripts/bench-instructions.sh HOLDFAST...      (needs valgrind; about five minutes for each binary)
#        MODES="create=2000 get=4000" chooses modes of `holdfast bench`, and the number of requests of each
set -euo pipefail
modes="${MODES:-create=1000 get=2000 merge-patch=1000 apply=1000 list=50 watch-all=100}"
client="$1"
work="$(mktemp -d)"
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# counts HOLDFAST NAME: prints a line "MODE INSTRUCTIONS" for each mode. NAME is the name of a scratch folder.
counts() {
    mkdir "$work/$2"
    valgrind --quiet --tool=callgrind --fair-sched=yes --callgrind-out-file="$work/$2/counts" \
        "$1" up --data-dir "$work/$2/data" --secure-port 0 --nodes 0 '--controllers=-*' >"$work/$2/ready" 2>"$work/$2/log" &
    server=$!
    until grep -q '^ready' "$work/$2/ready"; do
        kill -0 "$server" || { tail -n 5 "$work/$2/log" >&2; exit 1; }
        sleep 0.5
    done
    local mode count at=0
    export KUBECONFIG="$work/$2/data/admin.kubeconfig"
    local bench=("$client" bench --kubeconfig "$KUBECONFIG" --keep --fill 1000 --objects 1000 --watchers 50)
    # The first requests execute code that later requests do not, such as filling caches. These requests are not
    # counted.
    "${bench[@]}" --count 100 create get merge-patch apply list >/dev/null 2>&1
    for mode in $modes; do
        count="${mode#*=}"
        callgrind_control --zero "$server" >/dev/null
        "${bench[@]}" --count "$count" "${mode%=*}" >/dev/null 2>&1
        callgrind_control --dump "$server" >/dev/null
        at=$((at + 1))
        # The dump has one part, because callgrind does not separate the threads.
        awk -v mode="${mode%=*}" -v count="$count" '/^(summary|totals):/ { sum = $2 } END { printf "%s %.0f\n", mode, sum / count }' \
            "$work/$2/counts.$at"
    done
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    server=
}

number=0
for binary in "$@"; do
    counts "$binary" "$number" >"$work/counts-$number"
    number=$((number + 1))
done
paste -d ' ' "$work"/counts-* | awk '
    BEGIN { print "| | instructions per request |"; print "| --- | --- |" }
    { line = "| " $1 " |"; for (at = 2; at <= NF; at += 2) line = line " " $at (at > 2 ? sprintf(" (%+.1f %%)", 100 * ($at / $2 - 1)) : "") " |"; print line }'
