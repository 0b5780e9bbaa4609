#!/usr/bin/env bash
# nvcc_without_spills.sh COMMAND...: a compiler launcher. Runs COMMAND, which is to print what ptxas
# says of each kernel (-Xptxas=-v), keeps that beside the object as OBJECT.ptxas, and fails where a
# kernel spills more registers to memory than spills.allowed lets it.
set -uo pipefail
allowed=$(dirname "$0")/spills.allowed
object=
previous=
for argument in "$@"; do
  if [[ $previous == -o ]]; then object=$argument; fi
  previous=$argument
done

said=$(mktemp)
trap 'rm -f "$said"' EXIT
"$@" 2>"$said"
status=$?
if [[ $object == *.o ]]; then
  grep -E '^(ptxas info|    [0-9]+ bytes stack)' "$said" >"$object.ptxas"
fi
grep -vE '^(ptxas info|    [0-9]+ bytes stack)' "$said" >&2
if ((status != 0)); then exit $status; fi

# The allowed list's lines: a regular expression for the mangled name, the architecture, the bytes.
awk -v object="$object" '
  NR == FNR { if ($0 !~ /^#/ && NF == 3) { name[n] = $1; arch[n] = $2; bytes[n] = $3; n++ }; next }
  /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2]; target = quoted[4] }
  /bytes spill stores/ {
    spilled = 0
    for (i = 2; i <= NF; i++) if ($i == "spill" && $(i - 2) > spilled) spilled = $(i - 2) + 0
    limit = 0
    for (i = 0; i < n; i++) if (kernel ~ name[i] && target == arch[i]) limit = bytes[i] + 0
    if (spilled > limit) {
      printf "%s: %s for %s spills %d bytes, may spill %d: use fewer registers, or say why not in " \
             "cmake/spills.allowed\n", object, kernel, target, spilled, limit > "/dev/stderr"
      failed = 1
    }
  }
  END { exit failed }
' "$allowed" - <"$said" || { rm -f "$object"; exit 1; }
