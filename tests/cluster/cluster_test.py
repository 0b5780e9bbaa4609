#!/usr/bin/env python3
"""Two routers, two prefill and three decode workers, each on a node of its own, with DNS, while clients ask all the time:
parts are restarted one after the other, scaled, cut off, and left without DNS. No token may be wrong, and no request may fail.

  cluster_test.py build/release/bin/tandem            as root; about a minute
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import network
from fleet import Fleet

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "models" / "sample"
CLIENTS = 3
DNS_OUTAGE_SECONDS = 30


class LoadProcess:
    """load.py on the client's node."""

    def __init__(self, fleet):
        self._fleet = fleet
        self._process = fleet.client.popen([sys.executable, str(HERE / "load.py"), str(CLIENTS)], text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.update()

    def _ask(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def update(self):
        """Sends requests to the routers that clients are sent to now."""
        self._ask(" ".join(node.address for node in self._fleet.routers.values()))

    def report(self):
        return self._ask("report")

    def close(self):
        self._process.kill()
        self._process.wait(timeout=10)


def restart_decode(net, fleet, load):
    for name in ("decode-0", "decode-1", "decode-2"):
        fleet.restart_worker(name, "decode")


def restart_prefill(net, fleet, load):
    for name in ("prefill-0", "prefill-1"):
        fleet.restart_worker(name, "prefill")


def restart_routers(net, fleet, load):
    """As a Deployment with maxUnavailable 0: a new router first, at a new address, then the old one ends."""
    for old, new in (("router-0", "router-2"), ("router-1", "router-3")):
        fleet.start_router(new)
        fleet.withdraw_router(old)
        load.update()  # clients learn of it before the router gets SIGTERM, which preStop is for
        fleet.stop_router(old)
        fleet.await_cluster()


def scale_decode(net, fleet, load):
    for name in ("decode-2", "decode-1"):
        fleet.stop_worker(name)
        fleet.await_cluster()
    for name in ("decode-1", "decode-2", "decode-3"):
        fleet.start_worker(name, "decode")
    fleet.await_cluster()
    fleet.stop_worker("decode-3")
    fleet.await_cluster()


def cut_off_node(net, fleet, load):
    node = fleet.node_of("decode-1")
    node.cut_off()
    fleet.await_cluster(without=["decode-1"])
    node.join()
    fleet.await_cluster()


def lose_dns(net, fleet, load):
    net.stop_dns()
    end = time.monotonic() + DNS_OUTAGE_SECONDS
    while time.monotonic() < end:
        fleet.await_cluster()  # every look takes a moment; all of them must see everything
    for name in fleet.workers():
        if not fleet.said(name, "cannot be looked up"):
            raise RuntimeError(f"{name} did not notice that DNS is gone, so that this step shows nothing")
    net.start_dns()
    fleet.start_worker("decode-4", "decode")  # finds the routers by DNS
    fleet.await_cluster()
    fleet.stop_worker("decode-4")
    fleet.await_cluster()


STEPS = (restart_decode, restart_prefill, restart_routers, scale_decode, cut_off_node, lose_dns)


def start(fleet):
    fleet.start_first_routers(["router-0", "router-1"])
    for role, count in (("prefill", 2), ("decode", 3)):
        for number in range(count):
            fleet.start_worker(f"{role}-{number}", role)
    fleet.await_cluster()


def run_steps(net, fleet, load):
    problems = []
    for step in STEPS:
        began = time.monotonic()
        step(net, fleet, load)
        counts = load.report()
        failed = counts["failed"]
        print(f"{step.__name__:18} {counts['right']:6} right {counts['wrong']:3} wrong {len(failed):3} failed "
              f"{time.monotonic() - began:6.1f} s", flush=True)
        problems += [f"{step.__name__}: {one}" for one in failed[:5]]
        if counts["wrong"] or failed or not counts["right"]:
            problems.append(f"{step.__name__}: {counts['right']} right, {counts['wrong']} wrong, {len(failed)} failed")
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit("cluster_test: give the built program")
    if reason := network.missing():
        print(f"left out: {reason}")
        return 77
    with tempfile.TemporaryDirectory(prefix="tandem-cluster-") as folder, network.Network(folder) as net:
        fleet = Fleet(net, str(pathlib.Path(sys.argv[1]).resolve()), str(MODEL), folder)
        load = None
        try:
            start(fleet)
            load = LoadProcess(fleet)
            problems = run_steps(net, fleet, load)
        except BaseException:
            for log in sorted(pathlib.Path(folder).glob("*.log")):
                print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-8:], sep="\n", file=sys.stderr)
            raise
        finally:
            if load is not None:
                load.close()
            fleet.close()
    print("\n".join(problems) or "All held.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
