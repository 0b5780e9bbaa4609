#!/usr/bin/env python3
"""Holds the cost model against real workers: how well it fits, and what the router predicts for requests against what came true.
Standard library only.

  bench/live_predictions.py NAME=DIR [--loads prompts,outputs] [--fleets unified,pair] [--out bench/results/cpu_predictions.json]

Each worker computes with one thread: nothing else may run here meanwhile. `tandem profile` measures the steps of the model; a service
of one unified worker, or of a prefill and a decode worker (pair), takes its file. For each load a closed loop finds how many requests
per second the service completes. Poisson arrivals at shares of that rate, after a quarter as many that are not measured, then compare
the predicted TTFT and TPOT of each request with the actual ones. The simulator gets the same arrivals with steps that cost what the
workers report in the end: there the step model is exact, so what it misses no model could know when the request arrived, such as the
prompts that arrive after it and share its steps. It also says how many requests per second the closed loop should complete, with
these costs and with those of the profile, which was measured while nothing else ran. The same requests are then served once more:
how far a request's second time is from its first is what this machine adds by itself, and no one prediction can be right for both.

What is measured takes the place of the same model, fleet and load in FILE; all else there is kept, so that the whole can be measured in
parts.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from compare_simulator import START_S, result_of

FLEETS = {"unified": {"unified": 1}, "pair": {"prefill": 1, "decode": 1}}
LOADS = {
    "prompts": "--input-len uniform:64,384 --output-len uniform:16,64",
    "outputs": "--input-len uniform:32,96 --output-len uniform:128,384",
    "small": "--input-len uniform:16,48 --output-len uniform:32,96",
}
# So many sequences in flight keep a worker busy.
CONCURRENCY = 8
PROFILE_FLAGS = ["--threads", "1", "--max-sequences", "16", "--max-context", "512"]
MEASURES = ("ttft", "tpot")


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def profile(args, model, path):
    if path.exists():
        return json.loads(path.read_text())
    flags = PROFILE_FLAGS + ["--max-step-tokens", str(args.max_step_tokens)] + (["--quick"] if args.quick else [])
    done = subprocess.run([args.bin, "profile", "--model", model, "--out", str(path)] + flags,
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
               "--cost-model", str(parameters), "--prefix-cache", "off", "--max-step-tokens", str(args.max_step_tokens)]
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
    """The command that simulates the same service, with the costs of the parameter file."""
    workers = ",".join(f"{role}={count}:{parameters}" for role, count in fleet.items())
    return [args.bin, "simulate", "--fleet", workers, "--model", model, "--kv-tokens", "16384", "--policy", "auto",
            "--prefix-cache", "off", "--max-step-tokens", str(args.max_step_tokens)]


def with_costs(args, simulated):
    """The command that simulates the service as it runs now."""
    return simulated + ["--costs-of", f"127.0.0.1:{args.port}"]


def closed_loop(args, command, lengths, directory):
    """Requests per second."""
    flags = f"{lengths} --num-prompts {args.capacity_prompts} --max-concurrency {CONCURRENCY}".split()
    return result_of(command + flags, directory)["request_throughput"]


def compared(result):
    figures = {}
    for name in MEASURES:
        both = result["predictions"][name.upper()]
        figures[name] = {"within_20_percent": both["share_within_20_percent"], "median_error": both["relative_error"]["p50"],
                         "p90_error": both["relative_error"]["p90"], "predicted_ms": both["predicted_ms"]["p50"],
                         "actual_ms": both["actual_ms"]["p50"]}
    return figures


def times_of(result):
    """TTFT and TPOT of each request in seconds, in the order of the schedule; 0 where there is none."""
    ttfts = result["ttfts"]
    tpots = [(whole - ttft) / (tokens - 1) if tokens > 1 else 0
             for whole, ttft, tokens in zip(result["latencies"], ttfts, result["output_lens"])]
    return {"ttft": ttfts, "tpot": tpots}


def repeated(first, second):
    """The second time of each request relative to its first."""
    figures = {}
    for name, before in times_of(first).items():
        errors = [abs(again / once - 1) for once, again in zip(before, times_of(second)[name]) if once > 0 and again > 0]
        figures[name] = {"within_20_percent": sum(error <= 0.2 for error in errors) / len(errors),
                         "median_error": statistics.median(errors)}
    return figures


def run_at(args, generator, simulated, lengths, rate, directory):
    def flags(prompts, seed):
        return f"{lengths} --num-prompts {prompts} --request-rate {rate:.4f} --seed {seed}".split()

    result_of(generator + flags(max(8, args.prompts // 4), 1), directory)
    measured = generator + flags(args.prompts, 0) + ["--save-detailed"]
    result = result_of(measured, directory)
    again = result_of(measured, directory)
    exact = result_of(with_costs(args, simulated) + flags(args.prompts, 0), directory)
    if result["schedule_hash"] != exact["schedule_hash"]:
        sys.exit("the simulator ran another schedule")
    return ({"rate": rate, "prompts": args.prompts, "failed": result["failed"], "schedule_hash": result["schedule_hash"]} |
            compared(result) | {"exact_model": compared(exact), "repeat": repeated(result, again)})


def measure_load(args, generator, simulated, lengths, directory):
    load = os.getloadavg()[0]  # what else ran here lately
    real = closed_loop(args, generator, lengths, directory)
    capacity = {"real": real, "profiled": closed_loop(args, simulated, lengths, directory), "prompts": args.capacity_prompts}
    print(f"  {real:.2f} requests/s, profiled {capacity['profiled']:.2f}", flush=True)
    runs = []
    for share in args.shares:
        runs.append({"share": share} | run_at(args, generator, simulated, lengths, share * real, directory))
        print("  " + json.dumps(runs[-1]), flush=True)
    capacity["served"] = closed_loop(args, with_costs(args, simulated), lengths, directory)
    print(f"  with the costs in service {capacity['served']:.2f}", flush=True)
    return {"lengths": lengths, "load_average": load, "capacity": capacity, "runs": runs}


def measure(args, name, model, figures, directory):
    parameters = pathlib.Path(args.parameters or directory) / f"{name}.json"
    fit = profile(args, model, parameters)["fit"]
    of_model = figures["models"].setdefault(name, {"fleets": {}})
    of_model["fit"] = fit
    print(f"{name}: fit {json.dumps(fit['held_out'])}", flush=True)
    for fleet in args.fleets:
        simulated = simulator(args, model, parameters, FLEETS[fleet])
        with service(args, model, parameters, FLEETS[fleet]) as generator:
            for load in args.loads:
                print(f"{name}, {fleet}, {load}", flush=True)
                loads = of_model["fleets"].setdefault(fleet, {})
                loads[load] = measure_load(args, generator, simulated, LOADS[load], directory)


def some_of(known, text):
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: use some of {', '.join(known)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--bin", default="build/release/bin/tandem")
    parser.add_argument("--port", type=int, default=18096)
    parser.add_argument("--fleets", type=lambda text: some_of(FLEETS, text), default=list(FLEETS))
    parser.add_argument("--loads", type=lambda text: some_of(LOADS, text), default=["prompts", "outputs"])
    parser.add_argument("--shares", type=lambda text: [float(share) for share in text.split(",")], default=[0.3, 0.7],
                        help="of the requests per second of the closed loop")
    parser.add_argument("--parameters", help="folder of parameter files: those that are there are not measured again")
    parser.add_argument("--quick", action="store_true", help="a quick profile, for large models")
    parser.add_argument("--max-step-tokens", type=int, default=256, help="of a step, in profile and service")
    parser.add_argument("--prompts", type=int, default=200, help="requests of each load")
    parser.add_argument("--capacity-prompts", type=int, default=100)
    parser.add_argument("--settle-seconds", type=float, default=3, help="pause after the start, in which links are probed")
    parser.add_argument("--out", help="JSON of all figures")
    args = parser.parse_args()
    out = pathlib.Path(args.out) if args.out else None
    figures = json.loads(out.read_text()) if out and out.exists() else {"models": {}}
    figures |= {"cpu": cpu_name(), "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as directory:
        for each in args.models:
            name, model = each.split("=", 1)
            measure(args, name, model, figures, directory)
            if out:
                out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
