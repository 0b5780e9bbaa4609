#!/usr/bin/env python3
"""What the classes of quality (docs/hand_off.md) and eviction (docs/token_eviction.md) may change in the predictions of a real chat
model, and how much smaller KV has to become. Standard library only; `make test-quality` fetches the model and calls it.

  tests/quality/run.py --model DIR [--prompts 10] [--json FILE]

A router, a unified, a prefill and a decode worker are started. `tandem eval` takes windows of prose, code and manuals, and compares each
class on the disaggregated route with the unified route, which computes on KV that never moved. `tandem calibrate-kv` has measured first, on
another text, which layers' KV is to be rounded in finer steps. Limits are for SmolLM2-135M-Instruct; they say nothing of another model. Ways of eviction are held against each other in the same run:
what attention chooses must change less than what is chosen without it. At last it counts which facts that were planted in the prompts
each of them still finds.
"""
import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Prose, code in three languages, schemas and legal text, all of this repository or of every Debian.
TEXTS = ("docs/architecture.md", "docs/hand_off.md", "docs/cost_model.md", "README.md", "engine/engine.cc", "router/router.cc",
         "bench/http_cost.py", "proto/tandem/v1/inference.proto", "/usr/share/common-licenses/GPL-2",
         "/usr/share/common-licenses/Artistic", "server/page/turn.js", "docs/failures.md")
# Of the mean over all windows: perplexity in percent (either way), top-1 agreement in percent, KL in nats, bytes of KV per byte sent.
LIMITS = {"exact": {"perplexity": 1e-4, "top1": 100, "kl": 1e-6, "ratio": 1.48},
          "near-strict": {"perplexity": 0.3, "top1": 99.3, "kl": 0.0003, "ratio": 2.1},
          "near": {"perplexity": 0.3, "top1": 98.5, "kl": 0.001, "ratio": 2.7},
          "compact": {"perplexity": 2, "top1": 95.5, "kl": 0.01, "ratio": 4.3},
          "tiny": {"perplexity": 3, "top1": 93.5, "kl": 0.025, "ratio": 5.7}}
# The text that the model is calibrated with: none of TEXTS.
CALIBRATION = "docs/serving.md"
# A third of the prompt's tokens stays, and beside all output.
OF_PROMPT = tuple(f"{policy}:3,output=keep" for policy in ("h2o-ema", "snapkv", "streaming-llm", "random"))
# Half of the prompt's tokens: another point of the curve of quality over bytes.
HALF_OF_PROMPT = "snapkv:2,output=keep"
# A third of all tokens stays.
OF_ALL = ("snapkv:3", "streaming-llm:3", "random:3")
# The KL of a way of eviction as a share of another's, at most: (way, the other) -> share.
KL_SHARES = {("h2o-ema:3,output=keep", "random:3,output=keep"): 0.52, ("h2o-ema:3,output=keep", "streaming-llm:3,output=keep"): 0.75,
             ("snapkv:3,output=keep", "random:3,output=keep"): 0.65, ("snapkv:3,output=keep", "streaming-llm:3,output=keep"): 0.9,
             ("snapkv:3", "random:3"): 0.7, ("snapkv:3", "streaming-llm:3"): 0.95}
# Eviction at random must change more than this KL, or the shares above tell nothing.
RANDOM_KL = 0.05
PLANTED_WINDOWS = 8
# By how many planted facts fewer than exact compact may find.
FEWER_FOUND = 2


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def way_flags(way):
    """Of a class of quality, or of a way of eviction, whose name has a ratio behind a colon."""
    return ["--evict" if ":" in way else "--quality", way]


def run_eval(options, server, texts, prompts, flags, folder):
    out = folder / "eval.json"
    inputs = [word for text in texts for word in ("--input", str(ROOT / text))]
    subprocess.run([str(options.tandem), "eval", "--server", server, *inputs, "--prompt-tokens", str(options.prompt_tokens),
                    "--prompts", str(prompts), *flags, "--json", str(out)], check=True)
    return json.loads(out.read_text())


def findings(quality, totals):
    limits = LIMITS[quality]
    mean = {key: totals[key]["mean"] for key in ("perplexity_change_percent", "top1_agreement", "kl_nats", "kv_raw_over_wire")}
    wrong = []
    if abs(mean["perplexity_change_percent"]) > limits["perplexity"]:
        wrong.append(f"perplexity changes by {mean['perplexity_change_percent']:.3f}%, limit {limits['perplexity']}%")
    if 100 * mean["top1_agreement"] < limits["top1"] - 1e-6:
        wrong.append(f"top-1 agreement {100 * mean['top1_agreement']:.2f}%, limit {limits['top1']}%")
    if mean["kl_nats"] > limits["kl"]:
        wrong.append(f"KL {mean['kl_nats']:.6f}, limit {limits['kl']}")
    if mean["kv_raw_over_wire"] < limits["ratio"]:
        wrong.append(f"ratio {mean['kv_raw_over_wire']:.3f}, limit {limits['ratio']}")
    return wrong


