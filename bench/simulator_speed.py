#!/usr/bin/env python3
"""Measures how long tandem simulate takes for many requests on many workers, on one core. Standard library only.

  bench/simulator_speed.py [--bin build/release/bin/tandem] [--requests 1000000] [--only TEXT] [--out FILE]

The runs follow one another, each bound to one core and with huge pages for its memory (--pages small: without), since a run visits
gigabytes in no order. Printed are the CPU time of the process, the time that passed, and the peak of its memory. On a machine that
does other things the CPU time is the figure to read. The exit status is 1 when a run fails or when not every request was complete.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

WORKERS = 256
FILE = "models/simulated/qwen3-8b-h200.json"
# Tokens of a prompt and of an output, and requests per second.
LOADS = [(1024, 128, 1000), (512, 64, 1000), (512, 64, 5000), (512, 64, 10000)]
# Of glibc: malloc asks the kernel for huge pages.
PAGES = {"huge": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, "small": {}}


def cpu_model():
    return re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)


def field(name, output):
    return re.search(rf"^{name}:?\s+(\S+)", output, re.MULTILINE).group(1)


def run(args, prompt, output_tokens, rate, core):
    flags = ["--fleet", f"unified={WORKERS}:{FILE}", "--policy", "least-loaded", "--request-rate", str(rate),
             "--num-prompts", str(args.requests), "--input-len", str(prompt), "--output-len", str(output_tokens)]
    with tempfile.TemporaryFile() as text:
        begin = time.monotonic()
        process = subprocess.Popen([args.bin, "simulate"] + flags, stdout=text, stderr=subprocess.DEVNULL,
                                   env=os.environ | PAGES[args.pages], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - begin
        text.seek(0)
        output = text.read().decode()
    if status != 0:
        sys.exit(f"{' '.join(flags)}: exit status {os.waitstatus_to_exitcode(status)}")
    return {"command": " ".join(["tandem", "simulate"] + flags), "prompt_tokens": prompt, "output_tokens": output_tokens,
            "requests_per_s": rate, "complete": int(field("Successful requests", output)), "digest": field("Digest", output),
            "user_s": round(usage.ru_utime, 1), "system_s": round(usage.ru_stime, 1), "wall_s": round(wall, 1),
            "peak_bytes": usage.ru_maxrss * 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin/tandem")
    parser.add_argument("--requests", type=int, default=1000000)
    parser.add_argument("--pages", choices=PAGES, default="huge")
    parser.add_argument("--only", default="", help="the loads whose names, as 1024/128 at 1000/s, contain this text")
    parser.add_argument("--out", help="JSON of all figures")
    args = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    result = {"bench": "simulator_speed", "date": datetime.date.today().isoformat(), "cpu": cpu_model(), "workers": WORKERS,
              "requests": args.requests, "pages": args.pages, "runs": []}
    good = True
    for prompt, output_tokens, rate in LOADS:
        name = f"{prompt}/{output_tokens} at {rate}/s"
        if args.only not in name:
            continue
        one = run(args, prompt, output_tokens, rate, core)
        print(f"{name}: {one['user_s']} s of CPU time, {one['wall_s']} s in all, {one['peak_bytes'] / 1e9:.1f} GB, "
              f"digest {one['digest']}", flush=True)
        good = good and one["complete"] == args.requests
        result["runs"].append(one)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
