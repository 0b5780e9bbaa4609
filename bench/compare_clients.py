#!/usr/bin/env python3
"""The same load measured by `tandem bench serve` and by two other load generators, turn by turn.

  bench/compare_clients.py --venv build/clients --rounds 5 --out bench/results/cpu_clients.json

An open loop at a constant rate of completions with one length of prompts and of outputs, at a simulated GPU: its steps take
tens of milliseconds and no CPU, so that the machine is left to the programs that measure, two of which run in Python. The
folder of --venv is what `make test-clients` makes. Each round runs each program once; medians over the rounds are compared.

Generators take their own texts and count tokens with their own tokenizer: what the server says that prompts and outputs had is
kept with each run, and a run with an error or with another length of outputs ends the comparison.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

from http_cost import Service, wait_until_idle

DEVICE = "models/simulated/qwen3-8b-h200.json"
TOKENIZER = "./models/sample"
INPUT, OUTPUT = 512, 48
METRICS = ("output_throughput", "ttft_ms", "tpot_ms", "e2el_ms")


def run(command, environment=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-3000:]}")


def tandem(service, options, seed):
    report = service.bench("openai", "--request-rate", str(options.rate), "--burstiness", "inf", "--num-prompts",
                           str(options.requests), "--input-len", str(INPUT), "--output-len", str(OUTPUT), "--num-warmups", "2",
                           "--seed", str(seed), "--percentile-metrics", "ttft,tpot,itl,e2el")
    return {"completed": report["completed"], "failed": report["failed"], "seconds": report["duration"],
            "prompt_tokens": report["total_input_tokens"] / report["completed"],
            "output_tokens": report["total_output_tokens"] / report["completed"],
            "output_throughput": report["output_throughput"], "ttft_ms": report["median_ttft_ms"],
            "tpot_ms": report["median_tpot_ms"], "e2el_ms": report["median_e2el_ms"]}


def aiperf(service, options, seed):
    with tempfile.TemporaryDirectory() as folder:
        run([os.path.join(options.venv, "bin", "aiperf"), "profile", "-m", service.model, "--url",
             f"http://127.0.0.1:{service.http}", "--endpoint-type", "completions", "--streaming", "--tokenizer", TOKENIZER,
             "--use-server-token-count", "--request-rate", str(options.rate), "--arrival-pattern", "constant",
             "--request-count", str(options.requests), "--warmup-request-count", "2", "--isl", str(INPUT), "--isl-stddev", "0",
             "--osl", str(OUTPUT), "--osl-stddev", "0", "--extra-inputs", "ignore_eos:true", "--random-seed", str(seed),
             "--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", folder, "--ui", "none"])
        report = json.loads((pathlib.Path(folder) / "profile_export_aiperf.json").read_text())
    return {"completed": int(report["request_count"]["avg"]), "failed": len(report.get("error_summary") or []),
            "seconds": report["benchmark_duration"]["avg"], "prompt_tokens": report["input_sequence_length"]["avg"],
            "output_tokens": report["output_sequence_length"]["avg"],
            "output_throughput": report["output_token_throughput"]["avg"], "ttft_ms": report["time_to_first_token"]["p50"],
            "tpot_ms": report["inter_token_latency"]["p50"], "e2el_ms": report["request_latency"]["p50"]}


def guidellm(service, options, seed):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "report.json")
        run([os.path.join(options.venv, "bin", "guidellm"), "run", "--backend",
             json.dumps({"kind": "openai_http", "target": f"http://127.0.0.1:{service.http}", "model": service.model,
                         "request_format": "/v1/completions", "http2": False}),
             "--profile", json.dumps({"kind": "constant", "rate": options.rate}),
             "--constraint", json.dumps({"kind": "max_requests", "count": options.requests}),
             "--tokenizer", json.dumps({"kind": "huggingface_auto", "model": TOKENIZER}),
             "--data", json.dumps({"kind": "synthetic_text", "prompt_tokens": INPUT, "output_tokens": OUTPUT}),
             "--seed", json.dumps({"kind": "static", "value": seed}),
             "--output", json.dumps({"kind": "json", "path": out}), "--disable-console"],
            {**os.environ, "HF_HUB_OFFLINE": "1"})
        bench = json.loads(pathlib.Path(out).read_text())["benchmarks"][0]
    metrics, totals = bench["metrics"], bench["metrics"]["request_totals"]
    requests = bench["requests"]["successful"]
    seconds = max(r["request_end_time"] for r in requests) - min(r["request_start_time"] for r in requests)
    tokens = [r["output_tokens"] for r in requests]
    # Its own rate is a mean over moments; this one is defined as those of the others.
    return {"completed": totals["successful"], "failed": totals["errored"] + totals["incomplete"], "seconds": seconds,
            "prompt_tokens": metrics["prompt_token_count"]["successful"]["mean"], "output_tokens": sum(tokens) / len(tokens),
            "output_throughput": sum(tokens) / seconds,
            "own_output_throughput": metrics["output_tokens_per_second"]["successful"]["mean"],
            "ttft_ms": metrics["time_to_first_token_ms"]["successful"]["median"],
            "tpot_ms": metrics["inter_token_latency_ms"]["successful"]["median"],
            "e2el_ms": 1e3 * metrics["request_latency"]["successful"]["median"]}


GENERATORS = {"tandem": tandem, "aiperf": aiperf, "guidellm": guidellm}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", default="build/clients")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=2)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for an idle machine")
    parser.add_argument("--append", action="store_true", help="to the rounds that the file has")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    out = pathlib.Path(options.out)
    rounds = json.loads(out.read_text())["rounds"] if options.append and out.exists() else []
    wait_until_idle(options.patience)
    # Steps five times as long as the GPU's: what Python adds to a measurement is small beside them.
    with Service(options, f"--device=simulated:{DEVICE}", "--simulated-slowdown=5", f"--model={TOKENIZER}") as service:
        service.model = service.ask_model()
        for i in range(len(rounds), len(rounds) + options.rounds):
            rounds.append({name: measure(service, options, i) for name, measure in GENERATORS.items()})
            for name, figures in rounds[-1].items():
                if figures["failed"] or figures["completed"] != options.requests or figures["output_tokens"] != OUTPUT:
                    sys.exit(f"{name}: {figures}")
                print(f"round {i + 1} {name}: " + ", ".join(f"{key} {value:.2f}" for key, value in figures.items()), file=sys.stderr)

    medians = {name: {key: statistics.median(entry[name][key] for entry in rounds) for key in METRICS} for name in GENERATORS}
    apart = {name: {key: statistics.median(entry[name][key] / entry["tandem"][key] - 1 for entry in rounds) for key in METRICS}
             for name in GENERATORS if name != "tandem"}
    cpu = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    versions = subprocess.run([os.path.join(options.venv, "bin", "pip"), "list", "--format", "json"], stdout=subprocess.PIPE).stdout
    versions = {each["name"]: each["version"] for each in json.loads(versions) if each["name"] in GENERATORS}
    result = {"date": datetime.date.today().isoformat(), "cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(),
              "command": " ".join(["bench/compare_clients.py"] + sys.argv[1:]), "versions": versions, "rate": options.rate,
              "requests": options.requests, "input_tokens": INPUT, "output_tokens": OUTPUT, "simulated": True,
              "medians": medians, "apart": apart, "rounds": rounds}
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({"medians": medians, "apart": apart}, indent=1))


if __name__ == "__main__":
    main()
