#!/usr/bin/env bash
# Prints the flags with which `make dist` compiles: the counts that scripts/pgo.sh has made, and the order in which the
# functions lie. What runs lies together then, and what does not is not brought into memory with it.
#
# usage: RUSTFLAGS="$(scripts/pgo-flags.sh)" cargo build --release --locked -p holdfast
set -euo pipefail
pgo="${CARGO_TARGET_DIR:-$(cd "$(dirname "$0")/.." && pwd)/target}/pgo"
[ -e "$pgo/counts.profdata" ] || { echo "pgo-flags: no counts in $pgo: scripts/pgo.sh makes them" >&2; exit 1; }
tried="$(mktemp -d)"
trap 'rm -rf "$tried"' EXIT

# A function that has changed since it was counted is compiled as without counts, which needs no warning each time.
counts=("-Cprofile-use=$pgo/counts.profdata" -Cllvm-args=-no-pgo-warn-mismatch)
order=("-Clink-arg=-Wl,--symbol-ordering-file=$pgo/functions.order" -Clink-arg=-Wl,--no-warn-symbol-ordering)
# Not every linker takes such a list: the compiler's own does, GNU's does not.
# shellcheck disable=SC2086 # the caller's flags are words
echo 'fn main() {}' | rustc ${RUSTFLAGS:-} "${order[@]}" -o "$tried/program" - >/dev/null 2>&1 || order=()
echo "${counts[*]}" "${order[*]}"
