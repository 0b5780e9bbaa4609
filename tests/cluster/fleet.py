"""Routers and workers on the nodes of a Network, as deploy/k8s runs them in pods."""
import json
import pathlib
import signal
import subprocess
import time

from network import DOMAIN

STEP_SECONDS = 60  # within which every change of the cluster must be known everywhere


class Fleet:
    def __init__(self, network, tandem, model, logs):
        self._network, self._tandem, self._model, self._logs = network, tandem, model, pathlib.Path(logs)
        self._processes = {}  # name -> (process, node)
        self.routers = {}  # name -> node, of those that clients are sent to
        self.client = network.add_node()

    def _start(self, name, node, *arguments):
        log = (self._logs / f"{name}.log").open("ab")
        process = node.popen([self._tandem, *arguments, "--model", self._model, "--host", "0.0.0.0",
                              "--drain-seconds", "60"], stdout=log, stderr=log)
        log.close()
        self._processes[name] = (process, node)

    def node_of(self, name):
        return self._processes[name][1]

    def _run_router(self, name):
        """A new router has a new address, as a new pod has, and DNS names it before it is ready."""
        node = self._network.add_node()
        self._start(name, node, "router", "--port", "8080", "--http-port", "8000", "--metrics-port", "9100")
        self._name_routers()
        return node

    def _name_routers(self):
        self._network.set_routers([node.address for name, (_, node) in self._processes.items()
                                   if name.startswith("router")])

    def start_first_routers(self, names):
        """They can serve once workers have found them."""
        for name in names:
            self.routers[name] = self._run_router(name)

    def start_router(self, name):
        node = self._run_router(name)
        self.await_cluster([node])
        self.routers[name] = node

    def withdraw_router(self, name):
        """No new request is sent there from now on; workers stay."""
        del self.routers[name]

    def stop_router(self, name):
        self._stop(name)
        self._name_routers()

    def start_worker(self, name, role):
        node = self._network.add_node()
        self._start(name, node, "worker", "--role", role, "--name", name, "--router", f"dns:routers.{DOMAIN}:8080",
                    "--advertise", node.address, "--port", "8081", "--data-port", "8082", "--kv-transport", "tcp",
                    "--threads", "1", "--kv-tokens", "16384", "--profile-at-start", "off")

    def stop_worker(self, name):
        self._stop(name)

    def restart_worker(self, name, role):
        """As a StatefulSet does: the new pod has the same name and another address."""
        self._stop(name)
        self.start_worker(name, role)
        self.await_cluster()

    def _stop(self, name):
        process, _ = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)  # `ip netns exec` has become the program
        status = process.wait(timeout=90)
        if status != 0:
            raise RuntimeError(f"{name} ended with {status}; see {self._logs}/{name}.log")

    def known_workers(self, node):
        """The names of the workers that a router may send requests to; None when it does not answer."""
        with self.client.popen([self._tandem, "status", "--json", "--server", f"{node.address}:8080"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as asked:
            text = asked.communicate(timeout=30)[0]
        if not text:
            return None
        workers = json.loads(text).get("workers", [])
        return {one["name"] for one in workers
                if one.get("alive") and not one.get("load", one).get("not_ready")}

    def said(self, name, text):
        """Whether the log of a process has the text."""
        return text in (self._logs / f"{name}.log").read_text(errors="replace")

    def workers(self):
        return {name for name in self._processes if not name.startswith("router")}

    def await_cluster(self, nodes=(), without=()):
        """Until every router, and those at `nodes`, knows exactly the workers that run."""
        wanted = self.workers() - set(without)
        deadline = time.monotonic() + STEP_SECONDS
        for node in [*self.routers.values(), *nodes]:
            while (known := self.known_workers(node)) != wanted:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the router at {node.address} knows {known}, not {wanted}")

    def close(self):
        for name, (process, _) in self._processes.items():
            process.kill()
            process.wait(timeout=10)
