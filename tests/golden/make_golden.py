#!/usr/bin/env python3
"""Writes the model goldens: small random checkpoints and what transformers computes from them.

Beam searches go to beams/: over models/sample and over the random tree of beam_cases.py.

    nice tests/golden/make_golden.py               # everything
    nice tests/golden/make_golden.py --only sample # after models/sample changed: a minute
    nice tests/golden/make_golden.py --only beams  # then too

Reference: transformers, eager attention, float32 arithmetic on the stored weights. Every step of
the greedy run recomputes the whole sequence, so no cache of transformers' is trusted.
"""

import argparse
import json
import platform
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import austen
import beam_cases
import quantised
from make_random_checkpoint import Shape, Spec, rope_scaling, write_checkpoint
from train_sample_model import HELD_OUT, SAMPLE_PROMPTS

GREEDY_TOKENS = 64
MIN_MARGIN = 0.01  # between the best two logits, at every greedy step of a random checkpoint
TIED_STD = 1.5  # larger, a tied random model only repeats its last token
SAMPLE_LONG_TOKENS = 600

#                 hidden, layers, heads, kv_heads, head_dim, ffn, vocab
CHECKPOINTS = {
    "llama2": Spec(Shape(64, 2, 4, 2, 16, 96, 288), dtype="f32", max_positions=256),
    "llama3": Spec(Shape(96, 2, 6, 2, 16, 144, 384), tied=True, logit_std=TIED_STD,
                   rope_theta=500000.0, rope_scaling=rope_scaling("llama3", 4.0, 32),
                   max_positions=256),
    "linear": Spec(Shape(64, 3, 4, 4, 16, 128, 320), dtype="f16",
                   rope_scaling=rope_scaling("linear", 4.0, 0), max_positions=256),
    "mistral": Spec(Shape(64, 3, 4, 1, 16, 160, 301), arch="mistral", sliding_window=24,
                    max_positions=256),
    "qwen2": Spec(Shape(96, 2, 3, 1, 32, 176, 352), arch="qwen2", tied=True,
                  logit_std=TIED_STD, rope_theta=1000000.0, max_positions=256),
    "qwen3": Spec(Shape(64, 3, 4, 2, 32, 112, 400), arch="qwen3", rope_theta=1000000.0,
                  max_positions=256, config_form="v5"),
    "sharded": Spec(Shape(64, 3, 4, 2, 16, 128, 320), shards=3, max_positions=256),
    **{kind: Spec(Shape(64, 2, 4, 2, 16, 96, 288), max_positions=256) for kind in quantised.KINDS},
}


