"""Scores of lm-eval through our API against those of the same harness with transformers, in float32.

The tasks are local files (lm_eval_tasks). All requests of a task are compared, not only the scores: the log-probability of each
continuation, and whether it is the most probable one. MODEL=DIRECTORY takes another model than the sample.
"""

import json
import os
import pathlib

import lm_eval
from lm_eval.tasks import TaskManager

import served

TASKS = ["tandem_choices", "tandem_words", "tandem_texts"]
POINTS = 0.5  # by which a score in percent may differ
HERE = pathlib.Path(__file__).resolve().parent


def tasks_folder():
    """The tasks with the paths that they have here: a task's files are found from where the program runs."""
    folder = served.results_folder() / "lm_eval_tasks"
    folder.mkdir(exist_ok=True)
    for task in (HERE / "lm_eval_tasks").glob("*.yaml"):
        (folder / task.name).write_text(task.read_text().replace("FOLDER", str(task.parent)))
    return folder


def evaluate(model, model_args):
    return lm_eval.simple_evaluate(model=model, model_args=model_args, tasks=TASKS, batch_size=8, log_samples=True,
                                   task_manager=TaskManager(include_path=str(tasks_folder()), include_defaults=False),
                                   bootstrap_iters=0)


def answers(results, task):
    """What the model said to every request of the task, in their order: log-probability and whether it is the greedy answer."""
    samples = sorted(results["samples"][task], key=lambda sample: sample["doc_id"])
    return [pair for sample in samples for pair in sample["filtered_resps"]]


def scores(results):
    return {f"{task} {metric.split(',')[0]}": value for task in TASKS
            for metric, value in results["results"][task].items()
            if isinstance(value, float) and "stderr" not in metric}


def compare_scores(ours, theirs):
    report = {}
    mine = scores(ours)
    for name, value in scores(theirs).items():
        # Rates are percentages; perplexities and bits are compared in percent of themselves.
        apart = 100 * abs(mine[name] - value) / (1 if "acc" in name else value)
        report[name] = {"tandem": mine[name], "transformers": value, "apart_points": apart}
    return report


def compare_requests(ours, theirs):
    report = {}
    for task in TASKS:
        pairs = list(zip(answers(ours, task), answers(theirs, task), strict=True))
        if not isinstance(pairs[0][0], (list, tuple)):  # of a text there is its log-probability alone
            pairs = [((a, None), (b, None)) for a, b in pairs]
        report[task] = {"requests": len(pairs), "largest_logprob_difference": max(abs(a[0] - b[0]) for a, b in pairs),
                        "other_greedy_verdict": sum(a[1] != b[1] for a, b in pairs)}
    return report


def check(url, model):
    folder = os.environ["MODEL"]
    ours = evaluate("local-completions", {
        "model": model, "base_url": url + "/v1/completions", "tokenizer_backend": "huggingface", "tokenizer": folder,
        "tokenized_requests": True, "num_concurrent": 4, "max_length": 512})
    # The two backends of the harness differ in their defaults: only this one would put BOS before each prompt.
    theirs = evaluate("hf", {"pretrained": folder, "dtype": "float32", "max_length": 512, "device": "cpu",
                             "add_bos_token": False})
    report = {"scores": compare_scores(ours, theirs), "requests": compare_requests(ours, theirs)}
    (served.results_folder() / "lm_eval.json").write_text(json.dumps(report, indent=1) + "\n")
    for part in report.values():
        for name, row in part.items():
            print(name, row)
    wrong = [name for name, row in report["scores"].items() if row["apart_points"] > POINTS]
    assert not wrong, wrong


if __name__ == "__main__":
    served.main(check, flags=["--prefill=0", "--decode=0", "--unified=1", "--kv-dtype=f32"])
