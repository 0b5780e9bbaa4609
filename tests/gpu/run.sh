#!/usr/bin/env bash
# tests/gpu/run.sh [--stages a,b] [PACK]: what only a GPU can show.
# With PACK (tests/gpu/pack.sh) its programs are run; without it they are built here, which needs the
# packages of tools/install_deps.sh (gRPC only where it is found).
#   conformance   every op against its reference on cuda:0, models and engine on top of them
#   decode prefill movement   kernels beside the ceilings of the same minute (cuda_kernel_bench)
#   ceilings      those alone
#   model         a whole model of random weights in Qwen3-8B's shape
#   transfer      KV from one process to another on the GPU, beside bare copies (transfer_bench)
#   sdpa          the library's attention at the same shapes (where torch is there)
#   memcheck      compute-sanitizer's memcheck and initcheck over small cases of the same tests
#   racecheck     its racecheck and synccheck over them (sanitizer_runs.sh)
# Results go to ${OUT:-build/gpu_results} as STAGE.json. A table of the stages comes last, each
#   passed    everything ran, and no target was missed
#   missed    a row of a bench missed its target; the rows are named
#   timeout   a program ran out of its time: what it would have shown is not shown
#   failed    a program failed, a result was wrong, or no test or no target was found
#   skipped   what it needs is not on this machine, and why
# A stage that ends otherwise than passed does not stop the rest. Targets are those of an H200; what
# memory bounds is asked less of on a GPU whose memory is slower, and the table says so. DEADLINE in
# the environment ends all of them that many seconds after the start. A lent machine gives ten minutes
# and eight files per call: three calls, each with OUT=$OUT DEADLINE=530 before it (a variable that is
# not exported there is not seen here),
#   --stages conformance,decode,prefill,movement,model,transfer,sdpa
#   --stages memcheck
#   --stages racecheck
# Exit status: 0 all passed or were skipped, 1 some were not, 2 wrong usage, 3 no GPU: nothing could
# be run.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/gpu/programs.sh
source tests/gpu/sanitizer_runs.sh

ALL=conformance,decode,prefill,movement,model,transfer,sdpa,memcheck,racecheck
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
  local left=$((${DEADLINE:-100000} - SECONDS))
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
  if [[ $2 == failed || $2 == timeout || $2 == missed ]]; then failed=1; fi
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

# ended_in LOG: the tests of a program that came to their end while it had the device, a line each;
# then, marked by a leading "!", the one in which it died, hung or lost the device.
ended_in() {
  awk '/^\[ RUN / {run = $4; next}
    run != "" && /the device has failed/ {exit}
    /^\[ *(OK|FAILED|SKIPPED) +\] / && run != "" {print run; run = ""}
    END {if (run != "") print "!" run}' "$1"
}

