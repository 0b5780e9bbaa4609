"""How well the cost model fits real workers, and what the router predicted for their requests."""
from pages.text import table


def percent(share):
    return f"{share * 100:.1f}%"


def fit_rows(models):
    return [[name, part["name"], percent(part["mean"]), percent(part["spread"])]
            for name, model in models.items() for part in sorted(model["fit"]["held_out"], key=lambda part: part["name"])]


def fleets(models):
    return [(name, fleet_name, fleet) for name, model in models.items() for fleet_name, fleet in model["fleets"].items()]


def capacity_rows(models):
    return [[name, fleet_name, f"{fleet['capacity']['real']:.2f}", f"{fleet['capacity']['simulated']:.2f}",
             f"{fleet['capacity']['simulated'] / fleet['capacity']['real']:.2f}"] for name, fleet_name, fleet in fleets(models)]


def run_rows(models):
    rows = []
    for name, fleet_name, fleet in fleets(models):
        for run in fleet["runs"]:
            row = [name, fleet_name, f"{run['share']:.1f}", f"{run['rate']:.2f}"]
            for measure in ("ttft", "tpot"):
                figures = run[measure]
                row += [f"{figures['actual_ms']:.1f}", percent(figures["median_error"]), percent(figures["within_20_percent"]),
                        percent(run["exact_model"][measure]["within_20_percent"])]
            rows.append(row)
    return rows


def predictions(result):
    models = result["models"]
    return f"""
## What the cost model predicts, and what came true

{result["cpu"]}, {result["cores"]} cores; workers with one thread each, {result["lengths"].replace("--", "")}.
Command: `bench/live_predictions.py {" ".join(f"{name}=DIR" for name in models)}`

How far steps that took no part in the fit are off, and how much the repeats of one step spread on this machine:

{table(["model", "steps", "mean error", "spread of repeats"], fit_rows(models))}
Requests per second of a closed loop, as completed and as the simulator says with the same parameter file:

{table(["model", "workers", "real", "simulated", "ratio"], capacity_rows(models))}
Poisson arrivals at a share of that rate; errors are those of each request's own prediction, relative to what came true. The
columns *exact* are the same share in the simulator, where every step takes just as long as the model says: the rest of the way to
100% are prompts that arrived later and shared the request's steps, which nobody could know when it was predicted.

{table(["model", "workers", "share", "req/s", "TTFT p50 ms", "median error", "within 20%", "exact", "TPOT p50 ms", "median error",
        "within 20%", "exact"], run_rows(models))}"""
