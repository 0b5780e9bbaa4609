#!/usr/bin/env python3
"""What HTTP costs beside gRPC: the same requests through both front doors of one router. Standard library only.

  bench/http_cost.py load --rounds 9 --out bench/results/cpu_http.json
  bench/http_cost.py burst --out bench/results/cpu_http.json
  bench/http_cost.py connections --out bench/results/cpu_http.json
  bench/http_cost.py idle --out bench/results/cpu_http.json

Each part takes less than three minutes and replaces its own entry of the file. All of them start a `tandem up` of their own.

load: an open loop at a constant rate, well under what the service can do; in every round gRPC, completions and chats take
turns, with the same schedule. Medians over the rounds in which nothing else ran; differences are taken within a round, because the machine drifts.
CPU seconds are those that the kernel counts for the router and for the worker, divided by the tokens that were sent. Chats have
longer prompts: words instead of token ids, which the router tokenizes.
burst: many streams that begin at the same moment.
connections: new connections at a constant rate, each with one request; and as many as fit, one after the other.
idle: resident memory of the router with streams that have begun and get nothing; the same requests over gRPC beside it.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# Rounds in which other programs took more of the machine are kept in the file, and not counted.
QUIET_SHARE = 0.1
BACKENDS = ("grpc", "openai", "openai-chat")
SLOW_DEVICE = "models/simulated/qwen3-8b-h200.json"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE, text=True).stdout
    return [int(word) for word in out.split()]


def cpu_seconds(pid):
    """Of all its threads, none of which ends while it is measured: finer than the ticks of /proc/PID/stat."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def machine_cpu_seconds():
    """Of everything that runs on this machine."""
    user, nice, system, _, _, irq, softirq = map(int, pathlib.Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_cpu_seconds(service):
    """Of the service, this script, and the programs that it has run."""
    mine = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return (sum(each.ru_utime + each.ru_stime for each in mine) + cpu_seconds(service.process.pid) +
            cpu_seconds(service.router) + cpu_seconds(service.worker))


def wait_until_idle(seconds):
    """Until nothing else runs here; after so long it goes on all the same, and the entry says what ran beside it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = machine_cpu_seconds()
        time.sleep(2)
        if machine_cpu_seconds() - before < 0.1 * 2 * os.cpu_count():
            return


def resident_bytes(pid):
    return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024


class Service:
    """A `tandem up` with one unified worker, for as long as the with block lasts."""

    def __init__(self, options, *flags):
        self.tandem = os.path.join(options.bin, "tandem")
        self.grpc, self.http = free_port(), free_port()
        self.flags = list(flags)

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [self.tandem, "up", "--host=127.0.0.1", f"--port={self.grpc}", f"--http-port={self.http}", "--prefill=0",
             "--decode=0", "--unified=1", "--prefix-cache=off", "--log-level=warn"] + self.flags,
            stdout=self.log, stderr=self.log)
        ready = subprocess.run([self.tandem, "status", "--server", f"127.0.0.1:{self.grpc}", "--wait", "60"],
                               stdout=subprocess.DEVNULL)
        if ready.returncode != 0:
            self.log.seek(0)
            sys.exit(f"tandem up is not ready:\n{self.log.read().decode()[-2000:]}")
        self.router, self.worker = self.find("router"), self.find("worker")
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait(timeout=60)

    def find(self, command):
        for pid in children(self.process.pid):
            if command in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1:2]:
                return pid
        sys.exit(f"tandem up has no {command} among its processes")

    def ask_model(self):
        answer = ask(self.http, b"GET /v1/models HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])["data"][0]["id"]

    def bench_command(self, backend, *flags):
        where = (["--server", f"127.0.0.1:{self.grpc}"] if backend == "grpc" else
                 ["--base-url", f"http://127.0.0.1:{self.http}"])
        return [self.tandem, "bench", "serve", "--backend", "tandem" if backend == "grpc" else backend] + where + list(flags)

    def bench(self, backend, *flags):
        """The report of one run, with the CPU seconds that router and worker spent on it."""
        with tempfile.TemporaryDirectory() as folder:
            before = cpu_seconds(self.router), cpu_seconds(self.worker)
            began, machine, own = time.monotonic(), machine_cpu_seconds(), own_cpu_seconds(self)
            done = subprocess.run(self.bench_command(backend, "--save-result", "--result-dir", folder, *flags),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            after = cpu_seconds(self.router), cpu_seconds(self.worker)
            foreign = machine_cpu_seconds() - machine - (own_cpu_seconds(self) - own)
            share = foreign / (time.monotonic() - began) / os.cpu_count()
            if done.returncode != 0:
                sys.exit(f"tandem bench serve --backend {backend}: exit {done.returncode}\n{done.stdout[-3000:]}")
            report = json.loads(next(pathlib.Path(folder).glob("*.json")).read_text())
        report["foreign_cpu_share"] = max(share, 0)
        report["router_cpu_s"], report["worker_cpu_s"] = after[0] - before[0], after[1] - before[1]
        return report


KEPT = ("completed", "failed", "total_input_tokens", "total_output_tokens", "duration", "request_throughput",
        "output_throughput", "schedule_hash", "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms",
        "mean_itl_ms", "median_itl_ms", "p99_itl_ms", "router_cpu_s", "worker_cpu_s", "foreign_cpu_share")


def kept(report):
    entry = {key: report[key] for key in KEPT if key in report}
    tokens = max(report["total_output_tokens"], 1)
    entry["router_us_per_token"] = 1e6 * report["router_cpu_s"] / tokens
    entry["cpu_us_per_token"] = 1e6 * (report["router_cpu_s"] + report["worker_cpu_s"]) / tokens
    return entry


METRICS = ["--percentile-metrics", "ttft,tpot,itl,e2el"]


def quiet(entry):
    """Whether hardly anything else ran on the machine during the round."""
    return all(run["foreign_cpu_share"] < QUIET_SHARE for run in entry.values())


def summary(rounds):
    def median(backend, key):
        return statistics.median(entry[backend][key] for entry in rounds)

    def over(key, compare):
        return {b: statistics.median(compare(entry[b][key], entry["grpc"][key]) for entry in rounds) for b in BACKENDS[1:]}

    def difference(a, b):
        return a - b

    def ratio(a, b):
        return a / b

    keys = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "median_itl_ms", "p99_itl_ms", "router_us_per_token",
            "cpu_us_per_token")
    return {"medians": {backend: {key: median(backend, key) for key in keys} for backend in BACKENDS},
            "failed": sum(run["failed"] for entry in rounds for run in entry.values()),
            "ttft_ms_over_grpc": over("median_ttft_ms", difference), "p99_itl_ms_over_grpc": over("p99_itl_ms", difference),
            "router_cpu_of_grpc": over("router_us_per_token", ratio), "cpu_of_grpc": over("cpu_us_per_token", ratio)}


def load(options):
    flags = ["--request-rate", str(options.rate), "--burstiness", "inf", "--num-prompts", str(options.requests),
             "--input-len", "64", "--output-len", "64", "--num-warmups", "5"] + METRICS
    rounds = []
    with Service(options, f"--model={options.model}", "--threads=1") as service:
        for backend in BACKENDS:  # whatever is built at the first use
            service.bench(backend, "--request-rate", "40", "--num-prompts", "40", "--input-len", "64", "--output-len", "64")
        for i in range(options.rounds):
            order = BACKENDS[i % 3:] + BACKENDS[:i % 3]
            rounds.append({backend: kept(service.bench(backend, *flags, "--seed", str(i))) for backend in order})
            print(f"round {i + 1}: " + ", ".join(
                f"{name} TTFT {run['median_ttft_ms']:.2f} ms router {run['router_us_per_token']:.1f} all "
                f"{run['cpu_us_per_token']:.1f} us/token, others {100 * run['foreign_cpu_share']:.0f}%"
                for name, run in sorted(rounds[-1].items())), file=sys.stderr)
    calm = [entry for entry in rounds if quiet(entry)]
    if not calm:
        sys.exit(f"something else ran on this machine in every round, try again: {json.dumps(summary(rounds), indent=1)}")
    return {"rate": options.rate, "requests": options.requests, "input_tokens": 64, "output_tokens": 64,
            "rounds_used": len(calm), "quiet_share": QUIET_SHARE, **summary(calm), "rounds": rounds}


def burst(options):
    flags = ["--num-prompts", "200", "--input-len", "32", "--output-len", "64"] + METRICS
    with Service(options, f"--model={options.model}", "--threads=1") as service:
        rounds = [{backend: kept(service.bench(backend, *flags, "--seed", str(i))) for backend in BACKENDS}
                  for i in range(options.rounds)]
    return {"streams": 200, "failed": {b: sum(entry[b]["failed"] for entry in rounds) for b in BACKENDS},
            "output_throughput": {b: statistics.median(entry[b]["output_throughput"] for entry in rounds) for b in BACKENDS},
            "p99_itl_ms": {b: statistics.median(entry[b]["p99_itl_ms"] for entry in rounds) for b in BACKENDS},
            "rounds": rounds}


def ask(port, bytes_, timeout=10):
    """The whole answer of a request on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(bytes_)
        answer = b""
        while more := connection.recv(65536):
            answer += more
    return answer


def connections(options):
    request = b"GET /v1/models HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    rate, seconds = 500, 20
    errors, took, late = 0, [], 0.0
    with Service(options, f"--model={options.model}", "--threads=1") as service:
        begin, cpu = time.perf_counter(), cpu_seconds(service.router)
        for i in range(rate * seconds):
            due = begin + i / rate
            pause = due - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            sent = time.perf_counter()
            late = max(late, sent - due)
            try:
                errors += not ask(service.http, request).startswith(b"HTTP/1.1 200 ")
            except OSError:
                errors += 1
            took.append(1e3 * (time.perf_counter() - sent))
        lasted = time.perf_counter() - begin
        cpu = cpu_seconds(service.router) - cpu
        again = time.perf_counter()
        for _ in range(3000):
            errors += not ask(service.http, request).startswith(b"HTTP/1.1 200 ")
        fastest = 3000 / (time.perf_counter() - again)
    took.sort()
    return {"rate": rate, "seconds": seconds, "achieved": rate * seconds / lasted, "errors": errors,
            "median_ms": statistics.median(took), "p99_ms": took[int(0.99 * len(took))], "most_late_ms": 1e3 * late,
            "router_cpu_us_each": 1e6 * cpu / (rate * seconds), "one_after_the_other_per_s": fastest}


def server_load(service):
    answer = ask(service.http, b"GET /load HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])["server_load"]


def wait_for_load(service, wanted):
    deadline = time.monotonic() + 60
    while (now := server_load(service)) != wanted:
        if time.monotonic() > deadline:
            sys.exit(f"{now} requests are in flight instead of {wanted}")
        time.sleep(0.1)


def idle_service(options, streams):
    """Steps take seconds, so that no stream gets anything while it is looked at."""
    return Service(options, f"--device=simulated:{SLOW_DEVICE}", "--simulated-slowdown=300",
                   f"--max-in-flight={streams + 100}", f"--max-connections={streams + 100}")


def idle_http(options, streams):
    ids = json.dumps([1 + i % 200 for i in range(100)])
    body = f'{{"prompt": {ids}, "max_tokens": 64, "stream": true}}'.encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(idle_service(options, streams))
        before = resident_bytes(service.router)
        sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", service.http), timeout=60))
                   for _ in range(streams)]
        for each in sockets:
            each.sendall(request)
        heads = sum(each.recv(4096).startswith(b"HTTP/1.1 200 ") for each in sockets)
        wait_for_load(service, streams)
        cpu = cpu_seconds(service.router)
        time.sleep(5)
        return {"begun": heads, "bytes": resident_bytes(service.router) - before,
                "cpu_share": (cpu_seconds(service.router) - cpu) / 5}


def idle_grpc(options, streams):
    with idle_service(options, streams) as service:
        before = resident_bytes(service.router)
        bench = subprocess.Popen(service.bench_command("grpc", "--num-prompts", str(streams), "--input-len", "100",
                                                       "--output-len", "64"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_load(service, streams)
            time.sleep(10)
            return {"bytes": resident_bytes(service.router) - before}
        finally:
            bench.kill()
            bench.wait()


def idle(options):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    streams = 2000
    result = {"streams": streams, "http": idle_http(options, streams), "grpc": idle_grpc(options, streams)}
    bare = os.path.join(options.bin, "http_streams")
    if os.path.exists(bare):
        result["bare_server"] = subprocess.run([bare, str(streams), "10000"], stdout=subprocess.PIPE, text=True,
                                               check=True).stdout.splitlines()
    return result


PARTS = {"load": load, "burst": burst, "connections": connections, "idle": idle}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--model", default="models/sample")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for an idle machine")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    wait_until_idle(options.patience)
    entry = PARTS[options.part](options)
    entry["command"] = " ".join(["bench/http_cost.py"] + sys.argv[1:])
    entry["date"] = datetime.date.today().isoformat()
    out = pathlib.Path(options.out)
    result = json.loads(out.read_text()) if out.exists() else {}
    result["cpu"] = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    result["cores"], result["kernel"] = os.cpu_count(), platform.release()
    result[options.part] = entry
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in entry.items() if key != "rounds"}, indent=1))


if __name__ == "__main__":
    main()
