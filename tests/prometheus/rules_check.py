"""Whether the alerts are valid, are explained, and fire when they should: promtool reads deploy/prometheus."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "deploy" / "prometheus" / "tandem.rules.yml"
TESTS = ROOT / "deploy" / "prometheus" / "tandem.rules.test.yml"
PARTS = ("expr", "severity", "summary", "description", "runbook_url")


def promtool(*arguments):
    done = subprocess.run([os.environ["PROMTOOL"], *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def anchors(page):
    """The sections of a page, as links name them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def alerts():
    """Name and text of each alert."""
    parts = re.split(r"^ +- alert: (\w+)$", RULES.read_text(), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2]))


def check_alerts():
    tested = set(re.findall(r"alertname: (\w+)", TESTS.read_text()))
    for name, text in alerts():
        for part in PARTS:
            assert re.search(rf"^ +{part}:", text, re.MULTILINE), f"{name} has no {part}"
        page, anchor = re.search(r"runbook_url: (\S+)#(\S+)", text).groups()
        assert anchor == name.lower() and anchor in anchors(ROOT / page), f"{page} has no section {name}"
        assert name in tested, f"{name} has no test in {TESTS.name}"


def main():
    assert len(alerts()) > 15, "the alerts were not found"
    check_alerts()
    promtool("check", "config", str(RULES.with_name("prometheus.yml")))
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(TESTS))
    print(f"{len(alerts())} alerts: all held")


if __name__ == "__main__":
    main()
