"""A router and workers, each a process that a test may break, and clients that ask them all the time."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from monitoring import MOST_SECONDS, ROOT, served

SIMULATED = ROOT / "models" / "simulated" / "qwen3-8b-h200.json"


class Fleet:
    """Workers compute models/sample, or with `simulated` nothing: their steps then take the times of a GPU, and outputs are as
    long as `output_lengths` of the parameter file says. Heartbeats are frequent, so that the router's page is never far behind."""

    def __init__(self, folder, *router_flags, simulated=True, output_lengths=(), **router_options):
        self._folder = pathlib.Path(folder)
        self._simulated = simulated and self._parameter_file(output_lengths)
        self._processes = {}
        self.grpc_port, http_port = served.free_port(), served.free_port()
        self.address = f"127.0.0.1:{http_port}"
        what = f"--simulated={self._simulated}" if simulated else f"--model={os.environ['MODEL']}"
        self._start("router", [what, f"--port={self.grpc_port}", f"--http-port={http_port}", "--heartbeat-ms=100",
                               "--policy=auto", *router_flags], **router_options)

    def _parameter_file(self, output_lengths):
        parameters = json.loads(SIMULATED.read_text())
        if output_lengths:
            parameters["simulated"]["output_lengths"] = output_lengths
        written = self._folder / SIMULATED.name
        written.write_text(json.dumps(parameters))
        return written

    def _start(self, name, flags, command="router", **options):
        words = [os.environ["TANDEM"], command, *flags]
        if "stderr" not in options:
            options["stderr"] = (self._folder / f"{name}.log").open("ab")
        self._processes[name] = subprocess.Popen(words, stdout=subprocess.DEVNULL, **options)

    def start_worker(self, name, role, *flags):
        what = [f"--device=simulated:{self._simulated}"] if self._simulated else [f"--model={os.environ['MODEL']}", "--threads=1"]
        self._start(name, [f"--role={role}", f"--name={name}", f"--router=127.0.0.1:{self.grpc_port}",
                           *what, *flags], command="worker")

    def kill(self, name):
        self._processes[name].kill()
        self._processes.pop(name).wait()

    def suspend(self, name):
        self._processes[name].send_signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def stutter(self, name, run_seconds, stop_seconds):
        """Lets a process run for so long and stop for so long in turn, as on a machine that has no time for it."""
        process, ended = self._processes[name], threading.Event()

        def run():
            while not ended.wait(run_seconds):
                process.send_signal(signal.SIGSTOP)
                ended.wait(stop_seconds)
                process.send_signal(signal.SIGCONT)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def end(self):
        for name in list(self._processes):
            self.kill(name)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/readyz", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, prompt=(1, 2, 3), max_tokens=2, ignore_eos=True):
        """The HTTP status of a completion; 0 where the connection ended instead."""
        body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": ignore_eos}
        request = urllib.request.Request(f"http://{self.address}/v1/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=MOST_SECONDS) as answer:
                answer.read()
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


@contextlib.contextmanager
def fleet(*router_flags, **options):
    """Yields a Fleet without workers. The logs of one that did not hold are printed."""
    with tempfile.TemporaryDirectory() as folder:
        made = Fleet(folder, *router_flags, **options)
        try:
            yield made
        except BaseException:
            for log in sorted(pathlib.Path(folder).glob("*.log")):
                print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]))
            raise
        finally:
            made.end()


@contextlib.contextmanager
def clients(count, fleet, pause=0, **request):
    """Lets so many clients ask one request after the other."""
    ended = threading.Event()

    def run():
        while not ended.is_set():
            if fleet.ask(**request) != 200:
                time.sleep(0.05)  # as one that was refused
            ended.wait(pause)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
