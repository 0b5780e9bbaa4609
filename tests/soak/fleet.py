"""A fleet of real processes for the soak: `tandem up` with TLS and API keys, and what can be seen of it from outside."""
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import time

FLAGS = ["--prefill", "1", "--decode", "2", "--unified", "1", "--threads", "1", "--kv-transport", "tcp", "--kv-tokens", "4096",
         "--host-kv-bytes", "4MiB", "--kv-codec", "auto", "--max-in-flight", "24", "--max-waiting", "32", "--max-sequences", "8",
         "--policy", "auto", "--shed", "slo", "--profile-at-start", "1", "--prefix-index-bytes", "4MiB", "--max-resumes", "10",
         "--lease-ms", "2000", "--heartbeat-ms", "200", "--drain-seconds", "10", "--check-invariants", "--log-level", "error"]
PATIENCE = 90  # seconds for whatever must come


class Fleet:
    def __init__(self, tandem, model, folder):
        self.tandem = tandem
        self.folder = pathlib.Path(folder)
        self._run("certs", "fleet")
        self.keys = {tenant: self._run("keys", "add", "access.json", "--id", tenant, "--tenant", tenant, *scopes).strip()
                     for tenant, scopes in (("red", ()), ("blue", ()), ("ops", ("--scope", "admin", "--scope", "generate")))}
        files = [f"--tls-cert={self.folder}/fleet/up.pem", f"--tls-key={self.folder}/fleet/up.key", f"--tls-ca={self.ca}"]
        self._log = open(self.folder / "log", "w")
        self._up = subprocess.Popen([tandem, "up", "--model", model, "--port", "0", "--http-port", "0", "--access-file", "access.json",
                                     *FLAGS, *files], cwd=folder, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self.grpc, self.http_port = self._addresses()
        self.tls = ssl.create_default_context(cafile=self.ca)

    @property
    def ca(self):
        return str(self.folder / "fleet" / "ca.pem")

    def _run(self, *arguments):
        done = subprocess.run([self.tandem, *arguments], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"tandem {arguments[0]}: {done.stderr}")
        return done.stdout

    def _addresses(self):
        """Of the gRPC port, and the port of HTTP, from the lines that are printed when all is ready."""
        grpc = None
        for line in self._up.stdout:
            grpc = grpc or (found := re.search(r"ready: .* at (\S+:\d+)", line)) and found[1]
            if found := re.search(r"https://127\.0\.0\.1:(\d+)", line):
                return grpc, int(found[1])
        raise RuntimeError("tandem up ended: " + (self.folder / "log").read_text()[-2000:])

    def client_flags(self):
        return ["--server", self.grpc, "--tls-ca", self.ca]

    def environment(self, tenant):
        return {**os.environ, "TANDEM_API_KEY": self.keys[tenant]}

    def status(self):
        done = subprocess.run([self.tandem, "status", "--json", *self.client_flags()], env=self.environment("ops"),
                              capture_output=True, text=True, timeout=PATIENCE)
        return json.loads(done.stdout)

    def processes(self):
        """The pids of router and workers by name. A worker that is being started again is missing."""
        pids = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or int((entry / "stat").read_text().rpartition(")")[2].split()[1]) != self._up.pid:
                    continue
                words = (entry / "cmdline").read_text().split("\0")
            except (OSError, IndexError, ValueError):
                continue  # it has ended
            name = "router" if "router" in words[1:2] else next(
                (word.partition("=")[2] or words[i + 1] for i, word in enumerate(words) if word.startswith("--name")), None)
            if name:
                pids[name] = int(entry.name)
        return pids

    def kill(self, name):
        """Kills that worker, which `tandem up` starts again. False when it is not there."""
        pid = self.processes().get(name)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return pid is not None

    def await_all_workers(self):
        self._await("every worker to be there", lambda status: [
            worker["name"] for worker in status["workers"] if worker["starting"] or worker["not_ready"] or not worker["alive"]]
            or (["somebody"] if len(status["workers"]) != 4 else []))

    def await_rest(self):
        """Until nothing is left of any request: no block in use, no reservation, no hand-off, nothing in flight."""
        self._await("rest", leftovers)

    def _await(self, what, wrong):
        end = time.monotonic() + PATIENCE
        while found := wrong(self.status()):
            if time.monotonic() > end:
                raise AssertionError(f"waited {PATIENCE} s for {what}: {found}")
            time.sleep(0.2)

    def stop(self):
        """Drains and ends all processes; what was wrong with that."""
        self._up.send_signal(signal.SIGTERM)
        try:
            code = self._up.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._up.kill()
            return [f"tandem up did not end within {PATIENCE} s"]
        return [] if code == 0 else [f"tandem up ended with {code}"]

    def log(self):
        return (self.folder / "log").read_text()


def leftovers(status):
    """What a status shows of requests that have not ended."""
    found = [f"{status['requests_in_flight']} requests in flight"] if status["requests_in_flight"] else []
    for worker in status["workers"]:
        kv, handoffs = worker["kv"], worker["handoffs"]
        counts = {"blocks in use": worker["total_blocks"] - worker["free_blocks"] - kv["idle_blocks"],
                  "shared blocks": kv["shared_blocks"], "pinned blocks": kv["pinned_blocks"], "swapped sequences": kv["swapped"],
                  "running": worker["running"], "waiting": worker["waiting"], "sending": handoffs["sending"],
                  "reservations": handoffs["reservations"], "waiting reservations": handoffs["waiting_reservations"],
                  "draining reservations": handoffs["draining_reservations"]}
        found += [f"{worker['name']}: {count} {what}" for what, count in counts.items() if count]
    return found
