#!/usr/bin/env python3
"""Writes the parameter files of simulated GPUs in models/simulated/ from published figures.

  tools/simulated_gpus.py            writes them
  tools/simulated_gpus.py --check    fails when a file differs from what it would write

Nothing here was measured. Every coefficient is an amount of work, which follows from the shape of the model, divided by a
rate, which is a peak of a data sheet times an efficiency:

  floor, b0  bytes of all weights that a step reads / (memory bandwidth x BANDWIDTH)
  a1         2 FLOP per parameter of the layers     / (dense BF16 peak x PRODUCTS)
  b1         the same with the output layer, which every decoded token passes
  a2         4 FLOP per head, dimension and layer   / (dense BF16 peak x attention's share of it)
  b2         bytes of KV of one token               / (memory bandwidth x BANDWIDTH)

A real engine overlaps reading weights with arithmetic where these sums do not, and has costs of launching where these have
none. The figures are good for the proportions between GPUs, prompts, decodes and transfers.
Standard library only.
"""
import argparse
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "models" / "simulated"

# Assumptions, not figures of a source.
PRODUCTS = 0.6  # of the dense peak, for matrix products
BANDWIDTH = 0.8  # of the memory bandwidth
NETWORK = 0.9  # of the adapter's line rate
MEMORY = 0.9  # of the memory, for weights, activations and KV
ACTIVATION_BYTES = 2e9

FLASH_ATTENTION_2 = "attention at 0.73 of the peak: Dao, FlashAttention-2, arXiv 2307.08691 (230 TFLOP/s on A100)"
FLASH_ATTENTION_3 = "attention at 0.75 of the peak: Shah et al., FlashAttention-3, arXiv 2407.08608 (740 TFLOP/s on H100)"

MODEL = {
    "name": "Qwen3-8B",
    "source": "model: https://huggingface.co/Qwen/Qwen3-8B (model card: 6.95e9 parameters without embeddings, 36 layers, 32 and 8 "
              "heads; config.json: head_dim 128, hidden_size 4096, vocab_size 151936, max_position_embeddings 40960)",
    "layer_parameters": 6.95e9,
    "vocab_size": 151936,
    "hidden_size": 4096,
    "layers": 36,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "context": 40960,
    "eos": 151645,
}

GPUS = {
    "a100": {
        "peak": 312e12, "bandwidth": 2.039e12, "memory": 80e9, "attention": 0.73, "network": 200e9 / 8,
        "sources": [
            "GPU: https://www.nvidia.com/en-us/data-center/a100/ (A100 80GB SXM: 312 TFLOP/s BF16 dense, 2039 GB/s, 80 GB)",
            "network: NVIDIA DGX A100 data sheet (one 200 Gb/s ConnectX-6 adapter per GPU)", FLASH_ATTENTION_2]},
    "h100": {
        "peak": 1979e12 / 2, "bandwidth": 3.35e12, "memory": 80e9, "attention": 0.75, "network": 400e9 / 8,
        "sources": [
            "GPU: https://www.nvidia.com/en-us/data-center/h100/ (H100 SXM: 1979 TFLOP/s BF16 with sparsity, half of that dense, "
            "3.35 TB/s, 80 GB)",
            "network: NVIDIA DGX H100 data sheet (one 400 Gb/s ConnectX-7 adapter per GPU)", FLASH_ATTENTION_3]},
    "h200": {
        "peak": 1979e12 / 2, "bandwidth": 4.8e12, "memory": 141e9, "attention": 0.75, "network": 400e9 / 8,
        "sources": [
            "GPU: https://www.nvidia.com/en-us/data-center/h200/ (H200 SXM: 1979 TFLOP/s BF16 with sparsity, half of that dense, "
            "4.8 TB/s, 141 GB)",
            "network: NVIDIA DGX H200 data sheet (one 400 Gb/s ConnectX-7 adapter per GPU)", FLASH_ATTENTION_3]},
}


def rounded(value):
    return float(f"{value:.6g}")


def milliseconds(work, rate):
    return rounded(1e3 * work / rate)


def parameter_file(name):
    gpu = GPUS[name]
    output_parameters = MODEL["vocab_size"] * MODEL["hidden_size"]
    read_bytes = 2 * (MODEL["layer_parameters"] + output_parameters)
    all_bytes = read_bytes + 2 * output_parameters  # and the table of embeddings, of which a step reads some rows
    kv_bytes = 2 * MODEL["layers"] * MODEL["kv_heads"] * MODEL["head_dim"] * 2
    pair_flop = 4 * MODEL["layers"] * MODEL["heads"] * MODEL["head_dim"]
    products, bandwidth = gpu["peak"] * PRODUCTS, gpu["bandwidth"] * BANDWIDTH
    weights_ms = milliseconds(read_bytes, bandwidth)
    token_ms = milliseconds(2 * MODEL["layer_parameters"], products)
    knee = round(weights_ms / token_ms)
    return {
        "format": "tandem-cost-model",
        "version": 1,
        "provenance": {
            "machine": "none: derived from published figures",
            "device": f"simulated:{name}",
            "threads": 0,
            "model": MODEL["name"],
            "model_fingerprint": "0" * 16,
            "dtype": "bf16",
            "kv_dtype": "bf16",
            "block_tokens": 16,
            "build": "tools/simulated_gpus.py",
            "measured": "never",
        },
        "simulated": {
            "name": f"qwen3-8b-{name}",
            "sources": gpu["sources"] + [
                MODEL["source"],
                f"assumed: matrix products at {PRODUCTS} of the dense peak, memory at {BANDWIDTH} of its bandwidth, the network at "
                f"{NETWORK} of its line rate, {MEMORY} of the memory used, {ACTIVATION_BYTES:.0e} bytes of activations",
            ],
            "kv": {"layers": MODEL["layers"], "kv_heads": MODEL["kv_heads"], "head_dim": MODEL["head_dim"], "dtype": "bf16"},
            "vocab_size": MODEL["vocab_size"],
            "eos_token_ids": [MODEL["eos"]],
            "max_context_tokens": MODEL["context"],
            "kv_tokens": int((MEMORY * gpu["memory"] - all_bytes - ACTIVATION_BYTES) / kv_bytes),
        },
        "step": {
            "alpha": {"floor_ms": weights_ms, "a0_ms": 0.0, "a1_ms": token_ms,
                      "a2_ms": milliseconds(pair_flop, gpu["peak"] * gpu["attention"])},
            "beta": {"b0": [{"max_sequences": 1, "ms": weights_ms}],
                     "b1_ms": milliseconds(2 * (MODEL["layer_parameters"] + output_parameters), products),
                     "b2_ms": milliseconds(kv_bytes, bandwidth)},
            "gamma": None,
            "batch_thresh": {"tokens": knee, "low": knee, "high": knee},
        },
        "links": [{"name": "rdma", "setup_ms": 0.0, "operation_ms": 0.0, "gb_per_s": rounded(gpu["network"] * NETWORK / 1e9),
                   "contention": []}],
        "fit": {"intervals": [], "held_out": []},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file differs")
    check = parser.parse_args().check
    wrong = []
    for name in GPUS:
        path = FOLDER / f"qwen3-8b-{name}.json"
        text = json.dumps(parameter_file(name), indent=1) + "\n"
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            wrong.append(str(path))
    for path in wrong:
        print(f"{path} is not what tools/simulated_gpus.py writes: run it", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
