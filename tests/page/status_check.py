"""Uses the status page of a `tandem up` of this build as an engineer on call would, in Chromium (README.md)."""

import json
import os
import re
import subprocess
import tempfile
import urllib.request

from browser import Browser
from page_support import MODEL, TANDEM, check, check_quiet, free_port, in_all_looks, served
import scripted

TWO_WORKERS = ("--prefill=1", "--decode=1", "--unified=0")
HTML = scripted.HTML
HOSTILE_ID = "<img/src=x/onerror=document.title='broken'>"  # printable ASCII, as ids may be


def text(page, selector):
    return page.js(f"document.querySelector({json.dumps(selector)}).innerText")


def tile(page, part):
    return text(page, f".tiles [data-part={part}]")


def open_status(page, url):
    page.open(f"{url.rstrip('/')}/status")
    page.until("document.body.dataset.state === 'live'")


def complete(url, request_id, key=None):
    """One request of 24 tokens."""
    headers = {"content-type": "application/json", "x-request-id": request_id}
    if key:
        headers["authorization"] = f"Bearer {key}"
    body = json.dumps({"prompt": "It is a truth universally acknowledged", "max_tokens": 24}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body, headers)) as answer:
        return json.load(answer)


def status_of(url):
    with urllib.request.urlopen(f"{url}/status.json") as answer:
        return json.load(answer)


def the_workers_are_shown(page, url):
    open_status(page, url)
    page.until("[...document.querySelectorAll('#workers .state')].every((one) => one.textContent === 'ready')")
    check(text(page, "#verdict") == "Serving", text(page, "#verdict"))
    rows = page.js("[...document.querySelectorAll('#workers tr')].map((row) => row.innerText)")
    check(len(rows) == 2, f"{rows}")
    for row, role in zip(sorted(rows), ("decode", "prefill")):
        check(role in row and "cpu" in row, row)
    check(tile(page, "workers") == "2 of 2", tile(page, "workers"))
    check("Policy auto" in text(page, "#facts") and "disaggregated" in text(page, "#facts"), text(page, "#facts"))
    page.until("document.querySelectorAll('#links tr').length > 0")
    check(text(page, "#links [data-part=from]").startswith("prefill"), text(page, "#links"))
    check(re.search(r"HTTP, open\s+[1-9]", text(page, "#connections")), text(page, "#connections"))
    check(page.js("document.querySelector('#problems').hidden"), text(page, "#problems"))


def what_happens_is_seen(page, url):
    taken = "[...document.querySelectorAll('#admission div')].find((one) => one.innerText.startsWith('Taken')).lastElementChild.innerText"
    before = int(page.js(taken))
    complete(url, HOSTILE_ID)
    page.until(f"{taken} === '{before + 1}'")
    page.until("document.querySelector('#requests-table tbody [data-part=outcome]')?.textContent === 'OK'")
    row = "#requests-table tbody "
    check(text(page, f"{row}[data-part=id]") == HOSTILE_ID, text(page, f"{row}[data-part=id]"))
    check("\u2192" in text(page, f"{row}[data-part=placement]"), "the two workers are not named")
    check(text(page, f"{row}[data-part=tokens]").endswith("24 out"), text(page, f"{row}[data-part=tokens]"))
    for part in ("ttft", "e2e"):
        check(re.fullmatch(r"[\d.]+ m?s", text(page, f"{row}[data-part={part}]")), text(page, f"{row}[data-part={part}]"))
    bar = page.js(f"document.querySelector('{row}[data-part=bar]').ariaLabel")
    check("Prefill" in bar and page.js(f"document.querySelectorAll('{row}[data-part=bar] i').length") >= 2, bar)
    check(page.js("document.querySelectorAll('main img').length") == 0, "an id became markup")
    page.until("document.querySelector('#tokens-chart [data-part=line1]').getAttribute('d').includes('L')")
    label = page.js("document.querySelector('#tokens-chart svg').getAttribute('aria-label')")
    check(re.search(r"Tokens per second.*generated now", label), label)
    moved = page.js("[...document.querySelectorAll('#links [data-part=bytes]')].map((one) => one.innerText)")
    page.until("[...document.querySelectorAll('#links [data-part=used]')].some((one) => one.innerText === 'yes')")
    check(moved, "no bytes")


