#!/usr/bin/env python3
"""Write docs/performance.md, and the record in docs/faults.md, from the raw results under bench/results/. Standard
library only.

  bench/report.py            writes the pages
  bench/report.py --check    exits 1 when a page is not what the results say, or when made-up results of a GPU or of
                             faults are rendered wrong
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
FAULTS_PAGE = ROOT / "docs" / "faults.md"
FAULTS_HEAD = "## The record"  # up to the next head of its kind

HEAD = """# Performance

Written by `bench/report.py` from `bench/results/*.json`; do not edit. The machines are shared and noisy: read
ratios and shares of the ceilings, which were measured in the same minutes, rather than absolute rates.
"""


def load(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def against_peer(result):
    rows = [[case, f"{row['tandem']:.1f}", f"{row['peer']:.1f}", f"{row['ratio']:.2f}", f"{row['daemon']:.1f}",
             f"{100 * row['daemon_over_engine']:.1f}%"] for case, row in result["summary"].items()]
    middle = result["rounds"][len(result["rounds"]) // 2]["engine"]
    shares = [[f"{row['kind']} {row.get('tokens', '')}{'batch ' + str(row['batch']) if 'batch' in row else ''}"
               f"{' at depth ' + str(row['depth']) if row.get('depth') else ''}",
               f"{row['bytes_per_step'] / 1e6:.0f}", f"{row['flops_per_step'] / 1e9:.2f}",
               f"{row['gbytes_per_s']:.1f}", f"{100 * row['share_of_dram_read']:.0f}%",
               f"{row['gflops_per_s']:.0f}", f"{100 * row['share_of_fma']:.0f}%"] for row in middle["results"]]
    ceilings = middle["ceilings"]
    build = result["rounds"][0]["peer"]["build"]
    return f"""
## A model of {middle['parameters'] / 1e9:.2f} B parameters, beside llama.cpp {build}

{result['cpu']}, {result['cores']} cores, {result['threads']} threads, {result['date']}; bf16 weights, random, the same in both;
{len(result['rounds'])} rounds in which both ran turn by turn, medians, tokens per second. The last two columns are the same
work through `tandem up` and gRPC: without a prefix cache, after a warm-up of 2,048 + 64 tokens, medians of three requests.

{table(['case', 'tandem', 'llama.cpp', 'ratio', 'daemon', 'daemon / in process'], rows)}
Command: `{result['command']}`

Of one round, per step, beside the ceilings of that round (DRAM read {ceilings['dram_read_gbytes_per_s']:.1f} GB/s, f32 FMA
{ceilings['fma_gflops_per_s']:.0f} GFLOP/s):

{table(['case', 'MB', 'GFLOP', 'GB/s', 'of DRAM read', 'GFLOP/s', 'of FMA'], shares)}"""


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


def verdicts(targets):
    """How many of the targets were met, and which were not."""
    missed = [f"{row['what']}: {row['measured']} instead of {row['wanted']}" for row in targets if not row["met"]]
    return f"{len(targets) - len(missed)} of {len(targets)} targets met" + ("; missed: " + "; ".join(missed) if missed else "")


# Ways that others are measured against: how they are called, and which field of a row has the share of each.
TRANSFER_CEILINGS = {"copy through shared memory": ("the copy", "share_of_shared_memory"),
                     "one copy out of its memory": ("one copy", "share_of_read"),
                     "bare TCP socket": ("the socket", "share_of_socket")}


def transfer_targets(targets):
    """What was wanted, and what came of it."""
    wanted = {}
    for row in targets:
        of = row.get("of", "bare TCP socket" if row["way"] == "tcp" else "copy through shared memory")
        wanted[row["way"]] = f"{row['way']} at least {100 * row['least']:.0f}% of {TRANSFER_CEILINGS[of][0]}"
    rows = [{"what": f"{row['way']}, {row['load']}", "measured": f"{100 * row['share']:.0f}%",
             "wanted": f"{100 * row['least']:.0f}%", "met": row["met"]} for row in targets]
    return f"Targets, prompts: {', '.join(wanted.values())}: {verdicts(rows)}."


def transfer(result):
    present = {row["way"] for row in result["rates"]}
    ceilings = [TRANSFER_CEILINGS[way] for way in TRANSFER_CEILINGS if way in present]
    rows = []
    for i, row in enumerate(result["rates"]):
        first = i == 0 or result["rates"][i - 1]["load"] != row["load"]
        rows.append([row["load"] if first else "", row["way"], f"{row['gb_per_s']:.2f}",
                     *(f"{100 * row[share]:.0f}%" for _, share in ceilings),
                     f"{row['sender_cpu_s_per_gb']:.2f}", f"{row['receiver_cpu_s_per_gb']:.2f}"])
    latencies = [[row["way"], f"{row['median_us']:.0f}", f"{row['p90_us']:.0f}"] for row in result["latencies"]]
    buffers = "; ".join(f"{row['way']} {row['bytes'] / 2**20:.1f} MiB" for row in result["buffers"])
    on_gpu = result.get("device", "cpu") != "cpu"
    passes = {"copy through shared memory": f"copied in and out of a ring of {result['ring_bytes'] >> 20} MiB of shared memory"
              + (", from and to the GPU by way of page-locked memory" if on_gpu else ""),
              "one copy out of its memory": "read by one copy of the receiver out of the sender's memory",
              "bare TCP socket": "sent through a bare socket", "hash alone": "only hashed"}
    passes = "; ".join(text for way, text in passes.items() if way in present)
    return f"""
