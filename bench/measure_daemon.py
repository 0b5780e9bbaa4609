#!/usr/bin/env python3
"""Start-up, memory and idle cost of one unified worker behind a router. Standard library only.

  bench/measure_daemon.py --model DIR [--bin build/release/bin] --out bench/results/cpu_daemon.json

Before each round the script touches as much memory as the worker will need and frees it: on a virtual machine whose host
takes unused memory back, the first touch alone can cost seconds, whoever touches. How long it took is kept beside each round.

Ready: from starting `tandem up` to `tandem status` answering with a route, the file in the page cache. Memory:
resident set of the worker. Idle: CPU seconds of all processes of the service over ten quiet seconds.
"""
import argparse
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


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE, text=True).stdout
    return [int(word) for word in out.split()]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    sys.exit(f"no VmRSS of {pid}")


def role_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1].decode()


def generate(tandem, tokens):
    ids = ",".join(str(3 + i % 1000) for i in range(tokens))
    subprocess.run([tandem, "generate", "--server", SERVER, "--token-ids", ids, "--max-tokens", "32", "--ignore-eos",
                    "--json"], stdout=subprocess.DEVNULL, check=True)


def touch(size):
    """Seconds that it takes to write to `size` bytes of new memory."""
    start = time.monotonic()
    block = b"\1" * size
    assert len(block) == size
    return time.monotonic() - start


def measure(options, tandem, size):
    touched = touch(size)
    start = time.monotonic()
    service = subprocess.Popen([tandem, "up", "--model", options.model, "--prefill", "0", "--decode", "0",
                                "--unified", "1", "--kv-tokens", str(options.kv_tokens), "--port", str(PORT)],
                               stdout=subprocess.DEVNULL)
    try:
        subprocess.run([tandem, "status", "--server", SERVER, "--wait", "60"], stdout=subprocess.DEVNULL, check=True)
        ready = time.monotonic() - start
        family = [service.pid] + children(service.pid)
        worker = next(pid for pid in family if role_of(pid) == "worker")
        idle = resident_bytes(worker)
        generate(tandem, 512)
        used = resident_bytes(worker)
        time.sleep(1)
        before = sum(map(cpu_seconds, family))
        time.sleep(IDLE_S)
        return ready, idle, used, (sum(map(cpu_seconds, family)) - before) / IDLE_S, touched
    finally:
        service.terminate()
        service.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--kv-tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    config = json.loads((pathlib.Path(options.model) / "config.json").read_text())
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    token_bytes = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head_dim * 2
    weights = sum(path.stat().st_size for path in pathlib.Path(options.model).glob("*.safetensors"))
    pool = options.kv_tokens * token_bytes
    for path in pathlib.Path(options.model).glob("*.safetensors"):
        path.read_bytes()  # into the page cache

    tandem = os.path.join(options.bin, "tandem")
    rounds = [measure(options, tandem, weights + pool) for _ in range(options.rounds)]
    ready, idle, used, cpu, _ = (statistics.median(column) for column in zip(*rounds))
    figures = {
        "weights, KV pool": f"{weights / 1e6:.0f} MB, {pool / 1e6:.0f} MB",
        "ready after start (median)": f"{ready:.2f} s",
        "resident, idle": f"{idle / 1e6:.0f} MB",
        "resident, after 512 + 32 tokens": f"{used / 1e6:.0f} MB",
        "beyond weights and the whole pool": f"{(used - weights - pool) / 1e6:.0f} MB",
        "CPU of the idle service": f"{100 * cpu:.2f}% of one core",
    }
    result = {"date": datetime.date.today().isoformat(), "model": os.path.basename(options.model.rstrip("/")),
              "command": " ".join(["bench/measure_daemon.py"] + sys.argv[1:]), "figures": figures,
              "rounds": [dict(zip(("ready_s", "idle_bytes", "used_bytes", "idle_cpu_share", "first_touch_s"), row)) for row in rounds]}
    pathlib.Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    for name, value in figures.items():
        print(f"{name:36} {value}")


if __name__ == "__main__":
    main()