# test_on_device LIMIT NAME FILTER [TOOL...]: runs one program, under a tool where one is given, and
# keeps its entry. Where it died, hung or lost the device, what it had not come to is run anew, since
# one fault must not hide the others; not under a tool, and not for ever.
# Adds to ALL_TESTS, BAD (the worst exit status) and NOT_SHOWN (what did not pass).
test_on_device() {
  local seconds=$1 name=$2 filter=$3 begin=$SECONDS log=$LOGS/test.log xml=$LOGS/test.xml bad=$LOGS/bad.log
  local round one tests ended where rc=0 all=0 lost=
  shift 3
  local title=$name
  if (($#)); then title="$3 $name $filter"; fi
  : >"$bad"
  for round in 1 2 3 4; do
    one=0
    rm -f "$xml"
    TANDEM_TEST_DEVICE=cuda:0 timeout -k 5 "$(limit "$seconds")" "$@" "${LOADER[@]}" "$BIN/$name" \
      --gtest_filter="$filter" --gtest_output="xml:$xml" >"$log" 2>&1 || one=$?
    tests=$(sed -n 's/.*<testsuites tests="\([0-9]*\)".*/\1/p' "$xml" 2>/dev/null | head -1)
    tests=${tests:-0}
    # A program that finds no test on the device has shown nothing.
    if ((round == 1 && one == 0 && tests == 0)); then
      one=1
      echo "no test of $filter is in $name" >>"$log"
    fi
    if ((one == 0)); then break; fi
    rc=$(worse "$rc" $one)
    mapfile -t ended < <(ended_in "$log")
    where=
    if ((${#ended[@]})) && [[ ${ended[-1]} == !* ]]; then where=${ended[-1]#!}; fi
    echo "---- $title: rc $one${where:+, lost in $where}" && said "$log" 15
    { cat "$log" && echo "rc $one"; } >>"$bad"
    if [[ -z $where ]] || (($# || $(limit 20) < 20)); then break; fi
    lost+=", lost in $where"
    all=$((all + ${#ended[@]})) tests=0 seconds=$((seconds < 45 ? seconds : 45))
    if [[ $filter != *-* ]]; then filter+=-; else filter+=:; fi
    filter+=$(IFS=: && echo "${ended[*]#!}")
  done
  if ((rc != 0)); then NOT_SHOWN+="; $(verdict_of $rc): $title$lost"; fi
  if [[ -n $lost ]]; then xml=; fi  # of the last round alone
  BAD=$(worse "$BAD" $rc)
  ALL_TESTS=$((ALL_TESTS + all + tests))
  ENTRIES+=("$(entry "$title$lost" $rc $((SECONDS - begin)) "$bad" "$xml")")
}

# The programs of a stage come between these two.
begin_tests() {
  ENTRIES=() BAD=0 ALL_TESTS=0 NOT_SHOWN='' STAGE_START=$SECONDS
}
end_tests() {
  write_stage "$1.json" "${ENTRIES[@]}"
  note "$1" "$(verdict_of "$BAD")" $((SECONDS - STAGE_START)) \
    "$ALL_TESTS tests of ${#ENTRIES[@]} runs$NOT_SHOWN"
}

conformance() {
  begin_tests
  for name in "${OPS_TESTS[@]}"; do test_on_device 90 "$name" '*/cuda_0*'; done
  # NCCL refuses two ranks on one GPU.
  for name in "${DEVICE_TESTS[@]}"; do test_on_device 90 "$name" '-*/nccl*'; done
  end_tests conformance
}

# sanitizer STAGE LINE...: lines of sanitizer_runs.sh.
sanitizer() {
  local stage=$1 tool_path tool seconds name filter options
  shift
  tool_path=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [[ ! -x $tool_path ]]; then
    note "$stage" skipped 0 "no compute-sanitizer on this machine"
    return
  fi
  begin_tests
  for line in "$@"; do
    read -r tool seconds name filter <<<"$line"
    # What a call of the driver returns is looked at here; what the machine cannot share is asked of it.
    options=(--launch-timeout 60)
    if [[ $tool == memcheck ]]; then options+=(--report-api-errors no); fi
    test_on_device "$seconds" "$name" "$filter" \
      "$tool_path" --tool "$tool" --error-exitcode 9 --target-processes all "${options[@]}"
  done
  end_tests "$stage"
}

# rows_that VERDICT FILE: those rows of a bench, a line each.
rows_that() {
  awk -F'"' -v verdict="\"verdict\": \"$1\"" '
    /^ *"(op|shape|variant|way|load)": "/ {field[$2] = $4}
    index($0, verdict) {hit = 1}
    /^ *}/ {
      if (hit) {
        row = field["op"] " " field["shape"] " " field["variant"] " " field["way"] " " field["load"]
        gsub(/^ +| +$/, "", row)
        print row
      }
      hit = 0
      split("", field)
    }' "$2" 2>/dev/null
}

# measure STAGE LIMIT PROGRAM ARG...: a bench that writes STAGE.json itself.
measure() {
  local stage=$1 seconds=$2 rc=0 start=$SECONDS counts=
  shift 2
  echo "==== $stage"
  rm -f "$OUT/$stage.json"
  timeout -k 5 "$(limit "$seconds")" "${LOADER[@]}" "$BIN/$1" "${@:2}" --commit "$COMMIT" \
    --json "$OUT/$stage.json" 2>&1 | tee "$LOGS/$stage.log"
  rc=${PIPESTATUS[0]}
  local words= all=0 verdict status row rows
  for verdict in met near missed wrong; do
    mapfile -t rows < <(rows_that $verdict "$OUT/$stage.json")
    counts+=", ${#rows[@]} $verdict"
    all=$((all + ${#rows[@]}))
    if [[ $verdict == missed || $verdict == wrong ]]; then
      for row in "${rows[@]}"; do words+="; $verdict: $row"; done
    fi
  done
  status=$(verdict_of "$rc")
  if [[ $status == passed && $words == *"; missed: "* ]]; then status=missed; fi
  if [[ $status != timeout && $words == *"; wrong: "* ]]; then status=failed; fi
  # Only the ceilings have no targets; a bench that measured none of its own has shown nothing.
  if [[ $status == passed && $all == 0 && $stage != ceilings ]]; then status=failed; fi
  local scaled
  scaled=$(sed -n 's/^ "scaled_limits": "\(.*\)",*$/\1/p' "$OUT/$stage.json" 2>/dev/null)
  note "$stage" "$status" $((SECONDS - start)) "targets: ${counts#, }${scaled:+; scaled: $scaled}$words"
}

sdpa() {
  local rc=0 start=$SECONDS
  echo "==== sdpa"
  LD_LIBRARY_PATH=$PYTHON_LIBRARY_PATH timeout -k 5 "$(limit 120)" python3 bench/sdpa_baseline.py \
    --json "$OUT/sdpa.json" --commit "$COMMIT" 2>&1 | tee "$LOGS/sdpa.log"
  rc=${PIPESTATUS[0]}
  if ((rc == 77)); then
    note sdpa skipped $((SECONDS - start)) "$(tail -n 1 "$LOGS/sdpa.log")"
  else
    note sdpa "$(verdict_of "$rc")" $((SECONDS - start)) ""
  fi
}

# A first use of the GPU, at which the driver and the libraries are read from the disk.
start_of_all() {
  timeout -k 5 "$(limit 120)" "${LOADER[@]}" "$BIN/cuda_kernel_bench" --sections none --filter none \
    --scale 0.001 2>&1
}

MACHINE=$(facts_of_machine)
echo "$MACHINE"
if ! problem=$(start_of_all); then
  if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "run.sh: skipped, no GPU: $(tail -n 1 <<<"$problem")"
    exit 3
  fi
  echo "run.sh: the GPU cannot be used as it should be, the stages go on: $(tail -n 1 <<<"$problem")"
  note start failed 0 "$(tail -n 1 <<<"$problem" | cut -c1-400)"
fi

for stage in ${stages//,/ }; do
  case $stage in
    conformance) conformance ;;
    memcheck) sanitizer memcheck "${MEMCHECK[@]}" ;;
    racecheck) sanitizer racecheck "${RACECHECK[@]}" ;;
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
