"""docs/routing_results.md: how the routing policies do on simulated fleets."""
from pages.text import table

HEAD = """# Routing policies on simulated fleets

Written by `bench/report.py` from `bench/results/sim_*.json`; do not edit. **Simulated: the real router and schedulers on
a virtual clock ([simulator.md](simulator.md)), and no figure is a measurement of a real device.** The commands are those of
[benchmarking.md](benchmarking.md#comparing-strategies). Shares are requests that met their objectives; margins are relative, seed
by seed, with 95% intervals (Student's t). Roles are a part of a strategy: what is compared is each policy with the fleet of
equally many workers that serves this load best, which is known only afterwards. *wins*: more than 3% above the best strategy that does not adapt; *ties*: within 3%;
*none holds*: fewer than 10% good requests with every strategy.
"""


def margin(percent, half_width):
    if percent is None:
        return "no other holds"
    return f"{percent:+.1f}%" if not half_width else f"{percent:+.1f} ± {half_width:.1f}%"


# 97.5% quantiles of Student's t by degrees of freedom, from 1 on.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]
TIE_PERCENT = 3
LEAST_SHARE = 0.1


def mean(values):
    return sum(values) / len(values)


def margin_over(own, other):
    """Percent of the mean of `other`, taken seed by seed, and half the width of its 95% interval; None: the other has nothing."""
    if mean(other) == 0:
        return (0, 0) if mean(own) == 0 else (None, None)
    differences = [100 * (a - b) / mean(other) for a, b in zip(own, other)]
    if len(differences) == 1:
        return differences[0], 0
    center, freedom = mean(differences), len(differences) - 1
    variance = sum((one - center) ** 2 for one in differences) / freedom
    return center, STUDENT[min(freedom, len(STUDENT)) - 1] * (variance / len(differences)) ** 0.5


def compare(shares, adapting, name=None):
    """The best of the strategies `adapting` against the best of all that do not adapt, by `shares`: lists over seeds, by strategy.
    Roles are a part of a strategy, so that both sides have the fleet that serves this load best."""
    fleet = max(adapting, key=lambda one: mean(shares[one]))
    others = [one for one in shares if not one.startswith("auto")]
    best = max(others, key=lambda one: mean(shares[one]))
    percent, half_width = margin_over(shares[fleet], shares[best])
    standing = "wins" if percent is None or percent > TIE_PERCENT else "ties" if percent >= -TIE_PERCENT else "loses"
    if max(mean(one) for one in shares.values()) < LEAST_SHARE:
        standing = "none holds"
    margins = {one: dict(zip(("percent", "half_width"), margin_over(shares[fleet], shares[one]))) for one in others}
    return {"strategy": name or fleet, "fleet": fleet, "share": mean(shares[fleet]), "best_other": best,
            "best_other_share": mean(shares[best]), "margin_percent": percent, "half_width": half_width,
            "standing": standing, "margins": margins}


def comparisons_of(shares):
    """That of the best fleet of policy auto, where it has several, and those of each."""
    adapting = [one for one in shares if one.startswith("auto")]
    each = [compare(shares, [one]) for one in adapting]
    return each if len(each) == 1 else [compare(shares, adapting, "auto with its best fleet")] + each


def counts(comparisons):
    of = lambda standing: sum(one["standing"] == standing for one in comparisons)
    return f"wins {of('wins')}, ties {of('ties')}, loses {of('loses')}; none holds {of('none holds')}"


def objectives(plan):
    return ", ".join(f"{name.upper()} {ms:g} ms" for name, ms in plan["objectives_ms"].items())


def command(plan):
    return f"`{plan['command']} {' '.join(plan['arguments'])}`"


def requests_of(plan):
    if plan["min_seconds"] == 0:
        return f"{plan['requests']} requests per point"
    return f"at least {plan['requests']} requests and {plan['min_seconds']:g} s per point"


def fleets(strategies):
    return "; ".join(f"{one['name']} ({one['policy']}: " + ", ".join(
        f"{one[role]} {role}" for role in ("unified", "prefill", "decode") if one[role]) + ")" for one in strategies)


def standings_table(loads, comparisons):
    has_fleets = any(one["fleet"] != one["strategy"] for one in comparisons)
    rows = []
    for (workload, rate), one in zip(loads, comparisons):
        rows.append([workload, f"{rate:g}", f"{100 * one['share']:.1f}%"] + [one["fleet"]] * has_fleets
                    + [one["best_other"], f"{100 * one['best_other_share']:.1f}%"]
                    + [margin(over["percent"], over["half_width"]) for over in one["margins"].values()] + [one["standing"]])
    return table(["workload", "req/s", "auto: good"] + ["its fleet"] * has_fleets + ["best other", "its good"]
                 + [f"over {other}" for other in comparisons[0]["margins"]] + [""], rows)