## Moving KV{' between processes of one GPU' if on_gpu else ''}

{result['machine']}, {result['date']}. From one process to another of this machine, hashed and verified. A prompt is the KV of
a model of 24 layers, 8 KV heads of 64 in bf16: extents of 32 KiB, 48 KiB per token. The first rows of each load are its
ceilings: the same bytes
{passes}.
All run turn by turn, {result['repeats']} turns after one that does not count, each between places of the pools that nothing touched for
longest, as the blocks of a prompt are; shares are medians of the ratio within a turn.
Memory set aside by the sender: {buffers}.

{transfer_targets(result['targets'])}
Command: `{result['command']}`

{table(['load', 'way', 'GB/s', *(f'of {name}' for name, _ in ceilings), 'sender CPU s/GB', 'receiver CPU s/GB'], rows)}
What a prompt of one block costs: a stream of 24 extents, opened, sent, verified, acknowledged; {result['streams']} of them, way by way:

{table(['way', 'median us', 'p90 us'], latencies)}"""


def check_transfer():
    """Renders made-up results: of the host with its socket, of a GPU without, each load named once."""
    def row(load, way, rate, **shares):
        return {"load": load, "way": way, "gb_per_s": rate, "sender_cpu_s_per_gb": 0.25, "receiver_cpu_s_per_gb": 0.5} | shares

    def shares(copy, read):
        return {"share_of_shared_memory": copy, "share_of_read": read}

    made_up = {"machine": "made-up GPU", "device": "cuda:0", "date": "2000-01-01", "repeats": 3, "streams": 5, "command": "x",
               "ring_bytes": 4 << 20, "buffers": [{"way": "shm", "bytes": 3 << 19}],
               "latencies": [{"way": "ipc", "median_us": 12.3, "p90_us": 45.6}],
               "rates": [row("a", "copy through shared memory", 10, **shares(1, 0.5)),
                         row("a", "one copy out of its memory", 20, **shares(2, 1)),
                         row("a", "ipc", 15, **shares(1.5, 0.75))],
               "targets": [{"way": "ipc", "load": "a", "of": "one copy out of its memory", "share": 0.75, "least": 0.8,
                            "met": False}]}
    page = transfer(made_up)
    socket = row("a", "bare TCP socket", 5, **shares(0.5, 0.25), share_of_socket=1)
    rates = [each | {"share_of_socket": 3} for each in made_up["rates"]] + [socket]
    on_host = transfer(made_up | {"device": "cpu", "rates": rates})
    facts = {
        "of a GPU": "between processes of one GPU" in page and "page-locked" in page and "socket" not in page,
        "rows": "| a | copy through shared memory | 10.00 | 100% | 50% | 0.25 | 0.50 |" in page
                and "|  | ipc | 15.00 | 150% | 75% | 0.25 | 0.50 |" in page,
        "targets": "ipc at least 80% of one copy: 0 of 1 targets met; missed: ipc, a: 75% instead of 80%" in page,
        "buffers": "shm 1.5 MiB." in page,
        "latencies": "| ipc | 12 | 46 |" in page,
        "of the host": "one GPU" not in on_host and "of the socket" in on_host
                       and "|  | bare TCP socket | 5.00 | 50% | 25% | 100% |" in on_host,
    }
    wrong = [name for name, holds in facts.items() if not holds]
    if wrong:
        sys.exit(f"bench/report.py renders results of transfers wrong: {', '.join(wrong)}\n{page}{on_host}")


def added(short):
    """What a hand-off adds to TTFT, with the interval in which the median lies at 95%."""
    return f"{short['added_ms']:.2f} ({short['added_low_ms']:.2f} to {short['added_high_ms']:.2f})"


def stages(short):
    """Of what is added: reserving, opening the stream and posting, computing, the rest at the router."""
    more = {name: short["disaggregated_stages"][name] - unified for name, unified in short["unified_stages"].items()}
    parts = (("reserve_ms", "admission_ms"), ("transfer_ms",), ("queue_ms", "prefill_ms", "first_token_ms"), ("residual_ms",))
    return [f"{sum(more[name] for name in names):.2f}" for names in parts]


STAGES = ["of that reserving", "KV stream", "computing", "rest"]


def by_service(short):
    medians = short["added_by_service_ms"]
    return f"{min(medians):.2f} to {max(medians):.2f}"


def added_target(case):
    short = case["short"]
    return {"what": f"{case['transport']}, added to TTFT", "measured": f"{short['added_ms']:.2f} ms",
            "wanted": f"under {short['most_ms']:.0f} ms", "met": short["met"]}


def handoff_short(result):
    """The same of a model that computes so little that the hand-off can be seen beside it."""
    cases = result["transports"]
    rows = [[case["transport"], f"{case['short']['unified_ttft_ms']:.2f}", f"{case['short']['disaggregated_ttft_ms']:.2f}",
             added(case["short"]), *stages(case["short"])] for case in cases]
    return f"""
