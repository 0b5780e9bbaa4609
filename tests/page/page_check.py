"""Uses the page of a `tandem up` of this build as a person would, in Chromium (README.md)."""

import json
import os
import pathlib
import re
import subprocess
import tempfile

from browser import Browser
from page_support import MODEL, SHOTS, TANDEM, check, check_quiet, choose, free_port, in_all_looks, served
import scripted


def last(page, part):
    return page.js(f"document.querySelector('.turn:last-child [data-part={part}]').innerText")


def state(page):
    return page.js("document.querySelector('.turn:last-child')?.dataset.state ?? ''")


def ask(page, text, until="done"):
    before = page.js("document.querySelectorAll('.turn').length")
    page.js("document.querySelector('#prompt').focus(); document.querySelector('#prompt').select()")
    page.type(text)
    page.press("Enter", modifiers=2)
    page.until(f"document.querySelectorAll('.turn').length > {before} && "
               f"document.querySelector('.turn:last-child').dataset.state === '{until}'")


def a_chat_has_an_answer_and_a_receipt(page, url):
    page.open(url)
    page.until("!document.querySelector('#empty').hidden && document.querySelector('#model').textContent")
    in_all_looks(page, "empty")
    choose(page, "#max_tokens", 48)
    ask(page, "It was a fine morning, and the sisters")
    check(last(page, "text"), "no answer")
    check(re.search(r"to the first token", last(page, "ttft")), last(page, "ttft"))
    check(re.search(r"tokens/s", last(page, "rate")), "no rate")
    check(re.search(r"\d+ tokens in.*, \d+ out", last(page, "tokens")), last(page, "tokens"))
    check(page.js("document.querySelectorAll('.turn:last-child .bar i').length") >= 2, "the bar has no stages")
    name = page.js("document.querySelector('.turn:last-child .bar').ariaLabel")
    check("Prefill" in name and "ms" in name, f"the bar is called {name}")
    said = page.js("document.querySelector('#status').textContent")
    check(re.match(r"Answer complete, \d+ tokens\.\s+\S+", said), f"readers hear {said}")
    command = page.js("document.querySelector('[data-part=command]').textContent")
    check(re.fullmatch(r"tandem explain \S+", command), command)
    ask(page, "And then she said")
    page.js("document.querySelectorAll('.stages').forEach((one) => { one.open = true; })")
    in_all_looks(page, "chat")


def every_route_gives_the_same_answer(page):
    choose(page, "#seed", 7)
    answers = {}
    for route, workers in (("unified", 1), ("disaggregated", 2)):
        page.click("#clear")
        choose(page, "#route", route)
        ask(page, "The carriage stopped")
        answers[route] = last(page, "text")
        check(page.js("document.querySelectorAll('.turn:last-child .worker').length") == workers, f"workers of {route}")
        check(last(page, "route").startswith(f"{route}:"), last(page, "route"))
    check(answers["unified"] == answers["disaggregated"], f"{answers}")
    choose(page, "#route", "auto")


def an_answer_is_stopped_by_button_and_by_key(page, url):
    choose(page, "#max_tokens", 1800)
    for stop in (lambda: page.click("#send"), lambda: page.press("Escape")):
        page.click("#clear")
        ask(page, "A very long story", until="streaming")
        check(page.js("document.querySelector('#send').textContent") == "Stop", "no stop button")
        page.screenshot(SHOTS / "streaming.png")
        stop()
        page.until("document.querySelector('.turn:last-child').dataset.state === 'stopped'")
        check("stopped" in last(page, "ending"), "not said to be stopped")
        check(page.js("document.querySelector('#send').textContent") == "Send", "still a stop button")
        page.until("document.body.dataset.busy === 'false'")
        page.js("(async () => { while ((await (await fetch('load')).json()).server_load > 0) {} })()")
    choose(page, "#max_tokens", 32)


def the_last_prompt_is_asked_again_or_edited(page):
    page.click("#clear")
    ask(page, "Once more")
    page.click(".turn:last-child [data-part=again]")
    page.until("document.querySelector('.turn:last-child').dataset.state === 'done'")
    check(page.js("document.querySelectorAll('.turn').length") == 1, "asking again adds a turn")
    page.click(".turn:last-child [data-part=edit]")
    check(page.js("document.querySelector('#prompt').value") == "Once more", "the prompt is not back")
    check(page.js("document.activeElement.id") == "prompt", "the prompt has no focus")
    check(page.js("document.querySelectorAll('.turn').length") == 0, "the turn is still there")


