#!/usr/bin/env bash
# bench/run.sh BIN_DIR OUT_DIR [MODEL_DIR]: every bench of this machine's CPU, one JSON file each;
# those of a GPU are run by tests/gpu/run.sh.
# MODEL_DIR: a checkpoint for model_bench and handoff_bench, with a context of 2,100 tokens or more
# (tools/make_random_checkpoint.py makes one of 0.35 B parameters). Without it model_bench takes
# models/sample, which is too small to say much, and handoff_bench is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1 out=$2 model=${3:-models/sample}
mkdir -p "$out"
"$bin/kernel_bench" --json "$out/kernels.json"
"$bin/model_bench" --model "$model" --json "$out/model.json"
"$bin/scheduler_bench" --json "$out/scheduler.json"
"$bin/kvstore_bench" --json "$out/kvstore.json"
"$bin/codec_bench" --json "$out/codecs.json"
"$bin/prefix_index_bench" --json "$out/prefix_index.json"
"$bin/status_page_bench" --json "$out/status_page.json"
"$bin/transfer_bench" --json "$out/transfer.json"
if [[ $# -ge 3 ]]; then
  "$bin/handoff_bench" --model "$model" --binary "$bin/tandem" --json "$out/handoff.json"
fi
"$bin/tokenizer_bench" --json "$out/tokenizer.json"