## What a hand-off costs a short prompt of a small model

{result['machine']}, {result['date']}; as above, but of `models/sample`, whose TTFT is short enough for a hand-off to be seen beside it:
prompts of {cases[0]['short']['prompt_tokens']} tokens, {cases[0]['short']['pairs']} pairs.

{verdicts([added_target(case) for case in cases])}. Command: `{result['command']}`

{table(['transport', 'TTFT unified ms', 'TTFT handed off ms', 'added ms', *STAGES], rows)}"""


def handoff(result):
    rows, targets = [], []
    for case in result["transports"]:
        short, long = case["short"], case["long"]
        exposed = sorted(row["exposed_ms"] for row in long["prompts"])[len(long["prompts"]) // 2]
        rows.append([case["transport"], f"{short['unified_ttft_ms']:.2f}", f"{short['disaggregated_ttft_ms']:.2f}",
                     added(short), by_service(short), *stages(short), f"{100 * long['hidden_share']:.1f}%", f"{exposed:.1f}"])
        targets += [added_target(case),
                    {"what": f"{case['transport']}, bytes hidden", "measured": f"{100 * long['hidden_share']:.1f}%",
                     "wanted": f"{100 * long['least']:.0f}%", "met": long["met"]}]
    short, long = result["transports"][0]["short"], result["transports"][0]["long"]
    threads = f"{result['threads']} threads" if result["threads"] else "as many threads as cores"
    return f"""
## What a hand-off costs a request

{result['machine']}, {result['date']}; the model of 0.35 B parameters, `tandem up` with a prefill, a decode and a unified worker, each with
{threads}, on the same cores. *Added*: prompts of {short['prompt_tokens']} tokens, the routes in strict turns, so that each finds the
caches as the other left them, {short['pairs']} pairs, the median of the differences of TTFT at the client, and the interval in which it lies at 95%;
*by service*: the medians of {result['services']} services that were started one after another, whose workers compute a little faster or slower by
the pages that they got; then by how much the medians of the stages of TTFT differ. *Hidden*: of the KV of prompts of {long['prompt_tokens']:,} tokens, what had landed when the decode worker was given
the request, which is after the first token by one hop of the router; *exposed*: from the first token to the acknowledgement.

{verdicts(targets)}. Command: `{result['command']}`

