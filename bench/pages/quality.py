"""What lossy classes of KV and eviction change in a model's predictions."""
import sys

from pages.curve import curve
from pages.text import table

WAY_HEAD = ["ratio", "perplexity %", "top-1 %", "KL"]


def note(result):
    """What the command alone does not say, such as rows that were measured again later."""
    return f". {result['note']}" if result.get("note") else ""


def way_rows(ways):
    rows = []
    for name, evaluated in ways.items():
        totals = evaluated["totals"]
        mean = lambda key, digits, factor=1: f"{factor * totals[key]['mean']:.{digits}f} ({factor * totals[key]['worst']:.{digits}f})"
        rows.append([name, mean("kv_raw_over_wire", 3), mean("perplexity_change_percent", 2), mean("top1_agreement", 2, 100),
                     mean("kl_nats", 5)])
    return rows


def kv_quality(result):
    windows = len(next(iter(result["classes"].values()))["windows"])
    return f"""
### What the classes of quality change

{result['model']}, {windows} windows of prose, code and legal text, 1,024 + 255 tokens: hand-offs of each class against the unified route, the layers' steps from
`tandem calibrate-kv` ([hand_off.md](hand_off.md#calibrating)). Bytes of
KV per byte on the wire with all headers, change of perplexity in percent, top-1 agreement in percent, KL in nats (over the 20 most
probable tokens and the rest together, so at least that); means, in parentheses the worst window. Command: `{result['command']}`{note(result)}

{table(['class', *WAY_HEAD], way_rows(result['classes']))}{evictions(result)}{planted(result)}"""


def evictions(result):
    if not result.get("evictions"):
        return ""
    return f"""
The same for ways of [eviction](token_eviction.md), whose bytes of KV count the whole prompt; `random` is the control. With
`output=keep` the prompt alone gives up KV; the others go on while they decode:

{table(['eviction', *WAY_HEAD], way_rows(result['evictions']))}
At equal bytes rounding changes predictions far less than eviction does. What eviction keeps travels encoded without loss:

![KL over the bytes that travel](media/kv_quality.svg)
"""


def quality_curve(result):
    """The SVG of KL over bytes; nothing where no way of eviction was measured."""
    def points(ways):
        return [(name, evaluated["totals"]["kv_raw_over_wire"]["mean"], evaluated["totals"]["kl_nats"]["mean"])
                for name, evaluated in ways.items()]

    evicted = [point for point in points(result.get("evictions") or {}) if point[0].startswith("snapkv") and point[0].endswith("keep")]
    if not evicted:
        return None
    classes = points(result["classes"])
    return curve({"rounded": [point for point in classes if point[0] not in ("exact", "tiny")],
                  "evicted": [(name.removesuffix(",output=keep"), ratio, kl) for name, ratio, kl in evicted],
                  "both": [point for point in classes if point[0] == "tiny"]})


def found(ways, which="found"):
    """How many planted facts each way found, by its name."""
    return {name: sum(int(window[which]) for window in evaluated["windows"]) for name, evaluated in ways.items()}


def planted(result):
    if not result.get("planted"):
        return ""
    known, later = (result["planted"][question] for question in ("known", "later"))
    first = next(iter(known))
    counts = {question: found(ways) | {"unified route": found(ways, "baseline_found")[first]}
              for question, ways in (("known", known), ("later", later))}
    rows = [[way, str(counts["known"][way]), str(counts["later"][way])] for way in ("unified route", *known)]
    evaluated = known[first]
    return f"""
Facts found of {len(evaluated['windows'])}, one planted in each prompt of {evaluated['prompt_tokens']:,} tokens ([how](benchmarking.md#planted-facts)). *Known*: the question
ends the prompt; *later*: it comes behind it, so nothing tells what will be asked for when KV is given up:

{table(['way', 'known', 'later'], rows)}"""


def check_quality():
    """Renders made-up results: without evictions and planted facts neither is named, with them each way has its row."""
    def evaluated(kl, finds=(), prompt_tokens=2048):
        totals = {key: {"mean": value, "worst": 2 * value} for key, value in (
            ("kv_raw_over_wire", 3), ("perplexity_change_percent", 1.5), ("top1_agreement", 0.5), ("kl_nats", kl))}
        windows = [{"found": one, "baseline_found": 1} for one in finds]
        return {"totals": totals, "windows": windows, "prompt_tokens": prompt_tokens}

    made_up = {"model": "m", "command": "x", "classes": {"exact": evaluated(0.25)}}
    page = kv_quality(made_up)
    with_all = kv_quality(made_up | {
        "evictions": {"random:3": evaluated(0.125)},
        "planted": {"known": {"exact": evaluated(0, (1.0, 1.0, 0.0)), "random:3": evaluated(0, (0.0, 0.0, 1.0))},
                    "later": {"exact": evaluated(0, (1.0, 0.0, 0.0)), "random:3": evaluated(0, (0.0, 0.0, 0.0))}}})
    picture = quality_curve({"classes": {"exact": evaluated(0), "near": evaluated(0.001), "tiny": evaluated(0.02)},
                             "evictions": {"snapkv:3,output=keep": evaluated(0.1), "random:3": evaluated(1)}})
    facts = {
        "no curve": quality_curve(made_up) is None,
        "curve": all(word in picture for word in (">near</text>", ">tiny</text>", ">snapkv:3</text>", ">0.001</text>"))
                 and "exact" not in picture and "random" not in picture,
        "classes": "| exact | 3.000 (6.000) | 1.50 (3.00) | 50.00 (100.00) | 0.25000 (0.50000) |" in page,
        "note": "Command: `x`. of two days\n" in kv_quality(made_up | {"note": "of two days"}) and "Command: `x`\n" in page,
        "nothing else": "eviction" not in page and "planted" not in page and with_all.startswith(page),
        "evictions": "| random:3 | 3.000 (6.000) | 1.50 (3.00) | 50.00 (100.00) | 0.12500 (0.25000) |" in with_all,
        "planted": "found of 3, one planted in each prompt of 2,048" in with_all
                   and "| unified route | 3 | 3 |\n| exact | 2 | 1 |\n| random:3 | 1 | 0 |" in with_all,
    }
    wrong = [name for name, holds in facts.items() if not holds]
    if wrong:
        sys.exit(f"bench/report.py renders results of quality wrong: {', '.join(wrong)}\n{page}{with_all}")
