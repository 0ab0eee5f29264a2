#!/usr/bin/env bash
# Makes two files in $CARGO_TARGET_DIR/pgo for `make dist`. counts.profdata has the number of times that the server took
# each branch under a typical load, and the compiler optimises by these counts. functions.order is the order in which
# the linker lays out functions: first the functions that run in a cluster at rest, then the other functions that ran.
# The counts fit only the toolchain that made them, and the compiler ignores the counts of functions that have changed
# since. So make the files again before each release.
#
# usage: scripts/pgo.sh    (takes an hour on two cores; needs valgrind, and clients: `make clients`)
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
pgo="$target/pgo"
clients="${HOLDFAST_CLIENTS:-$target/clients}"
# The path of this folder is part of the compiler's flags, so every run uses the same path. Otherwise every run would
# compile all crates again.
counts="$pgo/counts"
work="$(mktemp -d)"
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# The program llvm-profdata of the toolchain, or of Debian's package llvm-19: compilers since LLVM 19 read its output.
profdata="$(find "$(rustc --print sysroot)" -name llvm-profdata | head -n 1)"
[ -n "$profdata" ] || profdata="$(command -v llvm-profdata-19)" || {
    echo "pgo: no llvm-profdata: rustup component add llvm-tools, or apt-get install llvm-19" >&2
    exit 1
}
command -v valgrind >/dev/null || { echo "pgo: no valgrind: apt-get install valgrind" >&2; exit 1; }
kubectl="$(find "$clients" -type f -name 'kubectl*' | sort | tail -n 1)"
[ -n "$kubectl" ] || { echo "pgo: no kubectl in $clients: make clients" >&2; exit 1; }

# Except for the counters, the flags must be the same as the flags of `make dist`.
CARGO_TARGET_DIR="$pgo/counting" RUSTFLAGS="-Cprofile-generate=$counts" cargo build --config scripts/dist-profile.toml --release --locked -p holdfast
rm -rf "$counts" # build scripts with counters have run during the build
holdfast="$pgo/counting/release/holdfast"

# A command under which `start` runs the server, such as valgrind.
under=()
# start NAME [OPTION...]: starts a cluster on the data folder $work/NAME.
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

# The server writes its counts when it exits normally, so SIGKILL would lose them.
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

# The nodes of the benchmark have no kubelets, so the node lifecycle controller would taint them.
start scheduled '--controllers=*,-node-lifecycle-controller' --nodes 0
measure --nodes 500 --count 3000 schedule
measure --nodes 200 schedule-preempt
measure --nodes 300 --count 1500 schedule-spread schedule-affinity schedule-preferred
stop

start simulated --nodes 50
"$kubectl" create deployment web --image=web --replicas=1000
"$kubectl" rollout status deployment/web --timeout=300s
"$kubectl" get pods >/dev/null
"$kubectl" get pods --output yaml >/dev/null
"$kubectl" scale deployment/web --replicas=100
"$kubectl" wait deployment/web --for=jsonpath='{.status.replicas}'=100 --timeout=300s
stop
start simulated --nodes 50
"$kubectl" rollout status deployment/web --timeout=300s
stop

"$profdata" merge --sparse --output "$pgo/counts.profdata" "$counts"/*.profraw

# For each function, llvm-profdata prints a line with its name and a line with its counts. Before the name of a local
# function it prints the name of the file.
"$profdata" show --all-functions --counts "$pgo/counts.profdata" | awk '
    /^  [^ ].*:$/ { name = substr($0, 3, length($0) - 3); sub(/^.*;/, "", name) }
    /^    Block counts: / {
        sum = 0
        gsub(/[^0-9]+/, " ")
        for (field = 1; field <= NF; field++) sum += $field
        # Functions of the benchmark are left out: they make the load, and a server does not run them.
        if (sum > 0 && name !~ /holdfast_bench/) printf "%.0f %s\n", sum, name
    }' | sort --key=1,1nr --key=2 | awk '!seen[$2]++ { print $2 }' >"$work/ran"
cp "$work/ran" "$pgo/functions.order"

# valgrind shows the functions that a cluster at rest runs in the final binary. The compiler inlines differently in a
# binary with counters, so its functions differ. valgrind also shows functions of C and C++ libraries, which have no
# counters.
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

# Cargo does not know that the program depends on functions.order. Without the program, the next build links it again.
rm -f "$target"/dist/release/holdfast "$target"/dist/release/deps/holdfast-*
