#!/usr/bin/env python3
"""Writes the tokenizer goldens: six kinds of tokenizer.json and what Hugging Face makes of them.

    nice tests/golden/make_tokenizer_golden.py

Each kind is trained here on the same text and saved in the very form that the models it is named
after publish. tests/golden/tokenizer/README.md has the file formats.
"""

import copy
import json
import platform
import struct
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import tokenizers
from tokenizers import (Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

HERE = Path(__file__).resolve().parent
OUT = HERE / "tokenizer"
sys.path.insert(0, str(HERE.parents[1] / "tools"))

import austen
from tokenizer_lines import make_lines
from train_sample_model import LLAMA3_SPLIT

VOCAB = 2800  # before special tokens
SPM_CHARACTERS = 700
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
TEMPLATE_TEXTS = ["", "Hello world", "<s>two <|eot_id|> lines\n"]


def added(ids_contents, special: bool = True) -> list[dict]:
    return [{"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": special} for i, content in ids_contents]


# ---------------------------------------------------------------- byte-level kinds

def train_byte_level(text, pre_tokenizer, normalizer=None) -> dict:
    """tokenizer.json as a dict, without added tokens and post-processor."""
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=VOCAB, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(t.to_str())


def split_then_bytes(pattern: str):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def merges_as_strings(t: dict) -> None:
    """The older form, which most published files still have."""
    t["model"]["merges"] = [" ".join(pair) for pair in t["model"]["merges"]]


def make_gpt2(text) -> dict:
    t = train_byte_level(text, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    merges_as_strings(t)
    t["model"]["vocab"]["<|endoftext|>"] = VOCAB  # published with it in both places
    t["added_tokens"] = added([(VOCAB, "<|endoftext|>")])
    t["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
                           "use_regex": True}
    return t


def make_llama3(text) -> dict:
    t = train_byte_level(text, split_then_bytes(LLAMA3_SPLIT))
    drop_some_merges(t["model"])
    merges_as_strings(t)
    t["model"]["ignore_merges"] = True
    t["added_tokens"] = added(enumerate(
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
         "<|eot_id|>"], VOCAB))
    bos = {"<|begin_of_text|>": VOCAB}
    t["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        template("<|begin_of_text|>", bos)]}
    return t


def drop_some_merges(model: dict) -> None:
    """Leaves words in the vocabulary that no merge reaches, as in Llama 3: only ignore_merges,
    which looks a whole word up first, finds them."""
    parts = {part for pair in model["merges"] for part in pair}
    ends = [pair for pair in model["merges"] if "".join(pair) not in parts]
    dropped = ends[::7]
    model["merges"] = [pair for pair in model["merges"] if pair not in dropped]


def make_qwen(text) -> dict:
    t = train_byte_level(text, split_then_bytes(QWEN2_SPLIT), normalizers.NFC())
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    t["pre_tokenizer"]["pretokenizers"][1] = byte_level
    t["post_processor"] = t["decoder"] = byte_level
    t["added_tokens"] = added(enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], VOCAB))
    t["added_tokens"] += added([(VOCAB + 3, "<|fim_prefix|>")], special=False)
    return t


def make_falcon(text) -> dict:
    """Steps behind ByteLevel, which see its characters instead of the text's, as Falcon has them,
    and what other published files have: DeepSeek's white space at the end of a line, RoBERTa's
    post-processor and no decoder."""
    t = train_byte_level(text, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\s+$"), "isolated"),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))
    t["added_tokens"] = added(enumerate(["<s>", "</s>", "<|endoftext|>"], VOCAB))
    t["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", VOCAB + 1],
                           "cls": ["<s>", VOCAB], "trim_offsets": True, "add_prefix_space": False}
    t["decoder"] = None
    return t


def template(token: str, ids: dict[str, int]) -> dict:
    return json.loads(processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1",
        special_tokens=list(ids.items())).__getstate__())


# ---------------------------------------------------------------- SentencePiece kinds

