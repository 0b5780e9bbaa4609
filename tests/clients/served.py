"""A `tandem up` for the checks of clients."""

import contextlib
import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def served(binary, model):
    """Yields the base URL of the API and the name of the model."""
    port = free_port()
    up = subprocess.Popen(
        [binary, "up", "--model", model, "--model-name=served", "--port=0", "--host=127.0.0.1",
         f"--http-port={port}", "--log-level=warn"],
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


def main(check):
    """Runs check(url, model) against the binary and model that the environment names."""
    with served(os.environ["TANDEM"], os.environ["MODEL"]) as (url, model):
        check(url, model)
    print(f"{os.path.basename(sys.argv[0])}: all held")
