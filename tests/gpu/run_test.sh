#!/usr/bin/env bash
# run_test.sh RUN: what RUN (tests/gpu/run.sh) makes of programs that pass, fail, take too long, find
# no test or miss a target. All of them are stand-ins in a pack of their own; so is nvidia-smi.
set -euo pipefail
run=$1
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
pack=$home/pack
mkdir -p "$pack/bin" "$home/path"
echo abc >"$pack/COMMIT"
export PATH=$home/path:$PATH FAKES=$home OUT=$home/out

fail() {
  echo "FAILED: $*" >&2
  cat "$home/output" >&2
  exit 1
}

# A test program: $FAKES/tests says how many tests it finds, $FAKES/rc.NAME how it ends. It dies in
# the first of the tests in $FAKES/deadly.NAME that it is not told to leave out.
cat >"$pack/bin/test" <<'END'
#!/usr/bin/env bash
name=${0##*/}
echo "[ RUN      ] Suite.First/cuda_0"
echo "[       OK ] Suite.First/cuda_0 (1 ms)"
for deadly in $(cat "$FAKES/deadly.$name" 2>/dev/null); do
  if [[ "$*" == *-*Suite.First/cuda_0:*$deadly* ]]; then continue; fi
  echo "[ RUN      ] $deadly"
  if [[ $deadly != *Lost* ]]; then exit 134; fi
  echo "rope: the device has failed, by this or an earlier call; restart the process"
  echo "[  FAILED  ] $deadly (1 ms)"
  echo "[ RUN      ] Suite.Next/cuda_0"
  echo "[  FAILED  ] Suite.Next/cuda_0 (1 ms)"
  exit 1
done
for flag in "$@"; do
  if [[ $flag == --gtest_output=xml:* ]]; then
    echo "<testsuites tests=\"$(cat "$FAKES/tests")\" failures=\"0\" disabled=\"0\" errors=\"0\">" >"${flag#*xml:}"
  fi
done
exit "$(cat "$FAKES/rc.$name" 2>/dev/null || echo 0)"
END
# A bench: writes $FAKES/report where it is told to, and ends as $FAKES/rc.NAME says.
cat >"$pack/bin/bench" <<'END'
#!/usr/bin/env bash
name=${0##*/}
if [[ $1 == --none ]]; then echo "$name: no such flag"; exit 2; fi
while (($# > 1)); do
  if [[ $1 == --json ]]; then cp "$FAKES/report" "$2"; fi
  shift
done
exit "$(cat "$FAKES/rc.$name" 2>/dev/null || echo 0)"
END
# compute-sanitizer: runs the program; $FAKES/rc.TOOL stands for what the tool itself finds.
cat >"$home/path/compute-sanitizer" <<'END'
#!/usr/bin/env bash
tool=$2
while [[ $1 == -* ]]; do shift 2; done
echo "$tool ${1##*/} $*" >>"$FAKES/sanitized"
"$@" || exit $?
exit "$(cat "$FAKES/rc.$tool" 2>/dev/null || echo 0)"
END
printf '#!/bin/sh\necho made-up GPU\n' >"$home/path/nvidia-smi"
source "$(dirname "$run")/programs.sh"
for name in "${OPS_TESTS[@]}" "${DEVICE_TESTS[@]}"; do cp "$pack/bin/test" "$pack/bin/$name"; done
for name in "${BENCHES[@]}"; do cp "$pack/bin/bench" "$pack/bin/$name"; done
chmod +x "$pack"/bin/* "$home"/path/*
echo 7 >"$home/tests"

row() {  # row VERDICT: of a bench's report, as it is indented there
  printf '  {\n   "op": "attention_decode",\n   "section": "decode",\n   "shape": "8 x 16384, 32/8 heads of 128",\n'
  printf '   "variant": "%s row",\n   "verdict": "%s"\n  }' "$1" "$1"
}
report() {  # report VERDICT...
  {
    printf '{\n "ceilings": {\n  "read_tbytes_per_s": 4.4\n },\n "results": [\n'
    local comma=
    for verdict in "$@"; do
      printf '%s' "$comma"
      row "$verdict"
      comma=$',\n'
    done
    printf '\n ]\n}\n'
  } >"$home/report"
}

# runs STAGES STATUS: the table is then in $home/output.
runs() {
  local status=0
  rm -f "$home/sanitized"
  "$run" --stages "$1" "$pack" >"$home/output" 2>&1 || status=$?
  [[ $status == "$2" ]] || fail "$1 ends with $status, not $2"
}
# says STAGE STATUS [TEXT]: in the table.
says() {
  local line
  line=$(grep -E "^$1 +$2 " "$home/output") || fail "$1 is not $2"
  [[ $line == *"${3:-}"* ]] || fail "no '$3' in: $line"
}
ends() { echo "$2" >"$home/rc.$1"; }
forget() { rm -f "$home"/rc.* "$home"/deadly.*; }

report met near
runs conformance,decode,memcheck,racecheck 0
says conformance passed "$((7 * (${#OPS_TESTS[@]} + ${#DEVICE_TESTS[@]}))) tests of"
says decode passed "1 met, 1 near, 0 missed, 0 wrong"
says memcheck passed
says racecheck passed
for tool in memcheck initcheck racecheck synccheck; do
  grep -q "^$tool ops_attention_test .*gtest_filter=\*" "$home/sanitized" || fail "no $tool of attention"
done
grep -q '"machine": {"gpu": "made-up GPU"' "$OUT/memcheck.json" || fail "no machine in memcheck.json"

# Out of time, a finding, no tests.
ends racecheck 124
runs memcheck,racecheck 1
says memcheck passed
says racecheck timeout "timeout: racecheck ops_attention_test *WithWindows/cuda_0"
ends memcheck 9
runs memcheck,racecheck 1
says memcheck failed "failed: memcheck ops_kv_test"
ends ops_rows_test 124  # a failure beside it is the worse
runs memcheck 1
says memcheck failed "timeout: memcheck ops_rows_test"
forget
echo 0 >"$home/tests"
runs conformance,memcheck 1
says conformance failed "failed: engine_device_test"
says memcheck failed
echo 7 >"$home/tests"
ends model_device_test 137
runs conformance 1
says conformance timeout "timeout: model_device_test"
forget

# What comes behind a fault is run without it, and shown, but under a tool.
echo "Suite.Dead/cuda_0 Suite.Lost/cuda_0" >"$home/deadly.ops_kv_test"
runs conformance,memcheck 1
says conformance failed "; failed: ops_kv_test, lost in Suite.Dead/cuda_0, lost in Suite.Lost/cuda_0"
says conformance failed "$((7 * (${#OPS_TESTS[@]} + ${#DEVICE_TESTS[@]}) + 4)) tests of"
says memcheck failed "failed: memcheck ops_kv_test"
[[ $(grep -c "^memcheck ops_kv_test" "$home/sanitized") == 1 ]] || fail "memcheck ran again"
if command -v python3 >/dev/null; then
  python3 -m json.tool "$OUT/conformance.json" >/dev/null || fail "conformance.json is no JSON"
  grep -q '"program": "ops_kv_test, lost in Suite.Dead/cuda_0, lost in .*"rc": [1-9].*RUN .*Suite.Dead' "$OUT/conformance.json" ||
    fail "what was lost is not in conformance.json"
fi
forget

# Targets.
report met near missed
runs decode 1
says decode missed "1 met, 1 near, 1 missed, 0 wrong; missed: attention_decode 8 x 16384, 32/8 heads of 128 missed row"
report met wrong missed
runs decode 1
says decode failed "wrong: attention_decode 8 x 16384, 32/8 heads of 128 wrong row"
ends cuda_kernel_bench 1
report met
"$run" --stages decode "$pack" >"$home/output" 2>&1 && fail "a device that cannot be used passes"
grep -q "the GPU cannot be used" "$home/output" || fail "why the device cannot be used"
says start failed
says decode failed
forget
ends cuda_model_bench 124
runs model 1
says model timeout
forget
report met
{ echo '{'; echo ' "scaled_limits": "those of a GPU",'; tail -n +2 "$home/report"; } >"$home/scaled"
mv "$home/scaled" "$home/report"
runs decode 0
says decode passed "0 wrong; scaled: those of a GPU"
report
runs decode,ceilings 1
says decode failed "0 met"
says ceilings passed
printf '{\n "targets": [\n  {\n   "load": "prompt",\n   "verdict": "missed",\n   "way": "ipc"\n  }\n ]\n}\n' >"$home/report"
runs transfer 1
says transfer missed "missed: ipc prompt"

status=0
"$run" --stages sanitizer "$pack" >"$home/output" 2>&1 || status=$?
[[ $status == 2 ]] || fail "a stage that does not exist: $status"
echo passed
