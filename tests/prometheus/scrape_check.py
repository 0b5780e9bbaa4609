"""A real Prometheus that scrapes a running `tandem up`: the pages are well-formed, every alert can be evaluated, and every
query of the dashboard has data."""

import json
import os
import re
import socket
import subprocess
import time
import urllib.request

from monitoring import ROOT, RULES, get, prometheus, served, until

DASHBOARD = ROOT / "deploy" / "grafana" / "tandem.json"
PROMPT = "It was a fine morning, and"
# Dashboards for servers of language models read these names, although Prometheus keeps colons for recorded rules.
KNOWN_LINT = re.compile(r"^vllm:\w+ metric names should not contain ':'$")


def first_of_two_free_ports():
    while True:
        first = served.free_port()
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", first + 1))
                return first
            except (OSError, OverflowError):
                continue


def ask(url, model, **fields):
    body = json.dumps({"model": model, "prompt": PROMPT, "max_tokens": 12, **fields}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


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
    assert len(database.rules()) == wanted, database.rules()
    until("rules", database.not_evaluated)


def check(url, model, workers):
    router = url.removeprefix("http://")
    with prometheus(router, workers) as database:
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
