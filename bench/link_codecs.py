#!/usr/bin/env python3
"""What codecs save on links of limited rate, and whether `--kv-codec auto` chooses well. Standard library only.

  bench/link_codecs.py --model /tmp/smollm2 --out bench/results/cpu_link_codecs.json

For each rate and each codec a service of a router, a prefill and a decode worker is started, connected by tcp that is held to
that rate (--kv-bandwidth). Prompts that the prefill worker has cached and the decode worker has not are handed over one at a
time: nothing is computed but their last block, so that the transfer is what takes time. In each round every codec has its turn;
medians over the rounds. With --quality the classes that may lose something are measured instead of the codecs.

Rates are of payload: a link of 1 GB/s carries 1e9 bytes of frames each second. What KV moves per second is more, by the ratio.
"""
import argparse
import contextlib
import datetime
import json
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import time

CODECS = ("raw", "f3", "mask-rice", "auto")
CLASSES = ("exact", "near-strict", "near", "compact")
RATES = ("50MB", "200MB", "1GB", "5GB")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


class Service:
    """Three processes, ended together."""

    def __init__(self, options, rate, codec):
        self.tandem = str(options.bin / "tandem")
        self.server = f"127.0.0.1:{free_port()}"
        self.processes = []
        common = ["--model", str(options.model), "--log-level", "error"]
        worker = [*common, "--router", self.server, "--kv-transport", "tcp", "--profile-at-start", "off",
                  "--kv-tokens", str(options.prompt_tokens * 6), "--threads", "1"]
        self.start("router", *common, "--port", self.server.split(":")[1], "--session-affinity", "off")
        self.start("worker", "--role", "prefill", "--name", "prefill-0", *worker, "--kv-bandwidth", rate, "--kv-codec", codec)
        self.start("worker", "--role", "decode", "--name", "decode-0", *worker, "--prefix-cache", "off")

    def start(self, *arguments):
        self.processes.append(subprocess.Popen([self.tandem, *arguments], stdout=subprocess.DEVNULL))

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()

    def generate(self, ids, quality):
        """The answer as `tandem generate --json` prints it; None while the service does not answer yet."""
        done = subprocess.run([self.tandem, "generate", "--server", self.server, "--route", "disaggregated", "--token-ids",
                               ",".join(map(str, ids)), "--max-tokens", "2", "--ignore-eos", "--json", "--quality", quality],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return None
        return json.loads(done.stdout)

    def links(self):
        done = subprocess.run([self.tandem, "status", "--server", self.server, "--json"], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return []
        workers = json.loads(done.stdout).get("workers", [])
        return [link for worker in workers for link in worker.get("load", {}).get("links", [])]


@contextlib.contextmanager
def services(options, rate, variants):
    running = {}
    try:
        for variant in variants:
            codec = variant if not options.quality else "auto"
            if codec not in running:
                running[codec] = Service(options, rate, codec)
        yield running
    finally:
        for service in running.values():
            service.stop()


def prompt(seed, tokens):
    return [3 + (seed * 7919 + i * i * 31 + i * 17) % 1000 for i in range(tokens)]


def handed_over(service, ids, quality):
    deadline = time.monotonic() + 300
    while True:
        answer = service.generate(ids, quality)
        if answer is not None:
            choice = answer.get("choices", [answer])[0] if "kv_bytes" not in answer else answer
            return choice["kv_bytes"]
        if time.monotonic() > deadline:
            sys.exit("no answer within five minutes")
        time.sleep(1)


def warm_up(service, prompts, quality):
    """Tables are made of the first 1,024 tokens, prompts come into the prefill worker's cache, the link is measured."""
    for ids in prompts:
        handed_over(service, ids, quality)


def measure(options, rate):
    variants = CLASSES if options.quality else CODECS
    prompts = [prompt(seed, options.prompt_tokens) for seed in range(3)]
    rows = {variant: [] for variant in variants}
    with services(options, rate, variants) as running:
        for variant in variants:
            service = running["auto" if options.quality else variant]
            warm_up(service, prompts, variant if options.quality else "exact")
        for round_number in range(options.rounds):
            for variant in variants:
                service = running["auto" if options.quality else variant]
                kv = handed_over(service, prompts[round_number % len(prompts)], variant if options.quality else "exact")
                rows[variant].append(kv)
                print(f"{rate} {variant}: {kv['raw']} -> {kv['wire']} ({kv['codec']}) in {kv['transfer_ms']:.1f} ms, "
                      f"expected {kv['expected_ms']:.1f}", flush=True)
    return [{"rate": rate, "variant": variant,
             "raw_bytes": kvs[-1]["raw"], "wire_bytes": statistics.median(kv["wire"] for kv in kvs),
             "transfer_ms": statistics.median(kv["transfer_ms"] for kv in kvs),
             "expected_ms": statistics.median(kv["expected_ms"] for kv in kvs),
             "codecs": sorted({kv["codec"] for kv in kvs})} for variant, kvs in rows.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--rates", default=",".join(RATES))
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quality", action="store_true", help="classes of quality instead of codecs")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    result = {"bench": "link_codecs", "command": "bench/link_codecs.py " + " ".join(sys.argv[1:]),
              "date": datetime.date.today().isoformat(), "machine": cpu_name(), "model": options.model.name,
              "prompt_tokens": options.prompt_tokens, "rounds": options.rounds,
              "rows": [row for rate in options.rates.split(",") for row in measure(options, rate)]}
    options.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
