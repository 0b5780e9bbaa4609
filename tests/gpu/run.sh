#!/usr/bin/env bash
# tests/gpu/run.sh [--stages a,b] [PACK]: what only a GPU can show, in at most nine minutes.
# With PACK (tests/gpu/pack.sh) its programs are run; without it they are built here, which needs the
# packages of tools/install_deps.sh (gRPC only where it is found).
#   conformance   every op against its reference on cuda:0, models and engine on top of them
#   decode prefill movement   kernels beside the ceilings of the same minute (cuda_kernel_bench)
#   ceilings      those alone
#   model         a whole model of random weights in Qwen3-8B's shape
#   transfer      KV from one process to another on the GPU, beside bare copies (transfer_bench)
#   sdpa          the library's attention at the same shapes (where torch is there)
#   sanitizer     memcheck, racecheck, synccheck and initcheck over small cases of the same tests
# Results go to ${OUT:-build/gpu_results} as STAGE.json: eight files, which is as many as a lent
# machine gives back (so facts about the machine are in those of conformance and sanitizer). A table
# of the stages comes last. A stage that fails or runs out of its time does not stop the rest;
# DEADLINE in the environment is that of all together, in seconds (530).
# All stages take more than that where something is slow or hangs, and the sanitizer comes last: with
# two calls, give one of them conformance,sanitizer.
# Exit status: 0 all passed, 1 some failed, 2 wrong usage, 3 no GPU: nothing could be run.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/gpu/programs.sh

ALL=conformance,decode,prefill,movement,model,transfer,sdpa,sanitizer
stages=$ALL
if [[ ${1:-} == --stages ]]; then
  stages=${2:?--stages needs a list}
  shift 2
fi
if (($# > 1)); then
  echo "usage: tests/gpu/run.sh [--stages $ALL,ceilings] [PACK]" >&2
  exit 2
fi
for stage in ${stages//,/ }; do
  if [[ ,$ALL,ceilings, != *,$stage,* ]]; then
    echo "run.sh: no stage $stage: $ALL,ceilings" >&2
    exit 2
  fi
done
OUT=${OUT:-build/gpu_results}
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || exit 2
LOGS=$(mktemp -d "${TMPDIR:-/tmp}/gpu_run.XXXXXX")
trap 'rm -rf "$LOGS" "${UNPACKED:-}"' EXIT
use_programs "${1:-}" || { echo "run.sh: no programs to run" >&2; exit 1; }
DATE=$(date -u +%Y-%m-%dT%H:%M:%SZ)
TABLE=()
failed=0
SECONDS=0

# limit SECONDS: as much of it as is left of the whole run; at least a second, to fail in.
limit() {
  local left=$((${DEADLINE:-530} - SECONDS))
  if ((left > $1)); then left=$1; fi
  echo $((left > 0 ? left : 1))
}

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader -i 0 2>/dev/null | head -1; }

facts_of_machine() {
  local nvcc
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  printf '{"gpu": %s, "driver": %s, "memory": %s, "sm_clock": %s, "power_limit": %s,\n' \
    "$(json_string "$(smi name)")" "$(json_string "$(smi driver_version)")" \
    "$(json_string "$(smi memory.total)")" "$(json_string "$(smi clocks.sm)")" \
    "$(json_string "$(smi power.limit)")"
  printf ' "nvcc": %s, "kernel": %s, "libc": %s, "cores": %s}\n' \
    "$(json_string "$("$nvcc" --version 2>/dev/null | sed -n 's/.*release //p')")" \
    "$(json_string "$(uname -r)")" "$(json_string "$(ldd --version 2>/dev/null | head -1)")" \
    "$(nproc)"
}

# note STAGE STATUS SECONDS WORDS
note() {
  TABLE+=("$(printf '%-12s %-8s %5s s  %s' "$1" "$2" "$3" "$4")")
  if [[ $2 == failed || $2 == timeout ]]; then failed=1; fi
}

verdict_of() {
  case $1 in
    0) echo passed ;;
    124 | 137) echo timeout ;;
    *) echo failed ;;
  esac
}

# said LOG LINES: the end of it, without what each start of the backend says and without tests that
# passed; of one that hung there is the line with its name.
said() {
  grep -vE '\[info\]|^Running main' "$1" |
    awk '/^\[ RUN /{run = $0; next} /^\[  *OK /{run = ""; next} run != ""{print run; run = ""} {print}
         END{if (run != "") print run}' |
    tail -n "$2" | cut -c1-400
}