{table(['transport', 'TTFT unified ms', 'TTFT handed off ms', 'added ms', 'by service', *STAGES, 'bytes hidden', 'exposed ms'], rows)}"""


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
requests of unknown output length, in a pool for all and in one for a third of what they hold at the most. Medians over the
rounds:

- prefill tokens saved by the prefix cache: {100 * summary['prefill_tokens_saved']:.0f}%; TTFT {summary['ttft_ratio_together']:.1f}x shorter
  when all arrive together, {summary['ttft_ratio_one_at_a_time']:.1f}x one at a time
- throughput in a third of the room: {100 * summary['throughput_third']:.0f}% with preemption by recompute,
  {100 * summary['throughput_third_and_host']:.0f}% with a host tier
- one block to the host and back: {1e3 * summary['swap_ms_per_block']:.0f} us; computing it again: {1e3 * summary['recompute_ms_per_block']:.0f} us

One round. Command: `kvstore_bench --rounds {len(result['rounds'])}`

{table(['variant', 's', 'TTFT ms', 'prefill tokens', 'tokens/s', 'blocks', 'recomputed', 'swapped'], rows)}"""


def tokenizer(result):
    return f"""
## Tokenizing

{result['model']}, {result['text_bytes'] / 1e6:.1f} MB of text: {result['encode_mb_per_s']:.1f} MB/s encoded,
{result['stream_ids_per_s'] / 1e6:.1f} M ids/s streamed back, loaded in {result['load_ms']:.1f} ms. Command: `tokenizer_bench`
"""


# ---------------------------------------------------------------- a GPU: h200_STAGE.json, one per stage of tests/gpu/run.sh

GPU_STAGES = {"decode": "Decode attention", "prefill": "Prefill attention", "movement": "Moving KV, and the other ops",
              "model": "A whole model of Qwen3-8B's shape"}

NO_GPU_YET = """
## On a GPU

Nothing has been measured yet: the CUDA backend has run on the emulated GPU of `tests/simt/` alone, which says nothing
of time. `tests/gpu/run.sh` measures, on a machine with an H200; its results, as `bench/results/h200_STAGE.json`,
make this section. It will show, each beside its target: decode attention over batch and context, in bf16 and fp8, with
and without block mass, even and skewed, beside the classic scheme and the library's kernels; prefill attention of the
portable kernel and of that for sm_90a; movement of blocks as a share of the copy ceiling; products of few rows beside
cuBLASLt; prefill, decode steps and the host's gap of a model of Qwen3-8B's shape, op by op; moving KV between two
processes.
"""


def gpu_row(row):
    """Share of whichever ceiling bounds the op; what an older or shorter result lacks stays empty."""
    share = next((f"{100 * row[key]:.0f}% {name}" for name, key in
                  (("read", "share_of_read_ceiling"), ("copy", "share_of_copy_ceiling"),
                   ("gemm", "share_of_gemm_ceiling")) if key in row), "")
    target = ""
    if "target_us" in row:
        target = f"{row['target_us']:.1f}"
        if row["fail_above_us"] > row["target_us"]:
            target += f" ({row['fail_above_us']:.1f})"
    return [row["op"], row["shape"], row["variant"], f"{row['us']:.1f}",
            f"{row['tbytes_per_s']:.2f}" if row["bytes"] else "", f"{row['tflops']:.0f}" if row["flops"] else "", share, target, row.get("verdict", ""),
            f"{row['over_first']:.2f}" if "over_first" in row else "",
            f"{row['error']:.1e}" if "error" in row else ""]


GPU_HEAD = ["op", "shape", "variant", "us", "TB/s", "TFLOP/s", "of ceiling", "target us (fails above)", "verdict",
            "x first", "error"]


def gpu_rows(result, library):
    """The rows of a stage; the library's of the same op and shape stand behind them."""
    rows = [row for row in result["results"] if row["section"] not in ("ceilings", "model ops")]
    extra = list(library["results"]) if library else []
    lines = []
    for i, row in enumerate(rows):
        lines.append(gpu_row(row))
        following = rows[i + 1] if i + 1 < len(rows) else None
        if following and (following["op"], following["shape"]) == (row["op"], row["shape"]):
            continue
        for other in [o for o in extra if (o["op"], o["shape"]) == (row["op"], row["shape"])]:
            lines.append(gpu_row(other))
            extra.remove(other)
    return lines