def a_completion_goes_on(page):
    page.click("[name=mode][value=completion]")
    ask(page, "It is a truth universally acknowledged, that")
    page.click(".turn:last-child [data-part=continue]")
    check(page.js("document.querySelector('#prompt').value.length") > 60, "nothing to go on with")
    in_all_looks(page, "completion")


def settings_last_and_go_with_the_request(page, url):
    page.look(390, "light")
    page.until("document.querySelector('#settings').hidden")
    page.click("#settings-button")
    check(not page.js("document.querySelector('#settings').hidden"), "no settings")
    in_all_looks(page, "settings")
    page.look(390, "light")
    page.until("document.querySelector('#settings').hidden")
    page.click("#settings-button")
    page.press("Escape")
    check(page.js("document.querySelector('#settings').hidden"), "Escape leaves the settings open")
    check(page.js("document.activeElement.id") == "settings-button", "the focus is lost")
    page.look(1280, "light")
    choose(page, "#temperature", 0)
    page.open(url)
    page.until("document.querySelector('#model').textContent")
    check(page.js("document.querySelector('#temperature').value") == "0", "settings are forgotten")
    check(page.js("document.querySelector('[name=mode]:checked').value") == "completion", "the mode is forgotten")


def everything_is_reached_by_keyboard(page, url):
    page.open(url)
    page.until("document.querySelector('#model').textContent")
    page.click("[name=mode][value=chat]")
    page.js("document.querySelector('.skip').focus()")
    reached = []
    for _ in range(40):
        page.press("Tab")
        found = page.js("""(() => { const it = document.activeElement; const style = getComputedStyle(
            it.closest('.modes') ? it.nextElementSibling : it);
            return [it.id || it.name || it.textContent, style.outlineStyle !== 'none', it === document.body]; })()""")
        if found[2]:
            break
        check(found[1], f"the focus on {found[0]} is not seen")
        reached.append(found[0])
    for wanted in ("mode", "settings-button", "prompt", "route", "send", "system", "temperature", "seed", "defaults"):
        check(wanted in reached, f"{wanted} is not reached by Tab: {reached}")
    page.js("document.querySelector('[name=mode]:checked').focus()")
    before = page.js("document.body.dataset.mode")
    page.press("ArrowRight")
    check(page.js("document.body.dataset.mode") != before, "arrows do not change the mode")


def motion_is_left_out_where_it_is_not_wanted(page):
    page.look(1280, "light", motion="reduce")
    moving = page.js("getComputedStyle(document.querySelector('.text') ?? document.body, '::after').animationName")
    check(moving == "none", f"{moving} still moves")
    page.look(1280, "light")


def what_servers_rarely_say_is_shown(page, upstream):
    server, url = scripted.serve(upstream)
    page.open(url)
    page.until("document.querySelector('#model').textContent && !document.querySelector('#modes').hidden")
    page.click("[name=mode][value=chat]")
    ask(page, "html")
    check(last(page, "text") == scripted.HTML, f"markup is not text: {last(page, 'text')}")
    check(page.js("document.querySelectorAll('.turn img, .turn b, .turn script').length") == 0, "text became markup")
    ask(page, "reasoning")
    check(page.js("document.querySelector('.turn:last-child .reasoning').open") is False, "reasoning is in the way")
    page.click(".turn:last-child .reasoning summary")
    check(last(page, "thought") == "First I think. Then I know.", last(page, "thought"))
    check(last(page, "text") == "The answer is 4.", last(page, "text"))
    ask(page, "tool")
    check(last(page, "tools") == 'weather({"city": "Bonn"})', last(page, "tools"))
    for prompt, words in (("busy", "busy.*Wait 2 s"), ("no worker", "No worker"), ("wrong", "refused.*must be from 0 to 2"),
                          ("proxy", "server failed"), ("cut", "broke off"), ("error", "broke off.*worker was lost")):
        ask(page, prompt, until="failed")
        check(re.search(words, last(page, "failure"), re.S), f"{prompt}: {last(page, 'failure')}")
    check(last(page, "text") == "Half of an ans", "what had come is lost")
    history = server.bodies[-1]["messages"]
    check([m["content"] for m in history[:4]] == ["html", scripted.HTML, "reasoning", "The answer is 4."], f"{history}")
    check(not any(m["content"] in ("busy", "wrong") for m in history), "what failed is told to the model")
    in_all_looks(page, "errors")
    ask(page, "wrong", until="failed")
    page.click(".turn:last-child [data-part=mend]")
    check(page.js("document.activeElement.id") == "temperature", "the wrong field has no focus")
    check_quiet(page, "status of (429|400|502|503)|ERR_INCOMPLETE_CHUNKED")
    server.shutdown()


