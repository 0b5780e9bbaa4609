"""Clients that ask for completions all the time, and hold each answer against the first one to the same prompt."""
import http.client
import json
import sys
import threading
import time

PROMPTS = ["It is a truth universally acknowledged, that", "She had not been", "Mr. Darcy", "The carriage",
           "Her sister was of opinion that", "In the evening"]
MAX_TOKENS = 48


def ask(address, prompt):
    """The text, or an exception."""
    connection = http.client.HTTPConnection(address, 8000, timeout=120)
    try:
        body = {"prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0.8, "seed": 7}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {answer}")
        [choice] = answer["choices"]
        if choice["finish_reason"] not in ("stop", "length"):
            raise RuntimeError(f"finish_reason {choice['finish_reason']}")
        return choice["text"]
    finally:
        connection.close()


class Load:
    """Runs in a process of its own on the client's node. Each line that it reads is a command: the addresses of the routers
    that requests go to from now on, or `report`, which is answered by one line with the counts since the one before."""

    def __init__(self):
        self._lock = threading.Lock()
        self._addresses = []
        self._expected = {}
        self._counts = {"right": 0, "wrong": 0, "failed": []}

    def learn(self):
        for prompt in PROMPTS:
            self._expected[prompt] = ask(self._addresses[0], prompt)

    def run(self, number):
        for turn in range(10**9):
            with self._lock:
                address = self._addresses[(turn + number) % len(self._addresses)]
            prompt = PROMPTS[(turn + number) % len(PROMPTS)]
            try:
                outcome = "right" if ask(address, prompt) == self._expected[prompt] else "wrong"
            except Exception as error:  # whatever a client sees is counted
                with self._lock:
                    self._counts["failed"].append(f"{address}: {error!r}")
                continue
            with self._lock:
                self._counts[outcome] += 1

    def serve(self, clients):
        for line in sys.stdin:
            words = line.split()
            if words == ["report"]:
                with self._lock:
                    counts, self._counts = self._counts, {"right": 0, "wrong": 0, "failed": []}
                print(json.dumps(counts), flush=True)
                continue
            with self._lock:
                self._addresses = words
            if not self._expected:
                self.learn()
                for number in range(clients):
                    threading.Thread(target=self.run, args=(number,), daemon=True).start()
            print("{}", flush=True)


if __name__ == "__main__":
    Load().serve(int(sys.argv[1]))
