#!/usr/bin/env bash
# nvcc_without_spills_test.sh LAUNCHER: what the launcher makes of a compiler's words.
set -euo pipefail
launcher=$1
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# says TEXT [STATUS]: a compiler of a.o that says this.
says() {
  printf '#!/bin/sh\ncat >&2 <<END\n%s\nEND\ntouch a.o\nexit %s\n' "$1" "${2:-0}" >compiler
  chmod +x compiler
  rm -f a.o a.o.ptxas
  status=0
  "$launcher" ./compiler -c a.cu -o a.o 2>errors || status=$?
}

kernel() {
  printf "ptxas info    : Compiling entry function '%s' for '%s'\n" "$1" "$2"
  printf "ptxas info    : Function properties for %s\n" "$1"
  printf "    %d bytes stack frame, %d bytes spill stores, %d bytes spill loads\n" "$3" "$4" "$5"
  printf "ptxas info    : Used 168 registers, used 1 barriers\n"
}

printf '# why\nWideKernel sm_90 56\n' >allowed
export SPILLS_ALLOWED=$PWD/allowed

says "$(kernel _Z3fooPf sm_80 0 0 0)"
[[ $status == 0 && -e a.o && ! -s errors ]] || fail "a kernel without spills: $(cat errors)"
grep -q "168 registers" a.o.ptxas || fail "what ptxas said is not kept"

says "$(kernel _Z3fooPf sm_80 0 0 0; kernel _Z3barPf sm_80 8 4 12)"
[[ $status != 0 && ! -e a.o ]] || fail "a spill passes"
grep -q "_Z3barPf for sm_80 spills 12 bytes, may spill 0" errors || fail "message: $(cat errors)"

says "$(kernel _Z10WideKernelPf sm_90 56 56 56)"
[[ $status == 0 ]] || fail "an allowed spill: $(cat errors)"
says "$(kernel _Z10WideKernelPf sm_90 60 60 56)"
[[ $status != 0 ]] || fail "more than is allowed passes"
says "$(kernel _Z10WideKernelPf sm_80 56 56 56)"
[[ $status != 0 ]] || fail "what is allowed elsewhere passes"

says "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"
[[ $status != 0 ]] || fail "serialized wgmma pass"

says "a.cu(3): error: expected a ;" 2
[[ $status == 2 ]] || fail "the compiler's status is lost"
grep -q "expected a ;" errors || fail "the compiler's error is lost"
