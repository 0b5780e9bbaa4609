#!/usr/bin/env python3
"""Write docs/performance.md, docs/routing_results.md, and the record in docs/faults.md, from the raw results under
bench/results/, and the table of metrics in docs/observing.md from the tables of the source. Standard library only.

  bench/report.py            writes the pages
  bench/report.py --check    exits 1 when a page is not what the results say, or when made-up results of a GPU, of faults,
                             of routing or of quality are rendered wrong
"""
import json
import pathlib
import sys

from pages.faults import check_faults, faults, with_record
from pages.gpu import GPU_RESULTS, check_gpu, gpu
from pages.host import against_peer, cheaper_products, codecs, daemon, kernels, kvstore, link_codecs, scheduler, simulator_speed, tokenizer
from pages.http import http_cost, other_generators
from pages.metrics import with_metrics
from pages.overload import overload
from pages.predictions import predictions
from pages.quality import check_quality, kv_quality, quality_curve
from pages.routing import check_routing, routing
from pages.transfers import check_transfer, handoff, handoff_short, transfer

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
FAULTS_PAGE = ROOT / "docs" / "faults.md"
ROUTING_PAGE = ROOT / "docs" / "routing_results.md"
OBSERVING_PAGE = ROOT / "docs" / "observing.md"
QUALITY_CURVE = ROOT / "docs" / "media" / "kv_quality.svg"

HEAD = """# Performance

Written by `bench/report.py` from `bench/results/*.json`; do not edit. The machines are shared and noisy: read
ratios and shares of the ceilings, which were measured in the same minutes, rather than absolute rates.
"""


def load(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


SECTIONS = [("cpu_peer", against_peer), ("cpu_peer_avx2", against_peer), ("cpu_peer_bf16", against_peer),
            ("cpu_peer_int8", against_peer), ("cpu_peer_int8_bf16", against_peer),
            ("cpu_daemon", daemon), ("cpu_cheaper_products", cheaper_products), ("cpu_kernels", kernels),
            ("cpu_transfer", transfer), ("cpu_handoff", handoff), ("cpu_handoff_short", handoff_short),
            ("cpu_kvstore", kvstore), ("cpu_codecs", codecs), ("cpu_codecs_smollm2", codecs),
            ("cpu_link_codecs", link_codecs), ("cpu_kv_quality", kv_quality),
            ("cpu_scheduler", scheduler), ("cpu_tokenizer", tokenizer),
            ("cpu_simulator", simulator_speed), ("cpu_predictions", predictions), ("cpu_http", http_cost),
            ("cpu_clients", other_generators), ("cpu_overload", overload)]


def main():
    page = HEAD
    for name, render in SECTIONS:
        result = load(name)
        if result is not None:
            page += render(result)
    page += gpu({name: load(f"h200_{name}") for name in GPU_RESULTS})
    if gpu_transfer := load("h200_transfer"):
        page += transfer(gpu_transfer)
    faults_page = with_record(FAULTS_PAGE.read_text(), faults(load("faults")))
    by_seed = lambda name: [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"sim_{name}*.json"))]
    routing_page = routing({"sweep": load("sim_sweep"), "slo_map": by_seed("slo_map"), "crossover": by_seed("crossover")})
    pages = [(PAGE, page), (FAULTS_PAGE, faults_page), (ROUTING_PAGE, routing_page),
             (OBSERVING_PAGE, with_metrics(OBSERVING_PAGE.read_text()))]
    if picture := quality_curve(load("cpu_kv_quality")):
        pages.append((QUALITY_CURVE, picture))
    if "--check" in sys.argv:
        check_transfer()
        check_gpu()
        check_faults()
        check_routing()
        check_quality()
        stale = [str(path) for path, text in pages if not path.exists() or path.read_text() != text]
        sys.exit(f"{', '.join(stale)}: stale, run bench/report.py" if stale else 0)
    for path, text in pages:
        path.write_text(text)


if __name__ == "__main__":
    main()