def gpu_step_ops(result):
    """Where the time of a pass goes: the ops of each step as shares of their sum."""
    steps = {}
    for row in result["results"]:
        if row["section"] == "model ops":
            steps.setdefault(row["shape"], []).append(row)
    text = ""
    for step, ops in steps.items():
        total = sum(op["us"] for op in ops)
        rows = [[op["op"], op["variant"], f"{op['us']:.0f}", f"{100 * op['us'] / total:.0f}%", f"{op['bytes'] / 1e6:.1f}",
                 f"{op['flops'] / 1e9:.1f}", gpu_row(op)[6]] for op in sorted(ops, key=lambda op: -op["us"])]
        text += f"\n{step[:1].upper()}{step[1:]}, each op between two events:\n\n"
        text += table(["op", "calls", "us", "of the sum", "MB", "GFLOP", "of ceiling"], rows)
    return text


def gpu_ceilings(result):
    """Those that the stage measured itself, just before its rows."""
    c = result["ceilings"]
    return (f"read {c['read_tbytes_per_s']:.2f} TB/s, copy {c['copy_tbytes_per_s']:.2f} TB/s, bf16 GEMM "
            f"{c['gemm_tflops']:.0f} TFLOP/s")


OUT_OF_TIME = (124, 137)  # exit statuses


def gpu_tests(name, result):
    if result is None:
        return f"- {name}: not run\n"
    late = [row["program"] for row in result["results"] if row["rc"] in OUT_OF_TIME]
    failed = [row["program"] for row in result["results"] if row["rc"] not in (0, *OUT_OF_TIME)]
    tests = sum(row.get("tests", 0) for row in result["results"])
    ends = [f"{what}: {', '.join(programs)}" for what, programs in (("failed", failed), ("out of time", late)) if programs]
    return (f"- {name}, {result['date']}, commit {result['commit']}: {tests} tests of {len(result['results'])} runs, "
            f"{'; '.join(ends) or 'all passed'}\n")


def gpu_daemon(result):
    if result is None:
        return "- the whole daemon: not run\n"
    text = f"- the whole daemon, {result['date']}, commit {result['commit']}: {'passed' if result['passed'] else 'FAILED'}"
    for row in result["results"]:
        if "equal" in row:
            text += f"; {row['equal']} of {row['prompts']} answers of {row['steps']} greedy tokens equal the CPU's"
            text += f" ({row['workers']})"
        elif "rehearsal" in row:
            text += f"; {row['workers']}: rehearsal {row['rehearsal']}, which decides nothing"
        else:
            text += f"; {row['model']}: ready in {row['ready_ms'] / 1e3:.1f} s, {row['tpot_ms']:.2f} ms per token"
    return text + "\n"


def gpu(results):
    """`results`: stage -> its JSON, absent where there is none."""
    stages = {name: results[name] for name in GPU_STAGES if results.get(name)}
    if not stages:
        return NO_GPU_YET
    first = next(iter(stages.values()))
    machine = (results.get("conformance") or {}).get("machine", {})
    verdicts = [row["verdict"] for result in stages.values() for row in result["results"] if "verdict" in row]
    missed = [f"{row['op']} {row['shape']} {row['variant']}".strip() for result in stages.values()
              for row in result["results"] if row.get("verdict") in ("missed", "wrong")]
    text = f"""
## On a GPU

{first['machine']['gpu']}, driver {machine.get('driver', 'unknown')}. A launch is timed as part of a graph of many on data
of their own, several times the cache together; medians of {first['repeats']} replays, variants turn by turn. *x first*: time
over that of the first variant; *error*: against the reference kernel, of double sums. Library kernels (*torch*) read K and
V that are contiguous.

Targets: {verdicts.count('met')} met, {verdicts.count('near')} near, {verdicts.count('missed')} missed, {verdicts.count('wrong')} wrong.
"""
    if missed:
        text += "Missed or wrong: " + "; ".join(missed) + ".\n"
    text += "\n" + gpu_tests("conformance", results.get("conformance"))
    text += gpu_tests("memcheck and initcheck", results.get("memcheck"))
    text += gpu_tests("racecheck and synccheck", results.get("racecheck")) + gpu_daemon(results.get("daemon"))
    for name, result in stages.items():
        text += f"""
### {GPU_STAGES[name]}

{result['date']}, commit {result['commit']}; ceilings of this run: {gpu_ceilings(result)}.

{table(GPU_HEAD, gpu_rows(result, results.get('sdpa')))}"""
        if name == "model":
            text += gpu_step_ops(result)
    return text


