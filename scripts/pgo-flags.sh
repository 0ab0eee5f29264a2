#!/usr/bin/env bash
# Prints the flags with which `make build` compiles: the counts that scripts/pgo.sh has made, and the order in which the
# functions lie. What runs lies together then, and what does not is not brought into memory with it.
#
# usage: RUSTFLAGS="$(scripts/pgo-flags.sh)" cargo build --release --locked --workspace
set -euo pipefail
pgo="$(cd "$(dirname "$0")/../pgo" && pwd)"
tried="$(mktemp -d)"
trap 'rm -rf "$tried"' EXIT

# A function that has changed since it was counted is compiled as without counts, which needs no warning each time.
counts=("-Cprofile-use=$pgo/holdfast.profdata" -Cllvm-args=-no-pgo-warn-mismatch)
order=("-Clink-arg=-Wl,--symbol-ordering-file=$pgo/holdfast.order" -Clink-arg=-Wl,--no-warn-symbol-ordering)
# Not every linker takes such a list: the compiler's own does, GNU's does not.
# shellcheck disable=SC2086 # the caller's flags are words
echo 'fn main() {}' | rustc ${RUSTFLAGS:-} "${order[@]}" -o "$tried/program" - >/dev/null 2>&1 || order=()
echo "${counts[*]}" "${order[*]}"