# How one program ended, as an element of a JSON array: NAME RC SECONDS LOG [XML].
entry() {
  local counts=
  if [[ -s ${5:-} ]]; then
    counts=$(sed -n 's/.*<testsuites tests="\([0-9]*\)" failures="\([0-9]*\)" disabled="[0-9]*" errors="\([0-9]*\)".*/"tests": \1, "failures": \2, "errors": \3, /p' "$5" | head -1)
  fi
  printf '  {"program": %s, "rc": %s, "seconds": %s, %s"log_tail": %s}' "$(json_string "$1")" "$2" "$3" \
    "$counts" "$(json_string "$(if (($2 != 0)); then said "$4" 40 | tail -c 4000; fi)")"
}

# write_stage FILE ENTRY...
write_stage() {
  local file=$1
  shift
  {
    printf '{"date": "%s", "commit": "%s", "machine": %s, "results": [\n' "$DATE" "$COMMIT" "$MACHINE"
    local comma=
    for each in "$@"; do
      printf '%s%s' "$comma" "$each"
      comma=$',\n'
    done
    printf '\n]}\n'
  } >"$OUT/$file"
}

# worse A B: of two exit statuses; a failure is worse than running out of time.
worse() {
  if (($1 != 0 && $1 != 124 && $1 != 137)) || (($2 == 0)); then echo "$1"; else echo "$2"; fi
}

# test_on_device NAME LIMIT FILTER: runs one program, keeps its entry; sets RC and TESTS.
ENTRIES=()
test_on_device() {
  local name=$1 begin=$SECONDS
  RC=0
  TANDEM_TEST_DEVICE=cuda:0 timeout -k 5 "$(limit "$2")" "${LOADER[@]}" "$BIN/$name" \
    --gtest_filter="$3" --gtest_output="xml:$LOGS/$name.xml" \
    >"$LOGS/$name.log" 2>&1 || RC=$?
  if ((RC != 0)); then echo "---- $name: rc $RC" && said "$LOGS/$name.log" 15; fi
  TESTS=$(sed -n 's/.*<testsuites tests="\([0-9]*\)".*/\1/p' "$LOGS/$name.xml" 2>/dev/null | head -1)
  TESTS=${TESTS:-0}
  ENTRIES+=("$(entry "$name" $RC $((SECONDS - begin)) "$LOGS/$name.log" "$LOGS/$name.xml")")
}

conformance() {
  local bad=0 tests=0 start=$SECONDS
  ENTRIES=()
  for name in "${OPS_TESTS[@]}"; do
    test_on_device "$name" 60 '*/cuda_0*'
    # A program that finds no test on the device has shown nothing.
    if ((RC == 0 && TESTS == 0)); then RC=1; fi
    bad=$(worse $bad $RC)
    tests=$((tests + TESTS))
  done
  for name in "${DEVICE_TESTS[@]}"; do
    test_on_device "$name" 90 '-*/nccl*'  # NCCL refuses two ranks on one GPU
    bad=$(worse $bad $RC)
    tests=$((tests + TESTS))
  done
  write_stage conformance.json "${ENTRIES[@]}"
  note conformance "$(verdict_of $bad)" $((SECONDS - start)) "$tests tests of ${#ENTRIES[@]} programs"
}

# Small cases: every launch runs tens of times slower here. Tool, limit, program, tests.
ATTENTION='*EveryGroupSize/cuda_0:*EveryBlockSizeAndEdge/cuda_0:*WithoutContext*/cuda_0'
EXTENTS='*OneSideMayBeginAnywhere/cuda_0:*AroundWhatIsMovedInOneGo/cuda_0'
SANITIZER=("memcheck 30 device_extents_test $EXTENTS" "racecheck 30 device_extents_test $EXTENTS"
  "memcheck 40 ops_test */cuda_0*" "memcheck 30 ops_kv_test */cuda_0*"
  "memcheck 30 ops_rows_test */cuda_0*" "memcheck 40 ops_sample_test */cuda_0*"
  "memcheck 50 ops_attention_test $ATTENTION" "memcheck 30 ops_attention_mass_test *BlockSize/cuda_0"
  "racecheck 50 ops_attention_test $ATTENTION" "racecheck 30 ops_attention_mass_test *BlockSize/cuda_0"
  "racecheck 30 ops_test */cuda_0*" "racecheck 30 ops_sample_test */cuda_0*"
  "synccheck 30 ops_attention_test $ATTENTION" "initcheck 30 ops_attention_test *EveryGroupSize/cuda_0")

