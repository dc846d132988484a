"""A headless Chromium, driven over its debugging protocol. Needs Debian's chromium and python3-websockets."""
import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request

import websockets


def there():
    return shutil.which("chromium") is not None


class Browser:
    def __init__(self, *args):
        self.folder = tempfile.mkdtemp(prefix="longtake-chromium-")
        self.process = subprocess.Popen(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                                         "--disable-background-networking", "--disable-component-update", "--mute-audio", "--remote-debugging-port=0",
                                         "--autoplay-policy=no-user-gesture-required", "--user-data-dir=" + self.folder, *args, "about:blank"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = os.path.join(self.folder, "DevToolsActivePort")
        end = time.monotonic() + 120
        while not (os.path.exists(port) and open(port).read().count("\n") >= 1):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("chromium does not start")
            time.sleep(0.1)
        self.port = int(open(port).read().split()[0])

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, True)


class Page:
    """async with Page(browser, url) as page: await page.run("1 + 1")"""

    def __init__(self, browser, url, width=1280, height=860, dark=False):
        self.browser, self.url, self.size, self.dark = browser, url, (width, height), dark
        self.errors = []

    async def __aenter__(self):
        r = urllib.request.Request("http://127.0.0.1:%d/json/new?about:blank" % self.browser.port, method="PUT")
        target = json.load(urllib.request.urlopen(r, timeout=60))
        self.ws = await websockets.connect(target["webSocketDebuggerUrl"], max_size=None, ping_interval=None, open_timeout=60)
        self.count, self.waiting = 0, {}
        self.reader = asyncio.ensure_future(self.read())
        for domain in ("Page", "Runtime", "Log"):
            await self.call(domain + ".enable")
        await self.call("Emulation.setDeviceMetricsOverride", width=self.size[0], height=self.size[1], deviceScaleFactor=1, mobile=self.size[0] < 600)
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}])
        await self.call("Page.navigate", url=self.url)
        return self

    async def __aexit__(self, *_):
        self.reader.cancel()
        await self.ws.close()

    async def read(self):
        async for text in self.ws:
            m = json.loads(text)
            if "id" in m:
                self.waiting.pop(m["id"]).set_result(m)
            elif m["method"] == "Runtime.exceptionThrown":
                d = m["params"]["exceptionDetails"]
                self.errors.append(d.get("exception", {}).get("description", d["text"]))
            elif m["method"] == "Log.entryAdded" and m["params"]["entry"]["level"] == "error":
                self.errors.append(m["params"]["entry"]["text"] + " " + m["params"]["entry"].get("url", ""))

    async def call(self, method, **params):
        self.count += 1
        self.waiting[self.count] = done = asyncio.get_running_loop().create_future()
        await self.ws.send(json.dumps({"id": self.count, "method": method, "params": params}))
        m = await asyncio.wait_for(done, 120)
        if "error" in m:
            raise RuntimeError("%s: %s" % (method, m["error"]))
        return m["result"]

    async def run(self, script):
        r = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in r:
            raise RuntimeError(r["exceptionDetails"].get("exception", {}).get("description", script))
        return r["result"].get("value")

    async def until(self, script, seconds=120):
        """The first value that is true; None when there was none."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = await self.run(script)
            except RuntimeError:
                value = None
            if value:
                return value
            await asyncio.sleep(0.1)
        return None

    async def picture(self, name):
        r = await self.call("Page.captureScreenshot", format="png")
        with open(name, "wb") as f:
            f.write(base64.b64decode(r["data"]))
