"""A small run of NVIDIA's aiperf, completions and chats, which must end without an error."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import served

REQUESTS = 12
OUTPUT_TOKENS = 24


def profile(url, model, endpoint):
    out = served.results_folder() / f"aiperf_{endpoint}"
    shutil.rmtree(out, ignore_errors=True)
    command = [str(pathlib.Path(sys.executable).parent / "aiperf"), "profile", "-m", model, "--url", url, "--endpoint-type",
               endpoint, "--streaming", "--tokenizer", os.environ["MODEL"], "--use-server-token-count", "--request-rate",
               "4", "--arrival-pattern", "constant", "--request-count", str(REQUESTS), "--isl", "48", "--isl-stddev", "0",
               "--osl", str(OUTPUT_TOKENS), "--osl-stddev", "0", "--extra-inputs", "ignore_eos:true", "--random-seed", "1",
               "--no-gpu-telemetry", "--artifact-dir", str(out), "--ui", "none"]
    # Offline, it looks for the tokenizer in the cache of the hub alone. A folder needs no network anyway.
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                          env=environment)
    assert done.returncode == 0, done.stdout[-4000:]
    report = json.loads((out / "profile_export_aiperf.json").read_text())
    assert not report.get("error_summary"), report["error_summary"]
    assert report["request_count"]["avg"] == REQUESTS, report["request_count"]
    assert report["output_sequence_length"]["avg"] == OUTPUT_TOKENS, report["output_sequence_length"]
    return report


def check(url, model):
    for endpoint in ("completions", "chat"):
        report = profile(url, model, endpoint)
        print(f"aiperf {endpoint}: TTFT {report['time_to_first_token']['p50']:.2f} ms, "
              f"ITL {report['inter_token_latency']['p50']:.2f} ms, no errors")


if __name__ == "__main__":
    served.main(check)
