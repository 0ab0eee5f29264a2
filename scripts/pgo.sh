#!/usr/bin/env bash
# Makes $CARGO_TARGET_DIR/pgo/counts.profdata: how often each branch of the server is taken when it does what it mostly
# does. With it the compiler lays out what `make dist` builds. It is for the toolchain that makes it, and what has
# changed since is compiled as if there were none; so it is made anew before each release. Beside it comes
# functions.order, by which the linker lays functions out: those of a cluster at rest, then the others that ran.
#
# usage: scripts/pgo.sh    (an hour on two cores; needs valgrind, and clients: `make clients`)
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
pgo="$target/pgo"
clients="${HOLDFAST_CLIENTS:-$target/clients}"
# Where counters write is part of the compiler's flags: the same place each time, so that a second run compiles nothing.
counts="$pgo/counts"
work="$(mktemp -d)"
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# The toolchain's own reader of counts, or that of Debian's package llvm-19: compilers since LLVM 19 read what it writes.
profdata="$(find "$(rustc --print sysroot)" -name llvm-profdata | head -n 1)"
[ -n "$profdata" ] || profdata="$(command -v llvm-profdata-19)" || {
    echo "pgo: no llvm-profdata: rustup component add llvm-tools, or apt-get install llvm-19" >&2
    exit 1
}
command -v valgrind >/dev/null || { echo "pgo: no valgrind: apt-get install valgrind" >&2; exit 1; }
kubectl="$(find "$clients" -type f -name 'kubectl*' | sort | tail -n 1)"
[ -n "$kubectl" ] || { echo "pgo: no kubectl in $clients: make clients" >&2; exit 1; }

# The flags have to differ in nothing else from those of `make dist`.
CARGO_TARGET_DIR="$pgo/counting" RUSTFLAGS="-Cprofile-generate=$counts" cargo build --config scripts/dist-profile.toml --release --locked -p holdfast
rm -rf "$counts" # of programs that ran while this one was compiled
holdfast="$pgo/counting/release/holdfast"

# Starts a cluster over what is in a folder already.
under=()
start() {
    : >"$work/ready"
    "${under[@]}" "$holdfast" up --data-dir "$work/$1" --secure-port 0 "${@:2}" >>"$work/ready" &
    server=$!
    until grep -q '^ready' "$work/ready"; do
        kill -0 "$server" || { echo "pgo: the server did not start" >&2; exit 1; }
        sleep 0.1
    done
    export KUBECONFIG="$work/$1/admin.kubeconfig"
}

# Counts are written when a process ends by itself.
stop() {
    kill "$server"
    wait "$server"
    server=
}

measure() {
    "$holdfast" bench --kubeconfig "$KUBECONFIG" "$@"
}

start requests '--controllers=-*'
measure --keep --fill 10000 --count 20000 get create merge-patch apply
measure --keep --fill 10000 --count 200 list page
measure watch-all
stop

cat >"$work/policy.yaml" <<'POLICY'
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata}]
POLICY
start audited '--controllers=-*' --audit-policy-file="$work/policy.yaml" --audit-log-path="$work/audit.log"
measure --keep --fill 2000 --count 8000 create merge-patch get
stop

# The nodes of the benchmark have no life of their own.
start scheduled '--controllers=*,-node-lifecycle-controller' --nodes 0
measure --nodes 500 --count 3000 schedule
measure --nodes 200 schedule-preempt
measure --nodes 300 --count 1500 schedule-spread schedule-affinity schedule-preferred
stop

start lived --nodes 50
"$kubectl" create deployment web --image=web --replicas=1000
"$kubectl" rollout status deployment/web --timeout=300s
"$kubectl" get pods >/dev/null
"$kubectl" get pods --output yaml >/dev/null
"$kubectl" scale deployment/web --replicas=100
"$kubectl" wait deployment/web --for=jsonpath='{.status.replicas}'=100 --timeout=300s
stop
start lived --nodes 50
"$kubectl" rollout status deployment/web --timeout=300s
stop

"$profdata" merge --sparse --output "$pgo/counts.profdata" "$counts"/*.profraw

# A function has a line with its name, after that of its file where it is not known outside, and one with its counts.
"$profdata" show --all-functions --counts "$pgo/counts.profdata" | awk '
    /^  [^ ].*:$/ { name = substr($0, 3, length($0) - 3); sub(/^.*;/, "", name) }
    /^    Block counts: / {
        sum = 0
        gsub(/[^0-9]+/, " ")
        for (field = 1; field <= NF; field++) sum += $field
        # The benchmark made the load.
        if (sum > 0 && name !~ /holdfast_bench/) printf "%.0f %s\n", sum, name
    }' | sort --key=1,1nr --key=2 | awk '!seen[$2]++ { print $2 }' >"$work/ran"
cp "$work/ran" "$pgo/functions.order"

# What a cluster at rest has run is seen on the binary itself, whose functions are others than those with counters; and
# those of libraries in C and C++, which have none, are seen as well.
flags="$(scripts/pgo-flags.sh)"
RUSTFLAGS="$flags" CARGO_TARGET_DIR="$target/dist" cargo build --config scripts/dist-profile.toml --release --locked -p holdfast
holdfast="$target/dist/release/holdfast"
under=(valgrind --quiet --tool=callgrind --demangle=no --fair-sched=yes --callgrind-out-file="$work/rest")
start resting
sleep 30
stop
awk '
    FNR == NR { place[$1] = FNR; ran[FNR] = $1; all = FNR; next }
    /^c?fn=\([0-9]+\) [^(0]/ {
        name = $2
        sub(/\x27[0-9]+$/, "", name)
        if (!(name in rests)) { rests[name] = 1; print (name in place ? place[name] : 9999999), name }
    }
    END { for (at = 1; at <= all; at++) if (!(ran[at] in rests)) print 99999999 + at, ran[at] }
' "$work/ran" "$work/rest" | sort --key=1,1n --key=2 | awk '{ print $2 }' >"$pgo/functions.order"

# Cargo does not know that the program depends on the list: it links the program again where there is none.
rm -f "$target"/dist/release/holdfast "$target"/dist/release/deps/holdfast-*
