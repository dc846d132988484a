"""What the tests of the server share: a server on a port of its own, websocket and HTTP clients. Needs Debian's python3-websockets."""
import asyncio
import http.client
import json
import os
import re
import signal
import struct
import subprocess
import time

import e2e
import websockets

PROTOCOL = "longtake.v1"


class Server:
    """`longtake serve` with the tiny model; .stop() gives its exit status."""

    def __init__(self, *args, model=None, before=None, within=()):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LONGTAKE_")}
        self.log = open(e2e.path("serve.log"), "ab")
        self.process = subprocess.Popen([*within, e2e.PROGRAM, "serve", "--port", "0", "--model", model or e2e.MODEL, *args], cwd=e2e.WORK, env=env,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True, preexec_fn=before)
        self.url = self.process.stdout.readline().strip()
        match = re.match(r"https?://.*:(\d+)/$", self.url)
        self.port = int(match.group(1)) if match else 0

    def wait_ready(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.get("/readyz")[0] == 200:
                return
            time.sleep(0.1)
        raise AssertionError("the server did not become ready")

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        c.request(method, path, body=body, headers=headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), data

    def get(self, path, **headers):
        status, _, body = self.request("GET", path, headers=headers)
        return status, body

    def stop(self, sig=signal.SIGTERM, seconds=120):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "hangs"
        finally:
            self.log.close()


class Unit:
    """A binary message: the header of 32 bytes and its payload."""
    KINDS = {1: "config", 2: "video", 3: "init", 4: "fragment", 5: "jpeg", 7: "end"}

    def __init__(self, data):
        (magic, self.version, kind, self.flags, self.stream, self.seq, self.block, self.pts, self.duration, size) = \
            struct.unpack("<2sBBHHIIqII", data[:32])
        self.good = magic == b"VS" and self.version == 1 and size == len(data) - 32
        self.kind = self.KINDS.get(kind, kind)
        self.key, self.discontinuity, self.prompt, self.marked = (bool(self.flags & f) for f in (1, 2, 8, 16))
        self.payload = data[32:]


class Client:
    """A websocket that keeps all that it got: .events, .units, .close_code."""

    def __init__(self, server, **kw):
        self.server, self.kw = server, kw
        self.events, self.units = [], []
        self.close_code = self.close_reason = None

    async def __aenter__(self):
        # it reads on while the test looks elsewhere: who takes nothing for 10 s is cut off
        kw = {"subprotocols": [PROTOCOL], "max_size": None, "max_queue": None, "open_timeout": 60, "ping_interval": None, "close_timeout": 10, **self.kw}
        self.ws = await websockets.connect("ws://127.0.0.1:%d/v1/stream" % self.server.port, **kw)
        return self

    async def __aexit__(self, *_):
        await self.ws.close()

    async def say(self, **message):
        await self.ws.send(json.dumps(message))

    async def hear(self, seconds=60):
        """One message, kept; None when the socket was closed."""
        try:
            data = await asyncio.wait_for(self.ws.recv(), seconds)
        except websockets.ConnectionClosed as e:
            frame = e.rcvd
            self.close_code, self.close_reason = (frame.code, frame.reason) if frame else (1006, "")
            return None
        item = Unit(data) if isinstance(data, bytes) else json.loads(data)
        (self.units if isinstance(item, Unit) else self.events).append(item)
        return item

    async def until(self, test, seconds=120):
        """Hears until test(item); the item, or None."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                item = await self.hear(max(0.01, end - time.monotonic()))
            except asyncio.TimeoutError:
                return None
            if item is None or test(item):
                return item
        return None

    async def event(self, kind, seconds=120, **fields):
        """Hears until an event of that type with those fields; those heard before do not count."""
        return await self.until(lambda i: isinstance(i, dict) and i.get("type") == kind and
                                all(i.get(k) == v for k, v in fields.items()), seconds)

    async def unit(self, test=lambda u: True, seconds=120):
        return await self.until(lambda i: isinstance(i, Unit) and i.kind != "end" and test(i), seconds)

    def frames(self):
        return [u for u in self.units if u.kind in ("video", "fragment", "jpeg")]

    def types(self):
        return [e["type"] for e in self.events]