def load(path: Path):
    """A quantised checkpoint is dequantised by transformers itself."""
    config = transformers.AutoConfig.from_pretrained(path)
    quantisation = getattr(config, "quantization_config", None)
    options = {}
    if quantisation is not None:
        fp8 = quantisation["quant_method"] == "fp8"
        kind = transformers.FineGrainedFP8Config if fp8 else transformers.CompressedTensorsConfig
        options["quantization_config"] = kind(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", **options)
    return model.eval()


@torch.no_grad()
def run(model, prompt: list[int]) -> dict:
    """Logits after the prompt, then greedy tokens and by how much each one won."""
    ids, tokens, margins = list(prompt), [], []
    for _ in range(GREEDY_TOKENS):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        if not tokens:
            last_logits = logits
        best = logits.topk(2)
        tokens.append(best.indices[0].item())
        margins.append(round((best.values[0] - best.values[1]).item(), 4))
        ids.append(tokens[-1])
    return {"prompt_ids": prompt, "last_logits": [shortest(x) for x in last_logits.numpy()],
            "greedy_ids": tokens, "greedy_margins": margins}


def shortest(value: np.float32) -> float:
    """The shortest decimal that reads back as the same float32."""
    return float(str(value))


def record(checkpoint: Path, cases: list[dict]) -> dict:
    return {"checkpoint": str(checkpoint.relative_to(ROOT)), **origin(), "cases": cases}


def origin() -> dict:
    return {"command": "tests/golden/make_golden.py",
            "versions": {"python": platform.python_version(), "torch": torch.__version__,
                         "transformers": transformers.__version__,
                         "tokenizers": tokenizers.__version__, "numpy": np.__version__},
            "arithmetic": "float32, eager attention"}


def make_random(name: str, spec: Spec) -> dict:
    """Tries seeds until no greedy choice is a close call."""
    out = HERE / "checkpoints" / name
    for seed in range(1, 1000):
        write_checkpoint(replace(spec, seed=seed), out)
        if name in quantised.KINDS:
            quantised.quantise(out, name)
        rng = np.random.default_rng(seed)
        model = load(out)
        cases = [run(model, rng.integers(spec.shape.vocab - 2, size=n).tolist())
                 for n in (48, 100)]
        variety = min(len(set(c["greedy_ids"])) for c in cases)
        if min(min(c["greedy_margins"]) for c in cases) > MIN_MARGIN and variety > 16:
            return {"seed": seed, **record(out, cases)}
    raise SystemExit(f"{name}: no seed keeps the margins above {MIN_MARGIN}")


def make_sample() -> dict:
    """Two short prompts and one long one from the held-out novel, passing over close calls."""
    path = ROOT / "models" / "sample"
    tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    model = load(path)
    chapters = austen.novels()[HELD_OUT]
    openings = [" ".join(chapter.split(" ")[:12]) for chapter in chapters]
    long_texts = [tokenizer.decode(tokenizer.encode(chapter).ids[:SAMPLE_LONG_TOKENS])
                  for chapter in chapters]
    cases = [*first_clear(model, tokenizer, [*SAMPLE_PROMPTS, *openings], 2),
             *first_clear(model, tokenizer, long_texts, 1)]
    return record(path, cases)


def first_clear(model, tokenizer, texts: list[str], count: int) -> list[dict]:
    clear = []
    for text in texts:
        case = run(model, tokenizer.encode(text).ids)
        if min(case["greedy_margins"]) > MIN_MARGIN:
            clear.append({"text": text, **case,
                          "greedy_text": tokenizer.decode(case["greedy_ids"])})
        if len(clear) == count:
            return clear
    raise SystemExit(f"sample: no {count} prompts keep the margins above {MIN_MARGIN}")


def make_beams() -> None:
    path = ROOT / "models" / "sample"
    text_ids = json.loads((HERE / "logits" / "sample.json").read_text())["cases"][-1]["prompt_ids"]
    tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    model = load(path)
    end = model.config.eos_token_id
    stops = {"end": [end], "period": sorted([end, tokenizer.token_to_id(".")]),
             "comma": sorted([end, *map(tokenizer.token_to_id, ".,;")])}
    write_beams("sample", record(path, beam_cases.sample_cases(model, text_ids, stops)))
    write_beams("tree", {"vocab_size": beam_cases.TREE_VOCAB, **origin(),
                         "cases": beam_cases.tree_cases()})


def write_beams(name: str, golden: dict) -> None:
    (HERE / "beams").mkdir(exist_ok=True)
    (HERE / "beams" / f"{name}.json").write_text(json.dumps(golden) + "\n")
    hypotheses = [(len(h["ids"]), c["max_new_tokens"]) for c in golden["cases"]
                  for h in c["hypotheses"]]
    print(json.dumps({"name": f"beams/{name}", "cases": len(golden["cases"]),
                      "hypotheses": len(hypotheses),
                      "shorter_than_max": sum(a < b for a, b in hypotheses),
                      "closest": min(c["closest"] for c in golden["cases"])}), flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--only", choices=[*CHECKPOINTS, "sample", "beams"])
    only = p.parse_args().only
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    (HERE / "logits").mkdir(exist_ok=True)
    for name in [only] if only else [*CHECKPOINTS, "sample", "beams"]:
        if name == "beams":
            make_beams()
            continue
        golden = make_sample() if name == "sample" else make_random(name, CHECKPOINTS[name])
        (HERE / "logits" / f"{name}.json").write_text(json.dumps(golden) + "\n")
        print(json.dumps({"name": name, "seed": golden.get("seed"),
                          "min_margin": [min(c["greedy_margins"]) for c in golden["cases"]],
                          "logit_std": [round(float(np.std(c["last_logits"])), 2)
                                        for c in golden["cases"]],
                          "distinct": [len(set(c["greedy_ids"])) for c in golden["cases"]]}),
              flush=True)


if __name__ == "__main__":
    main()
