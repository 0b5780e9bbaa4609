"""What Open WebUI makes of our answers: its own HTTP API as its page calls it, and that page in Chromium where there is one."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import served

HERE = pathlib.Path(__file__).resolve().parent
MESSAGES = [{"role": "user", "content": "It was a fine morning, and"}]
START_SECONDS = 900

# No accounts, nothing fetched from a hub, no embedding model of its own: Tandem is all that it talks to. Its page offers tools
# with every chat unless it is told not to, and the sample model's template takes none. That model also never stops by itself.
SETTINGS = {"WEBUI_AUTH": "False", "OFFLINE_MODE": "True", "ENABLE_OLLAMA_API": "False", "RAG_EMBEDDING_ENGINE": "openai",
            "WEBUI_SECRET_KEY": "tandem", "OPENAI_API_KEY": "none", "ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "1",
            "DEFAULT_MODEL_METADATA": json.dumps({"capabilities": {"builtin_tools": False}}),
            "DEFAULT_MODEL_PARAMS": json.dumps({"max_tokens": 48})}


class OpenWebui:
    """One that runs, as somebody who has opened its page."""

    def __init__(self, url):
        self.url = url
        self._token = None
        self._token = self.json("/api/v1/auths/signin", {"email": "", "password": ""})["token"]

    def open(self, path, body=None):
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=120)

    def json(self, path, body=None):
        with self.open(path, body) as answer:
            return json.load(answer)

    def events(self, body):
        """The chunks of a streamed chat."""
        with self.open("/api/chat/completions", {**body, "stream": True}) as answer:
            for line in answer:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield json.loads(line[len(b"data: "):])


@contextlib.contextmanager
def running(tandem_url):
    """An Open WebUI in an empty folder that has this server for its only connection."""
    port = served.free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="tandem-open-webui-") as folder:
        log = open(pathlib.Path(folder) / "log", "w+")
        program = subprocess.Popen(
            [pathlib.Path(sys.executable).parent / "open-webui", "serve", "--host=127.0.0.1", f"--port={port}"],
            env={**os.environ, **SETTINGS, "DATA_DIR": folder, "OPENAI_API_BASE_URL": tandem_url + "/v1"},
            cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_ready(program, url, log)
            yield OpenWebui(url)
        finally:
            program.terminate()
            program.wait()


def wait_until_ready(program, url, log):
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url + "/health", timeout=10) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError):
            pass
        if program.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            sys.exit("".join(log.readlines()[-30:]) + "open-webui has ended, or is not ready in time")
        time.sleep(0.2)


def check_connection(webui, tandem_url, model):
    """The button "Verify connection" of its settings, and the list of models that its page shows."""
    seen = webui.json("/openai/verify", {"url": tandem_url + "/v1", "key": "none"})
    assert [one["id"] for one in seen["data"]] == [model], seen
    assert model in [one["id"] for one in webui.json("/api/models")["data"]]


def check_chats(webui, model):
    ask = dict(model=model, messages=MESSAGES, max_tokens=24, temperature=0.8, seed=7)
    whole = webui.json("/api/chat/completions", {**ask, "stream": False})
    text = whole["choices"][0]["message"]["content"]
    assert text and whole["usage"]["completion_tokens"] > 0, whole
    events = list(webui.events({**ask, "stream_options": {"include_usage": True}}))
    streamed = "".join(choice["delta"].get("content") or "" for event in events for choice in event.get("choices", []))
    assert streamed == text, (streamed, text)
    assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"], events[-1]


def check_errors(webui, model):
    try:
        webui.json("/api/chat/completions", dict(model=model, messages=MESSAGES, stream=False, temperature=-1))
    except urllib.error.HTTPError as error:
        said = error.read().decode()
        assert error.code == 400 and "temperature" in said, (error.code, said)
    else:
        raise AssertionError("temperature=-1 raised nothing")


def check_tasks(webui, model):
    """What its page asks for beside each chat, with prompts of its own and at most 1000 tokens."""
    messages = MESSAGES + [{"role": "assistant", "content": "the sun shone."}]
    for task in ("title", "tags", "follow_up", "queries"):
        answer = webui.json(f"/api/v1/tasks/{task}/completions",
                            {"model": model, "messages": messages, "prompt": MESSAGES[0]["content"], "type": "web_search"})
        assert answer["choices"][0]["finish_reason"] in ("stop", "length"), (task, answer)


def check_leaving(webui, tandem_url, model):
    """Whoever closes a stream takes the request off the server."""
    served.wait_for_load(tandem_url, 0)
    stream = webui.events(dict(model=model, messages=MESSAGES, max_tokens=1500))
    next(stream)
    stream.close()
    served.wait_for_load(tandem_url, 0)


def check_responses(webui, tandem_url, model):
    """The same chat where the connection is set to OpenAI's Responses API."""
    webui.json("/openai/config/update", {
        "ENABLE_OPENAI_API": True, "OPENAI_API_BASE_URLS": [tandem_url + "/v1"], "OPENAI_API_KEYS": ["none"],
        "OPENAI_API_CONFIGS": {"0": {"enable": True, "api_type": "responses"}}})
    assert model in [one["id"] for one in webui.json("/api/models")["data"]]
    whole = webui.json("/api/chat/completions", dict(model=model, messages=MESSAGES, max_tokens=24, stream=False))
    assert whole["choices"][0]["message"]["content"], whole
    *_, last = webui.events(dict(model=model, messages=MESSAGES, max_tokens=24))
    assert last["type"] in ("response.completed", "response.incomplete") and last["response"]["output"], last


