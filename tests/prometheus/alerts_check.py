"""Breaks running fleets in each way that an alert of deploy/prometheus is about, beneath a real Prometheus. The alert must
fire, and no other but those that the same fault may cause. Every duration of the rules is divided by sixty: a minute is a second.
Needs TANDEM, MODEL and PROMETHEUS in the environment; names of scenes as arguments let those alone run."""

import contextlib
import re
import socket
import subprocess
import sys
import tempfile
import time

from bad_wire import BadWire
from fragile_fleet import clients, fleet
from monitoring import RULES, prometheus, served, until

HURRY = 60
MILLISECONDS = {"s": 1000, "m": 60_000, "h": 3_600_000}
QUIET_SECONDS = 2
LONG_TEXT = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want. " * 6
# An HTTP/2 client's first words: the preface and a frame of settings without any.
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
# What may follow when workers are lost, and when KV does not arrive.
OF_LOST_WORKERS = {"TandemWorkerLost", "TandemWorkerNotReady", "TandemNotReady", "TandemCanariesFail",
                   "TandemErrors", "TandemResumesGivenUp", "TandemPredictionsOff"}
OF_LOST_KV = {"TandemLinkSlow", "TandemFramesRefused", "TandemHandoffsFail", "TandemErrors", "TandemResumesGivenUp",
              "TandemPredictionsOff"}


def hurried(rules, hurry):
    """The same rules with every duration divided by that."""

    def divided(found):
        return f"{found[1]}{int(found[2]) * MILLISECONDS[found[3]] // hurry}ms{found[4]}"

    return re.sub(r"(for: |\[)(\d+)([smh])(\]|$)", divided, rules, flags=re.MULTILINE)


class Scene:
    """A fleet, and the Prometheus that watches it."""

    def __init__(self, fleet, database, fired):
        self.fleet = fleet
        self._database = database
        self._fired = fired

    def await_quiet(self):
        """Until the fleet serves, while no alert fires."""
        until("readiness", lambda: not self.fleet.is_ready())
        until("a scrape", lambda: not self._database.has_data("up == 1"))
        until("rules", self._database.not_evaluated)
        end = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < end:
            assert self.fleet.ask() == 200, "a healthy fleet refuses a request"
            assert not self._database.firing(), self._database.firing()

    def await_alerts(self, *wanted, besides=frozenset()):
        """Until each of these has fired, and nothing but these and `besides`."""
        seen = set()

        def missing():
            seen.update(self._database.firing())
            return set(wanted) - seen

        until("alerts", missing)
        assert seen <= set(wanted) | besides, f"{seen - set(wanted) - besides} fired as well"
        self._fired.update(wanted)
        print(f"  {', '.join(wanted)}: fired", flush=True)


class Stage:
    """Sets up scenes, whose Prometheus has these rules."""

    def __init__(self, rules):
        self._rules = rules
        self.fired = set()

    @contextlib.contextmanager
    def scene(self, *router_flags, hurry=HURRY, **options):
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as rules, fleet(*router_flags, **options) as made:
            rules.write(hurried(self._rules, hurry))
            rules.flush()
            with prometheus(made.address, rules=rules.name, interval="200ms") as database:
                yield Scene(made, database, self.fired)

    @contextlib.contextmanager
    def scene_with_wire(self, *router_flags, decode=(), **options):
        """A prefill worker whose KV goes through a BadWire to a decode worker."""
        data_port = served.free_port()
        with contextlib.closing(BadWire(data_port)) as wire, self.scene(*router_flags, simulated=False,
                                                                                **options) as it:
            it.fleet.start_worker("prefill-0", "prefill", "--kv-codec=raw")
            it.fleet.start_worker("decode-0", "decode", "--kv-transport=tcp", f"--data-port={data_port}",
                                  f"--advertise-data=tcp:127.0.0.1:{wire.port}", *decode)
            it.await_quiet()
            yield it, wire


def slow_worker(stage):
    """Steps of 80 ms, and more requests than two at a time."""
    with stage.scene("--ttft-slo-ms=100", "--tpot-slo-ms=10") as it:
        it.fleet.start_worker("unified-0", "unified", "--simulated-slowdown=20", "--max-sequences=2")
        with clients(16, it.fleet, max_tokens=16):
            it.await_alerts("TandemTtftAboveSlo", "TandemTpotAboveSlo", "TandemLongQueue", besides={"TandemPredictionsOff"})


def busy_worker(stage):
    """There are more requests than the router takes; and some outputs end by themselves after 3 to 5 tokens, others after 240,
    which the worker cannot know when it admits them."""
    short = [{"max_prompt_tokens": 64, "quantiles": [{"share": 0, "tokens": 3}, {"share": 1, "tokens": 5}]}]
    with stage.scene("--max-in-flight=60", output_lengths=short) as it:
        it.fleet.start_worker("unified-0", "unified", "--kv-tokens=2048")
        it.await_quiet()
        with clients(16, it.fleet, max_tokens=240, ignore_eos=False), clients(56, it.fleet, max_tokens=240):
            it.await_alerts("TandemOverloaded", "TandemPreemptions", besides={"TandemKvFull", "TandemPredictionsOff"})


