"""Chromium without a window, driven by its DevTools protocol over a pipe: no driver and no package is needed."""

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time

# Nothing leaves the machine: whatever Chromium would look up by itself does not resolve.
FLAGS = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-domain-reliability", "--disable-extensions", "--disable-gpu", "--no-pings",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


class Gone(Exception):
    """Chromium ended, or took too long."""


class Browser:
    def __init__(self, binary="chromium"):
        self._profile = tempfile.TemporaryDirectory(prefix="tandem-page-", ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        flags = FLAGS + ([] if os.geteuid() else ["--no-sandbox"])  # which root cannot have
        # Chromium expects the pipes as descriptors 3 and 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "-", binary, *flags,
             f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(commands)
        os.close(answers)
        self._received = b""
        self._next_id = 0
        self.events = []

    def close(self):
        self._process.terminate()
        self._process.wait()
        # Chromium's helpers may outlive it for a moment, and would write into the profile while it is removed.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._profile.cleanup()

    def _message(self, deadline):
        while b"\0" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise Gone("nothing came from Chromium in time")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise Gone("Chromium has ended")
            self._received += part
        message, self._received = self._received.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, seconds=60, **params):
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self._next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def page(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session)


KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40}


class Page:
    """One tab."""

    def __init__(self, browser, session):
        self._browser = browser
        self._session = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        return self._browser.call(method, session=self._session, **params)

    def look(self, width, scheme, motion="no-preference"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=844 if width < 600 else 800,
                  deviceScaleFactor=2 if width < 600 else 1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def js(self, expression, seconds=60):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True, userGesture=True, seconds=seconds)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(f"{expression}: {details.get('exception', {}).get('description', details)}")
        return result["result"].get("value")

    def until(self, condition, seconds=60):
        """Waits for something that is looked for before every frame."""
        self.js(f"new Promise((done) => {{ const look = () => ({condition}) ? done() : "
                "requestAnimationFrame(look); look(); })", seconds)

    def arrive(self, path, seconds=60):
        """Waits until the document of this path is there, to which a click has led."""
        deadline = time.monotonic() + seconds
        found = ""
        while found != f"{path} complete":
            if time.monotonic() > deadline:
                raise Gone(f"the page is at {found}, not at {path}")
            with contextlib.suppress(RuntimeError):  # the document before it goes meanwhile
                found = self.js("`${location.pathname} ${document.readyState}`")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, modifiers=0):
        """modifiers: 2 for Ctrl, 8 for Shift."""
        common = {"key": key, "code": "Space" if key == " " else key, "modifiers": modifiers,
                  "windowsVirtualKeyCode": KEYS[key]}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector):
        """With the mouse, in the middle of what is found, so that what is covered is not clicked."""
        x, y = self.js(f"""(() => {{ const found = document.querySelector({json.dumps(selector)});
            found.scrollIntoView({{block: 'center'}}); const box = found.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path, whole=False):
        """Of what the window shows, or of the whole page."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def take_events(self, method):
        """The parameters of events that came since they were taken."""
        self.js("0")
        taken = [e["params"] for e in self._browser.events if e.get("method") == method]
        self._browser.events = [e for e in self._browser.events if e.get("method") != method]
        return taken
