"""Pages of what was measured on a host without a GPU, but for moving KV: daemon, kernels, scheduler, store."""
import pathlib
import statistics

from pages.text import table


def against_peer(result):
    rows = [[case, f"{row['tandem']:.1f}", f"{row['peer']:.1f}", f"{row['ratio']:.2f}", f"{row['daemon']:.1f}",
             f"{100 * row['daemon_over_engine']:.1f}%"] for case, row in result["summary"].items()]
    engines = [entry["engine"] for entry in result["rounds"]]
    median_of = lambda pick: statistics.median(pick(index) for index in range(len(engines)))
    shares = []
    for at, row in enumerate(engines[0]["results"]):
        each = lambda key: median_of(lambda index: engines[index]["results"][at][key])
        name = (f"{row['kind']} {row['tokens']}" if row["kind"] == "prefill" else
                f"decode batch {row['batch']}" + (f" at depth {row['depth']}" if row["depth"] > 32 else ""))
        # A step of decode reads the same weights in both programs.
        of_peer = median_of(lambda index: result["rounds"][index]["peer"][name] / row["batch"] * row["bytes_per_step"] / 1e9
                            / engines[index]["ceilings"]["dram_read_gbytes_per_s"]
                            ) if row["kind"] == "decode" and name in result["rounds"][0]["peer"] else None
        shares.append([name, f"{row['bytes_per_step'] / 1e6:.0f}", f"{row['flops_per_step'] / 1e9:.2f}",
                       f"{each('gbytes_per_s'):.1f}", f"{100 * each('share_of_dram_read'):.0f}%",
                       "" if of_peer is None else f"{100 * of_peer:.0f}%",
                       f"{each('gflops_per_s'):.0f}", f"{100 * each('share_of_fma'):.0f}%"])
    reads = [engine["ceilings"]["dram_read_gbytes_per_s"] for engine in engines]
    fma = median_of(lambda index: engines[index]["ceilings"]["fma_gflops_per_s"])
    peer = result.get("peer") or result["rounds"][0]["peer"]["build"]
    weights = "`--weights int8` and Q8_0" if result.get("weights") == "int8" else "bf16 weights"
    if result.get("device") == "cpu-bf16":
        weights += " with `--device cpu-bf16`"
    return f"""
## {weights} of {engines[0]['parameters'] / 1e9:.2f} B parameters, beside llama.cpp {peer}

{result['cpu']}, {result['cores']} cores, {result['threads']} threads, {result['date']}; {weights}, random, the same in both;
{len(result['rounds'])} rounds in which both ran turn by turn, medians, tokens per second. The last two columns are the same
work through `tandem up` and gRPC: without a prefix cache, after a warm-up of 2,048 + 64 tokens, medians of three requests.

{table(['case', 'tandem', 'llama.cpp', 'ratio', 'daemon', 'daemon / in process'], rows)}
Command: `{result['command']}`

Per step, beside the ceilings of the same moments (DRAM read {min(reads):.0f} to {max(reads):.0f} GB/s, median {statistics.median(reads):.1f}; f32 FMA
{fma:.0f} GFLOP/s), medians of the rounds; with equal bytes, two programs that both reach the ceiling are equally fast:

{table(['case', 'MB', 'GFLOP', 'GB/s', 'of DRAM read', 'llama.cpp of it', 'GFLOP/s', 'of FMA'], shares)}"""


