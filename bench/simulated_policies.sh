#!/usr/bin/env bash
# Runs the comparisons of docs/routing_results.md on the virtual clock, puts their results into bench/results/ and
# writes the page. It takes about ten minutes on two cores. A run of the same commit that was interrupted
# goes on where it stopped.
#
#   bench/simulated_policies.sh [FOLDER]     all results; default: build/simulated_policies/COMMIT
#   TANDEM=PATH                              the binary; default: build/release/bin/tandem
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-build/simulated_policies/$(git rev-parse --short HEAD)}"
tandem="${TANDEM:-build/release/bin/tandem}"
machine=(--simulate models/simulated/qwen3-8b-h200.json)

maps() {
  "$tandem" bench slo-map "${machine[@]}" --context 8192 --workloads mixed --rates 40 \
    --ttft 150,250,400,600,1000 --tpot 8,12,16,24,40 --out "$out/slo_map"
  "$tandem" bench crossover "${machine[@]}" --samples 10 --out "$out/crossover"
}

mkdir -p "$out"
maps > "$out/maps.log" &
"$tandem" bench sweep "${machine[@]}" --context 8192 --goodput ttft:500 tpot:20 --out "$out/sweep" \
  --rates-of mixed=35,50 --rates-of shifting=35,50 --rates-of bursty=35 --rates-of long-context=10 \
  --rates-of agentic=110 --rates-of short=120 --rates-of long=20 --rates-of shared-prefix=80
wait $!
cat "$out/maps.log"

for name in sweep slo_map crossover; do
  cp "$out/$name/$name.json" "bench/results/sim_$name.json"
done
python3 bench/report.py
