#!/usr/bin/env python3
"""Writes a random-weight checkpoint in Hugging Face form: benches and tests need shapes, not sense.

    tools/make_random_checkpoint.py /tmp/bench-350m --preset 350m
    tools/make_random_checkpoint.py /tmp/q --arch qwen3 --head-dim 32 --dtype f32 --shards 3

Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and
model.safetensors (with --shards, numbered files and their index). Needs numpy alone; weights are
made and written one tensor at a time, so memory stays at the largest tensor.
"""

import argparse
import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
                 "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
TORCH_DTYPE = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
SAFETENSORS_DTYPE = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
ITEM_BYTES = {"bf16": 2, "f16": 2, "f32": 4}
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"


@dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int


PRESETS = {
    "tiny": Shape(64, 2, 4, 2, 16, 128, 512),
    "30m": Shape(384, 8, 6, 2, 64, 1024, 16000),
    "350m": Shape(1024, 24, 16, 8, 64, 2816, 32000),
    "1b": Shape(2048, 22, 32, 4, 64, 5632, 32000),
    "3b": Shape(3072, 28, 24, 8, 128, 8192, 128256),
    "8b": Shape(4096, 32, 32, 8, 128, 14336, 128256),
}


@dataclass(frozen=True)
class Spec:
    """All that decides a checkpoint's bytes."""

    shape: Shape
    arch: str = "llama"
    dtype: str = "bf16"
    shards: int = 1
    tied: bool = False
    rope_theta: float = 10000.0
    rope_scaling: dict | None = None
    sliding_window: int | None = None
    max_positions: int = 8192
    config_form: str = "v4"  # v5 of transformers renames torch_dtype and groups the rope keys
    logit_std: float = 3.0
    seed: int = 1


# ---------------------------------------------------------------- tensors

