#!/usr/bin/env bash
# Runs the comparisons of docs/routing_results.md on the virtual clock, puts their results into bench/results/ and
# writes the page. It takes about an hour of one core. Points of the sweep that an interrupted run of the same commit has
# finished are not run again.
#
#   bench/simulated_policies.sh [FOLDER]     all results; default: build/simulated_policies/COMMIT
#   TANDEM=PATH                              the binary; default: build/release/bin/tandem
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-build/simulated_policies/$(git rev-parse --short HEAD)}"
tandem="${TANDEM:-build/release/bin/tandem}"
machine=(--simulate models/simulated/qwen3-8b-h200.json)
seeds=(1 2 3)

# Roles are a part of a strategy, so that four workers serve a policy in several ways, and each has those that suit it.
# The map of objectives leaves out those that are far behind under its load.
strategies=()
map_strategies=()
add() { strategies+=(--strategy "$1:$2:$3"); }
add_to_both() {
  add "$@"
  map_strategies+=(--strategy "$1:$2:$3")
}
add_to_both auto-4u auto unified=4
add_to_both auto-2u1p1d auto unified=2,prefill=1,decode=1
add_to_both auto-1u1p2d auto unified=1,prefill=1,decode=2
add auto-1u2p1d auto unified=1,prefill=2,decode=1
add auto-1p3d auto prefill=1,decode=3
add_to_both auto-2p2d auto prefill=2,decode=2
add auto-3p1d auto prefill=3,decode=1
add_to_both unified-4 least-loaded unified=4
add_to_both split-1-3 least-loaded prefill=1,decode=3
add_to_both split-2-2 least-loaded prefill=2,decode=2
add_to_both split-3-1 least-loaded prefill=3,decode=1
add_to_both least-loaded least-loaded unified=2,prefill=1,decode=1
add_to_both least-loaded-1u1p2d least-loaded unified=1,prefill=1,decode=2
add least-loaded-1u2p1d least-loaded unified=1,prefill=2,decode=1
add_to_both round-robin round-robin unified=2,prefill=1,decode=1
add_to_both round-robin-4u round-robin unified=4
add prefix-affinity prefix-affinity unified=2,prefill=1,decode=1
add prefix-affinity-4u prefix-affinity unified=4

maps() {
  for seed in "${seeds[@]}"; do
    "$tandem" bench slo-map "${machine[@]}" --context 8192 --workloads mixed --rates 40 --seeds "$seed" \
      --ttft 150,250,400,600,1000 --tpot 8,12,16,24,40 "${map_strategies[@]}" --out "$out/slo_map_$seed"
    "$tandem" bench crossover "${machine[@]}" --samples 10 --seed "$seed" --out "$out/crossover_$seed"
  done
}

mkdir -p "$out"
maps > "$out/maps.log" &
"$tandem" bench sweep "${machine[@]}" --context 8192 --goodput ttft:500 tpot:20 --min-seconds 20 --out "$out/sweep" "${strategies[@]}" \
  --rates-of mixed=35,50 --rates-of shifting=35,50 --rates-of bursty=35 --rates-of long-context=10 \
  --rates-of agentic=110 --rates-of short=80,120 --rates-of long=20 --rates-of shared-prefix=80
wait $!
cat "$out/maps.log"

cp "$out/sweep/sweep.json" bench/results/sim_sweep.json
for seed in "${seeds[@]}"; do
  cp "$out/slo_map_$seed/slo_map.json" "bench/results/sim_slo_map_$seed.json"
  cp "$out/crossover_$seed/crossover.json" "bench/results/sim_crossover_$seed.json"
done
python3 bench/report.py
