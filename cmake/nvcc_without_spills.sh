#!/usr/bin/env bash
# nvcc_without_spills.sh COMMAND...: a compiler launcher. COMMAND is to print what ptxas says of each
# kernel (-Xptxas=-v), which is kept beside the object as OBJECT.ptxas. Fails where a kernel spills
# more registers to memory than SPILLS_ALLOWED (cmake/spills.allowed) lets it, or where ptxas runs
# wgmma instructions one after the other.
set -uo pipefail
allowed=${SPILLS_ALLOWED:-$(dirname "$0")/spills.allowed}
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
about_kernels='^(ptxas info|    [0-9]+ bytes stack)'
if [[ $object == *.o ]]; then
  grep -E "$about_kernels" "$said" >"$object.ptxas"
fi
grep -vE "$about_kernels" "$said" >&2
if ((status != 0)); then exit $status; fi

awk -v object="$object" '
  BEGIN { n = 0 }
  NR == FNR {
    if ($0 !~ /^#/ && NF == 3) { name[n] = $1; arch[n] = $2; bytes[n] = $3; n++ }
    next
  }
  /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2]; target = quoted[4] }
  /bytes spill stores/ {
    spilled = limit = 0
    for (i = 3; i <= NF; i++) if ($i == "spill" && $(i - 2) + 0 > spilled) spilled = $(i - 2) + 0
    for (i = 0; i < n; i++) if (kernel ~ name[i] && target == arch[i]) limit = bytes[i] + 0
    if (spilled > limit) {
      printf "%s: %s for %s spills %d bytes, may spill %d: use fewer registers, or say why not in " \
             "cmake/spills.allowed\n", object, kernel, target, spilled, limit > "/dev/stderr"
      failed = 1
    }
  }
  /Potential Performance Loss/ { print object ": " $0 > "/dev/stderr"; failed = 1 }
  END { exit failed }
' "$allowed" "$said" || { rm -f "$object"; exit 1; }