def sweep(result):
    plan = result["plan"]
    loads = {}
    for point in result["points"]:
        load = loads.setdefault((point["workload"], point["rate"]), {})
        load.setdefault(point["strategy"], {})[point["seed"]] = point["share"]
    for load in loads.values():
        for name, shares in load.items():
            load[name] = [shares[seed] for seed in plan["seeds"]]
    text = f"\n## Good requests by workload and rate\n\n{command(plan)}, {requests_of(plan)}, seeds "
    text += f"{', '.join(map(str, plan['seeds']))}, context {plan['context_tokens']}, objectives {objectives(plan)}. Fleets: "
    text += fleets(plan["strategies"]) + ".\n"
    by_load = [comparisons_of(load) for load in loads.values()]
    for comparisons in zip(*by_load):
        text += f"\n**{comparisons[0]['strategy']}**: {counts(comparisons)}, of {len(comparisons)} loads.\n"
    text += "\n" + standings_table(loads, [comparisons[0] for comparisons in by_load])
    names = [one["name"] for one in plan["strategies"]]
    text += "\nGood requests (%) of every strategy\n\n"
    return text + table(["workload", "req/s"] + names, [[workload, f"{rate:g}"] + [f"{100 * mean(load[name]):.1f}" for name in names]
                                                     for (workload, rate), load in loads.items()])


def slo_cell(one):
    if one["standing"] == "none holds":
        return "none holds"
    fleet = f"{one['fleet']} over " if one["fleet"] != one["strategy"] else ""
    return f"{margin(one['margin_percent'], one['half_width'])} ({fleet}{one['best_other']})"


def slo_map(results):
    """Of one grid of objectives; each result has other seeds."""
    first = results[0]
    seeds = [seed for one in results for seed in one["seeds"]]
    text = f"\n## Margin by objectives\n\n{command(first)}, {first['requests']} requests per run, seeds "
    text += f"{', '.join(map(str, seeds))}. Each cell: margin over the best strategy that does not adapt, and its name.\n"
    for maps in zip(*(one["maps"] for one in results)):
        by_cell = []
        for cells in zip(*(one_map["cells"] for one_map in maps)):
            shares = {name: [share for cell in cells for share in cell["shares"][name]] for name in cells[0]["shares"]}
            by_cell.append(comparisons_of(shares))
        load = f"{maps[0]['workload']} at {maps[0]['rate']:g} req/s"
        for comparisons in zip(*by_cell):
            text += f"\n**{comparisons[0]['strategy']}**, {load}: {counts(comparisons)}.\n"
        cells = iter(comparisons[0] for comparisons in by_cell)
        rows = [[f"{ttft:g} ms"] + [slo_cell(next(cells)) for _ in first["tpot_ms"]] for ttft in first["ttft_ms"]]
        text += "\n" + table(["TTFT \\ TPOT"] + [f"{tpot:g} ms" for tpot in first["tpot_ms"]], rows)
    return text


def chosen(cells):
    """The share of the requests that took the disaggregated route."""
    return sum(cell["chosen"] * cell["requests"] for cell in cells) / sum(cell["requests"] for cell in cells)


def regret(cells):
    """What the chosen routes cost more than the better ones, as a share of the latter."""
    oracle = sum(cell["oracle_ms"] for cell in cells)
    return sum(cell["regret_percent"] / 100 * cell["oracle_ms"] for cell in cells) / oracle if oracle > 0 else 0


def crossing(row, share):
    """The link, in GB/s, at which a share of the samples passes one half, of those for which the route matters: between two
    links on a logarithmic scale, the last one where there are several, as in CrossingOf of bench/simulator/crossover.h."""
    points = []
    for link, cells in row.items():
        samples = sum(cell["decisive"]["samples"] for cell in cells)
        if samples > 0:
            points.append((link, sum(cell["decisive"][share] * cell["decisive"]["samples"] for cell in cells) / samples))
    if not points:
        return "-"
    if points[-1][1] < 0.5:
        return f"> {points[-1][0]:g}"
    for (low, before), (high, after) in reversed(list(zip(points, points[1:]))):
        if before < 0.5 <= after:
            return f"{low * (high / low) ** ((0.5 - before) / (after - before)):.2g}"
    return f"< {points[0][0]:g}"


