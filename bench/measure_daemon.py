#!/usr/bin/env python3
"""Start-up, memory and idle cost of one unified worker behind a router. Standard library only.

  bench/measure_daemon.py --model DIR [--bin build/release/bin] --out bench/results/cpu_daemon.json

Each round is a plain start with the file in the page cache and nothing else prepared, after some seconds without the service,
in which the host of a virtual machine may take unused memory back.

Ready: from starting `tandem up` to `tandem status` answering with a route. First token: a request of 512 tokens for one, sent
at once then, while weights are still being packed; and the same once they are. Further starts, once at rest, are left alone for
ten seconds, in which the CPU seconds of all processes of the service count, and then asked for 512 + 32 tokens. Memory: resident
set of the worker.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

PORT = 18090
SERVER = f"127.0.0.1:{PORT}"
IDLE_S = 10
PAUSE_S = 5
PROMPT_TOKENS = 512


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE, text=True).stdout
    return [int(word) for word in out.split()]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid, field):
    """VmRSS: resident now; VmHWM: at most so far."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    sys.exit(f"no {field} of {pid}")


def read_through(path):
    """Brings a file into the page cache, a piece at a time: memory of its size, freed, would make the next start cheaper."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def await_rest(pids):
    """Returns once they have used next to no CPU for a second: weights are packed by then."""
    before, now = -1.0, sum(map(cpu_seconds, pids))
    while now - before > 0.02:
        time.sleep(1)
        before, now = now, sum(map(cpu_seconds, pids))


def role_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1].decode()


def generate(tandem, prompt_tokens, max_tokens):
    """Seconds that `tandem generate` takes."""
    ids = ",".join(str(3 + i % 1000) for i in range(prompt_tokens))
    start = time.monotonic()
    subprocess.run([tandem, "generate", "--server", SERVER, "--token-ids", ids, "--max-tokens", str(max_tokens),
                    "--ignore-eos", "--json"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - start


@contextlib.contextmanager
def service(options, tandem):
    """Starts the service once memory has had time to go back; yields its process and the seconds until it was ready."""
    time.sleep(PAUSE_S)
    start = time.monotonic()
    process = subprocess.Popen([tandem, "up", "--model", options.model, "--prefill", "0", "--decode", "0",
                                "--unified", "1", "--kv-tokens", str(options.kv_tokens), "--port", str(PORT)],
                               stdout=subprocess.DEVNULL)
    try:
        subprocess.run([tandem, "status", "--server", SERVER, "--wait", "60"], stdout=subprocess.DEVNULL, check=True)
        yield process, time.monotonic() - start
    finally:
        process.terminate()
        process.wait()


def measure_start(options, tandem):
    with service(options, tandem) as (_, ready):
        return {"ready_s": ready, "first_token_at_once_s": generate(tandem, PROMPT_TOKENS, 1),
                "first_token_later_s": generate(tandem, PROMPT_TOKENS, 1)}


def measure_life(options, tandem):
    with service(options, tandem) as (process, _):
        family = [process.pid] + children(process.pid)
        worker = next(pid for pid in family if role_of(pid) == "worker")
        await_rest(family)
        before = sum(map(cpu_seconds, family))
        time.sleep(IDLE_S)
        row = {"idle_cpu_share": (sum(map(cpu_seconds, family)) - before) / IDLE_S,
               "idle_bytes": memory_bytes(worker, "VmRSS")}
        generate(tandem, PROMPT_TOKENS, 32)
        return row | {"used_bytes": memory_bytes(worker, "VmRSS"), "peak_bytes": memory_bytes(worker, "VmHWM")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--kv-tokens", type=int, default=4096)
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--lives", type=int, default=3)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    config = json.loads((pathlib.Path(options.model) / "config.json").read_text())
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    token_bytes = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head_dim * 2
    weights = sum(path.stat().st_size for path in pathlib.Path(options.model).glob("*.safetensors"))
    pool = options.kv_tokens * token_bytes
    for path in pathlib.Path(options.model).glob("*.safetensors"):
        read_through(path)

    tandem = os.path.join(options.bin, "tandem")
    starts = [measure_start(options, tandem) for _ in range(options.starts)]
    lives = [measure_life(options, tandem) for _ in range(options.lives)]

    def median(rows, key):
        return statistics.median(row[key] for row in rows)

    def seconds(key):
        return f"{median(starts, key):.2f} s, {max(row[key] for row in starts):.2f} s"

    def megabytes(key):
        return f"{median(lives, key) / 1e6:.0f} MB"

    figures = {
        "weights, KV pool": f"{weights / 1e6:.0f} MB, {pool / 1e6:.0f} MB",
        "ready after start: median, worst": seconds("ready_s"),
        "first token of 512 asked at once then: median, worst": seconds("first_token_at_once_s"),
        "the same with all weights packed: median, worst": seconds("first_token_later_s"),
        "resident, idle": megabytes("idle_bytes"),
        "resident, after 512 + 32 tokens": megabytes("used_bytes"),
        "resident, at most since the start": megabytes("peak_bytes"),
        "that, beyond weights and the whole pool": f"{(median(lives, 'peak_bytes') - weights - pool) / 1e6:.0f} MB",
        "CPU of the idle service": f"{100 * median(lives, 'idle_cpu_share'):.2f}% of one core",
    }
    result = {"date": datetime.date.today().isoformat(), "model": os.path.basename(options.model.rstrip("/")),
              "command": " ".join(["bench/measure_daemon.py"] + sys.argv[1:]), "figures": figures,
              "starts": starts, "lives": lives}
    pathlib.Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    for name, value in figures.items():
        print(f"{name:54} {value}")


if __name__ == "__main__":
    main()
