#!/usr/bin/env python3
"""What activations of bf16 change, and weights of 8 bits with and without embedding and head, beside the same model with its
weights as stored. Standard library only.

  bench/cheaper_products.py --speed DIR --quality DIR [--bin build/release/bin] --out bench/results/cpu_cheaper_products.json

Speed: `model_bench` with each, turn by turn, medians of the rounds. Quality: log-probabilities of the tokens of this tree's docs, in
windows that are each one prompt, asked of `tandem up` with `echo`: perplexity, and how often the most probable token is that of the stored
weights.
"""
import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from live_predictions import cpu_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Flags of each way.
WAYS = {"stored": [], "cpu-bf16": ["--device", "cpu-bf16"], "int8": ["--weights", "int8"],
        "int8-layers": ["--weights", "int8-layers"]}
PORT, HTTP_PORT = 18290, 18291
WINDOW_TOKENS = 1024
START_SECONDS = 60


def case_of(row):
    if row["kind"] == "prefill":
        return f"prefill {row['tokens']}"
    return f"decode batch {row['batch']} at depth {row['depth']}"


def speed(options):
    """Rows of a case each: median tokens per second of each way, and what a step reads."""
    runs = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run.json"
        for _ in range(options.rounds):
            for way in WAYS:
                subprocess.run([options.bin / "model_bench", "--model", options.speed, *WAYS[way], "--prefill", "512",
                                "--decode-batch", "1,8", "--depth", "0,1024", "--decode-steps", "32", "--repeats", "1",
                                "--threads", str(os.cpu_count()), "--json", out], stdout=subprocess.DEVNULL, check=True)
                runs[way].append(json.loads(out.read_text()))
    rows = []
    for index, first in enumerate(runs["stored"][0]["results"]):
        row = {"case": case_of(first)}
        for way in WAYS:
            of_way = [run["results"][index] for run in runs[way]]
            row[way] = {"tokens_per_s": statistics.median(each["tokens_per_s"] for each in of_way),
                        "range": [min(each["tokens_per_s"] for each in of_way), max(each["tokens_per_s"] for each in of_way)],
                        "bytes_per_step": of_way[0]["bytes_per_step"],
                        "share_of_dram_read": statistics.median(each["share_of_dram_read"] for each in of_way)}
        rows.append(row)
    return {"parameters": runs["stored"][0]["parameters"], "rows": rows,
            "weight_bytes": {way: runs[way][0]["weight_bytes"] for way in WAYS},
            "load_s": {way: statistics.median(run["load_s"] for run in runs[way]) for way in WAYS},
            "fma_gflops": statistics.median(run["ceilings"]["fma_gflops_per_s"] for run in runs["int8"]),
            "dram_read_gbytes_per_s": statistics.median(run["ceilings"]["dram_read_gbytes_per_s"] for run in runs["int8"])}


@contextlib.contextmanager
def service(options, way):
    command = [options.bin / "tandem", "up", "--model", options.quality, *WAYS[way], "--prefill", "0", "--decode", "0",
               "--unified", "1", "--port", str(PORT), "--http-port", str(HTTP_PORT), "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if not process.stdout.readline().startswith("ready:"):
                sys.exit(f"{' '.join(map(str, command))}: did not become ready")
            yield
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def post(path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{HTTP_PORT}{path}", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def windows(count):
    """Token ids of `count` windows of the docs."""
    made = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        ids = post("/tokenize", {"prompt": page.read_text()})["tokens"]
        for begin in range(0, len(ids) - WINDOW_TOKENS + 1, WINDOW_TOKENS):
            made.append(ids[begin:begin + WINDOW_TOKENS])
    if len(made) < count:
        sys.exit(f"the docs have {len(made)} windows, {count} are asked for")
    return made[:count]


def predictions(options, way):
    """The log-probability of each token but a window's first, and the most probable token in its place."""
    with service(options, way):
        logprobs, likeliest = [], []
        for ids in windows(options.windows):
            answer = post("/v1/completions", {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0})
            of_prompt = answer["choices"][0]["logprobs"]
            logprobs += of_prompt["token_logprobs"][1:]
            likeliest += [max(top, key=top.get) for top in of_prompt["top_logprobs"][1:]]
        return logprobs, likeliest


def quality(options):
    of_way = {way: predictions(options, way) for way in WAYS}
    perplexity = {way: math.exp(-statistics.fmean(logprobs)) for way, (logprobs, _) in of_way.items()}
    stored = of_way["stored"][1]
    return {"model": pathlib.Path(options.quality).name, "tokens": len(stored), "perplexity": perplexity,
            "change": {way: perplexity[way] / perplexity["stored"] - 1 for way in WAYS},
            "top_1_agreement": {way: statistics.fmean(a == b for a, b in zip(stored, likeliest))
                                for way, (_, likeliest) in of_way.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", required=True, help="checkpoint that is timed")
    parser.add_argument("--quality", required=True, help="checkpoint with a tokenizer")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--windows", type=int, default=49, help=f"of {WINDOW_TOKENS} tokens")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    begin = time.monotonic()
    result = {"bench": "cheaper_products", "date": datetime.date.today().isoformat(), "cpu": cpu_name(), "cores": os.cpu_count(),
              "rounds": options.rounds, "speed": speed(options), "quality": quality(options),
              "command": f"bench/cheaper_products.py --speed {options.speed} --quality {options.quality} --rounds {options.rounds} "
                         f"--windows {options.windows} --out {options.out}"}
    options.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    print(f"{options.out}: {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
