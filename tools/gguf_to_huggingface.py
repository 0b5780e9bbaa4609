#!/usr/bin/env python3
"""Writes the model of a GGUF file of the architecture llama as a HuggingFace folder in bf16.

    gguf_to_huggingface.py FILE.gguf FOLDER

FOLDER gets config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json. Needs numpy
and nothing else. tools/chat_model.sh calls it for SmolLM2-135M-Instruct; it takes what that file has, which is the
tensor types F32, Q4_1 and Q8_0 and a byte-level BPE tokenizer with single digits, and refuses anything else by name.

Formats: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, https://github.com/huggingface/safetensors
"""

import json
import mmap
import os
import struct
import sys

import numpy as np

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BLOCK = 32  # weights that share a scale
SPECIAL = 3  # the type of special tokens
MOST_VALUES = 1 << 24  # in one array of the header

# GGUF's names of a layer's tensors, and HuggingFace's.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def refuse(why):
    sys.exit(f"gguf_to_huggingface: {why}")


class Reader:
    """Reads little-endian values from one place after another."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, size):
        if size > len(self.data) - self.at:
            refuse(f"the file ends within its header, at byte {len(self.data)}: fetch it again")
        self.at += size
        return self.data[self.at - size : self.at]

    def scalar(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self):
        return bytes(self.take(self.scalar("Q"))).decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            if kind not in SCALARS:
                refuse(f"a value of the unknown type {kind}")
            return self.scalar(SCALARS[kind])
        element, count = self.scalar("I"), self.scalar("Q")
        if count > MOST_VALUES:
            refuse(f"a list of {count} values")
        return [self.value(element) for _ in range(count)]


class Gguf:
    """The header of a GGUF file, and its tensors as float32."""

    def __init__(self, data):
        reader = Reader(data)
        if reader.take(4) != b"GGUF":
            refuse("this is no GGUF file")
        if (version := reader.scalar("I")) != 3:
            refuse(f"GGUF of version {version}; only 3 is known")
        num_tensors, num_fields = reader.scalar("Q"), reader.scalar("Q")
        self.data = data
        self.fields = {}
        for _ in range(num_fields):
            name = reader.text()
            self.fields[name] = reader.value(reader.scalar("I"))
        self.tensors = {}
        for _ in range(num_tensors):
            name = reader.text()
            # The innermost dimension comes first.
            shape = [reader.scalar("Q") for _ in range(reader.scalar("I"))][::-1]
            self.tensors[name] = (shape, reader.scalar("I"), reader.scalar("Q"))
        alignment = self.fields.get("general.alignment", 32)
        self.start = (reader.at + alignment - 1) // alignment * alignment

    def bytes_of(self, offset, size):
        begin = self.start + offset
        if begin + size > len(self.data):
            refuse(f"a tensor ends after the end of the file, at {begin + size}: fetch it again")
        return np.frombuffer(self.data, np.uint8, size, begin)

    def tensor(self, name):
        shape, kind, offset = self.tensors[name]
        count = int(np.prod(shape, dtype=object))
        if kind == 0:  # F32
            return self.bytes_of(offset, 4 * count).view("<f4").reshape(shape)
        if shape[-1] % BLOCK != 0:
            refuse(f"{name} has rows of {shape[-1]} values, which are no whole blocks")
        blocks = count // BLOCK
        if kind == 3:  # Q4_1: scale and minimum in f16, then 32 values of 4 bits, low halves first
            raw = self.bytes_of(offset, 20 * blocks).reshape(blocks, 20)
            scales = raw[:, :4].copy().view("<f2").astype(np.float32)
            values = np.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], axis=1).astype(np.float32)
            return (scales[:, :1] * values + scales[:, 1:]).reshape(shape)
        if kind == 8:  # Q8_0: a scale in f16, then 32 signed bytes
            raw = self.bytes_of(offset, 34 * blocks).reshape(blocks, 34)
            scale = raw[:, :2].copy().view("<f2").astype(np.float32)
            return (scale * raw[:, 2:].view(np.int8).astype(np.float32)).reshape(shape)
        refuse(f"{name} has the tensor type {kind}; known are 0 (F32), 3 (Q4_1) and 8 (Q8_0)")


def to_bf16(values):
    """The bits of the nearest bf16, ties to even. There is no infinity or NaN among weights."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def with_split_halves(weight, num_heads):
    """GGUF has the two values that rope turns beside each other; HuggingFace has them half a head apart."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def huggingface_name(name):
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in LAYER_NAMES and parts[3] == "weight":
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"
    if len(parts) == 2 and parts[0] in OTHER_NAMES and parts[1] == "weight":
        return f"{OTHER_NAMES[parts[0]]}.weight"
    refuse(f"a tensor {name}, which no layer of llama has")


def write_weights(model, path):
    """One tensor after another, so that no more than one is in memory."""
    heads = model.fields["llama.attention.head_count"]
    kv_heads = model.fields["llama.attention.head_count_kv"]
    names = sorted((huggingface_name(name), name) for name in model.tensors)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for target, source in names:
        shape = model.tensors[source][0]
        begin, end = end, end + 2 * int(np.prod(shape, dtype=object))
        header[target] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, source in names:
            weight = model.tensor(source)
            if ".attn_q." in source:
                weight = with_split_halves(weight, heads)
            if ".attn_k." in source:
                weight = with_split_halves(weight, kv_heads)
            file.write(to_bf16(weight).tobytes())


def config_of(fields, tied):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        # As f32 the file has 9.999999747378752e-06.
        "rms_norm_eps": float(f'{fields["llama.attention.layer_norm_rms_epsilon"]:.6g}'),
        "rope_scaling": None,
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "vocab_size": fields["llama.vocab_size"],
    }


def tokenizer_of(fields):
    if (kind := fields["tokenizer.ggml.model"]) != "gpt2":
        refuse(f"a tokenizer of the kind {kind}; only gpt2 is known")
    if (before := fields["tokenizer.ggml.pre"]) != "smollm":
        refuse(f"a tokenizer that cuts texts as {before}; only smollm is known")
    tokens = fields["tokenizer.ggml.tokens"]
    added = [
        {
            "id": i,
            "content": tokens[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, kind in enumerate(fields["tokenizer.ggml.token_type"])
        if kind == SPECIAL
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config_of(fields):
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "chat_template": fields["tokenizer.chat_template"],
        "model_max_length": fields["llama.context_length"],
        "tokenizer_class": "GPT2Tokenizer",
        "clean_up_tokenization_spaces": False,
    }


def write_json(value, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")


def main(source, folder):
    with open(source, "rb") as file:
        model = Gguf(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    fields = model.fields
    if (architecture := fields["general.architecture"]) != "llama":
        refuse(f"the architecture {architecture}; only llama is known")
    os.makedirs(folder, exist_ok=True)
    ends = {key: fields[f"tokenizer.ggml.{key}"] for key in ("bos_token_id", "eos_token_id")}
    write_json(config_of(fields, "output.weight" not in model.tensors), f"{folder}/config.json")
    write_json(ends, f"{folder}/generation_config.json")
    write_json(tokenizer_of(fields), f"{folder}/tokenizer.json")
    write_json(tokenizer_config_of(fields), f"{folder}/tokenizer_config.json")
    write_weights(model, f"{folder}/model.safetensors")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
