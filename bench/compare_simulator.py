#!/usr/bin/env python3
"""Compares tandem simulate with real workers on a simulated device, on one schedule. Standard library only.

  bench/compare_simulator.py [--bin build/release/bin/tandem] [--file models/simulated/qwen3-8b-h200.json] [--out FILE]

A router and its workers run on this machine for each load, so nothing else may run here meanwhile: their CPU time is what the
simulation leaves out. A first run at a low load measures what a message between two processes costs here, which the simulation gets
as --hop-us. Printed are p50 and p99 of TTFT and TPOT of both and their ratio; the exit status is 1 when a ratio is further from 1
than --within, or the schedules differ.
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

PORT = 18094
SERVER = f"127.0.0.1:{PORT}"
START_S = 60
MEASURES = ["median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms"]
# Workers of each role, and the flags of both generators.
CALIBRATION = ({"unified": 1}, "--request-rate 5 --num-prompts 60 --input-len 64 --output-len 2")
LOADS = {
    "unified 512/64 at 10/s": ({"unified": 2}, "--request-rate 10 --num-prompts 300 --input-len 512 --output-len 64"),
    "unified 64/4 at 100/s": ({"unified": 2}, "--request-rate 100 --num-prompts 2000 --input-len 64 --output-len 4"),
    "unified 2000/200 at 6/s": ({"unified": 2}, "--request-rate 6 --num-prompts 300 --input-len 2000 --output-len 200"),
    "prefill and decode 512/64 at 10/s": (
        {"prefill": 1, "decode": 1},
        "--request-rate 10 --num-prompts 300 --input-len 512 --output-len 64",
    ),
}


def is_ready(tandem, workers):
    """The exit status says whether some route can be served; all workers must be there."""
    status = subprocess.run([tandem, "status", "--server", SERVER, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return status.returncode == 0 and len(json.loads(status.stdout).get("workers", [])) == workers


@contextlib.contextmanager
def service(args, fleet):
    """A router and its workers, ready for requests."""
    command = [args.bin, "up", "--device", f"simulated:{args.file}", "--port", str(PORT), "--policy", args.policy]
    for role in ("prefill", "decode", "unified"):
        command += [f"--{role}", str(fleet.get(role, 0))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not is_ready(args.bin, sum(fleet.values())):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"not ready after {START_S} s: {' '.join(command)}")
            time.sleep(0.2)
        time.sleep(args.settle_seconds)
        yield
    finally:
        process.terminate()
        process.wait()


def result_of(command, directory):
    path = pathlib.Path(directory) / "result.json"
    done = subprocess.run(command + ["--save-result", "--result-filename", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stdout.decode(errors='replace')}")
    return json.loads(path.read_text())


def measure(args, fleet, flags, directory):
    with service(args, fleet):
        return result_of([args.bin, "bench", "serve", "--server", SERVER] + flags.split(), directory)


def simulate(args, fleet, flags, hop_us, directory):
    workers = ",".join(f"{role}={count}:{args.file}" for role, count in fleet.items())
    command = [args.bin, "simulate", "--fleet", workers, "--policy", args.policy, "--hop-us", f"{hop_us:.0f}"]
    return result_of(command + flags.split(), directory)


def hop_of(result):
    """Of the four messages until a client has its first token, two are between client and router, two between router and worker."""
    stages = result["server_stages_ms"]
    return (stages["outside"]["p50"] + stages["residual"]["p50"]) / 4 * 1e3


def compare(name, real, simulated, within):
    good = real["schedule_hash"] == simulated["schedule_hash"] and real["failed"] == simulated["failed"] == 0
    print(f"{name}: schedule {real['schedule_hash']}, failed {real['failed']} and {simulated['failed']}")
    for key in MEASURES:
        ratio = simulated[key] / real[key]
        good = good and abs(ratio - 1) <= within
        print(f"  {key:<16} real {real[key]:8.2f}  simulated {simulated[key]:8.2f}  ratio {ratio:.3f}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin/tandem")
    parser.add_argument("--file", default="models/simulated/qwen3-8b-h200.json")
    parser.add_argument("--policy", default="least-loaded")
    parser.add_argument("--within", type=float, default=0.15, help="how far a ratio may be from 1")
    parser.add_argument("--settle-seconds", type=float, default=2, help="pause after the start, in which links are probed")
    parser.add_argument("--only", help="the loads whose names contain this text")
    parser.add_argument("--out", help="JSON of all figures")
    args = parser.parse_args()
    figures = {"load_average": os.getloadavg()[0], "loads": {}}
    print(f"load average before: {figures['load_average']:.2f}")
    good = True
    with tempfile.TemporaryDirectory() as directory:
        figures["hop_us"] = hop_of(measure(args, *CALIBRATION, directory))
        print(f"a message takes {figures['hop_us']:.0f} us")
        for name, (fleet, flags) in LOADS.items():
            if args.only and args.only not in name:
                continue
            real = measure(args, fleet, flags, directory)
            simulated = simulate(args, fleet, flags, figures["hop_us"], directory)
            good = compare(name, real, simulated, args.within) and good
            figures["loads"][name] = {
                "schedule_hash": real["schedule_hash"],
                "real": {key: real[key] for key in MEASURES},
                "simulated": {key: simulated[key] for key in MEASURES},
            }
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
