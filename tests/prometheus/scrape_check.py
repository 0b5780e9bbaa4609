"""A real Prometheus that scrapes a running `tandem up`: the pages are well-formed, every alert can be evaluated, and every
query of the dashboard has data."""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))

import served  # noqa: E402

RULES = ROOT / "deploy" / "prometheus" / "tandem.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "tandem.json"
PROMPT = "It was a fine morning, and"
MOST_SECONDS = 90
# Dashboards for servers of language models read these names, although Prometheus keeps colons for recorded rules.
KNOWN_LINT = re.compile(r"^vllm:\w+ metric names should not contain ':'$")

CONFIG = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: tandem
    static_configs: [{{targets: ["{router}"]}}]
  - job_name: tandem-workers
    static_configs: [{{targets: [{workers}]}}]
"""


def first_of_two_free_ports():
    while True:
        first = served.free_port()
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", first + 1))
                return first
            except (OSError, OverflowError):
                continue


def get(url, accept="*/*"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=30) as answer:
        return answer.read().decode()


def ask(url, model, **fields):
    body = json.dumps({"model": model, "prompt": PROMPT, "max_tokens": 12, **fields}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@contextlib.contextmanager
def prometheus(router, workers):
    """Yields the address of a Prometheus that scrapes these addresses."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(CONFIG.format(rules=RULES, router=router, workers=", ".join(f'"{one}"' for one in workers)))
        address = f"127.0.0.1:{served.free_port()}"
        server = subprocess.Popen(
            [os.environ["PROMETHEUS"], f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={address}", "--enable-feature=exemplar-storage", "--log.level=error"])
        try:
            yield f"http://{address}"
        finally:
            server.terminate()
            server.wait()


class Database:
    """What a Prometheus answers."""

    def __init__(self, url):
        self.url = url + "/api/v1/"

    def ask(self, path, **fields):
        try:
            answer = json.loads(get(self.url + path + "?" + urllib.parse.urlencode(fields)))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{fields}: {error.read().decode()}") from error
        assert answer["status"] == "success", answer
        return answer["data"]

    def has_data(self, query):
        """Whether the query has a value that is a number now. A query that cannot be parsed fails."""
        values = [float(sample["value"][1]) for sample in self.ask("query", query=query)["result"]]
        return any(value == value for value in values)


def until(what, holds, between=lambda: time.sleep(0.1)):
    """Calls `between` until `holds` returns nothing that is missing."""
    deadline = time.monotonic() + MOST_SECONDS
    while missing := holds():
        assert time.monotonic() < deadline, f"{what}: still missing after {MOST_SECONDS} s: {missing}"
        between()


def check_page(address):
    """What promtool says of the page in the text format."""
    done = subprocess.run([os.environ["PROMTOOL"], "check", "metrics"], input=get(f"http://{address}/metrics"),
                          capture_output=True, text=True, timeout=60)
    found = [line for line in (done.stdout + done.stderr).splitlines() if not KNOWN_LINT.match(line)]
    assert not found and done.returncode in (0, 3), (address, done.returncode, found)


def check_open_metrics(address):
    page = get(f"http://{address}/metrics", "application/openmetrics-text;version=1.0.0")
    assert page.endswith("# EOF\n"), page[-200:]
    assert re.search(r'vllm:time_to_first_token_seconds_bucket\{.*\} \d+ # \{request_id="[^"]+"\} [\d.e-]+ [\d.]+\n', page), page


def dashboard_queries():
    """Title of the panel and query, with the dashboard's variables filled in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels), "two panels have one id"
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$job", "tandem").replace("$instance", ".*")
            yield panel["title"], query.replace("$__rate_interval", "30s")


def check_rules(database):
    """Every alert has been evaluated without an error."""
    wanted = len(re.findall(r"- alert:", RULES.read_text()))

    def missing():
        rules = [rule for group in database.ask("rules")["groups"] for rule in group["rules"]]
        assert len(rules) == wanted, rules
        bad = [rule for rule in rules if rule.get("lastError")]
        assert not bad, bad
        return [rule["name"] for rule in rules if rule["health"] != "ok"]

    until("rules", missing)


def check(url, model, workers):
    router = url.removeprefix("http://")
    with prometheus(router, workers) as address:
        database = Database(address)

        def not_ready():
            try:
                return "" if get(address + "/-/ready") else "an answer"
            except urllib.error.URLError as error:
                return str(error)

        until("Prometheus", not_ready)
        until("targets", lambda: 3 - len(database.ask("query", query="up == 1")["result"]))
        check_rules(database)
        queries = list(dashboard_queries())
        assert len(queries) > 50, queries
        until("the dashboard's data", lambda: [one for one in queries if not database.has_data(one[1])],
              between=lambda: ask(url, model))
        until("an exemplar", lambda: not database.ask(
            "query_exemplars", query="vllm:time_to_first_token_seconds_bucket", start=time.time() - 600, end=time.time() + 60))
    for page in (router, *workers):
        check_page(page)
    check_open_metrics(router)
    print(f"{len(queries)} queries of the dashboard: all held")


def main():
    first = first_of_two_free_ports()
    flags = ["--unified=0", "--policy=auto", "--ttft-slo-ms=2000", "--tpot-slo-ms=50", f"--worker-metrics-port={first}"]
    with served.served(os.environ["TANDEM"], os.environ["MODEL"], flags) as (url, model):
        check(url, model, [f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"])


if __name__ == "__main__":
    main()
