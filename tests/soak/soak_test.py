"""Everything at once for a while: a fleet with TLS and API keys gets requests of all kinds, bursts that are more than it can do, clients
that hang up, and workers that are killed. In the end nothing may be left of any request, memory and descriptors must be where they were,
and the same requests must have had the same answers throughout.

    tests/soak/soak_test.py build/release/bin/tandem models/sample --seconds 1800
"""
import argparse
import collections
import json
import os
import random
import sys
import tempfile
import threading
import time

from asking import KINDS, Asker, Wrong
from fleet import Fleet
from watching import Watch, descriptors, grown, leaked

CLIENTS = 6
BURST = 40  # clients that come at once; --max-in-flight is less
WARM_UP_SHARE = 0.25
VICTIMS = ["decode-0", "prefill-0", "unified-0"]  # decode-1 and the router live throughout
OUTCOMES = {"whole", "refused", "cancelled", "expired", "bad"}


class Soak:
    def __init__(self, fleet, seed):
        self._fleet = fleet
        self._seed = seed
        self._expected = {}
        self._lock = threading.Lock()
        self.counts = collections.Counter()  # by kind and outcome
        self.findings = []
        self.kills = 0
        self._stop = threading.Event()

    def _ask(self, asker, kind=None):
        try:
            asked, outcome = asker.ask(kind)
        except Exception as error:  # whatever a client sees is a finding
            with self._lock:
                self.findings.append(f"{kind or 'a request'}: {error!r}"[:500])
            return
        with self._lock:
            self.counts[asked, outcome] += 1

    def learn(self):
        """The first answers to all fixed requests, to which later ones are compared."""
        asker = Asker(self._fleet, self._seed, self._expected)
        while len(self._expected) < 6:
            self._ask(asker, "fixed")

    def run(self, seconds, kill_every):
        """Sends requests for that long; kills a worker now and then."""
        self._stop.clear()
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=self._disturb, args=(kill_every,)))
        for thread in threads:
            thread.start()
        self._stop.wait(seconds)
        self._stop.set()
        for thread in threads:
            thread.join()

    def _client(self, number):
        asker = Asker(self._fleet, hash((self._seed, number, time.monotonic_ns())), self._expected)
        while not self._stop.is_set():
            self._ask(asker)

    def _disturb(self, kill_every):
        """Bursts, and the loss of a worker once all are there."""
        try:
            for turn in range(10**9):
                if self._stop.wait(kill_every / 2):
                    return
                self._burst(turn)
                if self._stop.wait(kill_every / 2):
                    return
                self._fleet.await_all_workers()
                self.kills += self._fleet.kill(VICTIMS[turn % len(VICTIMS)])
        except Exception as error:  # in a thread of its own, where nobody else would notice
            with self._lock:
                self.findings.append(f"while workers were killed: {error!r}")

    def _burst(self, turn):
        askers = [Asker(self._fleet, f"{self._seed} {turn} {i}", self._expected) for i in range(BURST)]
        threads = [threading.Thread(target=self._ask, args=(asker, "completion")) for asker in askers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def at_rest(fleet):
    """The descriptors of each process by name and pid, once nothing is left of any request."""
    fleet.await_all_workers()
    fleet.await_rest()
    return {(name, pid): descriptors(pid) for name, pid in fleet.processes().items()}


def judge(soak):
    """What is wrong with the counts."""
    missing = sorted(set(KINDS) - {kind for kind, _ in soak.counts})
    absent = sorted(OUTCOMES - {outcome for _, outcome in soak.counts})
    return ([f"no request of the kind {kind} ended" for kind in missing] + [f"no request was {outcome}" for outcome in absent]
            + ([] if soak.kills else ["no worker was killed"]))


def report(soak, windows, seconds):
    table = collections.defaultdict(dict)
    for (kind, outcome), count in sorted(soak.counts.items()):
        table[kind][outcome] = count
    print(json.dumps({"seconds": seconds, "requests": sum(soak.counts.values()), "killed": soak.kills, "by_kind": table,
                      "memory_kib": windows}, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tandem")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("TANDEM_SOAK_SECONDS", "45")))
    parser.add_argument("--seed", default=os.environ.get("TANDEM_SEED", str(random.randrange(10**9))))
    parser.add_argument("--no-memory", action="store_true", help="memory may grow, as it does under sanitizers")
    arguments = parser.parse_args()
    print(f"TANDEM_SEED={arguments.seed}", flush=True)
    kill_every = min(max(arguments.seconds / 8, 4), 30)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(os.path.abspath(arguments.tandem), os.path.abspath(arguments.model), folder)
        findings, windows = [], {}
        try:
            soak = Soak(fleet, arguments.seed)
            soak.learn()
            soak.run(arguments.seconds * WARM_UP_SHARE, kill_every)
            before = at_rest(fleet)
            watch = Watch(fleet)
            begin = time.monotonic()
            soak.run(arguments.seconds * (1 - WARM_UP_SHARE), kill_every)
            windows = watch.windows(begin, time.monotonic(), before)
            watch.stop()
            after = at_rest(fleet)
            findings = soak.findings + ([] if arguments.no_memory else grown(windows)) + leaked(before, after) + judge(soak)
            report(soak, windows, arguments.seconds)
        except (AssertionError, Wrong) as error:
            findings.append(str(error))
        finally:
            findings += fleet.stop()
            log = fleet.log()
    for finding in findings[:50]:
        print("finding:", finding)
    if findings:
        print(f"{len(findings)} findings; the end of the log:\n{log[-3000:]}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