def crossover(results):
    """Of the same grid with several seeds, whose samples are counted together."""
    result = results[0]
    links = result["links_gb_per_s"]
    cells = [cell for one in results for cell in one["cells"]]
    decisive = sum(cell["decisive"]["samples"] for cell in cells)
    foreseen = sum(cell["decisive"]["samples"] * cell["decisive"]["foreseen"] for cell in cells)
    text = "\n## Where the routes change, and regret against an oracle\n\n"
    text += f"`tandem bench crossover --simulate={result['parameter_file']} --policy={result['policy']}`, seeds "
    text += f"{', '.join(str(one['seed']) for one in results)}: one unified, one prefill and one decode worker, at least "
    text += f"{result['requests']} requests per cell, outputs of {result['output_tokens']} tokens. "
    text += f"{sum(len(cell['samples']) for cell in cells)} requests were replayed on both routes. The chosen routes cost **"
    text += " / ".join(f"{one['regret_percent']:.2f}%" for one in results) + f"** more than the better ones, by seed, "
    text += f"and **{100 * regret(cells):.2f}%** together. For {decisive} of the requests the two costs differ by more than "
    text += f"5%, and for {100 * foreseen / max(decisive, 1):.0f}% of these the better route was predicted; where routes change, "
    text += "only these are counted. Links are in GB/s of the model's bytes.\n\n"
    rows = {}
    for cell in cells:
        of_prompt = rows.setdefault((cell["load"], cell["prompt"]), {link: [] for link in links})
        of_prompt[cell["link_gb_per_s"]].append(cell)
    text += table(["load", "prompt", "predicted at", "chosen at", "replayed at"],
                  [[f"{load:g}", str(prompt)] + [crossing(row, share) for share in ("predicted", "chosen", "replayed")]
                   for (load, prompt), row in rows.items()])
    for title, value in (("Requests on the disaggregated route (%)", chosen), ("Regret (%)", regret)):
        text += f"\n{title}\n\n"
        text += table(["load", "prompt"] + [f"{link:g} GB/s" for link in links],
                      [[f"{load:g}", str(prompt)] + [f"{100 * value(row[link]):.1f}" for link in links]
                       for (load, prompt), row in rows.items()])
    return text


def routing(results):
    """The page; results by the names of their files, without "sim_": one of sweep, lists by seed of slo_map and crossover.
    Absent ones are None, or an empty list."""
    page = HEAD
    for name, render in (("sweep", sweep), ("slo_map", slo_map), ("crossover", crossover)):
        if results.get(name):
            page += render(results[name])
    return page


def check_routing():
    strategies = [{"name": name, "policy": policy, "unified": 2, "prefill": 0, "decode": 0}
                  for name, policy in (("auto-4u", "auto"), ("auto-2p2d", "auto"), ("all", "least-loaded"))]
    plan = {"command": "tandem bench sweep", "arguments": ["--simulate=a.json"], "requests": 9, "min_seconds": 2, "context_tokens": 64,
            "seeds": [1, 2], "objectives_ms": {"ttft": 500}, "strategies": strategies}
    good = {"auto-4u": [0.5, 0.5], "auto-2p2d": [0.1, 0.3], "all": [0.4, 0.4]}
    points = [{"workload": "short", "rate": 4, "seed": seed, "strategy": name, "share": shares[seed - 1]}
              for seed in (1, 2) for name, shares in good.items()]
    cells = [{"shares": {"auto": [0.5], "all": [0.4]}}, {"shares": {"auto": [0.05], "all": [0.01]}}]
    map_result = dict(plan, seeds=[1], ttft_ms=[100], tpot_ms=[5, 10], maps=[{"workload": "short", "rate": 4, "cells": cells}])
    decisive = {"samples": 2, "predicted": 0, "chosen": 0, "replayed": 0, "foreseen": 0.75}
    cell = {"load": 0.5, "prompt": 64, "link_gb_per_s": 1, "samples": [{}] * 3, "requests": 9, "chosen": 0.25,
            "regret_percent": 1.5, "oracle_ms": 10, "decisive": decisive}
    fast = dict(cell, link_gb_per_s=4, oracle_ms=30, regret_percent=5.5, chosen=0.75,
                decisive=dict(decisive, predicted=1, chosen=1, replayed=0))
    grid = {"parameter_file": "a.json", "policy": "auto", "seed": 1, "requests": 9, "output_tokens": 3, "regret_percent": 4.5,
            "links_gb_per_s": [1, 4], "cells": [cell, fast]}
    page = routing({"sweep": {"plan": plan, "points": points}, "slo_map": [map_result, dict(map_result, seeds=[2])],
                    "crossover": [grid, dict(grid, seed=2)]})
    for wanted in ("all (least-loaded: 2 unified)", "| short | 4 | 50.0% | auto-4u | all | 40.0% | +25.0% | wins |",
                   "**auto with its best fleet**: wins 1, ties 0, loses 0; none holds 0",
                   "**auto-2p2d**: wins 0, ties 0, loses 1", "| short | 4 | 50.0 | 20.0 | 40.0 |", "seeds 1, 2. Each cell",
                   "| 100 ms | +25.0% (all) | none holds |", "| 0.5 | 64 | 2 | 2 | > 4 |", "| 0.5 | 64 | 25.0 | 75.0 |",
                   "| 0.5 | 64 | 1.5 | 5.5 |", "12 requests were replayed", "**4.50% / 4.50%**", "**4.50%** together",
                   "For 8 of the requests", "75% of these"):
        assert wanted in page, f"the page of routing policies lacks {wanted!r}:\n{page}"
    assert abs(margin_over([55, 155], [50, 150])[0] - 5) < 1e-9, "margins are taken seed by seed"
    assert abs(margin_over([50, 60], [50, 50])[1] - 127.06) < 0.01, "Student's t of two seeds"