sanitizer() {
  local tool_path entries=() bad=0 start=$SECONDS
  tool_path=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [[ ! -x $tool_path ]]; then
    note sanitizer skipped 0 "no compute-sanitizer on this machine"
    return
  fi
  for line in "${SANITIZER[@]}"; do
    read -r tool seconds name filter <<<"$line"
    local begin=$SECONDS rc=0
    timeout -k 5 "$(limit "$seconds")" "$tool_path" --tool "$tool" --error-exitcode 9 --target-processes all \
      "${LOADER[@]}" "$BIN/$name" --gtest_filter="$filter" \
      >"$LOGS/$tool.log" 2>&1 || rc=$?
    if ((rc != 0)); then
      # Out of time with nothing found is not a finding.
      if ((rc != 124 && rc != 137)); then bad=$rc; fi
      echo "---- $tool $name: rc $rc" && said "$LOGS/$tool.log" 12
    fi
    entries+=("$(entry "$tool $name $filter" $rc $((SECONDS - begin)) "$LOGS/$tool.log")")
  done
  write_stage sanitizer.json "${entries[@]}"
  note sanitizer "$(verdict_of $bad)" $((SECONDS - start)) "${#entries[@]} runs"
}

# measure STAGE LIMIT PROGRAM ARG...: a bench that writes STAGE.json itself.
measure() {
  local stage=$1 seconds=$2 rc=0 start=$SECONDS
  shift 2
  echo "==== $stage"
  timeout -k 5 "$(limit "$seconds")" "${LOADER[@]}" "$BIN/$1" "${@:2}" --commit "$COMMIT" \
    --json "$OUT/$stage.json" 2>&1 | tee "$LOGS/$stage.log"
  rc=${PIPESTATUS[0]}
  local words= verdict
  for verdict in met near missed wrong; do
    words+=", $(grep -c "\"verdict\": \"$verdict\"" "$OUT/$stage.json" 2>/dev/null) $verdict"
  done
  note "$stage" "$(verdict_of "$rc")" $((SECONDS - start)) "targets: ${words#, }"
}

sdpa() {
  local rc=0 start=$SECONDS script=$ROOT/bench/sdpa_baseline.py
  if [[ ! -e $script ]]; then script=tools/sdpa_baseline.py; fi
  echo "==== sdpa"
  LD_LIBRARY_PATH=$PYTHON_LIBRARY_PATH timeout -k 5 "$(limit 80)" python3 "$script" --json "$OUT/sdpa.json" --commit "$COMMIT" 2>&1 |
    tee "$LOGS/sdpa.log"
  rc=${PIPESTATUS[0]}
  if ((rc == 77)); then
    note sdpa skipped $((SECONDS - start)) "$(tail -n 1 "$LOGS/sdpa.log")"
  else
    note sdpa "$(verdict_of "$rc")" $((SECONDS - start)) ""
  fi
}

MACHINE=$(facts_of_machine)
echo "$MACHINE"
if ! problem=$(program cuda_kernel_bench --sections none --filter none --scale 0.001 2>&1); then
  if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "run.sh: skipped, no GPU: $(tail -n 1 <<<"$problem")"
    exit 3
  fi
  echo "run.sh: the GPU cannot be used: $(tail -n 1 <<<"$problem")"
  exit 1
fi

for stage in ${stages//,/ }; do
  case $stage in
    conformance) conformance ;;
    sanitizer) sanitizer ;;
    ceilings) measure ceilings 30 cuda_kernel_bench --sections ceilings ;;
    decode) measure decode 120 cuda_kernel_bench --sections decode ;;
    prefill) measure prefill 60 cuda_kernel_bench --sections prefill ;;
    movement) measure movement 80 cuda_kernel_bench --sections movement,small,gemm,sampling ;;
    model) measure model 100 cuda_model_bench --shape qwen3-8b ;;
    transfer) measure transfer 60 transfer_bench --device cuda:0 --repeats 5 --machine "$(smi name)" ;;
    sdpa) sdpa ;;
  esac
done
echo
echo "==== $COMMIT on $(smi name), $DATE, ${SECONDS} s; results in $OUT"
printf '%s\n' "${TABLE[@]}"
exit $failed