def full_worker(stage):
    """Two requests hold 8,000 of 8,320 tokens of KV while they are decoded, for 19 seconds."""
    with stage.scene() as it:
        it.fleet.start_worker("unified-0", "unified", "--kv-tokens=8320", "--simulated-slowdown=30")
        with clients(1, it.fleet, prompt=[1] * 4000, max_tokens=160), clients(1, it.fleet, prompt=[2] * 4000, max_tokens=160):
            it.await_alerts("TandemKvFull", besides={"TandemPredictionsOff"})


def slower_worker(stage):
    """A worker gets little of the time of its processor from now on."""
    with stage.scene("--lease-ms=8000") as it:
        it.fleet.start_worker("unified-0", "unified")
        it.await_quiet()
        for _ in range(110):
            it.fleet.ask()
        with it.fleet.stutter("unified-0", run_seconds=0.02, stop_seconds=0.3), clients(2, it.fleet, pause=0.05):
            it.await_alerts("TandemPredictionsOff")


def lost_workers(stage):
    with stage.scene("--lease-ms=2000") as it:
        for name in ("unified-0", "unified-1"):
            it.fleet.start_worker(name, "unified")
        it.await_quiet()
        with clients(4, it.fleet, max_tokens=500):
            it.fleet.suspend("unified-0")
            it.await_alerts("TandemWorkerLost", besides=OF_LOST_WORKERS)
            it.fleet.kill("unified-1")
            it.await_alerts("TandemNotReady", "TandemResumesGivenUp", "TandemErrors", besides=OF_LOST_WORKERS)
        it.fleet.kill("router")
        it.await_alerts("TandemRouterDown", besides=OF_LOST_WORKERS)


def worker_that_nobody_reaches(stage):
    with stage.scene() as it:
        it.fleet.start_worker("unified-0", "unified")
        it.await_quiet()
        it.fleet.start_worker("unified-1", "unified", "--advertise=127.0.0.2")
        it.await_alerts("TandemWorkerNotReady")


def worker_that_starts_for_long(stage):
    """A worker gets a twentieth of the time of its processor while it measures its steps."""
    with stage.scene("--lease-ms=8000", simulated=False) as it:
        it.fleet.start_worker("unified-0", "unified", "--profile-at-start=off")
        it.await_quiet()
        it.fleet.start_worker("unified-1", "unified", "--profile-at-start=60")
        with it.fleet.stutter("unified-1", run_seconds=0.004, stop_seconds=0.096):
            it.await_alerts("TandemWorkerStarting")


def many_connections(stage):
    """Clients and a worker hold 19 of the 20 connections that a router may have."""
    with stage.scene("--max-connections=20") as it:
        it.fleet.start_worker("unified-0", "unified")
        it.await_quiet()
        with contextlib.ExitStack() as opened:
            for _ in range(18):
                one = opened.enter_context(socket.create_connection(("127.0.0.1", it.fleet.grpc_port)))
                one.sendall(HTTP2_GREETING)
                assert one.recv(1), "the router closed a connection that there is room for"
            it.await_alerts("TandemConnectionsNearLimit")


def unread_log(stage):
    """Nobody reads the router's log."""
    with stage.scene("--log-level=trace", stderr=subprocess.PIPE) as it:
        it.fleet.start_worker("unified-0", "unified")
        with clients(8, it.fleet):
            it.await_alerts("TandemLogLinesDropped")


def bad_wire(stage):
    with stage.scene_with_wire(decode=["--kv-lease-ms=1000"]) as (it, wire):
        with clients(4, it.fleet, prompt=LONG_TEXT):
            wire.slow_down(1_000_000)
            it.await_alerts("TandemLinkSlow", besides={"TandemPredictionsOff"})
            wire.heal()
            wire.flip_bits()
            it.await_alerts("TandemFramesRefused", besides=OF_LOST_KV)
            wire.heal()
            wire.hold()
            it.await_alerts("TandemHandoffsFail", besides=OF_LOST_KV)


def cut_wire(stage):
    """No KV arrives, and nobody asks but the router itself, every two seconds."""
    with stage.scene_with_wire("--canary-seconds=1", hurry=20) as (it, wire):
        wire.close()
        it.await_alerts("TandemCanariesFail", besides=OF_LOST_KV | OF_LOST_WORKERS)


def full_buffer(stage):
    """The prefill worker has shared memory for one decode worker, and there are two."""
    with stage.scene(simulated=False) as it:
        it.fleet.start_worker("prefill-0", "prefill", "--kv-transport=shm,tcp", "--kv-buffer-bytes=4MiB")
        it.fleet.start_worker("decode-0", "decode", "--kv-transport=shm,tcp")
        it.await_quiet()
        it.fleet.start_worker("decode-1", "decode", "--kv-transport=shm,tcp")
        with clients(4, it.fleet, prompt=LONG_TEXT):
            it.await_alerts("TandemLinkFallback", besides={"TandemPredictionsOff"})


SCENES = (slow_worker, busy_worker, full_worker, slower_worker, lost_workers, worker_that_nobody_reaches,
          worker_that_starts_for_long, many_connections, unread_log, bad_wire, cut_wire, full_buffer)


def main(names):
    rules = RULES.read_text()
    stage = Stage(rules)
    for scene in SCENES:
        if not names or scene.__name__ in names:
            began = time.monotonic()
            scene(stage)
            print(f"{scene.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    missed = set(re.findall(r"- alert: (\w+)", rules)) - stage.fired
    assert names or not missed, f"nothing here makes {missed} fire"
    print(f"{len(stage.fired)} alerts: all fired")


if __name__ == "__main__":
    main(sys.argv[1:])
