#!/usr/bin/env python3
"""Trains models/sample: a 5M-parameter Llama on Jane Austen, from nothing, on a CPU.

Fetches the text, trains the tokenizer and the model, and writes a Hugging Face model directory with
its model card. The learning rate follows the wall clock, so the run ends decayed at --deadline
whatever else the machine does; --steps gives a schedule by steps instead, which repeats exactly.

    nice -n 15 tools/train_sample_model.py --out models/sample --deadline 13:10
"""

import argparse
import datetime
import json
import math
import os
import platform
import shlex
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads starve a shared machine

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

import austen

HELD_OUT = "Northanger Abbey"
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
SPECIAL_TOKENS = [BOS, EOS, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHAT_TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
                 "{% if not loop.last %}{{ '\\n\\n' }}{% endif %}{% endfor %}")
SAMPLE_PROMPTS = ["It was a truth", "\"My dear Emma,\" said", "The next morning",
                  "Elizabeth was"]


@dataclass
class Shape:
    vocab_size: int = 2048
    hidden_size: int = 256
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 704
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5


# ---------------------------------------------------------------- model

class Attention(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            s.num_attention_heads, s.num_key_value_heads, s.head_dim)
        self.q_proj = nn.Linear(s.hidden_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(s.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(s.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, s.hidden_size, bias=False)

    def forward(self, x, cos, sin):
        batch, time_, _ = x.shape
        q = self.q_proj(x).view(batch, time_, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, time_, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, time_, self.kv_heads, self.head_dim).transpose(1, 2)
        group = self.heads // self.kv_heads
        out = F.scaled_dot_product_attention(
            rotate(q, cos, sin),
            rotate(k, cos, sin).repeat_interleave(group, dim=1),
            v.repeat_interleave(group, dim=1), is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, time_, -1))


class Mlp(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden_size, s.intermediate_size, bias=False)
        self.up_proj = nn.Linear(s.hidden_size, s.intermediate_size, bias=False)
        self.down_proj = nn.Linear(s.intermediate_size, s.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s: Shape, dropout: float):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.input_layernorm = nn.RMSNorm(s.hidden_size, eps=s.rms_norm_eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = nn.RMSNorm(s.hidden_size, eps=s.rms_norm_eps)
        self.mlp = Mlp(s)

    def forward(self, x, cos, sin):
        x = x + self.drop(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.drop(self.mlp(self.post_attention_layernorm(x)))


class Llama(nn.Module):
    """Parameter names, under the prefix "model.", are those of a Hugging Face checkpoint."""

    def __init__(self, s: Shape, dropout: float = 0.0):
        super().__init__()
        self.shape = s
        self.embed_tokens = nn.Embedding(s.vocab_size, s.hidden_size)
        self.layers = nn.ModuleList(Layer(s, dropout) for _ in range(s.num_hidden_layers))
        self.norm = nn.RMSNorm(s.hidden_size, eps=s.rms_norm_eps)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * s.num_hidden_layers) if residual
                                else 0.02)
        inverse = s.rope_theta ** (-torch.arange(0, s.head_dim, 2) / s.head_dim)
        angles = torch.outer(torch.arange(s.max_position_embeddings), inverse)
        angles = torch.cat([angles, angles], dim=-1)  # [max_position, head_dim]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        """ids [batch, time] -> logits [batch, time, vocab]."""
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)  # tied