def mean_kl(evaluated):
    return evaluated["totals"]["kl_nats"]["mean"]


def found(evaluated, which="found"):
    return sum(int(window[which]) for window in evaluated["windows"])


def eviction_findings(evictions):
    kl = {way: mean_kl(evaluated) for way, evaluated in evictions.items()}
    wrong = [f"{way}: KL {kl[way]:.6f} is {kl[way] / kl[other]:.2f} of that of {other}, limit {share}"
             for (way, other), share in KL_SHARES.items() if kl[way] > share * kl[other]]
    for way in ("random:3,output=keep", "random:3"):
        if kl[way] <= RANDOM_KL:
            wrong.append(f"{way}: KL {kl[way]:.6f}, which must be above {RANDOM_KL} for the other limits to mean anything")
    return wrong


def planted_findings(question, ways):
    least = found(ways["exact"]) - FEWER_FOUND
    if found(ways["compact"]) >= least:
        return []
    return [f"compact, planted {question}: finds {found(ways['compact'])}, at least {least} expected"]


def calibrated(options, folder):
    """A folder with the files of the model, and with what calibrate-kv measured."""
    model = folder / options.model.name
    model.mkdir()
    for file in options.model.iterdir():
        (model / file.name).symlink_to(file.resolve())
    sensitivity = model / "kv_sensitivity.json"
    sensitivity.unlink(missing_ok=True)
    subprocess.run([str(options.tandem), "calibrate-kv", "--model", str(model), "--input", str(ROOT / CALIBRATION)], check=True)
    return model


def evaluate(options, server, folder, result):
    """Adds what was measured to the result. Returns what is wrong with it."""
    wrong = []
    output = ["--output-tokens", str(options.output_tokens)]
    # The first 1,024 tokens travel as they are: the codecs' tables are made of them.
    run_eval(options, server, TEXTS[-2:], 2, [*output, *way_flags("exact")], folder)
    for part, ways in (("classes", LIMITS), ("evictions", (HALF_OF_PROMPT, *OF_PROMPT, *OF_ALL))):
        for way in ways:
            result[part][way] = run_eval(options, server, TEXTS, options.prompts, [*output, *way_flags(way)], folder)
    for quality in LIMITS:
        wrong += [f"{quality}: {finding}" for finding in findings(quality, result["classes"][quality]["totals"])]
    wrong += eviction_findings(result["evictions"])
    for question, ways in result["planted"].items():
        for way in ("exact", "compact", "tiny", *OF_PROMPT):
            flags = ["--planted", question, *way_flags(way)]
            ways[way] = run_eval(options, server, TEXTS, options.planted_prompts, flags, folder)
        wrong += planted_findings(question, ways)
    return wrong


def print_found(planted):
    for question, ways in planted.items():
        for way, evaluated in ways.items():
            print(f"planted {question}, {way}: found {found(evaluated)} of {len(evaluated['windows'])}, "
                  f"the baseline {found(evaluated, 'baseline_found')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--tandem", type=pathlib.Path, default=ROOT / "build/release/bin/tandem")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--output-tokens", type=int, default=255)
    parser.add_argument("--planted-prompts", type=int, default=PLANTED_WINDOWS)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    port = free_port()
    server = f"127.0.0.1:{port}"
    result = {"bench": "kv_quality", "command": "tests/quality/run.py " + " ".join(sys.argv[1:]), "model": options.model.name,
              "classes": {}, "evictions": {}, "planted": {"known": {}, "later": {}}}
    with tempfile.TemporaryDirectory() as folder:
        model = calibrated(options, pathlib.Path(folder))
        service = subprocess.Popen([str(options.tandem), "up", "--model", str(model), "--port", str(port), "--prefill", "1",
                                    "--decode", "1", "--unified", "1", "--kv-transport", "tcp", "--kv-codec", "mask-rice",
                                    "--prefix-cache", "off", "--profile-at-start", "off", "--log-level", "error"],
                                   stdout=subprocess.DEVNULL)
        try:
            while subprocess.run([str(options.tandem), "status", "--server", server], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL).returncode != 0:
                if service.poll() is not None:
                    sys.exit("tandem up ended")
                time.sleep(0.5)
            wrong = evaluate(options, server, pathlib.Path(folder), result)
        finally:
            service.terminate()
            service.wait()
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print_found(result["planted"])
    for finding in wrong:
        print(f"FAILED {finding}")
    print("FAILED" if wrong else "all limits held")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
