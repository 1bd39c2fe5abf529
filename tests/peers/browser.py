"""A headless Chromium, driven over its DevTools protocol: JSON messages through two pipes, a zero byte after each."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 180  # seconds


def chromium():
    """Its path, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """One page of a browser of its own; whatever the page logs or throws is kept in `complaints`."""

    def __init__(self, width=1400, height=1000):
        self.profile = tempfile.mkdtemp(prefix="ddp_browser_")
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        for ours in (self._to, self._from):
            os.set_inheritable(ours, False)
        # The protocol's ends are descriptors 3 and 4.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        command = [chromium(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb",
                   f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", script, "bash", *command], pass_fds=(to_browser, from_browser),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._count, self._session, self.complaints, self.requests = b"", 0, None, [], []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(domain + ".enable")
            self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        except BaseException:
            self.close()
            raise

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _message(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self._from, 1 << 20) if readable else b""
            if not piece:
                raise AssertionError("the browser does not answer")
            self._buffer += piece
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        method, given = message.get("method", ""), message.get("params", {})
        if method in ("Runtime.exceptionThrown", "Log.entryAdded") or (
                method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning")):
            self.complaints.append(given)
        if method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        return message

    def call(self, method, **given):
        self._count += 1
        message = {"id": self._count, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path):
        self.call("Page.navigate", url=f"file://{path}")
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression):
        """Of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def frame(self):
        """Returns when the page has drawn what was asked for."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def mouse(self, kind, x, y, clicks=0):
        button = "left" if kind != "mouseMoved" or clicks else "none"
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=int(bool(clicks)), clickCount=clicks)

    def drag(self, x1, x2, y):
        self.mouse("mouseMoved", x1, y)
        self.mouse("mousePressed", x1, y, 1)
        for part in (0.3, 0.7, 1):
            self.mouse("mouseMoved", x1 + part * (x2 - x1), y, 1)
        self.mouse("mouseReleased", x2, y, 1)

    def double_click(self, x, y):
        for clicks in (1, 2):
            self.mouse("mousePressed", x, y, clicks)
            self.mouse("mouseReleased", x, y, clicks)

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = dict(x=0, y=0, width=size["width"], height=size["height"], scale=1)
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))


__all__ = ["Browser", "chromium"]
