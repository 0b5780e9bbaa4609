"""The requests of the soak. Each kind asks once and checks what comes: the answer ends once, with a status that its fate allows."""
import http.client
import json
import random
import socket
import subprocess

FIXED = [("It is a truth universally acknowledged, that", 0.8), ("She had not been", 0.0), ("Mr. Darcy", 1.1), ("In the evening", 0.0),
         ("Her sister was of opinion that", 0.7), ("The carriage", 0.9)]
PREFIXES = ["It is a truth universally acknowledged, that a single man in possession of a good fortune must be in want of a wife. ",
            "The evening altogether passed off pleasantly to the whole family. ", ""]
WORDS = "however she had been very much struck with the house and its prospect which were handsome".split()
ROUTES = ["auto", "unified", "disaggregated"]
# What a server that is full, or has just lost workers, may answer.
BUSY = (429, 503)
BUSY_CODES = ("rate_limit_exceeded", "unavailable")


class Wrong(Exception):
    """An answer that must not be."""


def check(holds, what):
    if not holds:
        raise Wrong(what)


class Asker:
    """A client of the fleet with a random generator of its own. `expected`: the texts of fixed requests, once known."""

    def __init__(self, fleet, seed, expected):
        self._fleet = fleet
        self._random = random.Random(seed)
        self._expected = expected

    def ask(self, kind=None):
        """Asks once and returns the kind of the request and what came of it."""
        kind = kind or self._random.choices(list(KINDS), list(KINDS.values()))[0]
        return kind, getattr(self, kind)()

    # How requests go out and answers come in.

    def _connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self._fleet.http_port, timeout=120, context=self._fleet.tls)

    def _headers(self, key=None):
        tenant = self._random.choice(["red", "blue"])
        key = self._fleet.keys[tenant] if key is None else key
        return {"content-type": "application/json",
                **({"x-api-key": key} if self._random.random() < 0.5 else {"authorization": f"Bearer {key}"})}

    def _post(self, path, body, key=None):
        connection = self._connect()
        try:
            data = body if isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request("POST", path, data, self._headers(key))
            response = connection.getresponse()
            if response.status == 429:
                check(response.headers["retry-after"], "429 without Retry-After")
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def _events(self, path, body):
        """The status, and the data of all events of a stream; the body of a refusal in their place."""
        connection = self._connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), self._headers())
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        lines = [line[len("data: "):] for line in text.splitlines() if line.startswith("data: ")]
        return response.status, lines if response.status == 200 else text

    def _prompt(self):
        words = self._random.sample(WORDS, self._random.randint(1, 12))
        return self._random.choice(PREFIXES) + " ".join(words)

    def _options(self):
        """Whatever may be combined."""
        options = {"max_tokens": self._random.randint(1, 40), "temperature": self._random.choice([0, 0.7, 1.2]),
                   "seed": self._random.randrange(1000), "route": self._random.choice(ROUTES)}
        more = [{"kv_quality": self._random.choice(["near-strict", "near", "compact", "tiny"])},
                {"kv_eviction": self._random.choice(["snapkv:2", "h2o-ema:3", "streaming-llm:2,sink=2,recent=8"])},
                {"session_id": f"s{self._random.randrange(6)}"}, {"cache_salt": f"c{self._random.randrange(3)}"},
                {"bad_words": ["the", "and"]}, {"logit_bias": {"15": -100, "20": 2}}, {"allowed_token_ids": list(range(10, 400))},
                {"min_tokens": 1, "stop": ["."]}, {"priority": self._random.randint(-2, 2)}, {"ignore_eos": True},
                {"ttft_slo_ms": 200.0}]
        for chosen in self._random.sample(more, self._random.randint(0, 3)):
            options.update(chosen)
        return options

    # The kinds.

    def fixed(self):
        index = self._random.randrange(len(FIXED))
        prompt, temperature = FIXED[index]
        status, body = self._post("/v1/completions", {"prompt": prompt, "temperature": temperature, "seed": 7 + index,
                                                      "max_tokens": 32, "route": self._random.choice(ROUTES)})
        if status in BUSY:
            return "refused"
        check(status == 200, f"{status}: {body}")
        text = body["choices"][0]["text"]
        check(text == self._expected.setdefault(index, text), f"another answer to {prompt!r}")
        return "whole"

    def completion(self):
        n = self._random.randint(1, 3)
        body = {"prompt": self._prompt(), "n": n, **self._options()}
        if self._random.random() < 0.2:
            body["best_of"] = n + 1
        status, answer = self._post("/v1/completions", body)
        return self._judge_choices(status, answer, n)

    def beams(self):
        status, answer = self._post("/v1/completions", {"prompt": self._prompt(), "n": 2, "use_beam_search": True, "max_tokens": 8,
                                                        "temperature": 0})
        return self._judge_choices(status, answer, 2)

    def _judge_choices(self, status, answer, n):
        if status in BUSY:
            return "refused"
        check(status == 200, f"{status}: {answer}")
        check(sorted(choice["index"] for choice in answer["choices"]) == list(range(n)), "not every choice once")
        check(all(choice["finish_reason"] in ("stop", "length") for choice in answer["choices"]), "no end of a choice")
        return "whole"

    def chat_stream(self):
        messages = [{"role": "user", "content": self._prompt()}, {"role": "assistant", "content": "Indeed."},
                    {"role": "user", "content": self._prompt()}][self._random.choice([0, 2]):]
        n = self._random.randint(1, 2)
        status, events = self._events("/v1/chat/completions", {"messages": messages, "n": n, **self._options()})
        if status in BUSY:
            return "refused"
        check(status == 200, f"{status}: {events}")
        chunks = [json.loads(event) for event in events if event != "[DONE]"]
        if any("error" in chunk for chunk in chunks):
            check(chunks[-1].get("error", {}).get("code") in BUSY_CODES, f"ended by {chunks[-1]}")
            return "refused"
        ends = [choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
        check(sorted(ends) == list(range(n)), f"ends of choices {ends}")
        check(events.count("[DONE]") == 1 and events[-1] == "[DONE]", "no single end of the stream")
        return "whole"

    def anthropic(self):
        body = {"max_tokens": self._random.randint(1, 30), "messages": [{"role": "user", "content": self._prompt()}]}
        if self._random.random() < 0.5:
            status, answer = self._post("/v1/messages", body)
            if status in (*BUSY, 529):
                return "refused"
            check(status == 200 and answer["stop_reason"] in ("end_turn", "max_tokens"), f"{status}: {answer}")
            return "whole"
        status, events = self._events("/v1/messages", body)
        if status in (*BUSY, 529):
            return "refused"
        check(status == 200, f"{status}: {events}")
        types = [json.loads(event)["type"] for event in events]
        if "error" in types:
            check(types[-1] == "error", "something behind an error")
            return "refused"
        check(types.count("message_stop") == 1 and types[-1] == "message_stop", f"no single end: {types}")
        return "whole"

    def responses(self):
        status, answer = self._post("/v1/responses", {"input": self._prompt(), "max_output_tokens": self._random.randint(1, 30)})
        if status in BUSY:
            return "refused"
        check(status == 200 and answer["status"] in ("completed", "incomplete"), f"{status}: {answer}")
        return "whole"

    def grpc(self):
        """Over gRPC, by the program's own client."""
        return self._generate("--max-tokens", str(self._random.randint(1, 40)))

    def deadline(self):
        """Mostly too little time for so many tokens."""
        return self._generate("--max-tokens", "400", "--ignore-eos", "--timeout", f"{self._random.uniform(0.01, 0.3):.3f}")

    def _generate(self, *flags):
        done = subprocess.run([self._fleet.tandem, "generate", self._prompt(), "--json", "--route", self._random.choice(ROUTES),
                               *flags, *self._fleet.client_flags()],
                              env=self._fleet.environment("red"), capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            check(all(json.loads(line)["finish_reason"] in ("stop", "length") for line in done.stdout.splitlines()), done.stdout)
            return "whole"
        for code, outcome in (("DEADLINE_EXCEEDED", "expired"), ("RESOURCE_EXHAUSTED", "refused"), ("UNAVAILABLE", "refused")):
            if code in done.stderr:
                return outcome
        raise Wrong(f"tandem generate ended with {done.returncode}: {done.stderr}")

    def cancel(self):
        """A client that hangs up in the middle of a stream."""
        connection = self._connect()
        body = {"prompt": self._prompt(), "max_tokens": 500, "ignore_eos": True, "stream": True, **self._options()}
        body["max_tokens"] = 500
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), self._headers())
            response = connection.getresponse()
            if response.status in BUSY:
                return "refused"
            check(response.status == 200, f"{response.status} to a stream")
            for _ in range(self._random.randint(0, 12)):
                if not response.readline():
                    return "whole"
            connection.sock and connection.sock.shutdown(socket.SHUT_RDWR)
            return "cancelled"
        finally:
            connection.close()

    def vanish(self):
        """A client that goes before its request is whole."""
        connection = self._connect()
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("content-length", "1000")
        connection.endheaders(b'{"prompt": "x"' if self._random.random() < 0.5 else None)
        connection.close()
        return "cancelled"

    def bad(self):
        path, body, expected = self._random.choice([
            ("/v1/completions", "{", 400), ("/v1/completions", {"prompt": "x", "n": 0}, 400), ("/v1/completions", {"prompt": []}, 400),
            ("/v1/completions", {"prompt": "x", "temperature": -1}, 400), ("/v1/completions", {"prompt": "x", "model": "none"}, 404),
            ("/v1/completions", {"prompt": "x", "max_tokens": 10**7}, 400), ("/v1/completions", {"prompt": [10**9]}, 400),
            ("/v1/completions", {"prompt": "x", "kv_eviction": "all:0"}, 400), ("/v1/completions", b"\xff\xfe", 400),
            ("/v1/chat/completions", {"messages": [{"role": 5}]}, 400), ("/v1/messages", {"messages": "x"}, 400),
            ("/v1/responses", {"input": 5}, 400), ("/v1/embeddings", {"input": "x"}, 404)])
        status, answer = self._post(path, body)
        if status in BUSY:  # before all of the body was looked at
            return "refused"
        check(status == expected, f"{status} to {body} at {path}: {answer}")
        return "bad"

    def bad_key(self):
        status, _ = self._post("/v1/completions", {"prompt": "x"}, key="tdm-" + "x" * 43)
        check(status == 401, f"{status} to an unknown key")
        return "bad"


# How often each kind is drawn, relative to the others.
KINDS = {"fixed": 8, "completion": 8, "chat_stream": 5, "anthropic": 4, "responses": 2, "beams": 1, "grpc": 2, "deadline": 2,
         "cancel": 4, "vanish": 1, "bad": 3, "bad_key": 1}
