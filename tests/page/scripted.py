"""A server that has the page of a real one, and answers prompts by a script: what a real server says only rarely."""

import http.server
import json
import threading
import urllib.request

# As behind a proxy that gives the page a path of its own.
BELOW = "/below"
HTML = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script><b>bold</b>"


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


STREAMS = {
    "html": [delta(content=HTML)],
    "reasoning": [delta(reasoning_content="First I think. "), delta(reasoning_content="Then I know."),
                  delta(content="The answer is 4.")],
    "tool": [delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "weather", "arguments": '{"city"'}}]),
             delta(tool_calls=[{"index": 0, "function": {"arguments": ': "Bonn"}'}}])],
    "cut": [delta(content="Half of an ans")],
    "error": [delta(content="Half of an ans"),
              {"error": {"message": "the worker was lost", "type": "server_error", "param": None,
                         "code": "unavailable"}}],
}
ERRORS = {
    "busy": (429, {"message": "1024 choices are in flight", "code": "rate_limit_exceeded"}, {"retry-after-ms": "2000"}),
    "no worker": (503, {"message": "no unified worker is ready", "code": "unavailable"}, {"retry-after": "1"}),
    "wrong": (400, {"message": "temperature=9 must be from 0 to 2", "param": "temperature"}, {}),
    "proxy": (502, None, {}),
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.server.status and self.path.startswith(f"{BELOW}/status.json"):
            self.server.polls += 1
            body = json.dumps(self.server.status).encode()
            return self.answer(200, body, {"content-type": "application/json"})
        request = urllib.request.Request(self.server.upstream + self.path.removeprefix(BELOW),
                                         headers={"accept": self.headers.get("accept", "")})
        with urllib.request.urlopen(request) as real:
            kept = {name: value for name, value in real.headers.items()
                    if name.lower() not in ("content-length", "date", "connection", "transfer-encoding")}
            self.answer(real.status, real.read(), kept)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        if not self.path.startswith(f"{BELOW}/v1/"):
            return self.answer(404, b"", {})
        prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        if prompt in ERRORS:
            status, error, headers = ERRORS[prompt]
            text = json.dumps({"error": error}) if error else "<h1>Bad Gateway</h1>"
            return self.answer(status, text.encode(), {"x-request-id": "scripted-1", **headers})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("x-request-id", "scripted-1")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        # In two parts that split an event and a character, as a network may.
        text = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in STREAMS[prompt])
        data = (": keep-alive\n\n" + text + ("" if prompt == "cut" else "data: [DONE]\n\n")).encode()
        for part in (data[:37], data[37:]):
            self.wfile.write(part)
            self.wfile.flush()


def serve(upstream, status=None):
    """status: what /status.json answers instead of the real server; it may be changed later."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.upstream = upstream
    server.bodies = []
    server.status = status
    server.polls = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}{BELOW}/"
