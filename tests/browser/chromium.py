"""A headless Chromium, spoken to over its debugging pipe (the DevTools protocol): no package but the browser is needed."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Chromium:
    def __init__(self, program="chromium"):
        self.profile = tempfile.mkdtemp(prefix="lathe-chromium-")
        ours, theirs = os.pipe(), os.pipe()  # what we write; what we read

        def wire():  # the browser reads commands from 3 and answers on 4
            commands, answers = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            close_fds=False, preexec_fn=wire, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.write_end, self.read_end = ours[1], theirs[0]
        self.buffer, self.serial, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.page(f"{domain}.enable")

    def close(self):
        os.close(self.write_end)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def message(self, until):
        """The next message of the browser."""
        while b"\0" not in self.buffer:
            ready = select.select([self.read_end], [], [], max(0, until - time.monotonic()))[0]
            more = os.read(self.read_end, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError("chromium has ended" if ready else "chromium does not answer")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.serial += 1
        request = {"id": self.serial, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        until = time.monotonic() + 120
        while True:
            answer = self.message(until)
            if answer.get("id") == self.serial:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def page(self, method, **params):
        return self.call(method, self.session, **params)

    def open(self, url, width, height, dark):
        """Loads a page; returns the browser's events until it is complete."""
        self.page("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.page("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        self.page("Page.navigate", url=url)
        until = time.monotonic() + 120
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message(until))
        self.evaluate("1")  # what the page said while it was loaded has arrived before this
        return self.events

    def evaluate(self, expression):
        answer = self.page("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:1000])
        return answer["result"].get("value")

    def picture(self):
        """The whole page as the bytes of a PNG file."""
        return base64.b64decode(self.page("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])
