"""What a router takes and refuses under overload."""
from pages.text import table

SHEDDING = {"slo": "`--shed slo`", "off": "`--shed off`"}


def run_row(name, run):
    return [name, f"{run['rate']:.0f}", f"{run['goodput']:.1f}", f"{run['good_prompt_tokens_per_s']:,.0f}", f"{run['refused']:,}",
            f"{run['p50_ttft_ms']:,.0f}", f"{run['p99_ttft_ms']:,.0f}", f"{run['p99.9_ttft_ms']:,.0f}"]


def verdict(result):
    peak = max(result["peak_runs"], key=lambda run: run["goodput"])
    run = next(run for run in result["overload"] if run["shed"] == "slo")
    after, tenants, streams = run["after"], result["tenants"], result["open_streams"]
    loss = 1 - tenants["beside"]["goodput"] / tenants["alone"]["goodput"]
    return (f"With `--shed slo` at {run['rate'] / peak['rate']:.0f} times the rate of the peak, goodput is "
            f"{run['goodput'] / peak['goodput'] * 100:.0f}% of its peak in requests and "
            f"{run['good_prompt_tokens_per_s'] / peak['good_prompt_tokens_per_s'] * 100:.0f}% in prompt tokens: short prompts fit where long "
            f"ones would miss the objective. Of the requests that were taken, {run['within_slo_of_completed'] * 100:.1f}% kept to it. A load of "
            f"{after['rate']:.0f} requests/s that began when the overload ended had a p99 of {after['p99_ttft_ms']:,.0f} ms, and "
            f"{after['refused']} of its {after['requests']} requests were refused.\n\n"
            f"A tenant of {tenants['alone']['rate']:.0f} requests/s had a goodput of {tenants['alone']['goodput']:.2f}/s alone and "
            f"{tenants['beside']['goodput']:.2f}/s beside one of {tenants['other']['rate']:.0f}/s, which is {loss * 100:.0f}% less; "
            f"{tenants['beside']['refused']} of its requests were refused, and {tenants['other']['refused']:,} of the other's.\n\n"
            f"The router held {streams['streams']:,} open streams in {streams['most_megabytes']:.0f} MB of resident memory "
            f"({streams['before_megabytes']:.0f} MB without them).\n\n")


def overload(result):
    rows = [run_row("below and at the peak" if i == 0 else "", run) for i, run in enumerate(result["peak_runs"])]
    rows += [run_row(SHEDDING[run["shed"]], run) for run in result["overload"]]
    head = ["", "requests/s", "goodput, requests/s", "prompt tokens/s of these", "refused", "TTFT p50 ms", "p99", "p99.9"]
    memory = table(["", "router MB before", "most"],
                   [[SHEDDING[run["shed"]], f"{run['router_megabytes']['before']:.0f}", f"{run['router_megabytes']['most']:.0f}"]
                    for run in result["overload"]])
    return (f"\n## Overload\n\n`bench/overload.py`, CPU {result['cpu']}: a real router and two real unified workers, whose steps take the times "
            f"of `{result['device']}`; {result['lengths']}, TTFT SLO {result['slo_ttft_ms']} ms, {result['peak_seconds']} s at each rate below "
            f"the peak, {result['overload_seconds']} s of overload. TTFT is that of the requests that were answered.\n\n"
            + table(head, rows) + "\n" + verdict(result) + memory)