def make_spm(text) -> dict:
    """Llama 2's form: <unk> <s> </s>, 256 byte tokens, merged pieces, single characters."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace()  # for training only: no piece crosses words
    t.train_from_iterator(frequent_characters(text, SPM_CHARACTERS), trainers.BpeTrainer(
        vocab_size=VOCAB - 259, show_progress=False))
    model = json.loads(t.to_str())["model"]
    spaces = [("▁" * n, "▁" * n) for n in (1, 2, 4, 8)] + [("▁▁", "▁"), ("▁", "▁▁")]
    merges = [tuple(pair) for pair in model["merges"]] + spaces
    characters = [token for token in model["vocab"] if len(token) == 1]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)),
              *("".join(pair) for pair in merges), *characters]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": added(enumerate(tokens[:3])),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None, "post_processor": template("<s>", {"<s>": 1}),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
                  "byte_fallback": True, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(dict.fromkeys(tokens))},
                  "merges": [" ".join(pair) for pair in merges]}}


def frequent_characters(text, count: int) -> list[str]:
    """Printable lines without rare characters, which are left to the byte tokens. (The trainer's
    own limit_alphabet breaks ties at random.)"""
    printable = [line for line in text if line.isprintable()]
    counts = Counter("".join(printable))
    keep = sorted(counts, key=lambda c: (-counts[c], c))[:count]
    rare = {ord(c): " " for c in counts.keys() - set(keep)}
    return [line.translate(rare) for line in printable]


def make_spm_metaspace(spm: dict) -> dict:
    """The same vocabulary in the newer form, which prepends ▁ to the first piece only."""
    t = copy.deepcopy(spm)
    t["normalizer"] = None
    t["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                          "split": False}
    t["model"]["merges"] = [pair.split(" ") for pair in t["model"]["merges"]]
    return t


# ---------------------------------------------------------------- files

def write_zst(path: Path, data: bytes) -> None:
    subprocess.run(["zstd", "-q", "-f", "--ultra", "-22", "-o", str(path)], input=data, check=True)


def pack_lines(lines: list[bytes]) -> bytes:
    return b"".join([struct.pack("<I", len(lines)),
                     *(struct.pack("<I", len(line)) + line for line in lines)])


def pack_ids(encodings: list[list[int]]) -> bytes:
    return b"".join(struct.pack(f"<{1 + len(ids)}I", len(ids), *ids) for ids in encodings)


def write_kind(kind: str, json_form: dict, lines: list[bytes], special: list[bytes]) -> dict:
    """Encodes all lines without the post-processor's tokens; `special` also as plain text."""
    path = OUT / f"{kind}.json"
    path.write_text(json.dumps(json_form, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    t = Tokenizer.from_file(str(path))

    def encode(some: list[bytes]) -> list[list[int]]:
        texts = [line.decode("utf-8", "replace") for line in some]
        return [e.ids for e in t.encode_batch(texts, add_special_tokens=False)]

    ids = encode(lines)
    decoded = [t.decode(i, skip_special_tokens=False).encode() for i in ids]
    write_zst(OUT / f"{kind}.ids.zst", pack_ids(ids))
    write_zst(OUT / f"{kind}.decoded.zst", pack_lines(decoded))
    templates = [{"text": text, "ids": t.encode(text).ids} for text in TEMPLATE_TEXTS]
    t.encode_special_tokens = True  # from here on special tokens in the text are only text
    write_zst(OUT / f"{kind}.plain_ids.zst", pack_ids(encode(special)))
    return {"vocab": t.get_vocab_size(), "ids": sum(map(len, ids)),
            "lines_decoded_unchanged": sum(d == line for d, line in zip(decoded, lines)),
            "with_post_processor": templates}


def main() -> None:
    OUT.mkdir(exist_ok=True)
    paragraphs = [p for chapters in austen.novels().values() for c in chapters
                  for p in c.split("\n\n")]
    groups = make_lines(paragraphs)
    lines = [line for group in groups.values() for line in group]
    write_zst(OUT / "lines.bin.zst", pack_lines(lines))

    unseen = make_lines(paragraphs, seed=2)  # other random lines than those that are encoded
    text = [line.decode("utf-8", "replace") for group, some in unseen.items() for line in some
            if group not in ("edge", "canonical", "invalid", "special")] + paragraphs[::8]
    spm = make_spm(text)
    kinds = {"gpt2": make_gpt2(text), "llama3": make_llama3(text), "qwen": make_qwen(text),
             "falcon": make_falcon(text),
             "spm": spm, "spm_metaspace": make_spm_metaspace(spm)}

    starts, at = {}, 0
    for group, some in groups.items():
        starts[group] = {"first_line": at, "lines": len(some)}
        at += len(some)
    manifest = {"command": "tests/golden/make_tokenizer_golden.py",
                "versions": {"python": platform.python_version(),
                             "tokenizers": tokenizers.__version__,
                             "unicode": unicodedata.unidata_version},
                "groups": starts,
                "kinds": {kind: write_kind(kind, form, lines, groups["special"])
                          for kind, form in kinds.items()}}
    (OUT / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps({k: v for k, v in manifest.items() if k != "groups"}, ensure_ascii=False))


if __name__ == "__main__":
    main()