def what_was_predicted_is_shown(page, url):
    """Policy auto predicts once workers have measured some of their steps."""
    for _ in range(100):
        complete(url, "predicted")
        decision = status_of(url)["requests"][0]["decisions"][-1]
        if decision["candidates"][decision["chosen"]]["predicted"]:
            break
    else:
        check(False, "the router has predicted nothing")
    page.until("document.querySelector('#requests-table tbody [data-part=id]').textContent === 'predicted' && "
               "/^[\\d.]+ m?s$/.test(document.querySelector('#requests-table tbody [data-part=ttftGuess]').textContent)")
    page.until("/^\\d+%$/.test(document.querySelector('.tiles [data-part=error]').textContent)")


def why_it_went_there_is_told(page, url):
    page.click("#requests-table tbody [data-part=more]")
    check(page.js("document.activeElement.ariaExpanded") == "true", "the details are not open")
    words = text(page, "#requests-table tbody [data-part=why]")
    check("On arrival" in words and "(taken)" in words and "To the first token:" in words, words)
    complete(url, "second")
    page.until("document.querySelector('#requests-table tbody [data-part=id]').textContent === 'second'")
    check(page.js("document.activeElement.ariaExpanded") == "true", "the focus is lost when a request comes")
    in_all_looks(page, "status", whole=True)
    complete(url, HOSTILE_ID)
    page.until(f"document.querySelector('#requests-table tbody [data-part=id]').textContent === {json.dumps(HOSTILE_ID)}")
    page.js("document.querySelector('#requests-table tbody [data-part=id]').focus()")
    page.press("Enter")
    page.until("document.querySelector('#explanation').open")
    page.until("document.querySelector('#explanation-text').textContent.includes('prompt tokens')")
    check(HOSTILE_ID in text(page, "#explanation-text"), "another request is explained")
    check(text(page, "#explanation-title") == f"Request {HOSTILE_ID}", text(page, "#explanation-title"))
    in_all_looks(page, "status-explain")
    page.press("Escape")
    page.until("!document.querySelector('#explanation').open")
    check(page.js("document.activeElement.dataset.part") == "id", "the focus is lost")


def the_pages_lead_to_each_other(page, url):
    page.click("header nav a")
    page.arrive("/")
    page.until("document.querySelector('#model').textContent")
    page.click("header nav a")
    page.arrive("/status")
    page.until("document.body.dataset.state === 'live'")


def everything_is_reached_by_keyboard(page):
    page.js("document.querySelector('.skip').focus()")
    reached = []
    for _ in range(80):
        page.press("Tab")
        found = page.js("""(() => { const it = document.activeElement; return [it.id || it.dataset.part || it.textContent,
            getComputedStyle(it).outlineStyle !== 'none', it === document.body]; })()""")
        if found[2]:
            break
        check(found[1], f"the focus on {found[0]} is not seen")
        reached.append(found[0])
    for wanted in ("pause", "Chat", "id", "more", "status.json", "metrics"):
        check(wanted in reached, f"{wanted} is not reached by Tab: {reached}")


def a_pause_holds_what_is_shown(page, url):
    page.click("#pause")
    check(text(page, "#updated").startswith("Paused"), text(page, "#updated"))
    shown = text(page, "#requests-table tbody [data-part=id]")
    complete(url, "while-paused")
    check(any(r["request_id"] == "while-paused" for r in status_of(url)["requests"]), "the router does not know it")
    check(text(page, "#requests-table tbody [data-part=id]") == shown, "a pause does not hold")
    page.click("#pause")
    page.until("document.querySelector('#requests-table tbody [data-part=id]').textContent === 'while-paused'")