def cheaper_products(result):
    speed, quality = result["speed"], result["quality"]
    ways = ("cpu-bf16", "int8", "int8-layers")
    rows = []
    for row in speed["rows"]:
        stored = row["stored"]["tokens_per_s"]
        rows.append([row["case"], f"{stored:.1f}"] +
                    [f"{row[way]['tokens_per_s']:.1f} ({row[way]['tokens_per_s'] / stored:.2f})" for way in ways] +
                    [f"{100 * row[way]['share_of_dram_read']:.0f}%" for way in ("stored",) + ways])
    kept = [[way, f"{quality['perplexity'][way]:.3f} ({100 * quality['change'][way]:+.2f}%)",
             f"{100 * quality['top_1_agreement'][way]:.2f}%"] for way in ("stored",) + ways]
    size, load = speed["weight_bytes"], speed["load_s"]
    return f"""
## Activations of bf16, weights of 8 bits

{result['cpu']}, {result['cores']} cores, {result['date']}; `--device cpu-bf16`, `--weights int8` and `int8-layers`
([weights.md](weights.md)) beside neither, with weights of bf16, of a model of
{speed['parameters'] / 1e9:.2f} B parameters, {result['rounds']} rounds in which all ran turn by turn, medians, tokens per second; in brackets
beside neither; then the share of the memory's own reads ({speed['dram_read_gbytes_per_s']:.1f} GB/s). Each run measured that
ceiling for itself. It may change from run to run on a shared machine: compare these shares, rather than the rates, of steps near it.

{table(['case', 'neither'] + list(ways) + ['read, neither'] + list(ways), rows)}
In memory the weights take {size['int8'] / 1e6:.0f} MB instead of {size['stored'] / 1e6:.0f}; loaded in {load['int8']:.2f} s instead of
{load['stored']:.2f}. {quality['model']}, {quality['tokens']:,} tokens of these docs, and how many of the most probable tokens are those
of neither:

{table(['way', 'perplexity', 'same token'], kept)}
Command: `{result['command']}`
"""


def daemon(result):
    rows = [[name, f"{value}"] for name, value in result["figures"].items()]
    ready = ", ".join(f"{entry['ready_s']:.2f}" for entry in result["starts"])
    first = ", ".join(f"{entry['ready_s'] + entry['first_token_at_once_s']:.2f}" for entry in result["starts"])
    return f"""
## The daemon

{result['date']}, {result['model']}. Command: `{result['command']}`

{table(['what', 'figure'], rows)}
Plain starts, the file in the page cache. A worker is ready before its weights are packed: a forward pass waits for each layer
that is not there yet. Start by start, seconds to ready: {ready}; from the start to the first token of a request sent the
moment that it was ready: {first}.
"""


def kernels(result):
    rows = [[row["op"], row["shape"], f"{row['us']:.0f}", f"{row['bytes'] / 1e6:.2f}", f"{row['flops'] / 1e9:.3f}",
             f"{100 * row['share_of_dram_read']:.0f}%", f"{100 * row['share_of_fma']:.0f}%"]
            for row in result["results"]]
    ceilings = result["ceilings"]
    return f"""
## Kernels

{result['threads']} threads; ceilings of the same run: DRAM read {ceilings['dram_read_gbytes_per_s']:.1f} GB/s, f32 FMA
{ceilings['fma_gflops_per_s']:.0f} GFLOP/s. Weights are cold (rotating copies); what stays in a cache can exceed the DRAM ceiling.
Command: `kernel_bench --threads {result['threads']} --repeats {result['repeats']}`

{table(['op', 'shape', 'us', 'MB', 'GFLOP', 'of DRAM read', 'of FMA'], rows)}"""


def scheduler(result):
    def row(name, case):
        plan = case["plan_and_advance"]
        return [name, f"{case['mean_running']:.0f}", f"{case['waiting']}", f"{case['preempted_per_step']:.2f}",
                f"{plan['median_us']:.1f}", f"{plan['p99_us']:.1f}"]

    rows = [row("blocks for all", result["blocks_for_all"]), row("blocks for half", result["blocks_short"])]
    return f"""
## Planning a step

{result['steps']} steps of {result['tenants']} tenants, in each of which {result['ending_per_step']} sequences end and others come.
Command: `scheduler_bench`

{table(['pool', 'running', 'waiting', 'preempted per step', 'median us', 'p99 us'], rows)}"""


