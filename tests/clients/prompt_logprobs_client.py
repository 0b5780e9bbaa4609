"""Log-probabilities of prompts at every position against those of transformers, in float32.

Weights of bf16 are exact in float32, so that the only differences left are those of the order of additions. KV is kept as
float32 (--kv-dtype). MODEL=DIRECTORY takes another model than the sample.
"""

import json
import os
import random
import urllib.request

import torch
from transformers import AutoModelForCausalLM

import served

PROMPTS = 20
TOLERANCE = 1e-3


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def texts():
    """From a few words to a few hundred."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lm_eval_tasks")
    with open(os.path.join(here, "texts.jsonl"), encoding="utf-8") as lines:
        sentences = [part + "." for line in lines for part in json.loads(line)["text"].split(". ")]
    draw = random.Random(1)
    return [" ".join(draw.sample(sentences, 1 + i % len(sentences))) for i in range(PROMPTS)]


def reference(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].to(torch.float64)
    rows = torch.log_softmax(logits[:-1], dim=-1)
    return rows.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


def check(url, name):
    model = AutoModelForCausalLM.from_pretrained(os.environ["MODEL"], dtype=torch.float32, attn_implementation="eager").eval()
    worst, positions = 0.0, 0
    for text in texts():
        ids = post(url + "/tokenize", {"model": name, "prompt": text})["tokens"]
        answer = post(url + "/v1/completions", {"model": name, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0})
        rows = answer["choices"][0]["prompt_logprobs"]
        assert len(rows) == len(ids) and rows[0] is None
        ours = [row[str(token)]["logprob"] for row, token in zip(rows[1:], ids[1:])]
        differences = [abs(a - b) for a, b in zip(ours, reference(model, ids))]
        positions += len(differences)
        worst = max([worst] + differences)
    print(f"{PROMPTS} prompts, {positions} positions: largest difference {worst:.2e}")
    assert worst <= TOLERANCE


if __name__ == "__main__":
    served.main(check, flags=["--prefill=0", "--decode=0", "--unified=1", "--kv-dtype=f32"])