def a_server_that_comes_back_is_noticed(page):
    port = free_port()
    with served(f"--model={MODEL}", "--drain-seconds=0", port=port) as url:
        page.open(url)
        page.until("document.querySelector('#model').textContent")
        choose(page, "#max_tokens", 1800)
        ask(page, "A story that never ends", until="streaming")
    page.until("document.querySelector('.turn:last-child').dataset.state === 'failed'")
    ask(page, "Is anybody there?", until="failed")
    check("cannot be reached" in last(page, "failure"), last(page, "failure"))
    page.until("!document.querySelector('#notice').hidden")
    page.js("document.querySelector('.turn:last-child [data-part=again]').focus()")
    with served(f"--model={MODEL}", port=port):
        page.until("document.querySelector('#notice').hidden")
        check(page.js("document.activeElement.dataset.part") == "again", "the focus is lost")
        choose(page, "#max_tokens", 16)
        page.click(".turn:last-child [data-part=again]")
        page.until("document.querySelector('.turn:last-child').dataset.state === 'done'")
    check_quiet(page, "ERR_|status of 503")


def models_without_a_template_complete_text(browser):
    with tempfile.TemporaryDirectory() as folder:
        for path in pathlib.Path(MODEL).iterdir():
            (pathlib.Path(folder) / path.name).symlink_to(path.resolve())
        config = pathlib.Path(folder) / "tokenizer_config.json"
        fields = json.loads(config.read_text())
        fields.pop("chat_template")
        config.unlink()
        config.write_text(json.dumps(fields))
        with served(f"--model={folder}") as url:
            page = browser.page()
            page.look(1280, "light")
            page.open(url)
            page.until("document.querySelector('#model').textContent")
            check(page.js("document.querySelector('#modes').hidden"), "chats are offered")
            check(page.js("document.body.dataset.mode") == "completion", "no completion")
            check("no chat template" in page.js("document.querySelector('#empty').innerText"), "it is not said why")
            ask(page, "It is a truth")
            check_quiet(page)
    with served("--device=simulated:models/simulated/qwen3-8b-h200.json") as url:
        page.open(url)
        page.until("document.querySelector('#model').textContent")
        check("no tokenizer" in page.js("document.querySelector('#empty').innerText"), "it is not said why")
        choose(page, "#max_tokens", 8)
        ask(page, "1 2 3 4")
        check(re.fullmatch(r"[\d\s]+", last(page, "text")), last(page, "text"))
        check_quiet(page)


def a_key_is_asked_for_where_the_server_wants_one(browser):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/access.json"
        key = subprocess.run([TANDEM, "keys", "add", file, "--id=page", "--tenant=page"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout.strip()
        with served(f"--model={MODEL}", f"--access-file={file}") as url:
            page = browser.page()
            page.look(1280, "light")
            page.open(url)
            page.until("document.activeElement.id === 'api_key'")
            check("API key" in page.js("document.querySelector('#notice').textContent"), "it is not said what is missing")
            page.type("another")
            page.press("Tab")
            page.until("document.activeElement.id === 'api_key'")
            page.js("document.activeElement.select()")
            page.type(key)
            page.press("Tab")
            page.until("document.querySelector('#model').textContent && document.querySelector('#notice').hidden")
            ask(page, "It is a truth")


def main():
    browser = Browser(os.environ.get("CHROMIUM", "chromium"))
    try:
        page = browser.page()
        page.look(1280, "light")
        with served(f"--model={MODEL}") as url:
            for step in (lambda: a_chat_has_an_answer_and_a_receipt(page, url),
                         lambda: every_route_gives_the_same_answer(page),
                         lambda: an_answer_is_stopped_by_button_and_by_key(page, url),
                         lambda: the_last_prompt_is_asked_again_or_edited(page),
                         lambda: a_completion_goes_on(page),
                         lambda: settings_last_and_go_with_the_request(page, url),
                         lambda: everything_is_reached_by_keyboard(page, url),
                         lambda: motion_is_left_out_where_it_is_not_wanted(page)):
                step()
                check_quiet(page)
            what_servers_rarely_say_is_shown(page, url)
        a_server_that_comes_back_is_noticed(page)
        models_without_a_template_complete_text(browser)
        a_key_is_asked_for_where_the_server_wants_one(browser)
    finally:
        browser.close()
    print(f"page_check.py: all held; pictures in {SHOTS}")


main()