def rotate(x, cos, sin):
    """Rotary position embedding, halves convention: x [batch, heads, time, head_dim]."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


# ---------------------------------------------------------------- data

def train_tokenizer(texts, vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B",
                                      special_tokens=[(BOS, tokenizer.token_to_id(BOS))])])
    assert tokenizer.get_vocab_size() == vocab_size
    return tokenizer


def tokenize(chapters, tokenizer) -> np.ndarray:
    """One stream: <BOS> chapter <EOS> <BOS> chapter ..."""
    eos = tokenizer.token_to_id(EOS)
    return np.concatenate([[*e.ids, eos] for e in tokenizer.encode_batch(chapters)])


class Batches:
    """Windows of the stream, each epoch shuffled anew.

    A quarter of the windows begin at a paragraph with BOS put before it, so that the model knows
    how a prompt looks: any paragraph may follow BOS.
    """

    def __init__(self, stream: np.ndarray, tokenizer: Tokenizer, rng: np.random.Generator):
        self.stream, self.rng, self.bos = stream, rng, tokenizer.token_to_id(BOS)
        breaks = [i for t, i in tokenizer.get_vocab().items() if t.endswith("ĊĊ")]
        self.paragraphs = np.flatnonzero(np.isin(stream, breaks)) + 1
        self.pending = {}  # window length -> starts left in this epoch

    def next(self, rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        windows = torch.from_numpy(np.stack([self._window(length) for _ in range(rows)]))
        return windows[:, :-1], windows[:, 1:]

    def _window(self, length: int) -> np.ndarray:
        if not self.pending.get(length):
            starts = np.arange(self.rng.integers(length), len(self.stream) - length - 1, length)
            self.pending[length] = self.rng.permutation(starts).tolist()
        start = self.pending[length].pop()
        if self.rng.random() < 0.25:
            at = np.searchsorted(self.paragraphs, start)
            if at < len(self.paragraphs) and self.paragraphs[at] + length < len(self.stream):
                start = self.paragraphs[at]
                return np.concatenate([[self.bos], self.stream[start : start + length]])
        return self.stream[start : start + length + 1]


# ---------------------------------------------------------------- training

class Schedule:
    """Answers how far the run is, 0 to 1: by the clock, or by steps."""

    def __init__(self, deadline: float | None, steps: int | None):
        self.start, self.deadline, self.steps = time.time(), deadline, steps

    def progress(self, step: int) -> float:
        if self.steps:
            return step / self.steps
        return (time.time() - self.start) / (self.deadline - self.start)


def learning_rate(peak: float, step: int, progress: float) -> float:
    warm = min(1.0, (step + 1) / 100)
    return peak * warm * (0.5 + 0.5 * math.cos(math.pi * min(1.0, progress)))


def make_optimizer(model, args):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": args.weight_decay},
                              {"params": vectors, "weight_decay": 0.0}],
                             lr=args.lr, betas=(0.9, 0.95), fused=True)


def train(model, batches: Batches, schedule: Schedule, args, earlier: dict, checkpoint) -> dict:
    """Calls checkpoint(figures) every --checkpoint-minutes; returns the whole run's figures.

    `earlier` has the figures of the run that this one resumes, if any; counts go on from there.
    """
    optimizer = make_optimizer(model, args)
    step = tokens = 0
    smooth = None
    minutes_before = earlier.get("train_minutes", 0)
    last_save = last_log = began = time.time()
    while (progress := schedule.progress(step)) < 1:
        length = args.long_length if batches.rng.random() < args.long_share else args.length
        ids, targets = batches.next(max(1, args.batch_tokens // length), length)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args.lr, step, progress)
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, tokens = step + 1, tokens + targets.numel()
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        now = time.time()
        all_tokens = earlier.get("tokens", 0) + tokens
        figures = {"steps": earlier.get("steps", 0) + step, "tokens": all_tokens,
                   "epochs": round(all_tokens / len(batches.stream), 2),
                   "train_loss": round(smooth, 4),
                   "train_minutes": round(minutes_before + (now - began) / 60, 1)}
        if now - last_log > 20:
            print(json.dumps({**figures, "length": length, "progress": round(progress, 3),
                              "tok_s": round(tokens / (now - began))}), flush=True)
            last_log = now
        if now - last_save > 60 * args.checkpoint_minutes:
            checkpoint({**figures, "final": False})
            last_save = time.time()
    return {**figures, "final": True}


@torch.no_grad()
def held_out(model, chapters, tokenizer, windows: int | None, length: int = 2048) -> dict:
    """Perplexity per token of windows of `length`, each scored from its own BOS on."""
    bos = tokenizer.token_to_id(BOS)
    stream = tokenize(chapters, tokenizer)
    text_bytes = sum(len(c.encode()) for c in chapters)
    nats = scored = 0
    for start in list(range(0, len(stream) - length, length - 1))[:windows]:
        ids = torch.tensor(np.concatenate([[bos], stream[start : start + length - 1]]))[None]
        nats += F.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:], reduction="sum").item()
        scored += length - 1
    loss = nats / scored
    return {"held_out_tokens": scored, "held_out_loss": round(loss, 4),
            "held_out_perplexity": round(math.exp(loss), 2),
            "held_out_bits_per_byte": round(loss / math.log(2) * len(stream) / text_bytes, 3)}


@torch.no_grad()
def sample(model, tokenizer, prompt: str, new_tokens: int, temperature: float, top_p: float,
           seed: int) -> str:
    generator = torch.Generator().manual_seed(seed)
    ids = tokenizer.encode(prompt).ids
    for _ in range(new_tokens):
        logits = model(torch.tensor(ids)[None])[0, -1]
        chance, order = torch.softmax(logits / temperature, 0).sort(descending=True)
        chance[chance.cumsum(0) - chance > top_p] = 0  # keeps the token that crosses top_p
        ids.append(order[torch.multinomial(chance, 1, generator=generator)].item())
        if ids[-1] == tokenizer.token_to_id(EOS):
            break
    return tokenizer.decode(ids)


# ---------------------------------------------------------------- export

def hf_config(s: Shape, tokenizer) -> dict:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **asdict(s),
            "hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0,
            "mlp_bias": False, "initializer_range": 0.02, "pretraining_tp": 1,
            "rope_scaling": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
            "use_cache": True, "bos_token_id": tokenizer.token_to_id(BOS),
            "eos_token_id": tokenizer.token_to_id(EOS)}


def export(model, tokenizer, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    save_file({f"model.{n}": p.detach().to(torch.bfloat16) for n, p in model.named_parameters()},
              out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # safetensors makes it private
    tokenizer.save(str(out / "tokenizer.json"))
    end = {k: tokenizer.token_to_id(t) for k, t in (("bos_token_id", BOS), ("eos_token_id", EOS))}
    write_json(out / "config.json", hf_config(model.shape, tokenizer))
    write_json(out / "generation_config.json",
               {**end, "do_sample": True, "temperature": 0.7, "top_p": 0.9})
    write_json(out / "tokenizer_config.json",
               {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS,
                "clean_up_tokenization_spaces": False, "chat_template": CHAT_TEMPLATE,
                "model_max_length": model.shape.max_position_embeddings})


def load(out: Path) -> tuple[Llama, Tokenizer]:
    """What export() wrote, computed in float32."""
    config = json.loads((out / "config.json").read_text())
    model = Llama(Shape(**{k: config[k] for k in asdict(Shape())}))
    weights = load_file(out / "model.safetensors")
    model.load_state_dict({n.removeprefix("model."): w.float() for n, w in weights.items()})
    return model.eval(), Tokenizer.from_file(str(out / "tokenizer.json"))


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def evaluate(out: Path, test_chapters, figures: dict, windows: int | None) -> dict:
    """Figures of the exported (bfloat16) weights, and samples; prints them and writes the card."""
    model, tokenizer = load(out)
    figures = {**figures, "parameters": sum(p.numel() for p in model.parameters()),
               **held_out(model, test_chapters, tokenizer, windows)}
    samples = [sample(model, tokenizer, p, 120, 0.7, 0.9, seed=1) for p in SAMPLE_PROMPTS]
    print(json.dumps({**figures, "samples": samples}), flush=True)
    write_json(out / "training.json", figures)
    (out / "README.md").write_text(model_card(model.shape, figures, samples))
    return figures


def model_card(s: Shape, f: dict, samples: list[str]) -> str:
    quotes = "\n\n".join("> " + t.strip().replace("\n", "\n> ") for t in samples)
    rows = "\n".join(f"| {k} | {v} |" for k, v in f.items())
    return f"""# models/sample

