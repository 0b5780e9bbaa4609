"""Pages of moving KV: transports beside their ceilings, and what a hand-off costs a request."""
import sys

from pages.text import table, verdicts

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
