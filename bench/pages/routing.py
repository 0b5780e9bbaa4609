"""docs/routing_results.md: how the routing policies do on simulated fleets."""
from pages.text import table

HEAD = """# Routing policies on simulated fleets

Written by `bench/report.py` from `bench/results/sim_*.json`; do not edit. **Simulated: the real router and schedulers on
a virtual clock ([simulator.md](simulator.md)), and no figure is a measurement of a real device.** The commands are those of
[benchmarking.md](benchmarking.md#comparing-strategies). Shares are requests that met their objectives; margins are relative, seed
by seed, with 95% intervals (Student's t). *wins*: more than 3% above the best strategy that does not adapt; *ties*: within 3%;
*none holds*: fewer than 10% good requests with every strategy.
"""


def margin(percent, half_width):
    if percent is None:
        return "no other holds"
    return f"{percent:+.1f}%" if not half_width else f"{percent:+.1f} ± {half_width:.1f}%"


def counts(comparisons):
    of = lambda standing: sum(one["standing"] == standing for one in comparisons)
    return f"wins {of('wins')}, ties {of('ties')}, loses {of('loses')}; none holds {of('none holds')}"


def objectives(plan):
    return ", ".join(f"{name.upper()} {ms:g} ms" for name, ms in plan["objectives_ms"].items())


def command(plan):
    return f"`{plan['command']} {' '.join(plan['arguments'])}`"


def sweep(result):
    plan = result["plan"]
    text = f"\n## Good requests by workload and rate\n\n{command(plan)}, {plan['requests']} requests per point, seeds "
    text += f"{', '.join(map(str, plan['seeds']))}, context {plan['context_tokens']}, objectives {objectives(plan)}. Fleets: "
    text += "; ".join(f"{one['name']} ({one['policy']}: " + ", ".join(
        f"{one[role]} {role}" for role in ("unified", "prefill", "decode") if one[role]) + ")"
        for one in plan["strategies"]) + ".\n"
    names = [one["strategy"] for one in result["standings"][0]["comparisons"]]
    for index, name in enumerate(names):
        comparisons = [load["comparisons"][index] for load in result["standings"]]
        text += f"\n**{name}**: {counts(comparisons)}, of {len(comparisons)} loads.\n\n"
        rows = []
        for load, one in zip(result["standings"], comparisons):
            rows.append([load["workload"], f"{load['rate']:g}", f"{100 * one['share']:.1f}%", one["best_other"],
                         f"{100 * one['best_other_share']:.1f}%"]
                        + [margin(over["percent"], over["half_width"]) for over in one["margins"].values()]
                        + [one["standing"]])
        text += table(["workload", "req/s", f"{name}: good", "best other", "its good"]
                      + [f"over {other}" for other in comparisons[0]["margins"]] + [""], rows)
    return text


def slo_map(result):
    text = f"\n## Margin by objectives\n\n{command(result)}, {result['requests']} requests per run, seeds "
    text += f"{', '.join(map(str, result['seeds']))}. Each cell: margin over the best strategy that does not adapt, and its name.\n"
    for one_map in result["maps"]:
        for index, first in enumerate(one_map["cells"][0]["comparisons"]):
            comparisons = [cell["comparisons"][index] for cell in one_map["cells"]]
            text += f"\n**{first['strategy']}**, {one_map['workload']} at {one_map['rate']:g} req/s: {counts(comparisons)}.\n\n"
            cells = iter(comparisons)
            rows = []
            for ttft in result["ttft_ms"]:
                row = [f"{ttft:g} ms"]
                for _ in result["tpot_ms"]:
                    one = next(cells)
                    row.append("none holds" if one["standing"] == "none holds" else
                               f"{margin(one['margin_percent'], one['half_width'])} ({one['best_other']})")
                rows.append(row)
            text += table(["TTFT \\ TPOT"] + [f"{tpot:g} ms" for tpot in result["tpot_ms"]], rows)
    return text


