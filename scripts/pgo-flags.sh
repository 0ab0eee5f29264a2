#!/usr/bin/env bash
# Prints the compiler flags of `make dist`: the branch counts that scripts/pgo.sh has made, and the order of functions.
# With this order the functions that run lie together, so fewer pages of the program are loaded into memory.
#
# usage: RUSTFLAGS="$(scripts/pgo-flags.sh)" cargo build --release --locked -p holdfast
set -euo pipefail
pgo="${CARGO_TARGET_DIR:-$(cd "$(dirname "$0")/.." && pwd)/target}/pgo"
[ -e "$pgo/counts.profdata" ] || { echo "pgo-flags: $pgo contains no branch counts: run scripts/pgo.sh" >&2; exit 1; }
tried="$(mktemp -d)"
trap 'rm -rf "$tried"' EXIT

# The compiler ignores the counts of functions that have changed since the counts were made. The second flag turns off
# the warning about each of these functions.
counts=("-Cprofile-use=$pgo/counts.profdata" -Cllvm-args=-no-pgo-warn-mismatch)
order=("-Clink-arg=-Wl,--symbol-ordering-file=$pgo/functions.order" -Clink-arg=-Wl,--no-warn-symbol-ordering)
# The linker that comes with the compiler accepts the order, but GNU's linker does not. The script links a
# test program to find out.
# shellcheck disable=SC2086 # the shell splits the caller's flags into words
echo 'fn main() {}' | rustc ${RUSTFLAGS:-} "${order[@]}" -o "$tried/program" - >/dev/null 2>&1 || order=()
echo "${counts[*]}" "${order[*]}"