def check_gpu():
    """Renders made-up results: every row once, the library's beside ours, verdicts counted, gaps left empty."""
    def row(**fields):
        return {"section": "decode", "op": "attention_decode", "shape": "1 x 16", "variant": "ours", "us": 2.0,
                "bytes": 4e6, "flops": 8e6, "tbytes_per_s": 2.0, "tflops": 4.0} | fields

    ceilings = {"read_tbytes_per_s": 4.4, "copy_tbytes_per_s": 4.2, "gemm_tflops": 790.0}
    stage = {"machine": {"gpu": "made-up GPU"}, "ceilings": ceilings, "repeats": 50, "date": "2000-01-01", "commit": "abc"}
    decode = stage | {"results": [
        row(section="ceilings", op="read"), row(target_us=3.0, fail_above_us=4.0, verdict="met", error=0.002),
        row(variant="fp8", us=4.5, target_us=3.0, fail_above_us=4.0, verdict="missed", over_first=2.25,
            share_of_read_ceiling=0.5), row(shape="8 x 16")]}
    model = stage | {"results": [row(section="model", op="prefill", shape="8 tokens", variant=""),
                                 row(section="model ops", op="gemm", shape="prefill, 8 tokens", us=3.0),
                                 row(section="model ops", op="rope", shape="prefill, 8 tokens", us=1.0)]}
    sdpa = {"results": [row(section="sdpa", variant="torch cuDNN", us=7.0), row(section="sdpa", shape="9 x 9")]}
    tests = {"date": "2000-01-01", "commit": "abc", "machine": {"driver": "made-up driver"},
             "results": [{"program": "a", "rc": 0, "tests": 5}, {"program": "b", "rc": 1, "tests": 6},
                         {"program": "c", "rc": 124, "tests": 0}]}
    daemon_result = {"date": "2000-01-01", "commit": "abc", "passed": True, "results": [
        {"model": "sample", "workers": "unified", "steps": 64, "prompts": 4, "equal": 4},
        {"model": "sample", "workers": "by nccl", "rehearsal": "failed"},
        {"model": "8b", "ready_ms": 2500, "tpot_ms": 4.25}]}
    page = gpu({"decode": decode, "model": model, "sdpa": sdpa, "conformance": tests, "daemon": daemon_result})
    lines = page.splitlines()

    def line(*words):
        return [i for i, text in enumerate(lines) if text.startswith("|") and all(word in text for word in words)]

    facts = {
        "counts verdicts": "1 met, 0 near, 1 missed, 0 wrong" in page,
        "names what was missed": "Missed or wrong: attention_decode 1 x 16 fp8." in page,
        "one line per row": len(line("1 x 16", "ours")) == 1 and len(line("8 x 16")) == 1,
        "library behind ours": line("torch cuDNN") == [line("1 x 16", "fp8")[0] + 1],
        "no library row without ours": not line("9 x 9"),
        "limits": "3.0 (4.0)" in lines[line("fp8")[0]] and "50% read" in lines[line("fp8")[0]],
        "shares of a step": "75%" in lines[line("gemm", "3")[0]] and "Prefill, 8 tokens" in page,
        "failed tests": "11 tests of 3 runs, failed: b; out of time: c\n" in page,
        "driver": "made-up GPU, driver made-up driver." in page,
        "what was not run": "memcheck and initcheck: not run" in page and "racecheck and synccheck: not run" in page,
        "daemon": "passed; 4 of 4 answers of 64 greedy tokens equal the CPU's (unified); by nccl: rehearsal failed, which "
                  "decides nothing; 8b: ready in 2.5 s, 4.25 ms per token\n" in page,
        "no daemon": "daemon: not run" in gpu({"decode": decode}) and "driver unknown" in gpu({"decode": decode}),
        "nothing measured": gpu({"conformance": tests}) == NO_GPU_YET,
    }
    wrong = [name for name, holds in facts.items() if not holds]
    if wrong:
        sys.exit(f"bench/report.py renders results of a GPU wrong: {', '.join(wrong)}\n{page}")