def crossover(result):
    text = "\n## Where the routes change, and regret against an oracle\n\n"
    text += f"`tandem bench crossover --simulate={result['parameter_file']} --policy={result['policy']}`: one unified, one "
    least = "at least " if "requests" in result["cells"][0] else ""
    text += f"prefill and one decode worker, {least}{result['requests']} requests per cell, outputs of {result['output_tokens']} tokens. "
    # Results of before cells listed their samples have the number of these.
    samples = sum(cell["samples"] if isinstance(cell["samples"], int) else len(cell["samples"]) for cell in result["cells"])
    text += f"{samples} requests were replayed on both routes. The chosen routes cost **{result['regret_percent']:.2f}%** more "
    text += "than the better ones."
    if "foreseen_percent" in result:
        decisive = sum(cell["decisive"]["samples"] for cell in result["cells"])
        text += f" For {decisive} of the requests the two costs differ by more than 5%, and for {result['foreseen_percent']:.0f}% "
        text += "of these the better route was predicted; where routes change, only these are counted."
    text += " Links are in GB/s of the model's bytes.\n\n"
    text += table(["load", "prompt", "predicted at", "chosen at", "replayed at"],
                  [[f"{one['load']:g}", str(one["prompt"]), one["predicted"], one["chosen"], one["replayed"]]
                   for one in result["crossings_gb_per_s"]])
    for title, value in (("Requests on the disaggregated route (%)", lambda cell: 100 * cell["chosen"]),
                         ("Regret (%)", lambda cell: cell["regret_percent"])):
        text += f"\n{title}\n\n"
        cells = iter(result["cells"])
        rows = [[f"{load:g}", str(prompt)] + [f"{value(next(cells)):.1f}" for _ in result["links_gb_per_s"]]
                for load in result["loads"] for prompt in result["prompts"]]
        text += table(["load", "prompt"] + [f"{link:g} GB/s" for link in result["links_gb_per_s"]], rows)
    return text


def routing(results):
    """The page; results by the names of their files, without "sim_". Absent ones are None."""
    page = HEAD
    for name, render in (("sweep", sweep), ("slo_map", slo_map), ("crossover", crossover)):
        if results.get(name) is not None:
            page += render(results[name])
    return page


def check_routing():
    comparison = {"strategy": "auto", "share": 0.5, "best_other": "all", "best_other_share": 0.4, "margin_percent": 25,
                  "half_width": 0, "standing": "wins", "margins": {"all": {"percent": 25, "half_width": 2}}}
    unknown = dict(comparison, margin_percent=None, half_width=None, standing="none holds")
    plan = {"command": "tandem bench sweep", "arguments": ["--simulate=a.json"], "requests": 9, "context_tokens": 64,
            "seeds": [1, 2], "objectives_ms": {"ttft": 500},
            "strategies": [{"name": "all", "policy": "least-loaded", "unified": 2, "prefill": 0, "decode": 0}]}
    load = {"workload": "short", "rate": 4, "comparisons": [comparison]}
    cell = {"samples": [{}] * 3, "chosen": 0.25, "regret_percent": 1.5, "decisive": {"samples": 2}}
    page = routing({
        "sweep": {"plan": plan, "standings": [load]},
        "slo_map": dict(plan, ttft_ms=[100], tpot_ms=[5, 10], maps=[
            {"workload": "short", "rate": 4, "cells": [{"comparisons": [comparison]}, {"comparisons": [unknown]}]}]),
        "crossover": {"parameter_file": "a.json", "policy": "auto", "requests": 9, "output_tokens": 3, "regret_percent": 1.5, "foreseen_percent": 75,
                      "links_gb_per_s": [1, 2], "loads": [0.5], "prompts": [64], "cells": [cell, cell],
                      "crossings_gb_per_s": [{"load": 0.5, "prompt": 64, "predicted": "1.4", "chosen": "> 2",
                                              "replayed": "< 1"}]}})
    for wanted in ("all (least-loaded: 2 unified)", "| short | 4 | 50.0% | all | 40.0% | +25.0 ± 2.0% | wins |",
                   "wins 1, ties 0, loses 0; none holds 1", "| 100 ms | +25.0% (all) | none holds |",
                   "| 0.5 | 64 | 1.4 | > 2 | < 1 |", "| 0.5 | 64 | 25.0 | 25.0 |", "6 requests were replayed", "**1.50%**",
                   "For 4 of the requests", "75% of these"):
        assert wanted in page, f"the page of routing policies lacks {wanted!r}:\n{page}"
