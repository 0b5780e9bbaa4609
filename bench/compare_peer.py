#!/usr/bin/env python3
"""Measure Tandem and llama.cpp on the same weights in one run, turn by turn, and keep the raw results.

  bench/compare_peer.py --model HF_DIR --gguf FILE --peer-bin DIR --out bench/results/NAME.json
  bench/compare_peer.py --weights int8 --gguf Q8_0_FILE ...

--model and --gguf hold the same weights, in 8 bits on both sides with --weights int8; --peer-bin holds llama-bench
and llama-batched-bench, built by whoever runs this. Every round runs each program once, so that both see the
same noise; medians over the rounds are compared. Standard library only. `bench/report.py` renders the results.
"""
import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile

# Decode begins at the depth of a short prompt, so that the daemon and the engine do the same steps.
SHORT = 32
STEPS = 64
CASES = {  # name -> (kind, tokens or batch, depth)
    "prefill 512": ("prefill", 512, 0),
    "prefill 2048": ("prefill", 2048, 0),
    "decode batch 1": ("decode", 1, SHORT),
    "decode batch 1 at depth 2048": ("decode", 1, 2048),
    "decode batch 8": ("decode", 8, SHORT),
}


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def peer_round(options):
    """Tokens per second of llama.cpp for each case."""
    threads = str(options.threads)
    bench = os.path.join(options.peer_bin, "llama-bench")
    rows = json.loads(run([bench, "-m", options.gguf, "-t", threads, "-r", "1", "-p", "512", "-n", "128",
                           "-o", "json"]))
    result = {"build": rows[0]["build_commit"]}
    for row in rows:
        result["prefill 512" if row["n_prompt"] else "decode batch 1"] = row["avg_ts"]
    batched = os.path.join(options.peer_bin, "llama-batched-bench")
    common = [batched, "-m", options.gguf, "-t", threads, "-tb", threads, "-b", "2048", "-ub", "512"]
    # A line of the table: | PP | TG | B | N_KV | T_PP | S_PP | T_TG | S_TG | T | S |
    deep = batched_row(run(common + ["-c", "2304", "-npp", "2048", "-ntg", "64", "-npl", "1"]), 2048)
    result["prefill 2048"], result["decode batch 1 at depth 2048"] = deep
    result["decode batch 8"] = batched_row(run(common + ["-c", "1024", "-npp", "32", "-ntg", "24", "-npl", "8"]),
                                           32)[1]
    return result


def batched_row(text, prompt):
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 9 and cells[1] == str(prompt):
            return float(cells[6]), float(cells[8])
    sys.exit(f"no row for a prompt of {prompt} in:\n{text}")


