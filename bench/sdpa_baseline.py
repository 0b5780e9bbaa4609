#!/usr/bin/env python3
"""The attention of torch's library kernels at the shapes of cuda_kernel_bench, in the same schema.

  bench/sdpa_baseline.py [--json FILE] [--commit ID] [--device cuda|cpu --scale 0.01]

scaled_dot_product_attention of each backend that takes a shape (cuDNN, FlashAttention), on contiguous K and V: it
knows no blocks, which makes it a bar rather than a rival. Inputs are random; a CUDA graph of several launches, each on
K and V of its own, is replayed; the median counts. Exits 77 with one line where there is no torch or no GPU.
"""
import argparse
import datetime
import json
import sys

HEADS, KV_HEADS, DIM = 32, 8, 128
DECODE = [(1, 1024), (1, 4096), (1, 32768), (8, 4096), (32, 1024), (8, 16384), (32, 4096), (128, 1024), (8, 32768),
          (64, 4096), (256, 1024), (256, 8192)]
PREFILL = [(1, 512, 8192), (1, 2048, 8192), (1, 8192, 8192), (1, 1024, 1024), (1, 4096, 4096), (2, 512, 4096)]
L2_BYTES = 60 << 20
REPEATS = 50


def skip(why):
    print(f"sdpa: skipped, {why}")
    sys.exit(77)


def visible_pairs(rows, context):
    """(query, key) pairs of causal rows at the end of a context."""
    return rows * context - rows * (rows - 1) // 2


class Shape:
    """`batch` sequences of `rows` query rows at the end of `context` tokens."""

    def __init__(self, batch, rows, context):
        self.batch, self.rows, self.context = batch, rows, context
        self.kv_bytes = 2 * batch * context * KV_HEADS * DIM * 2
        self.bytes = self.kv_bytes + 2 * 2 * batch * rows * HEADS * DIM
        self.flops = 4 * DIM * HEADS * batch * visible_pairs(rows, context)

    def title(self):
        heads = f"{HEADS}/{KV_HEADS} heads of {DIM}"
        if self.rows == 1:
            return f"{self.batch} x {self.context}, {heads}"
        return f"{self.batch} x {self.rows} of {self.context}, {heads}"


class Measure:
    """Times one call of each set of inputs."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device

    def run(self, calls):
        """Median microseconds of one of `calls`, which are replayed together."""
        for call in calls[:2]:
            call()
        if self.device == "cpu":
            return self.clocked(calls)
        cuda = self.torch.cuda
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for call in calls:
                call()
        graph.replay()
        events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
        for start, end in events:  # queued without a pause, so that launching hides behind the graph before
            start.record()
            graph.replay()
            end.record()
        cuda.synchronize()
        times = sorted(start.elapsed_time(end) for start, end in events)
        return 1e3 * times[len(times) // 2] / len(calls)

    @staticmethod
    def clocked(calls):
        import time
        start = time.perf_counter()
        for call in calls:
            call()
        return 1e6 * (time.perf_counter() - start) / len(calls)


def inputs(torch, shape, device, sets):
    def normal(heads, tokens):
        return torch.randn(shape.batch, heads, tokens, DIM, device=device, dtype=torch.bfloat16)

    return [(normal(HEADS, shape.rows), normal(KV_HEADS, shape.context), normal(KV_HEADS, shape.context))
            for _ in range(sets)]


def attend(torch, q, k, v, rows, context):
    """Causal from the end: the row of position p sees the keys up to p."""
    functional = torch.nn.functional
    if rows == 1:
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    if rows == context:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    from torch.nn.attention.bias import causal_lower_right
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(rows, context),
                                                   enable_gqa=True)


def backends(torch, device):
    from torch.nn.attention import SDPBackend
    if device == "cpu":
        return {"torch math": SDPBackend.MATH}
    return {"torch cuDNN": SDPBackend.CUDNN_ATTENTION, "torch flash": SDPBackend.FLASH_ATTENTION}


def measure(torch, shape, device, op):
    from torch.nn.attention import sdpa_kernel
    launches = max(4, min(20, int(16e9 // shape.kv_bytes)))
    sets = max(2, min(launches, 1 + 4 * L2_BYTES // shape.kv_bytes))
    data = inputs(torch, shape, device, sets)
    rows = []
    for name, backend in backends(torch, device).items():
        calls = [lambda d=data[i % sets]: attend(torch, *d, shape.rows, shape.context) for i in range(launches)]
        try:
            with torch.no_grad(), sdpa_kernel(backend):
                us = Measure(torch, device).run(calls)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            print(f"{op:<18}{shape.title():<34}{name:<14} does not take it: {str(error).splitlines()[0][:80]}")
            continue
        rows.append({"section": "sdpa", "op": op, "shape": shape.title(), "variant": name, "us": us,
                     "bytes": shape.bytes, "flops": shape.flops, "tbytes_per_s": shape.bytes / us * 1e-6,
                     "tflops": shape.flops / us * 1e-6})
        print(f"{op:<18}{shape.title():<34}{name:<14}{us:>10.2f} us{shape.bytes / us * 1e-6:>8.3f} TB/s"
              f"{shape.flops / us * 1e-6:>9.1f} TFLOP/s", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="of contexts and rows")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        skip("torch is not installed")
    if args.device == "cuda" and not torch.cuda.is_available():
        skip("torch finds no GPU")

    def scaled(n):
        return max(1, round(n * args.scale))

    shapes = [("attention_decode", Shape(batch, 1, scaled(context))) for batch, context in DECODE]
    shapes += [("attention_prefill", Shape(batch, scaled(rows), scaled(context)))
               for batch, rows, context in PREFILL]
    gpu = torch.cuda.get_device_name(0) if args.device == "cuda" else "cpu"
    now = datetime.datetime.now(datetime.timezone.utc)
    results = []
    report = {"kind": "sdpa", "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": args.commit,
              "machine": {"gpu": gpu, "torch": torch.__version__}, "scale": args.scale, "results": results}
    for op, shape in shapes:
        results += measure(torch, shape, args.device, op)
        if args.device == "cuda":
            torch.cuda.empty_cache()
        if args.json:  # every time: what was measured is kept when the run is ended
            with open(args.json, "w") as file:
                json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
