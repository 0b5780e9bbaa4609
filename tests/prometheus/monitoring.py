"""A real Prometheus that scrapes Tandem, and what it answers."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "deploy" / "prometheus" / "tandem.rules.yml"
sys.path.insert(0, str(ROOT / "tests" / "clients"))

import served  # noqa: E402

MOST_SECONDS = 90

CONFIG = """
global: {{scrape_interval: {interval}, evaluation_interval: {interval}}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: tandem
    static_configs: [{{targets: ["{router}"]}}]
  - job_name: tandem-workers
    static_configs: [{{targets: [{workers}]}}]
"""


def get(url, accept="*/*"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=30) as answer:
        return answer.read().decode()


def until(what, missing, between=lambda: time.sleep(0.1)):
    """Calls `between` until `missing` returns nothing that is missing."""
    deadline = time.monotonic() + MOST_SECONDS
    while lacks := missing():
        assert time.monotonic() < deadline, f"{what}: still missing after {MOST_SECONDS} s: {lacks}"
        between()


class Database:
    """What a Prometheus answers."""

    def __init__(self, url):
        self.url = url

    def is_ready(self):
        try:
            return bool(get(self.url + "/-/ready"))
        except urllib.error.URLError:
            return False

    def ask(self, path, **fields):
        try:
            answer = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(fields)}"))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{fields}: {error.read().decode()}") from error
        assert answer["status"] == "success", answer
        return answer["data"]

    def has_data(self, query):
        """Whether the query has a value that is a number now. A query that cannot be parsed fails."""
        values = [float(sample["value"][1]) for sample in self.ask("query", query=query)["result"]]
        return any(value == value for value in values)

    def rules(self):
        """Every rule with its health and state. A rule that could not be evaluated fails."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        bad = [rule for rule in rules if rule.get("lastError")]
        assert not bad, bad
        return rules

    def not_evaluated(self):
        return [rule["name"] for rule in self.rules() if rule["health"] != "ok"]

    def firing(self):
        """The names of the alerts that fire now."""
        return {rule["name"] for rule in self.rules() if rule["state"] == "firing"}


@contextlib.contextmanager
def prometheus(router, workers=(), rules=RULES, interval="500ms"):
    """Yields the Database of a Prometheus that scrapes these addresses and is ready."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(CONFIG.format(rules=rules, router=router, workers=", ".join(f'"{one}"' for one in workers),
                                        interval=interval))
        address = f"127.0.0.1:{served.free_port()}"
        server = subprocess.Popen(
            [os.environ["PROMETHEUS"], f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={address}", "--enable-feature=exemplar-storage", "--log.level=error"])
        try:
            database = Database(f"http://{address}")
            until("Prometheus", lambda: not database.is_ready())
            yield database
        finally:
            server.terminate()
            server.wait()
