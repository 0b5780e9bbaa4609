#!/usr/bin/env bash
# tests/gpu/daemon.sh [--models sample,8b] [PACK]: the whole daemon on a GPU: a router and workers
# with --device cuda:0, asked by `tandem generate`.
#   sample   models/sample: the greedy tokens must be those of --device cpu, over 64 steps, of a
#            unified worker and of a prefill and a decode worker that share the GPU, whose KV goes
#            from memory to memory, through shared memory and through TCP. Through NCCL, too, where
#            there is one: a rehearsal, since it takes two ranks on one GPU only when they name two
#            hosts, and promises nothing then. Its outcome is recorded and decides nothing
#   8b       random weights in the shape of Qwen3-8B, made here (needs python3 with numpy, 17 GB of
#            disk and some minutes): time to ready, to the first token and per token
# PACK as for run.sh. DEVICE in the environment replaces cuda:0. Writes ${OUT:-build/gpu_results}/
# daemon.json. Exit status: 0 all as it must be, 1 not, 2 wrong usage.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/gpu/programs.sh
models=sample
if [[ ${1:-} == --models ]]; then
  models=${2:?--models needs a list}
  shift 2
fi
if (($# > 1)); then
  echo "usage: tests/gpu/daemon.sh [--models sample,8b] [PACK]" >&2
  exit 2
fi
DEVICE=${DEVICE:-cuda:0}
OUT=${OUT:-build/gpu_results}
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || exit 2
WORK=$(mktemp -d "${TMPDIR:-/tmp}/gpu_daemon.XXXXXX")
PIDS=()
stop() {
  for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null; done
  PIDS=()
}
trap 'stop; rm -rf "$WORK" "${UNPACKED:-}"' EXIT
use_programs "${1:-}" || { echo "daemon.sh: no programs to run" >&2; exit 1; }
if [[ ! -x $BIN/tandem ]]; then
  echo "daemon.sh: no $BIN/tandem: it needs gRPC to be built; give a pack" >&2
  exit 1
fi
PROMPTS=("It is a truth universally acknowledged" "It was a fine morning, and the ladies" "My dear Jane"
  "The whole party were assembled, when")
TOKENS=64
ENTRIES=()
failed=0

# start MODEL DEVICE ROLES FLAG...: a worker per word of ROLES. Sets SERVER and READY_MS, or fails
# with the last lines of the workers.
start() {
  local model=$1 device=$2 roles=$3 begin port role
  shift 3
  begin=$(date +%s%N)
  "${LOADER[@]}" "$BIN/tandem" router --model "$model" --port 0 >"$WORK/router.log" 2>&1 &
  PIDS+=($!)
  for _ in {1..600}; do
    port=$(sed -n 's/.*router ready address=127.0.0.1:\([0-9]*\).*/\1/p' "$WORK/router.log")
    if [[ -n $port ]] || ! kill -0 "${PIDS[-1]}" 2>/dev/null; then break; fi
    sleep 0.05
  done
  if [[ -z $port ]]; then
    echo "router: $(tail -n 1 "$WORK/router.log")"
    stop
    return 1
  fi
  SERVER=127.0.0.1:$port
  for role in $roles; do
    NCCL_HOSTID=tandem-$role "${LOADER[@]}" "$BIN/tandem" worker --role "$role" --model "$model" \
      --router "$SERVER" --device "$device" "$@" >"$WORK/worker.$role.log" 2>&1 &
    PIDS+=($!)
  done
  local patience=$((SECONDS + 180))
  while ((SECONDS < patience)); do
    if program tandem status --server "$SERVER" >/dev/null 2>&1; then
      READY_MS=$((($(date +%s%N) - begin) / 1000000))
      return 0
    fi
    if ! kill -0 "${PIDS[-1]}" 2>/dev/null; then break; fi
    sleep 0.1
  done
  for role in $roles; do
    echo "$role worker on $device: $(tail -n 1 "$WORK/worker.$role.log")"
  done
  stop
  return 1
}

# ask PROMPT TOKENS: the answer as JSON, greedy.
ask() {
  timeout "${PATIENCE:-120}" "${LOADER[@]}" "$BIN/tandem" generate "$1" --server "$SERVER" --max-tokens "$2" \
    --temperature 0 --ignore-eos --json
}

# tokens_of and number_of NAME: out of an answer on stdin.
tokens_of() { sed -n 's/^[^[]*"token_ids":\[\([0-9,]*\)\].*/\1/p'; }
number_of() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }

# answer_sample NAME DEVICE ROLES FLAG...: the answers to all prompts, as $WORK/NAME.*.json.
answer_sample() {
  local name=$1
  shift
  start models/sample "$@" || return 1
  for i in "${!PROMPTS[@]}"; do
    ask "${PROMPTS[i]}" $TOKENS >"$WORK/$name.$i.json" || { stop; return 1; }
  done
  stop
}

# compare_with_cpu NAME: whether the answers of that name are those of the CPU.
compare_with_cpu() {
  local name=$1 equal=0 gpu cpu
  for i in "${!PROMPTS[@]}"; do
    gpu=$(tokens_of <"$WORK/$name.$i.json")
    cpu=$(tokens_of <"$WORK/cpu.$i.json")
    if [[ -n $gpu && $gpu == "$cpu" ]]; then
      equal=$((equal + 1))
    else
      echo "differs after ${PROMPTS[i]}:"
      printf '  %-7s %s\n' "$name" "$gpu" cpu "$cpu"
    fi
  done
  ENTRIES+=("$(printf '{"model": "sample", "workers": "%s", "steps": %d, "prompts": %d, "equal": %d}' \
    "$name" $TOKENS ${#PROMPTS[@]} $equal)")
  echo "sample, $name: $equal of ${#PROMPTS[@]} answers of $TOKENS greedy tokens equal those of the CPU"
  ((equal == ${#PROMPTS[@]}))
}

rehearse_nccl() {
  local -x NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0 NCCL_DEBUG=WARN
  local PATIENCE=30
  answer_sample handed-over-by-nccl "$DEVICE" "prefill decode" --device-memory-fraction 0.45 \
    --kv-transport nccl && compare_with_cpu handed-over-by-nccl && return
  tail -n 3 "$WORK"/worker.*.log
  ENTRIES+=('{"model": "sample", "workers": "handed-over-by-nccl", "rehearsal": "failed"}')
  echo "sample, handed-over-by-nccl: not on one GPU; this decides nothing"
}

compare_sample() {
  local wrong=0 transport
  answer_sample cpu cpu unified || return 1
  answer_sample unified "$DEVICE" unified && compare_with_cpu unified || wrong=1
  for transport in ipc shm tcp; do
    answer_sample "handed-over-by-$transport" "$DEVICE" "prefill decode" \
      --device-memory-fraction 0.45 --kv-transport $transport &&
      compare_with_cpu "handed-over-by-$transport" || wrong=1
  done
  rehearse_nccl
  return $wrong
}

measure_8b() {
  local script=tools/make_random_checkpoint.py folder=$WORK/8b begin=$SECONDS
  if ! python3 -c 'import numpy' 2>/dev/null; then
    echo "8b: skipped, no python3 with numpy here"
    return 0
  fi
  python3 "$script" "$folder" --preset 8b --arch qwen3 --layers 36 --ffn 12288 --vocab 151936 \
    --shards 4 || return 1
  echo "8b: written in $((SECONDS - begin)) s"
  start "$folder" "$DEVICE" unified --max-context 4096 || return 1
  # The first answer waits for weights that are still on their way.
  local first second
  first=$(ask "${PROMPTS[0]}" 8) && second=$(ask "${PROMPTS[1]}" 64) || { stop; return 1; }
  stop
  ENTRIES+=("$(printf '{"model": "8b", "ready_ms": %d, "first_answer_ttft_ms": %s, "ttft_ms": %s, "tpot_ms": %s}' \
    "$READY_MS" "$(number_of ttft_ms <<<"$first")" "$(number_of ttft_ms <<<"$second")" \
    "$(number_of tpot_ms <<<"$second")")")
  echo "8b: ${ENTRIES[-1]}"
}

# After every model, so that what was shown is kept when the run is ended.
write_results() {
  {
    printf '{"kind": "cuda_daemon", "date": "%s", "commit": "%s", "gpu": %s, "passed": %s, "results": [' \
      "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$COMMIT" \
      "$(json_string "$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 2>/dev/null | head -1)")" \
      "$(((failed == 0)) && echo true || echo false)"
    comma=
    for entry in "${ENTRIES[@]}"; do
      printf '%s%s' "$comma" "$entry"
      comma=', '
    done
    printf ']}\n'
  } >"$OUT/daemon.json"
}

for model in ${models//,/ }; do
  case $model in
    sample) compare_sample || { failed=1; echo "sample: FAILED"; } ;;
    8b) measure_8b || { failed=1; echo "8b: FAILED"; } ;;
    *)
      echo "daemon.sh: no model $model: sample, 8b" >&2
      exit 2
      ;;
  esac
  write_results
done
echo "daemon.sh: $( ((failed)) && echo failed || echo passed), $OUT/daemon.json"
exit $failed
