#!/usr/bin/env bash
# Prints the flags with which `make build` compiles: the counts that scripts/pgo.sh has made, and the order in which the
# functions lie. What runs lies together then, and what does not is not brought into memory with it.
#
# usage: RUSTFLAGS="$(scripts/pgo-flags.sh)" cargo build --release --locked --workspace
set -euo pipefail
pgo="$(cd "$(dirname "$0")/../pgo" && pwd)"

# A function that has changed since it was counted is compiled as without counts, which needs no warning each time.
printf '%s' "-Cprofile-use=$pgo/holdfast.profdata -Cllvm-args=-no-pgo-warn-mismatch"
# Only the linker that comes with the compiler is known to take such a list.
if [ -e "$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld" ]; then
    printf ' %s' "-Clink-arg=-Wl,--symbol-ordering-file=$pgo/holdfast.order" "-Clink-arg=-Wl,--no-warn-symbol-ordering"
fi
echo
