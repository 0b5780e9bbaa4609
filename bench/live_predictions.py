#!/usr/bin/env python3
"""Holds the cost model against real workers: how well it fits, and what the router predicts for requests against what came true.
Standard library only.

  bench/live_predictions.py sample=models/sample smollm2=/tmp/smollm2 [--bin build/release/bin/tandem] [--out FILE]

Each worker computes with one thread, so that the router and the load generator have another core: nothing else may run here
meanwhile. For each model `tandem profile` measures the steps; a service of one unified worker, and one of a prefill and a decode
worker, take its file. A closed loop finds how many requests per second the service completes, and the simulator says how many it
should: their ratio says how right the predicted capacity is. Poisson arrivals at shares of that rate then compare the predicted TTFT
and TPOT of each request with the actual ones. The simulator gets the same arrivals: there the step model is exact, so what it misses
no model could know when the request arrived, such as the prompts that arrive after it and share its steps.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from compare_simulator import START_S, result_of

FLEETS = {"unified": {"unified": 1}, "prefill and decode": {"prefill": 1, "decode": 1}}
LENGTHS = "--input-len uniform:64,384 --output-len uniform:16,64"
# So many sequences in flight keep a worker of PROFILE_FLAGS busy.
CONCURRENCY = 8
PROFILE_FLAGS = ["--threads", "1", "--max-step-tokens", "256", "--max-sequences", "16", "--max-context", "512"]
SHARES = (0.3, 0.5, 0.7)
MEASURES = ("ttft", "tpot")


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def profile(args, model, path):
    done = subprocess.run([args.bin, "profile", "--model", model, "--out", str(path)] + PROFILE_FLAGS,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(done.stdout.decode(errors="replace"))
    return json.loads(path.read_text())


def workers_of(args, server):
    """The workers of a service in which some route can be served; none before."""
    status = subprocess.run([args.bin, "status", "--server", server, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(status.stdout).get("workers", []) if status.returncode == 0 else []


@contextlib.contextmanager
def service(args, model, parameters, fleet):
    server = f"127.0.0.1:{args.port}"
    command = [args.bin, "up", "--model", model, "--port", str(args.port), "--policy", "auto", "--threads", "1",
               "--cost-model", str(parameters), "--prefix-cache", "off", "--max-step-tokens", "256"]
    for role in ("prefill", "decode", "unified"):
        command += [f"--{role}", str(fleet.get(role, 0))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while len(workers_of(args, server)) != sum(fleet.values()):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"not ready after {START_S} s: {' '.join(command)}")
            time.sleep(0.2)
        time.sleep(args.settle_seconds)
        yield [args.bin, "bench", "serve", "--server", server]
    finally:
        process.terminate()
        process.wait()


def simulator(args, model, parameters, fleet):
    """The command that simulates the same service."""
    workers = ",".join(f"{role}={count}:{parameters}" for role, count in fleet.items())
    return [args.bin, "simulate", "--fleet", workers, "--model", model, "--kv-tokens", "16384", "--policy", "auto",
            "--prefix-cache", "off", "--max-step-tokens", "256"]


def capacity(args, generator, simulated, directory):
    """Requests per second of a closed loop: those that real workers complete, and those that the simulator says."""
    flags = f"{LENGTHS} --num-prompts {args.capacity_prompts} --max-concurrency {CONCURRENCY}".split()
    return {"real": result_of(generator + flags, directory)["request_throughput"],
            "simulated": result_of(simulated + flags, directory)["request_throughput"]}


def compared(result):
    figures = {}
    for name in MEASURES:
        both = result["predictions"][name.upper()]
        figures[name] = {"within_20_percent": both["share_within_20_percent"], "median_error": both["relative_error"]["p50"],
                         "p90_error": both["relative_error"]["p90"], "predicted_ms": both["predicted_ms"]["p50"],
                         "actual_ms": both["actual_ms"]["p50"]}
    return figures


def run_at(args, generator, simulated, rate, directory):
    flags = f"{LENGTHS} --num-prompts {args.prompts} --request-rate {rate:.3f}".split()
    result = result_of(generator + flags + ["--num-warmups", "8"], directory)
    return ({"rate": rate, "failed": result["failed"], "schedule_hash": result["schedule_hash"]} | compared(result) |
            {"exact_model": compared(result_of(simulated + flags, directory))})


def measure(args, name, model, directory):
    parameters = pathlib.Path(directory) / f"{name}.json"
    fit = profile(args, model, parameters)["fit"]
    print(f"{name}: fit {json.dumps(fit)}", flush=True)
    figures = {"fit": fit, "fleets": {}}
    for fleet_name, fleet in FLEETS.items():
        simulated = simulator(args, model, parameters, fleet)
        with service(args, model, parameters, fleet) as generator:
            most = capacity(args, generator, simulated, directory)
            print(f"{name}, {fleet_name}: {most['real']:.2f} requests/s, simulated {most['simulated']:.2f}", flush=True)
            runs = []
            for share in SHARES:
                runs.append({"share": share} | run_at(args, generator, simulated, share * most["real"], directory))
                print("  " + json.dumps(runs[-1]), flush=True)
        figures["fleets"][fleet_name] = {"capacity": most, "runs": runs}
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--bin", default="build/release/bin/tandem")
    parser.add_argument("--port", type=int, default=18096)
    parser.add_argument("--prompts", type=int, default=200, help="requests of each load")
    parser.add_argument("--capacity-prompts", type=int, default=100)
    parser.add_argument("--settle-seconds", type=float, default=3, help="pause after the start, in which links are probed")
    parser.add_argument("--out", help="JSON of all figures")
    args = parser.parse_args()
    figures = {"cpu": cpu_name(), "cores": os.cpu_count(), "load_average": os.getloadavg()[0], "lengths": LENGTHS, "models": {}}
    with tempfile.TemporaryDirectory() as directory:
        for each in args.models:
            name, model = each.split("=", 1)
            figures["models"][name] = measure(args, name, model, directory)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