def stale_data_is_called_so(page):
    port = free_port()
    with served(f"--model={MODEL}", port=port, workers=TWO_WORKERS) as url:
        open_status(page, url)
    page.until("document.body.dataset.state === 'stale'")
    check("cannot be reached" in text(page, "#failure"), text(page, "#failure"))
    check(text(page, "#updated").startswith("Stale, as of"), text(page, "#updated"))
    page.until("document.querySelector('#failure-since').textContent")
    check(re.search(r"stale: it is as of .*, \d+ m?s ago", text(page, "#failure-since")), text(page, "#failure-since"))
    check(page.js("document.querySelectorAll('#workers tr').length") == 2, "what was known is gone")
    page.js("setTimeout = ((real) => (task, ms) => { if (task.name === 'ask') (window.rests ??= []).push(ms); "
            "return real(task, Math.min(ms, 200)); })(setTimeout)")
    page.until("window.rests?.length >= 4")
    rests = page.js("window.rests")
    check(rests == sorted(rests) and rests[-1] > rests[0] and rests[-1] <= 10000, f"it does not back off: {rests}")
    in_all_looks(page, "status-stale")
    with served(f"--model={MODEL}", port=port, workers=TWO_WORKERS):
        page.until("document.body.dataset.state === 'live'")
        check(page.js("document.querySelector('#failure').hidden"), "it is still called stale")
    check_quiet(page, "ERR_|status of 503")


