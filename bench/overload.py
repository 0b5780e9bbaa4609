#!/usr/bin/env python3
"""Holds the router's admission against overload: real processes, whose workers take the times of a simulated GPU. Standard library only.

  bench/overload.py [--bin build/release/bin/tandem] [--out bench/results/cpu_overload.json]

Two unified workers serve prompts of 256 to 7,936 tokens with a TTFT SLO of a second. First the rate rises until goodput (requests per second
that meet the SLO) falls: its peak. Then three times the rate of that peak arrives for a minute, with shedding by SLO and without; after the
first a light load follows at once, which shows the recovery. Then a tenant asks beside another one that asks ten times as much. Last,
streams are held open. It takes about eight minutes, and nothing else may run here meanwhile.
The prefix cache is off: runs share seeds, and so prompts.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from live_predictions import cpu_name

DEVICE = "models/simulated/qwen3-8b-h200.json"
SLO_MS = 1000
LENGTHS = ["--input-len", "uniform:256,7936", "--output-len", "uniform:16,128"]
PEAK_RATES = (11, 14, 17)
PEAK_SECONDS = 40
OVERLOAD = 3
OVERLOAD_SECONDS = 60
LIGHT_RATE = 3
TENANT_RATE = 3
TENANT_FACTOR = 10
TENANT_SECONDS = 60
START_S = 30


class Service:
    """A router and two workers on ports of this machine, and what is asked of them."""

    def __init__(self, args, flags):
        self._bin = args.bin
        self.server = f"127.0.0.1:{args.port}"
        self._command = [args.bin, "up", "--device", f"simulated:{DEVICE}", "--unified", "2", "--prefill", "0", "--decode", "0",
                         "--policy", "auto", "--prefix-cache", "off", "--ttft-slo-ms", str(SLO_MS), "--port", str(args.port), "--no-http", *flags]
        self._process = None

    def __enter__(self):
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                sys.exit(f"not ready after {START_S} s: {' '.join(self._command)}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()

    def _is_ready(self):
        status = subprocess.run([self._bin, "status", "--server", self.server, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                env=os.environ | {"TANDEM_API_KEY": self.status_key})
        return status.returncode == 0 and len(json.loads(status.stdout).get("workers", [])) == 2

    status_key = ""  # where the router asks for one

    def router_megabytes(self):
        """The resident memory of the router, which is the child with that command."""
        children = pathlib.Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for child in children:
            if b"\0router\0" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                lines = pathlib.Path(f"/proc/{child}/status").read_text().splitlines()
                return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3
        sys.exit("the router is gone")

    def begin(self, folder, rate, seconds, seed=7, key="", lengths=LENGTHS):
        path = pathlib.Path(folder) / f"{time.monotonic_ns()}.json"
        command = [self._bin, "bench", "serve", "--server", self.server, "--request-rate", str(rate), "--num-prompts",
                   str(int(rate * seconds)), *lengths, "--goodput", f"ttft:{SLO_MS}", "--seed", str(seed), "--metric-percentiles", "50,99,99.9",
                   "--save-result", "--save-detailed", "--result-dir", str(path.parent), "--result-filename", path.name]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ | {"TANDEM_API_KEY": key})
        return process, path

    def run(self, folder, rate, seconds, **more):
        return figures_of(*self.begin(folder, rate, seconds, **more), seconds)


def figures_of(process, path, seconds):
    error = process.communicate()[1].decode(errors="replace")
    if not path.exists():
        sys.exit(error)
    result = json.loads(path.read_text())
    good = [length for length, ttft, error in zip(result["input_lens"], result["ttfts"], result["errors"])
            if not error and 0 < ttft <= SLO_MS / 1e3]
    return {"rate": result["request_rate"], "requests": result["num_prompts"], "completed": result["completed"], "refused": result["failed"],
            "goodput": len(good) / seconds, "good_prompt_tokens_per_s": sum(good) / seconds,
            "p50_ttft_ms": result["p50_ttft_ms"], "p99_ttft_ms": result["p99_ttft_ms"], "p99.9_ttft_ms": result["p99.9_ttft_ms"],
            "within_slo_of_completed": len(good) / max(1, result["completed"])}


@contextlib.contextmanager
def watched_memory(service):
    """Yields a list that has the router's megabytes, once per second, when the block has ended."""
    seen, end = [], threading.Event()

    def watch():
        while not end.is_set():
            seen.append(service.router_megabytes())
            end.wait(1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        end.set()
        thread.join()


def find_peak(args, folder):
    with Service(args, ["--shed", "off"]) as service:
        runs = []
        for rate in PEAK_RATES:
            runs.append(service.run(folder, rate, PEAK_SECONDS))
            print(json.dumps(runs[-1]), flush=True)
    return runs, max(runs, key=lambda run: run["goodput"])


def overload(args, folder, shed, rate):
    with Service(args, ["--shed", shed]) as service:
        before = service.router_megabytes()
        with watched_memory(service) as megabytes:
            run = service.run(folder, rate, OVERLOAD_SECONDS)
        run |= {"shed": shed, "router_megabytes": {"before": before, "most": max(megabytes), "last_10_s": megabytes[-10:]}}
        if shed == "slo":
            run["after"] = service.run(folder, LIGHT_RATE, 20, seed=8)
    print(json.dumps(run), flush=True)
    return run


def tenants(args, folder):
    access = pathlib.Path(folder) / "access.json"

    def key(name, *scopes):
        return subprocess.run([args.bin, "keys", "add", str(access), "--id", name, "--tenant", name, *scopes], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.split()[-1]

    quiet, loud = key("quiet"), key("loud")
    Service.status_key = quiet
    with Service(args, ["--shed", "slo", "--access-file", str(access)]) as service:
        alone = service.run(folder, TENANT_RATE, TENANT_SECONDS, key=quiet)
        other = service.begin(folder, TENANT_RATE * TENANT_FACTOR, TENANT_SECONDS, seed=9, key=loud)
        beside = service.run(folder, TENANT_RATE, TENANT_SECONDS, key=quiet)
        other = figures_of(*other, TENANT_SECONDS)
    Service.status_key = ""
    result = {"alone": alone, "beside": beside, "other": other}
    print(json.dumps(result), flush=True)
    return result


def open_streams(args, folder, count=2000):
    """Streams that run for the whole time, because each wants many tokens: all are open at once."""
    with Service(args, ["--shed", "off", "--max-in-flight", str(2 * count)]) as service:
        before = service.router_megabytes()
        with watched_memory(service) as megabytes:
            process, _ = service.begin(folder, count / 10, 10, lengths=["--input-len", "16", "--output-len", "2000", "--drain-timeout-sec", "20"])
            process.communicate()
    return {"streams": count, "before_megabytes": before, "most_megabytes": max(megabytes)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin/tandem")
    parser.add_argument("--port", type=int, default=18096)
    parser.add_argument("--out", default="bench/results/cpu_overload.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-overload-") as folder:
        runs, peak = find_peak(args, folder)
        result = {"cpu": cpu_name(), "device": DEVICE, "slo_ttft_ms": SLO_MS, "lengths": " ".join(LENGTHS).replace("--", ""),
                  "peak_seconds": PEAK_SECONDS, "overload_seconds": OVERLOAD_SECONDS, "peak_runs": runs,
                  "overload": [overload(args, folder, shed, OVERLOAD * peak["rate"]) for shed in ("slo", "off")],
                  "tenants": tenants(args, folder), "open_streams": open_streams(args, folder)}
    pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