def ask(page, question, turn):
    """Types a question and waits for its answer, which has a button to copy it once it is complete."""
    page.until("document.querySelector('#chat-input')", 120)
    page.js("document.querySelector('#chat-input').focus()")
    page.type(question)
    page.until("document.querySelector('#send-message-button') && !document.querySelector('#send-message-button').disabled", 120)
    page.click("#send-message-button")
    page.until(f"document.querySelectorAll('.copy-response-button').length === {turn}", 300)
    return page.js("[...document.querySelectorAll('#response-content-container')].at(-1).innerText")


def check_page(webui):
    """A chat as a person has it: what is shown is what was answered, and Open WebUI kept it without an error."""
    sys.path.insert(0, str(HERE.parent / "page"))
    import browser
    # Otherwise what is new in this version covers the page.
    webui.json("/api/v1/users/user/settings/update", {"ui": {"version": webui.json("/api/version")["version"]}})
    chromium = browser.Browser(os.environ.get("CHROMIUM", "chromium"))
    try:
        page = chromium.page()
        page.look(1280, "light")
        page.open(webui.url)
        shown = [ask(page, question, turn) for turn, question in enumerate(("It was a fine morning, and", "And then?"), 1)]
        page.screenshot(served.results_folder() / "open_webui.png")
        chat = webui.json("/api/v1/chats/" + page.js("location.pathname.split('/').pop()"))["chat"]
    finally:
        chromium.close()
    answers = [one for one in chat["history"]["messages"].values() if one["role"] == "assistant"]
    assert len(answers) == 2 and all(one["done"] and not one.get("error") for one in answers), answers
    for text, answer in zip(shown, answers):
        assert text.split()[:5] == answer["content"].split()[:5] != [], (text, answer)


def check(url, model):
    with running(url) as webui:
        check_connection(webui, url, model)
        check_chats(webui, model)
        check_errors(webui, model)
        check_tasks(webui, model)
        check_leaving(webui, url, model)
        if shutil.which("chromium"):
            check_page(webui)
        else:
            print("open_webui_client.py: no chromium here (tools/install_deps.sh page): its page was not opened")
        check_responses(webui, url, model)


if __name__ == "__main__":
    served.main(check)