A Llama of {f['parameters'] / 1e6:.2f}M parameters trained here from nothing, so that Tandem
runs, tests and demonstrates a real model without a download. It continues text in the manner of
Jane Austen. It knows nothing, follows no instructions, and is no use for anything else.

- **Shape**: {s.num_hidden_layers} layers, hidden {s.hidden_size}, {s.num_attention_heads} heads
  on {s.num_key_value_heads} key-value heads of {s.head_dim}, SwiGLU {s.intermediate_size}, tied
  embeddings, RoPE theta {s.rope_theta:g}, context {s.max_position_embeddings}, bfloat16.
  Byte-level BPE of {s.vocab_size} tokens with Llama 3's pre-tokenizer.
- **Data**: five of Jane Austen's six novels, from Debian's `r-cran-janeaustenr`; *{HELD_OUT}* is
  held out. Line breaks are undone within paragraphs, headings and italics marks are dropped.
- **Licence**: the text is in the public domain, its packaging MIT; the weights are ours.
- **Positions**: windows of 256 tokens, every fifth step windows of 2048.
- **Prompts**: text after `<|begin_of_text|>`. The chat template joins the messages by blank
  lines and does no more.

## Figures

Held-out perplexity is per token, of the bfloat16 weights in float32 arithmetic, over windows of
2048 that begin at `<|begin_of_text|>`. Counts are of all the commands together; seed, rates and
batch are the last one's. The machine had two cores, shared with other work.

