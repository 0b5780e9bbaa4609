"""Pages of what was measured on a GPU."""
import sys

from pages.text import table

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
