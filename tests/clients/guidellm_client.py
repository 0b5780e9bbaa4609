"""A small run of guidellm, completions and chats, which must end without an error."""

import json
import os
import pathlib
import subprocess
import sys

import served

REQUESTS = 12
OUTPUT_TOKENS = 24


def run(url, model, path):
    out = served.results_folder() / ("guidellm_chat.json" if "chat" in path else "guidellm_completions.json")
    out.unlink(missing_ok=True)
    command = [str(pathlib.Path(sys.executable).parent / "guidellm"), "run",
               "--backend", json.dumps({"kind": "openai_http", "target": url, "model": model, "request_format": path,
                                        "http2": False}),
               "--profile", json.dumps({"kind": "constant", "rate": 4}),
               "--constraint", json.dumps({"kind": "max_requests", "count": REQUESTS}),
               "--tokenizer", json.dumps({"kind": "huggingface_auto", "model": os.environ["MODEL"]}),
               "--data", json.dumps({"kind": "synthetic_text", "prompt_tokens": 48, "output_tokens": OUTPUT_TOKENS}),
               "--output", json.dumps({"kind": "json", "path": str(out)}), "--disable-console"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0 and out.exists(), done.stdout[-4000:]
    return json.loads(out.read_text())["benchmarks"][0]


def check(url, model):
    for path in ("/v1/completions", "/v1/chat/completions"):
        report = run(url, model, path)
        totals = report["metrics"]["request_totals"]
        assert totals["successful"] == REQUESTS and totals["errored"] == 0, totals
        tokens = report["metrics"]["output_token_count"]["successful"]
        assert tokens["min"] == tokens["max"] == OUTPUT_TOKENS, tokens
        ttft = report["metrics"]["time_to_first_token_ms"]["successful"]["median"]
        itl = report["metrics"]["inter_token_latency_ms"]["successful"]["median"]
        print(f"guidellm {path}: TTFT {ttft:.2f} ms, ITL {itl:.2f} ms, no errors")


if __name__ == "__main__":
    served.main(check)