| figure | value |
|---|---|
{rows}

## Output

Temperature 0.7, top-p 0.9, seed 1; prompts {", ".join(f"`{p}`" for p in SAMPLE_PROMPTS)}.

{quotes}

`tools/train_sample_model.py` wrote this file and every figure in it.
"""


# ---------------------------------------------------------------- command

def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", type=Path, default=Path("models/sample"))
    p.add_argument("--deadline", help="HH:MM at which training ends (default: in 90 minutes)")
    p.add_argument("--steps", type=int, help="end after this many steps, clock or not")
    p.add_argument("--resume", type=Path, metavar="DIR",
                   help="go on from these weights and counts; the optimizer starts anew")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--batch-tokens", type=int, default=4096)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--long-length", type=int, default=2048)
    p.add_argument("--long-share", type=float, default=0.2,
                   help="of the steps, spread over the run: long positions need the high rates")
    p.add_argument("--checkpoint-minutes", type=float, default=5)
    return p.parse_args()


def deadline_time(text: str | None) -> float:
    if text is None:
        return time.time() + 90 * 60
    hour, minute = map(int, text.split(":"))
    now = datetime.datetime.now()
    end = now.replace(hour=hour, minute=minute, second=0)
    return (end if end > now else end + datetime.timedelta(days=1)).timestamp()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    books = austen.novels()
    test = books.pop(HELD_OUT)
    train_chapters = [c for chapters in books.values() for c in chapters]
    earlier = {}
    model = Llama(Shape(), args.dropout)
    if args.resume:
        earlier = json.loads((args.resume / "training.json").read_text())
        trained, tokenizer = load(args.resume)
        model.load_state_dict(trained.state_dict())
    else:
        tokenizer = train_tokenizer(train_chapters, Shape.vocab_size)
    batches = Batches(tokenize(train_chapters, tokenizer), tokenizer,
                      np.random.default_rng(args.seed))
    schedule = Schedule(None if args.steps else deadline_time(args.deadline), args.steps)
    command = shlex.join(["tools/" + Path(sys.argv[0]).name, *sys.argv[1:]])
    if earlier:
        command = f"{earlier['command']} (as far as step {earlier['steps']}); then {command}"
    about = {"command": command,
             "torch": torch.__version__, "python": platform.python_version(),
             "train_tokens_per_epoch": len(batches.stream),
             **{k: getattr(args, k) for k in ("seed", "lr", "weight_decay", "dropout",
                                              "batch_tokens", "long_share")}}

    def checkpoint(figures: dict) -> None:
        export(model, tokenizer, args.out)
        evaluate(args.out, test, {**about, **figures}, windows=None if figures["final"] else 4)

    checkpoint(train(model, batches, schedule, args, earlier, checkpoint))


if __name__ == "__main__":
    main()