def tensor_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Names and shapes in file order."""
    s = spec.shape
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    tensors = {"model.embed_tokens.weight": (s.vocab, s.hidden)}
    for i in range(s.layers):
        layer = {"input_layernorm.weight": (s.hidden,),
                 "self_attn.q_proj.weight": (q, s.hidden),
                 "self_attn.k_proj.weight": (kv, s.hidden),
                 "self_attn.v_proj.weight": (kv, s.hidden)}
        if spec.arch == "qwen2":
            layer |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,),
                      "self_attn.v_proj.bias": (kv,)}
        if spec.arch == "qwen3":
            layer |= {"self_attn.q_norm.weight": (s.head_dim,),
                      "self_attn.k_norm.weight": (s.head_dim,)}
        layer |= {"self_attn.o_proj.weight": (s.hidden, q),
                  "post_attention_layernorm.weight": (s.hidden,),
                  "mlp.gate_proj.weight": (s.ffn, s.hidden),
                  "mlp.up_proj.weight": (s.ffn, s.hidden),
                  "mlp.down_proj.weight": (s.hidden, s.ffn)}
        tensors |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    tensors["model.norm.weight"] = (s.hidden,)
    if not spec.tied:
        tensors["lm_head.weight"] = (s.vocab, s.hidden)
    return tensors


def make_tensor(spec: Spec, index: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """float32. Each tensor has its own random stream, so sharding does not change the values."""
    rng = np.random.default_rng([spec.seed, index])
    if name.endswith("norm.weight"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if name.endswith(".bias"):
        return 0.3 * rng.standard_normal(shape, np.float32)
    gain = 1.0  # keeps an activation's variance
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        gain = 1.5  # attention that prefers some positions, so that position errors show
    if name.endswith("lm_head.weight") or (spec.tied and "embed_tokens" in name):
        gain = spec.logit_std
    return np.float32(gain / shape[-1] ** 0.5) * rng.standard_normal(shape, np.float32)


def encode(values: np.ndarray, dtype: str) -> bytes:
    if dtype == "bf16":  # round to nearest, ties to even; no NaN comes here
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return values.astype({"f16": "<f2", "f32": "<f4"}[dtype]).tobytes()


# ---------------------------------------------------------------- files

def write_weights(spec: Spec, out: Path) -> None:
    tensors = [(i, name, shape) for i, (name, shape) in enumerate(tensor_shapes(spec).items())]
    if spec.shards == 1:
        write_safetensors(spec, out / "model.safetensors", tensors)
        return
    shards = split_by_bytes(tensors, spec.shards)
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{spec.shards:05}.safetensors"
        write_safetensors(spec, out / file, shard)
        weight_map |= {name: file for _, name, _ in shard}
    total = sum(int(np.prod(shape)) for _, _, shape in tensors) * ITEM_BYTES[spec.dtype]
    write_json(out / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def split_by_bytes(tensors: list, shards: int) -> list[list]:
    """Consecutive runs of about equal size."""
    ends = np.cumsum([np.prod(shape) for _, _, shape in tensors])
    parts = [[] for _ in range(shards)]
    for tensor, end in zip(tensors, ends):
        parts[min(shards - 1, int((end - 1) * shards // ends[-1]))].append(tensor)
    if not all(parts):
        raise SystemExit(f"too few tensors for {shards} shards")
    return parts


def write_safetensors(spec: Spec, path: Path, tensors: list) -> None:
    """Length of the header (u64), the header as JSON padded to 8 bytes, then the tensors."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for _, name, shape in tensors:
        size = int(np.prod(shape)) * ITEM_BYTES[spec.dtype]
        header[name] = {"dtype": SAFETENSORS_DTYPE[spec.dtype], "shape": shape,
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for index, name, shape in tensors:
            f.write(encode(make_tensor(spec, index, name, shape), spec.dtype))


def config(spec: Spec) -> dict:
    s = spec.shape
    c = {"architectures": [ARCHITECTURES[spec.arch]], "model_type": spec.arch,
         "vocab_size": s.vocab, "hidden_size": s.hidden, "intermediate_size": s.ffn,
         "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
         "num_key_value_heads": s.kv_heads, "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "max_position_embeddings": spec.max_positions, "tie_word_embeddings": spec.tied,
         "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True,
         **end_token_ids(s.vocab)}
    if s.heads * s.head_dim != s.hidden or spec.arch == "qwen3":
        c["head_dim"] = s.head_dim  # older configs leave it to be derived
    if spec.arch == "llama":
        c |= {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}
    if spec.arch == "qwen3":
        c |= {"attention_bias": False}
    if spec.arch != "llama":
        c["sliding_window"] = spec.sliding_window
    if spec.arch.startswith("qwen"):
        c |= {"use_sliding_window": spec.sliding_window is not None,
              "max_window_layers": 0 if spec.sliding_window else s.layers}
    if spec.config_form == "v4":
        return c | {"rope_theta": spec.rope_theta, "rope_scaling": spec.rope_scaling,
                    "torch_dtype": TORCH_DTYPE[spec.dtype]}
    rope = spec.rope_scaling or {"rope_type": "default"}
    return c | {"rope_parameters": {**rope, "rope_theta": spec.rope_theta},
                "dtype": TORCH_DTYPE[spec.dtype]}


def rope_scaling(kind: str | None, factor: float, original_positions: int) -> dict | None:
    match kind:
        case None:
            return None
        case "linear":
            return {"factor": factor, "type": "linear"}
        case "llama3":
            return {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": original_positions, "rope_type": "llama3"}
    raise ValueError(f"unknown rope scaling {kind!r}")


# ---------------------------------------------------------------- tokenizer

def end_token_ids(vocab: int) -> dict[str, int]:
    return {"bos_token_id": vocab - 2, "eos_token_id": vocab - 1}


def byte_symbols() -> list[str]:
    """GPT-2's visible stand-in for each byte: itself where printable, else U+0100 and on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(b if b in printable else next(spare)) for b in range(256)]


def synthetic_tokenizer(vocab: int) -> dict:
    """Byte-level BPE whose merges spell words of two letters, then three, then four."""
    tokens = byte_symbols()
    merges = []
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    longest = [tokens[ord(" ")], *letters]
    room = vocab - len(tokens) - 2
    if room < 0:
        raise SystemExit(f"a vocabulary of {vocab} does not hold 256 bytes and 2 special tokens")
    while len(merges) < room:
        merges += [(head, tail) for head in longest for tail in letters]
        longest = [head + tail for head in longest for tail in letters]
    merges = merges[:room]
    tokens += [head + tail for head, tail in merges]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": len(tokens) + i, "content": content, "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                         for i, content in enumerate((BOS, EOS))],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [f"{head} {tail}" for head, tail in merges]}}


# ---------------------------------------------------------------- command

def write_checkpoint(spec: Spec, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_weights(spec, out)
    write_json(out / "config.json", config(spec))
    write_json(out / "generation_config.json", {**end_token_ids(spec.shape.vocab),
                                                "do_sample": False})
    write_json(out / "tokenizer.json", synthetic_tokenizer(spec.shape.vocab), indent=None)
    write_json(out / "tokenizer_config.json",
               {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS,
                "clean_up_tokenization_spaces": False, "model_max_length": spec.max_positions})


def write_json(path: Path, value, indent: int | None = 2) -> None:
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out", type=Path)
    p.add_argument("--preset", choices=PRESETS, default="tiny")
    p.add_argument("--arch", choices=ARCHITECTURES, default="llama")
    p.add_argument("--dtype", choices=TORCH_DTYPE, default="bf16")
    p.add_argument("--shards", type=int, default=1)
    p.add_argument("--tied", action="store_true", help="the embedding serves as output layer")
    p.add_argument("--rope-theta", type=float, default=10000.0)
    p.add_argument("--rope-scaling", choices=["llama3", "linear"])
    p.add_argument("--rope-factor", type=float, default=8.0)
    p.add_argument("--rope-original-positions", type=int, default=2048)
    p.add_argument("--sliding-window", type=int)
    p.add_argument("--max-positions", type=int, default=8192)
    p.add_argument("--config-form", choices=["v4", "v5"], default="v4",
                   help="whose key names config.json uses: transformers 4 or 5")
    p.add_argument("--seed", type=int, default=1)
    for field in Shape.__dataclass_fields__:
        p.add_argument("--" + field.replace("_", "-"), type=int, help="overrides the preset")
    return p.parse_args()


def main() -> None:
    a = parse_args()
    fields = {f: getattr(a, f) or getattr(PRESETS[a.preset], f)
              for f in Shape.__dataclass_fields__}
    if a.sliding_window and a.arch == "llama":
        raise SystemExit("llama has no sliding window: take --arch mistral")
    spec = Spec(Shape(**fields), a.arch, a.dtype, a.shards, a.tied, a.rope_theta,
                rope_scaling(a.rope_scaling, a.rope_factor, a.rope_original_positions),
                a.sliding_window, a.max_positions, a.config_form, seed=a.seed)
    write_checkpoint(spec, a.out)
    parameters = sum(int(np.prod(s)) for s in tensor_shapes(spec).values())
    size = sum(f.stat().st_size for f in a.out.glob("*.safetensors"))
    print(json.dumps({"out": str(a.out), "parameters": parameters, "weight_bytes": size}))


if __name__ == "__main__":
    main()
