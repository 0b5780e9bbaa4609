"""A `tandem up` for the checks of clients."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def served(binary, model, flags=()):
    """Yields the base URL of the API and the name of the model. Flags come after those of this service, so that they win."""
    port = free_port()
    up = subprocess.Popen(
        [binary, "up", "--model", model, "--model-name=served", "--port=0", "--host=127.0.0.1",
         f"--http-port={port}", "--log-level=warn", *flags],
        stdout=subprocess.PIPE, text=True)
    try:
        for line in up.stdout:
            if line.startswith("ready:"):
                break
        else:
            sys.exit("tandem up has ended before it was ready")
        yield f"http://127.0.0.1:{port}", "served"
    finally:
        up.terminate()
        up.wait()


def load(url):
    """How many choices are in flight at the server."""
    with urllib.request.urlopen(url + "/load", timeout=10) as answer:
        return json.load(answer)["server_load"]


def wait_for_load(url, wanted, seconds=20):
    """Returns once so many choices are in flight."""
    deadline = time.monotonic() + seconds
    while (now := load(url)) != wanted:
        if time.monotonic() > deadline:
            raise AssertionError(f"{now} choices are in flight after {seconds} s instead of {wanted}")
        time.sleep(0.02)


def results_folder():
    """Where programs that write files may do so."""
    folder = pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "clients_out"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main(check, flags=(), model=None):
    """Runs check(url, model) against the binary and model that the environment names."""
    with served(os.environ["TANDEM"], model or os.environ["MODEL"], flags) as (url, name):
        check(url, name)
    print(f"{os.path.basename(sys.argv[0])}: all held")