GPU_RESULTS = [*GPU_STAGES, "sdpa", "conformance", "memcheck", "racecheck", "daemon"]
SECTIONS = [("cpu_peer", against_peer), ("cpu_daemon", daemon), ("cpu_kernels", kernels),
            ("cpu_transfer", transfer), ("cpu_handoff", handoff), ("cpu_handoff_short", handoff_short),
            ("cpu_kvstore", kvstore), ("cpu_scheduler", scheduler), ("cpu_tokenizer", tokenizer)]


def times(name, entry):
    return [name, f"{entry['count']:,}", *(f"{entry[key]:,.0f}" for key in ("p50_ms", "p99_ms", "max_ms"))]


CAUSES = {"connection": "the connection of a call to a worker ended", "lease": "a worker was not heard of for too long, or lost its name",
          "no_progress": "a worker said that it makes no progress", "hand_off": "a worker did not reach its peer with KV",
          "leaving": "a worker drains"}


def fault_counts(rows, of):
    """Lines of scheduled, hit and missed events, summed over the rows of each `of` ("fault", "fleet")."""
    counts = {}
    for row in rows:
        count = counts.setdefault(row[of], [0, 0, 0])
        for i, key in enumerate(("scheduled", "hit", "missed")):
            count[i] += row[key]
    return [[name, *(f"{number:,}" for number in count)] for name, count in counts.items()]


def fleets_of(result):
    """How many events ran on which fleets, and how much was under way there at once. Older records do not tell."""
    if "fleets_of" not in result:
        return ""
    most = {name: [f"{fleet['not_run']:,}"] + [f"{fleet[key]:,}" for key in (
        "most_sending", "most_waiting_reservations", "most_draining_reservations")]
        for name, fleet in result["fleets_of"].items()}
    lines = [[*line, *most[line[0]]] for line in fault_counts(result["rows"], "fleet")]
    head = ["fleet", "scheduled", "hit at its moment", "missed", "not run", "most hand-offs at once", "waiting", "draining"]
    return table(head, lines) + "\n"


def faults(result):
    head = ["count", "p50 ms", "p99 ms", "max ms"]
    resumes = result["resumes"]
    pauses = [times("all", resumes | {"count": resumes["lost"] + resumes["migrated"]})]
    pauses += [times(CAUSES[cause], entry) for cause, entry in resumes.get("causes", {}).items()]
    slow = result.get("resumes_with_slow_kv")
    if slow:
        pauses.append(times("where KV is held to a rate", slow | {"count": slow["lost"] + slow["migrated"]}))
    gave_up = resumes["gave_up"] + (slow["gave_up"] if slow else 0)
    noticed = [times(name.replace("_", ", "), entry) for name, entry in result["loss_noticed"].items()]
    if "left" in result:
        noticed.append(times("asked to leave: ended", result["left"]))
    scheduled, hit = (sum(row[key] for row in result["rows"]) for key in ("scheduled", "hit"))
    requests = result["requests"]
    fleets = f" --fleets {result['fleets']}" if result.get("fleets", 1) > 1 else ""
    found = f" ({'; '.join(result['found'])})" if result["found"] else ""
    return f"""{FAULTS_HEAD}

Written by `bench/report.py` from `bench/results/faults.json`; do not edit this section.
Command: `build/release/bin/fault_harness --events {result['events']} --seed {result['seed']}{fleets} --json bench/results/faults.json`,
{result['seconds']:,.0f} s.

{scheduled:,} events, of which {hit:,} hit their moment. Of the requests {requests['whole']:,} ended whole, {requests['cancelled']:,} were cancelled, {requests['expired']:,} expired; wrong were
{requests['wrong']:,}. What was found that must not be: {len(result['found'])}{found}.

{table(["loss noticed", *head], noticed)}
{table(["pause of a request that went on elsewhere", *head], pauses)}
From the loss noticed to the next token told; the largest of the fleets' quantiles, each over the latest 1,000 pauses of
its router. {gave_up:,} gave up.

{fleets_of(result)}{table(['fault', 'scheduled', 'hit at its moment', 'missed'], fault_counts(result['rows'], "fault"))}"""


