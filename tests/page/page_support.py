"""What the checks of both pages need: a `tandem up` of this build, and what must hold of every page."""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

TANDEM = os.environ["TANDEM"]
MODEL = os.environ["MODEL"]
AXE = pathlib.Path(os.environ["AXE"]).read_text()
SHOTS = pathlib.Path(os.environ["SHOTS"])
LOOKS = [(width, scheme) for width in (390, 1280) for scheme in ("light", "dark")]
BOTH_ROUTES = ("--prefill=1", "--decode=1", "--unified=1")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def served(*arguments, port=None, workers=BOTH_ROUTES):
    """Yields the address of HTTP of a `tandem up` with these workers."""
    port = port or free_port()
    up = subprocess.Popen(
        [TANDEM, "up", "--port=0", f"--http-port={port}", *workers, *arguments],
        stdout=subprocess.PIPE, text=True)
    try:
        for line in up.stdout:
            if line.startswith("ready:"):
                break
        else:
            sys.exit("tandem up has ended before it was ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        up.terminate()
        up.wait()


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def choose(page, selector, value):
    page.js(f"""(() => {{ const field = document.querySelector('{selector}'); field.value = '{value}';
        field.dispatchEvent(new Event('input', {{bubbles: true}}));
        field.dispatchEvent(new Event('change', {{bubbles: true}})); }})()""")


def check_quiet(page, expected=""):
    """No error in the console, but for what the browser itself says of `expected` statuses, and no other host."""
    entries = page.take_events("Log.entryAdded")
    bad = [e["entry"]["text"] for e in entries if e["entry"]["level"] in ("error", "warning")
           and not (expected and re.search(expected, e["entry"]["text"]))]
    bad += [json.dumps(e["args"]) for e in page.take_events("Runtime.consoleAPICalled")]
    bad += [e["exceptionDetails"]["text"] for e in page.take_events("Runtime.exceptionThrown")]
    check(not bad, f"the console says {bad}")
    urls = [e["request"]["url"] for e in page.take_events("Network.requestWillBeSent")]
    foreign = [url for url in urls if not url.startswith(("http://127.0.0.1:", "about:", "data:"))]
    check(not foreign, f"asks {foreign}")


def check_accessible(page, what):
    """axe finds nothing against WCAG 2.2 AA, and nothing has to be scrolled sideways."""
    page.js(AXE + "; 0")
    found = page.js("""axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa',
        'best-practice'], resultTypes: ['violations']}).then((result) => result.violations.map((one) =>
        one.id + ': ' + one.nodes.map((node) => node.target.join(' ') + ' ' + (node.any[0]?.message ?? '')).join('; ')))""")
    check(not found, f"{what}: {found}")
    check(page.js("document.documentElement.scrollWidth <= innerWidth"), f"{what}: is wider than the window")


def in_all_looks(page, name, whole=False):
    """whole: pictures of the page from its top to its end."""
    for width, scheme in LOOKS:
        page.look(width, scheme)
        # Whoever reads a chat is at the end, where nothing is under the composer. At the top, nothing is under the header.
        page.js(f"scrollTo(0, {0 if whole else 1e6})")
        page.until("true")
        check_accessible(page, f"{name} at {width} pixels, {scheme}")
        page.screenshot(SHOTS / f"{name}-{width}-{scheme}.png", whole)
    page.look(320, "light")
    check(page.js("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than 320 pixels")
    page.look(1280, "light")
