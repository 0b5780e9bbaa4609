"""What clients of the HTTP API that need no package make of it: curl, with the commands of docs/clients/curl.md, and Python's
standard library. `make test` runs it; tests/clients/run.sh runs the others."""

import concurrent.futures
import http.client
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse

import served

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "clients" / "curl.md"
PROMPT = "It was a fine morning, and"
CHAT = [{"role": "user", "content": PROMPT}]
STREAMS = 24
# The sample model's template takes none.
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


class Api:
    """One connection, which is kept for all that is asked through it."""

    def __init__(self, url, model):
        self.model = model
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)

    def send(self, path, fields):
        body = fields if isinstance(fields, bytes) else json.dumps({"model": self.model, **fields}).encode()
        self.connection.request("POST", path, body, {"content-type": "application/json"})
        return self.connection.getresponse()

    def ask(self, path, **fields):
        answer = self.send(path, fields)
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)

    def stream(self, path, **fields):
        """The JSON of each event; the stream must end as OpenAI's do."""
        answer = self.send(path, {"stream": True, **fields})
        assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream")
        data = [line[6:] for line in answer.read().decode().split("\n") if line.startswith("data: ")]
        assert data.pop() == "[DONE]"
        return [json.loads(one) for one in data]


def completions(api):
    ask = dict(prompt=PROMPT, max_tokens=24, temperature=0.8, seed=7, n=2)
    whole = api.ask("/v1/completions", **ask, logprobs=2)
    first = whole["choices"][0]["logprobs"]
    assert len(first["tokens"]) == len(first["token_logprobs"]) == len(first["top_logprobs"]) > 0
    usage = whole["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    events = api.stream("/v1/completions", **ask, stream_options={"include_usage": True})
    texts = ["", ""]
    for event in events:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in whole["choices"]], (texts, whole)
    streamed = events[-1]["usage"]
    assert all(streamed[name] == usage[name] for name in ("prompt_tokens", "completion_tokens")), (streamed, usage)
    assert len({event["id"] for event in events}) == 1


def chats(api):
    ask = dict(messages=CHAT, max_completion_tokens=24, temperature=0.8, seed=7)
    message = api.ask("/v1/chat/completions", **ask)["choices"][0]["message"]
    assert message["role"] == "assistant" and message["content"]
    deltas = [event["choices"][0]["delta"] for event in api.stream("/v1/chat/completions", **ask)]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content") or "" for delta in deltas) == message["content"]


def responses(api):
    whole = api.ask("/v1/responses", input=PROMPT, max_output_tokens=16, temperature=0)
    assert whole["object"] == "response" and whole["output"][0]["content"][0]["text"]


def errors(api):
    for path, status, fields in [
            ("/v1/completions", 404, dict(model="gpt-7", prompt=PROMPT)),
            ("/v1/completions", 400, dict(prompt=PROMPT, temperature=-1)),
            ("/v1/chat/completions", 400, dict(messages=CHAT, n=0)),
            ("/v1/chat/completions", 400, dict(messages=CHAT, tools=[TOOL])),
            ("/v1/completions", 400, b'{"prompt": '),
            ("/v1/nothing", 404, {})]:
        answer = api.send(path, fields)
        text = answer.read()
        assert answer.status == status, (path, fields, answer.status, text)
        assert json.loads(text)["error"]["message"], text


def giving_up(api, url):
    """A client that closes its connection takes its request off the server."""
    answer = api.send("/v1/completions", dict(prompt=PROMPT, max_tokens=400, n=32, ignore_eos=True, stream=True))
    assert answer.readline().startswith(b"data: ") and served.load(url) > 0
    answer.close()
    api.connection.close()
    served.wait_for_load(url, 0)


def many(url, model):
    def text(seed):
        events = Api(url, model).stream("/v1/completions", prompt=PROMPT, max_tokens=16, seed=seed)
        return "".join(event["choices"][0]["text"] for event in events)

    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        texts = list(pool.map(text, [i % 4 for i in range(STREAMS)]))
    assert texts == texts[:4] * (STREAMS // 4)


def curl(url):
    """The commands of the page, with the address of this server."""
    block = re.search(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1)
    commands = block.replace("\\\n", " ").strip().splitlines()
    assert len(commands) == 4, commands
    for command in commands:
        done = subprocess.run(command.replace("http://127.0.0.1:8000", url).replace("curl ", "curl -sS --fail ", 1), shell=True,
                              stdout=subprocess.PIPE, timeout=60)
        if done.returncode == 127:
            sys.exit("curl is missing: tools/install_deps.sh test installs it")
        text = done.stdout.decode()
        assert done.returncode == 0, (command, done.returncode, text)
        if "-N" in command:
            assert text.startswith("data: ") and text.rstrip().endswith("data: [DONE]"), text
        else:
            assert "error" not in json.loads(text), text


def check(url, model):
    api = Api(url, model)
    for part in (completions, chats, responses, errors):
        part(api)
    giving_up(api, url)
    many(url, model)
    curl(url)


if __name__ == "__main__":
    served.main(check)