def with_record(page, record):
    begin = page.index(FAULTS_HEAD)
    end = page.find("\n## ", begin)
    return page[:begin] + record + (page[end:] if end >= 0 else "")


def check_faults():
    """Renders a made-up record: every count once, kinds of faults summed over their rows, causes where there are."""
    entry = {"count": 3, "p50_ms": 1.4, "p99_ms": 2345.6, "max_ms": 7.0}
    row = {"fleet": "tcp", "moment": "commit", "target": "decode", "fault": "kill", "scheduled": 1200, "hit": 1100,
           "missed": 100}
    fleet = {"not_run": 7, "most_sending": 5, "most_waiting_reservations": 6, "most_draining_reservations": 1}
    made_up = {"events": 9999, "seed": 9, "fleets": 4, "seconds": 10.2, "found": ["x"],
               "requests": {"whole": 11, "cancelled": 12, "expired": 13, "wrong": 14},
               "loss_noticed": {"killed": entry, "hanging_idle": entry},
               "resumes": {"lost": 20, "migrated": 1, "gave_up": 2, "p50_ms": 5.0, "p99_ms": 6.0, "max_ms": 7.0},
               "rows": [row, row | {"moment": "ack"}, row | {"fault": "drop", "hit": 5}]}
    page = faults(made_up)
    with_causes = faults(made_up | {"resumes": made_up["resumes"] | {"causes": {"lease": entry}}})
    with_fleets = faults(made_up | {"fleets_of": {"tcp": fleet}, "left": entry,
                                     "resumes_with_slow_kv": made_up["resumes"] | {"lost": 30, "p50_ms": 9.0}})
    around = with_record(f"# A\n\n{FAULTS_HEAD}\nold\n\n## After\nkept\n", page)
    facts = {
        "command": "--events 9999 --seed 9 --fleets 4 --json" in page,
        "what ran, not what was asked for": "3,600 events, of which 2,205 hit" in page and "9,999" not in page,
        "fleets": "| tcp | 3,600 | 2,205 | 300 | 7 | 5 | 6 | 1 |" in with_fleets and "most hand-offs" not in page,
        "left": "| asked to leave: ended | 3 | 1 | 2,346 | 7 |" in with_fleets and "asked to leave" not in page,
        "slow apart": "| where KV is held to a rate | 31 | 9 | 6 | 7 |" in with_fleets and "4 gave up" in with_fleets,
        "endings": "11 ended whole, 12 were cancelled, 13 expired; wrong were\n14." in page,
        "found": "must not be: 1 (x)." in page,
        "times": "| hanging, idle | 3 | 1 | 2,346 | 7 |" in page,
        "all pauses": "| all | 21 | 5 | 6 | 7 |" in page and "2 gave up" in page,
        "kinds summed": "| kill | 2,400 | 2,200 | 200 |" in page and "| drop | 1,200 | 5 | 100 |" in page,
        "causes": "not heard of" not in page and "for too long, or lost its name | 3 | 1 |" in with_causes,
        "only its section": around.startswith("# A\n\n" + page) and around.endswith("\n## After\nkept\n"),
    }
    wrong = [name for name, holds in facts.items() if not holds]
    if wrong:
        sys.exit(f"bench/report.py renders a record of faults wrong: {', '.join(wrong)}\n{page}")


def main():
    page = HEAD
    for name, render in SECTIONS:
        result = load(name)
        if result is not None:
            page += render(result)
    page += gpu({name: load(f"h200_{name}") for name in GPU_RESULTS})
    if gpu_transfer := load("h200_transfer"):
        page += transfer(gpu_transfer)
    faults_page = with_record(FAULTS_PAGE.read_text(), faults(load("faults")))
    if "--check" in sys.argv:
        check_transfer()
        check_gpu()
        check_faults()
        stale = [str(path) for path, text in ((PAGE, page), (FAULTS_PAGE, faults_page)) if path.read_text() != text]
        sys.exit(f"{', '.join(stale)}: stale, run bench/report.py" if stale else 0)
    PAGE.write_text(page)
    FAULTS_PAGE.write_text(faults_page)


if __name__ == "__main__":
    main()