def kvstore(result):
    middle = result["rounds"][len(result["rounds"]) // 2]
    rows = [[name, f"{row['seconds']:.1f}", f"{row['ttft_ms_median']:.0f}", f"{row['prefill_tokens']}",
             f"{row['output_tokens_per_s']:.0f}", f"{row['blocks']}", f"{row['preempted_recompute']}",
             f"{row['preempted_swap']}"] for name, row in middle.items()]
    summary = result["summary"]
    return f"""
## What the KV store saves and costs

{result['model']}, one unified engine, {len(result['rounds'])} rounds in which all variants ran one after the other, with equal
answers. *prefix*: 100 requests of 1,600 tokens that share the first 1,500, with the prefix cache off and on. *crowded*: 64
requests of unknown output length, in a pool for all and in one for a third of what they hold at the most. *returning*: 64 prompts of
384 tokens, then 192 drawn from them, in a pool for 12 and a host tier for 24 of them raw. Medians over the rounds:

- prefill tokens saved by the prefix cache: {100 * summary['prefill_tokens_saved']:.0f}%; TTFT {summary['ttft_ratio_together']:.1f}x shorter
  when all arrive together, {summary['ttft_ratio_one_at_a_time']:.1f}x one at a time
- throughput in a third of the room: {100 * summary['throughput_third']:.0f}% with preemption by recompute,
  {100 * summary['throughput_third_and_host']:.0f}% with a host tier
- prompt tokens found again with the host tier encoded, beside raw: {summary['returning_hits_f3']:.2f} times as many with f3,
  {summary['returning_hits_mask_rice']:.2f} times with mask-rice, which took {summary['returning_seconds_mask_rice']:.2f} times as long in all
- one block to the host and back: {1e3 * summary['swap_ms_per_block']:.0f} us; computing it again: {1e3 * summary['recompute_ms_per_block']:.0f} us

One round. Command: `kvstore_bench --rounds {len(result['rounds'])}`

{table(['variant', 's', 'TTFT ms', 'prefill tokens', 'tokens/s', 'blocks', 'recomputed', 'swapped'], rows)}"""


def codecs(result):
    rate = lambda value: f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
    rows = [[row["codec"], f"{row['ratio']:.3f}", f"{row['worst_prompt']:.3f}", rate(row["encode_gb_per_s"]),
             rate(row["decode_gb_per_s"])] for row in result["codecs"] if "relative_error_k" not in row]
    half = len(result["texts"]) // 2
    model = pathlib.PurePath(result["model"]).name
    heading = "## Lossless codecs of KV" if model == "sample" else f"### The same of {model}"
    return f"""
{heading}

{result['machine']}, {model}, {result['dtype']}, blocks of {result['block_tokens']} tokens: the KV of {len(result['texts'])} texts of
up to {result['tokens']} tokens. Tables of the first {half} texts, figures of the others: how many times smaller all layers, K and V become with
the headers of their frames, and GB of raw KV per second of one core, hashing it included; memcpy {result['memcpy_gb_per_s']:.1f} GB/s in the
same rounds ({result['rounds']}, medians). Command: `{result['command']}`

{table(['codec', 'ratio', 'worst text', 'encode GB/s', 'decode GB/s'], rows)}{slow(result)}{rounded(result)}{lesser_targets(result)}"""


def slow(result):
    times = result.get("mask_rice_encodes_times_as_fast_as", {})
    if not times:
        return ""
    factors = " and ".join(f"{factor:.0f} times as fast as {name}" for name, factor in sorted(times.items()))
    return f"""
byte-plane, the codec of the earlier systems, took one extent in seven; *runtime* tries the three predictors that their runtime had.
mask-rice encodes {factors}.
"""


def link_codecs(result):
    times = {(row["rate"], row["variant"]): row["transfer_ms"] for row in result["rows"]}
    variants = list(dict.fromkeys(row["variant"] for row in result["rows"]))
    rows = []
    for rate in dict.fromkeys(row["rate"] for row in result["rows"]):
        of_rate = {row["variant"]: row for row in result["rows"] if row["rate"] == rate}
        rows.append([f"{rate}/s", *(f"{times[rate, v]:.0f}" for v in variants), ", ".join(of_rate["auto"]["codecs"]),
                     f"{of_rate['auto']['expected_ms']:.0f}", f"{times[rate, 'raw'] / times[rate, 'auto']:.2f}"])
    raw = result["rows"][0]["raw_bytes"]
    return f"""
### KV that travels encoded

{result['machine']}, {result['model']}: hand-offs of {result['prompt_tokens']} cached tokens, {raw / 1e6:.1f} MB of KV, over tcp that is held to
a rate, one at a time; ms from the first frame to the acknowledgement, medians of {result['rounds']} rounds in which every codec had its
turn. *expected* is what the prefill worker expected of `auto` when it chose. Command: `{result['command']}`

{table(['link', *(f'{v} ms' for v in variants), 'auto took', 'expected ms', 'raw / auto'], rows)}"""


def rounded(result):
    rows = [[row["codec"], f"{row['ratio']:.2f}", f"{row['worst_prompt']:.2f}", f"{row['encode_gb_per_s']:.2f}",
             f"{row['decode_gb_per_s']:.2f}", f"{row['relative_error_k']:.4f}", f"{row['relative_error_v']:.4f}"]
            for row in result["codecs"] if "relative_error_k" in row]
    if not rows:
        return ""
    return f"""
Rounded, step0.09 to steps of 0.09 spreads, without the calibration of a model and without exact tokens. An error is the root of its mean square over that of the values:

{table(['codec', 'ratio', 'worst text', 'encode GB/s', 'decode GB/s', 'error of K', 'error of V'], rows)}"""


def lesser_targets(result):
    names = {"AVX2": "AVX2", "SCALAR": "the baseline, without vectors"}
    targets = [target for target in names if any(target in row.get("other_targets", {}) for row in result["codecs"])]
    if not targets:
        return ""
    rows = [[row["codec"]] + [f"{row['other_targets'][target][way]:.2f}" for target in targets
                              for way in ("encode_gb_per_s", "decode_gb_per_s")]
            for row in result["codecs"] if row.get("other_targets")]
    return f"""
GB/s in the same rounds with less of the processor's instructions: {', then '.join(names[target] for target in targets)}:

{table(['codec'] + [f'{way}, {target}' for target in targets for way in ('encode', 'decode')], rows)}"""


def tokenizer(result):
    return f"""
## Tokenizing

{result['model']}, {result['text_bytes'] / 1e6:.1f} MB of text: {result['encode_mb_per_s']:.1f} MB/s encoded,
{result['stream_ids_per_s'] / 1e6:.1f} M ids/s streamed back, loaded in {result['load_ms']:.1f} ms. Command: `tokenizer_bench`
"""


def simulator_speed(result):
    rows = [[f"{row['prompt_tokens']} / {row['output_tokens']}", f"{row['requests_per_s']}", f"{row['user_s']:.0f}",
             f"{1e6 * row['user_s'] / result['requests']:.0f}", f"{row['wall_s']:.0f}", f"{row['peak_bytes'] / 1e9:.1f}"]
            for row in result["runs"]]
    return f"""
## Simulating a cluster

{result['requests']:,} requests on {result['workers']} unified workers, on one core of an {result['cpu']} that other work shared the
machine with, {result['date']}. CPU time is that of the user; *passed*: seconds from the start to the end. The figures are those of
the simulator itself: what it simulates is in docs/routing_results.md. Command: `bench/simulator_speed.py`, which runs, among
others, `{result['runs'][0]['command']}`

{table(['tokens in / out', 'requests/s', 'CPU s', 'us of CPU per request', 'passed s', 'peak GB'], rows)}"""


# ---------------------------------------------------------------- a GPU: h200_STAGE.json, one per stage of tests/gpu/run.sh
