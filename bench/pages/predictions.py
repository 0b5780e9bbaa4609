"""How well the cost model fits real workers, and what the router predicted for their requests."""
from pages.text import table

FLEET_NAMES = {"unified": "unified", "pair": "prefill and decode"}


def percent(share):
    return f"{share * 100:.1f}%"


def fit_rows(models):
    return [[name, part["name"], percent(part["mean"]), percent(part["spread"])]
            for name, model in models.items() for part in sorted(model["fit"]["held_out"], key=lambda part: part["name"])]


def measured(models):
    """Model, fleet, load and figures."""
    return [(name, FLEET_NAMES[fleet], load, figures) for name, model in models.items()
            for fleet, loads in model["fleets"].items() for load, figures in loads.items()]


def load_rows(models):
    lengths = {load: figures["lengths"].replace("--", "") for _, _, load, figures in measured(models)}
    return [[load, text] for load, text in lengths.items()]


def capacity_rows(models):
    rows = []
    for name, fleet, load, figures in measured(models):
        capacity = figures["capacity"]
        row = [name, fleet, load, f"{capacity['real']:.2f}"]
        for which in ("profiled", "served"):
            row += [f"{capacity[which]:.2f}", f"{capacity[which] / capacity['real']:.2f}"]
        rows.append(row)
    return rows


def run_rows(models):
    rows = []
    for name, fleet, load, figures in measured(models):
        for run in figures["runs"]:
            row = [name, fleet, load, f"{run['share']:.1f}", f"{run['rate']:.2f}"]
            for measure in ("ttft", "tpot"):
                of_run = run[measure]
                row += [f"{of_run['actual_ms']:.1f}", percent(of_run["median_error"]), percent(of_run["within_20_percent"]),
                        percent(run["exact_model"][measure]["within_20_percent"]),
                        percent(run["repeat"][measure]["within_20_percent"])]
            rows.append(row)
    return rows


def predictions(result):
    models = result["models"]
    return f"""
## What the cost model predicts, and what came true

{result["cpu"]}, {result["cores"]} cores for the workers, with one thread each, the router and the load generator.
Command: `bench/live_predictions.py NAME=DIR`, with `--loads small` for the largest model.

{table(["load", "lengths in tokens"], load_rows(models))}
How far steps that took no part in the fit are off, and how much the repeats of one step spread on this machine:

{table(["model", "steps", "mean error", "spread of repeats"], fit_rows(models))}
Requests per second of a closed loop of eight, as completed; as the simulator says with the parameter file, which was measured
while nothing else ran; and as it says with the costs that the workers report in service, after the loads below:

{table(["model", "workers", "load", "real", "profiled", "ratio", "in service", "ratio"], capacity_rows(models))}
Poisson arrivals at a share of that rate; errors are those of each request's own prediction, relative to what came true. The
columns *exact* are the same share in the simulator, where every step takes just as long as the model says: the rest of the way to
100% are prompts that arrived later and shared the request's steps, which nobody could know when it was predicted. The columns
*again* are the share of requests that took as long, within 20%, when the same schedule was served a second time: the rest is what
else happened on the machine.

{table(["model", "workers", "load", "share", "req/s", "TTFT p50 ms", "median error", "within 20%", "exact", "again",
        "TPOT p50 ms", "median error", "within 20%", "exact", "again"], run_rows(models))}"""