def engine_round(options):
    """model_bench's own JSON: rates, bytes, FLOPs and the ceilings of the same moment."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        run([os.path.join(options.bin, "model_bench"), "--model", options.model, "--weights", options.weights,
             "--device", options.device, "--threads", str(options.threads), "--prefill", "512,2048",
             "--decode-batch", "1,8", "--depth", f"{SHORT},2048", "--decode-steps", str(STEPS), "--repeats", "3",
             "--json", out.name])
        return json.load(open(out.name))


class Daemon:
    """`tandem up` with one unified worker, for as long as the with block lasts. Without a prefix cache: the same
    prompts come again and again, and are to be computed each time."""

    def __init__(self, options):
        self.options = options

    def __enter__(self):
        self.port = 18080
        self.tandem = os.path.join(self.options.bin, "tandem")
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [self.tandem, "up", "--model", self.options.model, "--prefill", "0", "--decode", "0", "--unified", "1",
             "--prefix-cache", "off", "--device", self.options.device, "--threads", str(self.options.threads),
             "--weights", self.options.weights, "--port", str(self.port)], stdout=self.log, stderr=self.log)
        run([self.tandem, "status", "--server", self.server(), "--wait", "60"])
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait(timeout=60)

    def server(self):
        return f"127.0.0.1:{self.port}"

    def generate(self, prompt_tokens, max_tokens, n=1):
        ids = ",".join(str(3 + (7 * i) % 29000) for i in range(prompt_tokens))
        return json.loads(run([self.tandem, "generate", "--server", self.server(), "--token-ids", ids,
                               "--route", "unified", "--temperature", "0", "--ignore-eos", "--max-tokens",
                               str(max_tokens), "--n", str(n), "--json"]))


def daemon_round(daemon):
    """The same cases through gRPC: rates from the stages that the router reports, warmed up as the others are; medians
    of three requests each."""
    def ttft_ms(tokens):
        return statistics.median(daemon.generate(tokens, 1)["stages"]["ttft_ms"] for _ in range(3))

    def tpot_ms(depth, n):
        answers = [daemon.generate(depth, STEPS + 1, n) for _ in range(3)]
        return statistics.median(choice["tpot_ms"] for answer in answers for choice in answer.get("choices", [answer]))

    # With a warm-up of one second the first prefills came out up to 9% slower, here and only right after another
    # process of this size had ended. Why is not proven; giving its memory back is the suspect.
    daemon.generate(2048, 64)
    return {"prefill 512": 512e3 / ttft_ms(512), "prefill 2048": 2048e3 / ttft_ms(2048),
            "decode batch 1": 1e3 / tpot_ms(SHORT, 1), "decode batch 1 at depth 2048": 1e3 / tpot_ms(2048, 1),
            "decode batch 8": 8e3 / tpot_ms(SHORT, 8)}


def engine_rate(report, case):
    kind, size, depth = CASES[case]
    for row in report["results"]:
        if row["kind"] != kind:
            continue
        if kind == "prefill" and row["tokens"] == size:
            return row["tokens_per_s"]
        if kind == "decode" and row["batch"] == size and row["depth"] == depth:
            return row["tokens_per_s"]
    sys.exit(f"model_bench did not report {case}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--peer-bin", required=True)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--weights", default="stored", choices=("stored", "int8"), help="of Tandem")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cpu-bf16"), help="of Tandem")
    parser.add_argument("--peer-name", help="version of the peer, where it does not know its own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    rounds = []
    for i in range(options.rounds):
        entry = {"peer": peer_round(options), "engine": engine_round(options)}
        with Daemon(options) as daemon:
            entry["daemon"] = daemon_round(daemon)
        rounds.append(entry)
        print(f"round {i + 1} of {options.rounds}", file=sys.stderr)

    summary = {}
    for case in CASES:
        tandem = statistics.median(engine_rate(entry["engine"], case) for entry in rounds)
        peer = statistics.median(entry["peer"][case] for entry in rounds)
        daemon = statistics.median(entry["daemon"][case] for entry in rounds)
        ratio = statistics.median(engine_rate(entry["engine"], case) / entry["peer"][case] for entry in rounds)
        summary[case] = {"tandem": tandem, "peer": peer, "ratio": ratio, "daemon": daemon,
                         "daemon_over_engine": statistics.median(
                             entry["daemon"][case] / engine_rate(entry["engine"], case) for entry in rounds)}
    cpu = re.search(r"model name\s*:\s*(.*)", open("/proc/cpuinfo").read()).group(1)
    version = run([os.path.join(options.bin, "tandem"), "version"]).strip()
    result = {"date": datetime.date.today().isoformat(), "cpu": cpu, "cores": os.cpu_count(),
              "kernel": platform.release(), "tandem": version, "threads": options.threads,
              "device": options.device, "weights": options.weights, "peer": options.peer_name or rounds[0]["peer"]["build"],
              "command": " ".join(["bench/compare_peer.py"] + sys.argv[1:]), "summary": summary,
              "rounds": rounds}
    with open(options.out, "w") as out:
        json.dump(result, out, indent=1)
        out.write("\n")
    for case, row in summary.items():
        print(f"{case:30} tandem {row['tandem']:8.1f}  peer {row['peer']:8.1f}  ratio {row['ratio']:.2f}  "
              f"daemon {row['daemon']:8.1f}")


if __name__ == "__main__":
    main()