def a_hidden_page_asks_seldom(page, url):
    open_status(page, url)
    page.js("setTimeout = ((real) => (task, ms) => { if (task.name === 'ask') (window.rests ??= []).push(ms); "
            "return real(task, ms); })(setTimeout)")
    page.until("window.rests?.length >= 1")
    check(page.js("window.rests[0]") < 15000, "a visible page asks seldom")
    page.js("Object.defineProperty(document, 'hidden', {value: true, configurable: true}); window.rests = []")
    page.until("window.rests.length >= 1")
    check(page.js("window.rests[0]") >= 15000, f"hidden, it waits {page.js('window.rests[0]')} ms")
    page.js("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.until("window.rests.length >= 2")
    check(page.js("window.rests.at(-1)") < 15000, "it does not wake up")


def hostile(status):
    """The same status with markup wherever a worker, a client or an error could put it."""
    status["model"] = status["workers"][0]["name"] = status["workers"][0]["device"] = HTML
    status["workers"][0]["not_ready"] = HTML
    status["routing"]["policy"] = status["routing"]["missing"] = HTML
    status["version"] = HTML
    for worker in status["workers"]:
        for link in worker["links"]:
            link["peer"] = link["transport"] = link["failure"] = HTML
            link["unreachable"] = ""
            link["fallbacks"], link["fallback_reason"] = 1, HTML
    for request in status["requests"]:
        request["request_id"] = HTML
        request["outcome"].update(status=HTML, not_compared=HTML)
        for decision in request["decisions"]:
            decision["reason"] = decision["cause"] = HTML
            for candidate in decision["candidates"]:
                candidate["prefill_worker"] = candidate["decode_worker"] = HTML
        request["outcome"]["finish"].update(prefill_worker=HTML, decode_worker=HTML)
    status["tls_refusals"] = [{"port": HTML, "reason": HTML, "refused": 1}]
    return status


def markup_is_shown_as_text(page, upstream):
    server, url = scripted.serve(upstream, hostile(status_of(upstream)))
    open_status(page, url)
    page.click("#requests-table tbody [data-part=more]")
    for selector in ("#model", "#workers [data-part=name]", "#links [data-part=errors]", "#problems", "#routing",
                     "#requests-table [data-part=id]", "#requests-table [data-part=placement]",
                     "#requests-table [data-part=why]", "#connections", "#facts"):
        check(HTML in page.js(f"document.querySelector({json.dumps(selector)}).textContent"), f"{selector} does not show it")
    check(page.js("document.querySelectorAll('main :is(img, script), main b b').length") == 0, "text became markup")
    check(page.js("document.title").endswith("Tandem status"), "text of a worker ran")
    href = page.js("document.querySelector('#requests-table [data-part=id]').href")
    check(href.startswith(f"{url}explain/%3Cimg"), href)
    in_all_looks(page, "status-hostile", whole=True)
    check_quiet(page)
    server.shutdown()


def news_is_told_once(page, upstream):
    status = status_of(upstream)
    server, url = scripted.serve(upstream, status)
    open_status(page, url)
    page.js("""window.told = []; new MutationObserver(() => window.told.push(document.querySelector('#news').textContent))
        .observe(document.querySelector('#news'), {childList: true, characterData: true, subtree: true})""")

    def after_two_polls():
        polls = server.polls
        page.until("true")
        while server.polls < polls + 3:
            page.until("true")

    status["requests_in_flight"] += 1
    after_two_polls()
    check(page.js("window.told") == [], "figures are read out")
    status["workers"][0].update(alive=False, heartbeat_age_ms=5000.0)
    page.until("document.querySelector('#workers .state').textContent === 'lost'")
    status["workers"][0]["heartbeat_age_ms"] = 9000.0
    after_two_polls()
    told = page.js("window.told")
    check(len(told) == 1 and "is lost" in told[0], f"readers hear {told}")
    check("is lost" in text(page, "#problems"), text(page, "#problems"))
    status["ready"] = False
    page.until("document.querySelector('#verdict').textContent === 'Not serving'")
    in_all_looks(page, "status-problems", whole=True)
    server.shutdown()


def keys_are_asked_for(page):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/access.json"
        keys = {scopes: subprocess.run(
            [TANDEM, "keys", "add", file, f"--id={name}", "--tenant=page", f"--scope={scopes}"], check=True,
            stdout=subprocess.PIPE, text=True).stdout.strip()
            for name, scopes in (("user", "generate"), ("admin", "generate,admin"))}
        with served(f"--model={MODEL}", f"--access-file={file}", workers=TWO_WORKERS) as url:
            page.open(f"{url}/status")
            page.until("document.activeElement.id === 'api_key'")
            check("asks for an API key" in text(page, "#failure"), text(page, "#failure"))
            in_all_looks(page, "status-key")
            page.type("another")
            page.press("Enter")
            page.until("document.activeElement.value === ''")
            page.type(keys["generate"])
            page.press("Enter")
            page.until("document.querySelector('#failure-what').textContent.includes('may not see')")
            check("--scope generate,admin" in text(page, "#failure"), text(page, "#failure"))
            check(page.js("document.querySelector('#all').hidden"), "the status is shown without the scope")
            page.type(keys["generate,admin"])
            page.press("Enter")
            page.until("document.body.dataset.state === 'live'")
            complete(url, "mine", keys["generate,admin"])
            page.until("document.querySelector('#requests-table tbody [data-part=id]')?.textContent === 'mine'")
            page.click("#requests-table [data-part=id]")
            page.until("document.querySelector('#explanation-text').textContent.includes('prompt tokens')")
            # The page before this one had asked for a router that had ended.
            check_quiet(page, "status of (401|403)|ERR_CONNECTION_REFUSED")


def main():
    browser = Browser(os.environ.get("CHROMIUM", "chromium"))
    try:
        page = browser.page()
        page.look(1280, "light")
        with served(f"--model={MODEL}", "--policy=auto", workers=TWO_WORKERS) as url:
            for step in (lambda: the_workers_are_shown(page, url),
                         lambda: what_happens_is_seen(page, url),
                         lambda: what_was_predicted_is_shown(page, url),
                         lambda: why_it_went_there_is_told(page, url),
                         lambda: the_pages_lead_to_each_other(page, url),
                         lambda: everything_is_reached_by_keyboard(page),
                         lambda: a_pause_holds_what_is_shown(page, url),
                         lambda: a_hidden_page_asks_seldom(page, url)):
                step()
                check_quiet(page)
            markup_is_shown_as_text(page, url)
            news_is_told_once(page, url)
        stale_data_is_called_so(page)
        keys_are_asked_for(page)
    finally:
        browser.close()
    print("status_check.py: all held")


main()
