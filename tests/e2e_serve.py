#!/usr/bin/env python3
"""longtake serve from outside: live video over the websocket, viewers, controls, limits, the end. Clients: Python's websockets and
http.client, and ffprobe and ffmpeg where they are."""
import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time

import e2e
import serve
from e2e import check, longtake, path, refused
from serve import Client, Server
from websockets import ConnectionClosed

e2e.make_model()
START = {"type": "start", "prompt": "a red ball", "mode": "ar", "cache": "self-forcing:window=3,block=3", "num_frames": 41, "seed": 7,
         "num_inference_steps": 2, "guidance_scale": 1, "pace": "free"}
LONG = dict(START, num_frames=40001, pace="realtime")
GOP = 32  # frames from key frame to key frame at 16 fps


def nal_types(data):
    return [data[i + 3] & 31 for i in range(len(data) - 3) if data[i:i + 3] == b"\0\0\1"]


def decodes(name, frames, what):
    """ffmpeg reads the file to its end and counts so many frames."""
    probe = e2e.ffprobe(name)
    if probe:
        check(int(probe[0]["nb_read_packets"]) == frames, "%s: %s packets, wanted %d" % (what, probe[0]["nb_read_packets"], frames))
        r = subprocess.run(["ffmpeg", "-v", "error", "-xerror", "-i", path(name), "-f", "null", "-"], stderr=subprocess.PIPE)
        check(r.returncode == 0 and not r.stderr, "%s: decodes (%r)" % (what, r.stderr[:200]))


async def one_stream(server):
    """From the first word to the last frame."""
    async with Client(server) as c:
        await c.say(type="hello", protocol="longtake.v1")
        welcome = await c.event("welcome")
        check(welcome["model"]["name"] == "tiny", "no path is told: %r" % welcome["model"]["name"])
        check(welcome["ready"] and welcome["model"]["width"] == 64 and welcome["limits"]["max_message_bytes"] == 65536, "welcome: %r" % welcome)
        await c.say(**START, event_id="s1")
        accepted = await c.event("accepted")
        check(accepted["event_id"] == "s1" and accepted["request"]["num_frames"] == 41 and accepted["request"]["seed"] == "7", "accepted: %r" % accepted)
        await c.unit()
        check("done" not in c.types(), "the first frame comes before the video is done")
        await c.until(lambda i: isinstance(i, serve.Unit) and i.kind == "end")
        started = [e for e in c.events if e["type"] == "started"][0]
        done = [e for e in c.events if e["type"] == "done"][0]
        check(done["frames"] == 41 and done["reason"] == "complete", "done: %r" % done)
        check(started["codec"].startswith("avc1.64") and (started["width"], started["height"], started["fps"]) == (64, 64, 16), "started: %r" % started)
        frames = c.frames()
        check([u.seq for u in frames] == list(range(41)) and all(u.good for u in frames), "41 frames in order")
        check([u.pts for u in frames] == [i * 62500 for i in range(41)] and frames[5].duration == 62500, "times in microseconds")
        check([u.seq for u in frames if u.key] == [0, GOP], "key frames: %r" % [u.seq for u in frames if u.key])
        for u in frames:
            kinds = nal_types(u.payload)
            check(7 in kinds and 8 in kinds and 5 in kinds and 6 in kinds if u.key else 1 in kinds and 7 not in kinds,
                  "frame %d: NAL units %r" % (u.seq, kinds))
        check(all(u.marked for u in frames) and b"AI-generated" in frames[0].payload, "every frame says that it is AI-generated")
        check(sum(e["type"] == "stats" for e in c.events) >= 10 and {"gen_fps", "block", "attention_density", "picture"} <=
              set([e for e in c.events if e["type"] == "stats"][-1]), "telemetry")
        check([e["n"] for e in c.events if "n" in e] == list(range(sum("n" in e for e in c.events))), "events are numbered")
        with open(path("annexb.h264"), "wb") as f:
            f.write(b"".join(u.payload for u in frames))
        decodes("annexb.h264", 41, "Annex B")
        # the same as MP4, later and over HTTP
        status, headers, body = server.request("GET", "/v1/live/%s/content?key=%s&download=1" % (accepted["session_id"], accepted["key"]))
        check(status == 200 and headers["content-type"] == "video/mp4" and "attachment" in headers["content-disposition"], "download: %r" % headers)
        with open(path("live.mp4"), "wb") as f:
            f.write(body)
        decodes("live.mp4", 41, "fragmented MP4")
        info = json.loads(longtake("inspect", "live.mp4", "--json").stdout)
        check(info["frames"] == 41 and info["metadata"]["prompt"] == "a red ball" and "sei" in info["metadata"] and "xmp" in info["metadata"],
              "inspect of the download: %r" % info["metadata"])
        check(server.get("/v1/live/%s/content?key=wrong" % accepted["session_id"])[0] == 404, "a wrong key finds nothing")
    # same seed, same picture: the other wires carry the same frames
    async with Client(server) as c:
        await c.say(type="watch", session_id=accepted["session_id"], key=accepted["key"], wire="fmp4")
        await c.until(lambda i: isinstance(i, serve.Unit) and i.kind == "end")
        check(c.units[0].kind == "init" and b"avcC" in c.units[0].payload and [u.seq for u in c.frames()] == list(range(41)), "fMP4 of a stream that ended")
        check(b"".join(u.payload for u in c.units) == body, "websocket and HTTP carry the same MP4")


async def jpeg(server):
    async with Client(server) as c:
        await c.say(**dict(START, num_frames=13), wire="jpeg", drift="watch")
        await c.until(lambda i: isinstance(i, serve.Unit) and i.kind == "end")
        frames = c.frames()
        check(len(frames) == 13 and all(u.kind == "jpeg" and u.payload[:2] == b"\xff\xd8" and b"AI-generated" in u.payload for u in frames), "JPEG frames")
        drift = [e["drift"] for e in c.events if e["type"] == "stats" and "drift" in e]
        check(drift and drift[0]["first_frame"] == 0 and {"exposure", "colour", "level", "kind", "action"} <= set(drift[0]) and
              sum(d["frames"] for d in drift) == 13, "the drift vector of every block: %r" % drift)


async def controls(server):
    """A video without end: viewers, prompt, pause, seek, reconnect, stop."""
    async with Client(server) as owner:
        await owner.say(**LONG)
        accepted = await owner.event("accepted")
        ident = dict(session_id=accepted["session_id"], key=accepted["key"])
        await owner.unit(lambda u: u.seq >= GOP + 3)
        # a viewer who comes late starts at a key frame
        async with Client(server) as late:
            await late.say(type="watch", **ident)
            first = await late.unit()
            check(first.key and first.seq >= GOP and first.discontinuity, "a late viewer starts at a key frame: %d" % first.seq)
            check("started" in late.types(), "and is told what it is")
            await late.say(type="prompt", text="mine", event_id="x")
            refusal = await late.event("rejected", event_id="x")
            check(refusal and refusal["code"] == "not_owner" and "owner" in refusal["message"], "a viewer changes nothing: %r" % refusal)
            # the prompt: confirmed with the frame that it took effect at, which is a key frame
            long = "a blue square!" + 300 * " \u2588\u2588\u2588"
            await owner.say(type="prompt", text=long, event_id="p1")
            applied = await owner.event("applied", event_id="p1")
            check(applied and applied["pts"] == applied["frame"] * 1000000 // 16 and
                  applied["text"] == long.encode()[:1000].decode(errors="ignore"), "applied, with the beginning of its text: %r" % applied)
            there = [u for u in owner.frames() if u.seq == applied["frame"]]
            there = there[0] if there else await owner.unit(lambda u: u.seq == applied["frame"])
            check(there and there.key and there.prompt and there.seq == applied["frame"], "the frame of the new prompt")
            check(await late.event("applied", event_id="p1"), "viewers are told")
        # pause: soon nothing comes; go on: it does
        await owner.say(type="pause", event_id="h1")
        check(await owner.event("applied", event_id="h1", paused=True), "pause")
        await owner.unit(seconds=1.5)
        end = time.monotonic() + 60
        while time.monotonic() < end and await owner.unit(seconds=1.0):  # what was under way
            pass
        check(time.monotonic() < end, "nothing comes while it is paused")
        # who wants JPEG and joins now sees where it stands, although nobody wanted that one as JPEG; and what comes then
        for _ in range(2):
            async with Client(server) as late:
                await late.say(type="watch", **ident, wire="jpeg")
                still = await late.unit(seconds=30)
                check(still and still.kind == "jpeg" and still.payload[:2] == b"\xff\xd8" and still.seq >= owner.frames()[-1].seq, "JPEG of a video that stands: %r" % still)
                more = await late.unit(seconds=0.3)
                check(not more or more.seq > still.seq, "once")
        await owner.say(type="resume", event_id="h2")
        check(await owner.unit(), "and goes on")
        # back to the recorded part, and to now
        await owner.say(type="seek", pts=500000, event_id="k1")
        applied = await owner.event("applied", event_id="k1")
        back = await owner.unit()
        check(applied and applied["frame"] == 0 and back.seq == 0 and back.key and back.discontinuity, "seek goes to the key frame before")
        await owner.say(type="seek", live=True, event_id="k2")
        applied = await owner.event("applied", event_id="k2")
        now = await owner.unit()
        check(applied["frame"] == now.seq and now.key and now.seq >= GOP, "and back to the newest: %r" % applied)
        # a key frame on demand, also where no more is drawn because the owner's picture stands
        shows = owner.frames()[-1].pts

        async def while_it_stands(test, seconds):
            end = time.monotonic() + seconds
            unit = None
            while not unit and time.monotonic() < end:
                await owner.say(type="ack", rendered_pts=shows)
                unit = await owner.unit(test, 0.1)
            return unit
        while await while_it_stands(lambda u: True, 0.8):
            pass
        before = owner.frames()[-1].seq
        await owner.say(type="keyframe")
        key = await while_it_stands(lambda u: u.key, 30)
        check(key and key.seq - before < GOP, "a key frame on demand: %r" % (key and key.seq - before))
        await owner.say(type="ping", t=12.5)
        check((await owner.event("pong"))["t"] == 12.5, "ping")
        last = owner.frames()[-1].seq
        last_event = max(e.get("n", -1) for e in owner.events)
        owner.ws.transport.abort()  # the cable is cut
    async with Client(server) as again:
        await asyncio.sleep(0.5)
        await again.say(type="hello", resume=dict(session_id=accepted["session_id"], token="no", last_seq=last))
        check((await again.event("error"))["code"] == "session_gone", "another's token resumes nothing")
        await again.say(type="hello", resume=dict(session_id=accepted["session_id"], token=accepted["resume_token"], last_seq=last, last_event=last_event))
        unit = await again.unit()
        check(unit.seq == last + 1 and not unit.discontinuity, "a reconnect goes on with frame %d, not %d" % (last + 1, unit.seq))
        events = [e for e in again.events if "n" in e] or [await again.until(lambda i: isinstance(i, dict) and "n" in i)]
        check(events[0]["n"] == last_event + 1, "and with the next event: %r" % events[0])
        # a second connection of the owner takes over
        async with Client(server) as third:
            await third.say(type="hello", resume=dict(session_id=accepted["session_id"], token=accepted["resume_token"]))
            await third.unit()
            while await again.hear():
                pass
            check(again.close_code == 4010, "the connection before is closed with 4010: %r" % again.close_code)
            await third.say(type="stop", event_id="z")
            done = await third.event("done")
            check(done and done["reason"] == "stopped", "stop: %r" % done)


async def slow_and_reliable(server):
    """Who does not read costs nobody anything; who wants every frame gets it."""
    async with Client(server) as owner, Client(server, max_queue=1, read_limit=4096) as idle:
        await owner.say(**dict(START, num_frames=401), reliable=True)
        accepted = await owner.event("accepted")
        await idle.say(type="watch", session_id=accepted["session_id"], key=accepted["key"])
        await owner.until(lambda i: isinstance(i, serve.Unit) and i.kind == "end")
        check([u.seq for u in owner.frames()] == list(range(401)), "the owner has all frames beside a viewer that reads nothing")
    async with Client(server, max_queue=1) as slow:
        await slow.say(**dict(START, num_frames=121), reliable=True)
        await slow.event("accepted")
        while not slow.frames() or slow.frames()[-1].seq < 120:
            await slow.unit()
            if slow.frames()[-1].seq in (10, 60):
                await asyncio.sleep(1.5)
        check([u.seq for u in slow.frames()] == list(range(121)) and "dropped" not in slow.types(), "a reliable connection loses nothing")


def by_hand(server, message):
    """A websocket whose machine has room for little; what it says first."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    s.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
              b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: longtake.v1\r\n\r\n")
    check(s.recv(12).endswith(b" 101"), "a websocket by hand")
    s.sendall(masked(message))
    s.setblocking(False)
    return s


def masked(message):
    data = json.dumps(message).encode()
    return b"\x81\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data


def gauge(server, name):
    return float(server.get("/metrics")[1].decode().split("\nlongtake_%s " % name)[1].split()[0])


async def take(s, most, seconds=2.0):
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(s, most), seconds)
    except (asyncio.TimeoutError, ConnectionResetError):
        return b""


async def slow_or_deaf(server):
    """10 kB a second are slow, but somebody is there; who takes nothing is cut off."""
    async with Client(server) as owner:
        await owner.say(**dict(START, num_frames=40001, size="256x256"))
        accepted = await owner.event("accepted")
        await owner.unit()
        reads_on = asyncio.ensure_future(owner.until(lambda i: isinstance(i, dict) and i["type"] == "done", 300))
        # pictures so large that one takes a slow one several seconds
        watch = dict(type="watch", session_id=accepted["session_id"], key=accepted["key"], wire="jpeg")
        deaf, slow = by_hand(server, watch), by_hand(server, watch)
        end = time.monotonic() + 120
        cut = None  # when the deaf one was
        while time.monotonic() < end and (not cut or time.monotonic() < cut + 2.6):
            await take(slow, 2500)
            await asyncio.sleep(0.25)
            if not cut and await asyncio.to_thread(gauge, server, "websockets") < 3:
                cut = time.monotonic()
        check(cut, "who takes nothing is cut off")
        await owner.say(type="stop")
        await reads_on
        await asyncio.get_running_loop().sock_sendall(slow, masked(dict(type="ping", t=77)))
        got = b""
        while b'"pong"' not in got[-1 << 16:] and time.monotonic() < end:
            more = await take(slow, 1 << 16)
            if not more:
                break
            got += more
        check(b'"pong"' in got, "a slow one is not, after %d bytes" % len(got))
        deaf.close(), slow.close()


async def refusals(server):
    async with Client(server) as c:
        for message, code, param in (({"type": "start"}, "invalid_request", "prompt"), (dict(START, num_frames=42), "invalid_request", "num_frames"),
                                     (dict(START, size="63x64"), "invalid_request", "size"), (dict(START, size="64x64", height=128), "invalid_request", "size"), (dict(START, fps=0), "invalid_request", "fps"),
                                     (dict(START, guidance_scale="x"), "invalid_request", "guidance_scale"),
                                     (dict(START, attention="sta:file=/etc/passwd"), "invalid_request", "attention"),
                                     (dict(START, wire="av1"), "invalid_request", "wire"), (dict(START, num_frames=4000001), "invalid_request", "num_frames"),
                                     (dict(START, prompt="a\x07b"), "invalid_request", "prompt"), ({"type": "dance"}, "unknown_type", "dance")):
            await c.say(**message)
            e = await c.event("error")
            check(e["code"] == code and e.get("param") == param and not e["fatal"], "%r: %r" % (message, e))
        for text, what in (("{", "half an object"), ("[]", "a list"), ("[" * 5000, "deep"), ('{"type":"ping","type":"ping"}', "twice the same"), ("\"x\"", "a text")):
            await c.ws.send(text)
            check((await c.event("error"))["code"] == "bad_message", what)
        await c.say(type="pause", event_id="q")
        e = await c.event("rejected")
        check(e["code"] == "no_session" and e["message"], "no session: %r" % e)
        # a prompt is enough: pictures that come at once, and a prompt that can change
        await c.say(type="hello")
        d = (await c.event("welcome"))["model"]
        await c.say(type="start", prompt="a red ball")
        request = (await c.event("accepted"))["request"]
        check((d["mode"], d["num_frames"], d["num_inference_steps"]) == ("ar", 961, 3) and request["drift"] == "watch" and
              all(request[k] == d[k] for k in ("mode", "num_frames", "num_inference_steps")), "what a prompt alone makes: %r, %r" % (d, request))
        await c.unit()
        await c.say(type="prompt", text="a blue square", event_id="n")
        check(await c.event("applied", event_id="n"), "its prompt changes")
        await c.say(type="stop")
        await c.event("done")
    for data, code, what in ((b"\0\1", 1003, "binary"), ("x" * 70000, 1009, "too big")):
        async with Client(server) as c:
            await c.ws.send(data)
            await c.hear()
            check(c.close_code == code, "%s: closed with %r" % (what, c.close_code))
    async with Client(server) as c:
        await c.ws.ensure_open()
        c.ws.transport.write(b"\x81\x82\0\0\0\0\xff\xfe")  # text that is not UTF-8
        await c.hear()
        check(c.close_code == 1007, "bad UTF-8: closed with %r" % c.close_code)
    async with Client(server) as c:
        try:
            for _ in range(2000):
                await c.say(type="ping", t=1)
        except ConnectionClosed:  # the reason is read below
            pass
        while await c.hear():
            pass
        check(c.close_code == 1008, "a flood of messages: closed with %r, not reset while it is sent" % c.close_code)
    for kw, what in ((dict(subprotocols=None), "no subprotocol"), (dict(subprotocols=["other"]), "another subprotocol"),
                     (dict(origin="http://evil.example"), "a foreign page")):
        try:
            async with Client(server, **kw):
                check(False, "%s: let in" % what)
        except Exception as e:
            want = {"a foreign page": 403, "no subprotocol": 400}.get(what)  # the library hangs up on another subprotocol without a word
            check(getattr(e, "status_code", None) == want, "%s: %r" % (what, e))


def raw(server, data, seconds=20):
    """What the server answers to these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as s:
        s.sendall(data)
        got = b""
        try:
            while True:
                more = s.recv(65536)
                if not more:
                    break
                got += more
                if b"\r\n\r\n" in got and b"ontent-length: 0\r\n" not in got and got.endswith(b"}"):
                    break
        except (socket.timeout, ConnectionResetError):
            pass
        return got


def requests(server):
    status, headers, body = server.request("GET", "/", headers={"X-Request-Id": "abc-1"})
    check(status == 200 and b"<title>Longtake" in body and headers["x-request-id"] == "abc-1" and "default-src 'none'" in headers["content-security-policy"], "page")
    for name in ("/app.js", "/jobs.js", "/player.js", "/plots.js", "/style.css", "/icon.svg"):
        check(server.get(name)[0] == 200, name)
    check(server.request("HEAD", "/healthz")[2] == b"" and server.get("/healthz")[0] == 200, "healthz")
    for method, where, headers, want in (("GET", "/nothing", {}, 404), ("DELETE", "/healthz", {}, 405), ("POST", "/healthz", {}, 405),
                                         ("GET", "/healthz", {"Host": "evil.example"}, 403), ("GET", "/healthz", {"Origin": "http://evil.example"}, 403),
                                         ("GET", "/x" * 400, {}, 404), ("GET", "/x" * 600, {}, 431), ("GET", "/healthz", {"Range": "bytes=" + "1" * 200}, 431)):
        status, _, body = server.request(method, where, headers=headers)
        check(status == want and "error" in json.loads(body), "%s %.30s %r: %d, wanted %d" % (method, where, headers, status, want))
    check(server.request("DELETE", "/healthz")[1]["allow"] == "GET, HEAD", "what is allowed instead")
    status, headers, _ = server.request("GET", "/v1/stream")
    check(status == 426 and headers["upgrade"] == "websocket", "the websocket's place: %d %r" % (status, headers))
    # a body that is refused: the answer, and not a reset while it is still being sent; then the next request
    for where, headers, want in (("/v1/videos", {}, 413), ("/v1/videos", {"Origin": "http://evil.example"}, 403), ("/healthz", {}, 405)):
        c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        got = []
        try:
            c.request("POST", where, body=bytes(30 << 20), headers=headers)
            for _ in range(2):
                with c.getresponse() as r:
                    r.read()
                    got.append(r.status)
                c.request("GET", "/healthz")
        except OSError as e:
            got.append(e)
        c.close()
        check(got == [want, 200], "30 MiB that nobody wants at %s: %r" % (where, got))
    for text in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
                 b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        raw(server, text, 3)
    # requests that come together: the first is answered; the library would hang over the second
    post = b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    for first, want in ((b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"), (post, b"400"), (post.replace(b"videos", b"nothing"), b"404")):
        got = raw(server, first + post + first)
        check(got.startswith(b"HTTP/1.1 %s " % want) and got.count(b"HTTP/1.") == 1, "several requests together: %r" % got[:200])
    for text, want in ((b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", b"400"),
                       (b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", b"400"),
                       (b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n", b"413"),
                       (b"DELETE /v1/videos/video_x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
                       (b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n", b"411")):
        got = raw(server, text, 3)
        check(got.startswith(b"HTTP/1.1 %s " % want) and got.count(b"HTTP/1.") == 1 and got.endswith(b"}"), "%r: one answer, and what follows is no request: %r" % (text[:90], got[:200]))
    check(server.get("/healthz")[0] == 200, "odd requests harm nobody")
    status, body = server.get("/metrics")
    text = body.decode()
    for name in ("frames_generated_total", "time_to_first_frame_seconds_bucket", "sessions_active 0", "build_info", 'requests_total{kind="live",outcome="completed"}',
                 "requests_running", "requests_waiting", "queue_wait_seconds_sum", "block_seconds_sum", "denoise_step_seconds_sum", "vae_decode_seconds_sum",
                 "text_encode_seconds_sum", "encode_frame_seconds_sum", "frames_sent_total", 'frames_dropped_total{reason="too_slow"}', "client_lag_seconds_sum",
                 "realtime_factor", "deadline_missed_total", "prompt_switch_seconds_count", "kv_cache_bytes", "prompt_cache_misses_total", "gpu_memory_bytes{state=",
                 "cancel_seconds_count"):
        check("\nlongtake_" + name in text, "metrics: " + name)
    check("\nprocess_open_fds" in text and float(text.split("\nlongtake_prompt_cache_hits_total ")[1].split()[0]) > 0, "prompts that were encoded before are not encoded again")
    families = [l.split()[2] for l in text.splitlines() if l.startswith("# TYPE")]
    check(len(families) == len(set(families)), "every family once")
    line = json.loads([l for l in open(path("serve.log")) if '"abc-1"' in l][0])
    check(line["event"] == "http" and (line["method"], line["path"], line["status"]) == ("GET", "/", 200), "a request in the log: %r" % line)
    check("a red ball" not in open(path("serve.log")).read(), "no prompt in the log")


def descriptors(server):
    return len(os.listdir("/proc/%d/fd" % server.process.pid))


def cpu_seconds(server):
    fields = open("/proc/%d/stat" % server.process.pid).read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def leaks(server):
    before = descriptors(server)
    for _ in range(300):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(b"GET /v1/str")
        s.close()
    end = time.monotonic() + 60
    while time.monotonic() < end and descriptors(server) > before:
        time.sleep(0.1)
    check(descriptors(server) <= before, "no descriptor is lost: %d, %d" % (before, descriptors(server)))


async def main():
    server = Server("--log-requests", "--max-sessions", "2", "--max-queue", "1", "--resume-seconds", "3", "--stall-seconds", "2", model=e2e.MODEL + "/")
    try:
        server.wait_ready()
        await one_stream(server)
        await jpeg(server)
        await controls(server)
        await slow_and_reliable(server)
        await slow_or_deaf(server)
        await refusals(server)
        requests(server)
        leaks(server)
        # two at once, one waits and is told, the fourth is refused
        async with Client(server) as a, Client(server) as b, Client(server) as c, Client(server) as d:
            for k in (a, b):
                await k.say(**LONG)
                await k.unit()
            await c.say(**LONG)
            queued = await c.event("queued")
            check(queued["position"] == 0 and queued["eta_ms"] > 0, "queued: %r" % queued)
            await d.say(**LONG)
            e = await d.event("error")
            check(e["code"] == "queue_full" and e["retryable"] and e["retry_after_ms"] > 0, "queue full: %r" % e)
            check(server.get("/readyz")[0] == 503, "not ready when the queue is full")
            for k in (a, b):
                await k.unit(lambda u: u.seq > 40)
            await a.say(type="stop")
            check(await c.unit(), "the one that waited runs")
            # the end: told, and no new ones
            server.process.send_signal(signal.SIGTERM)
            check(await b.event("draining"), "draining is said")
            while await d.hear():
                pass
            check(d.close_code == 1001 and "draining" in d.types(), "a connection without a video is closed with 1001: %r" % d.close_code)
            server.process.send_signal(signal.SIGTERM)
            while await b.hear():
                pass
        # 0: it is ending already, and a third SIGTERM may fall where there is nothing left to ask
        check(server.stop(0) == 0, "ends with status 0 after SIGTERM: %r" % server.process.returncode)
    finally:
        server.stop(signal.SIGKILL)


async def with_tokens():
    with open(path("tokens"), "w") as f:
        f.write("# ours\n0123456789abcdef\n")
    server = Server("--token-file", "tokens", "--resume-seconds", "1", "--memory", "420")
    try:
        server.wait_ready()
        good = {"Authorization": "Bearer 0123456789abcdef"}
        check(server.get("/metrics")[0] == 401 and server.get("/metrics", Authorization="Bearer 0123456789abcdeX")[0] == 401 and
              server.get("/metrics", **good)[0] == 200, "metrics want the token")
        check(server.get("/healthz")[0] == 200 and server.get("/")[0] == 200, "health and page do not")
        for message in (dict(type="hello", token="wrong"), dict(type="hello"), START):
            async with Client(server) as c:
                await c.say(**message)
                await c.event("error", code="unauthorized")
                while await c.hear():
                    pass
                check(c.close_code == 1008, "without the token: %r" % c.close_code)
        async with Client(server) as c, Client(server) as viewer, Client(server, extra_headers=good) as other:
            await c.say(type="hello", token="0123456789abcdef")
            await c.say(**LONG)
            accepted = await c.event("accepted")
            await viewer.say(type="watch", session_id=accepted["session_id"], key=accepted["key"])
            check(await viewer.unit(), "the link is enough to watch")
            await other.say(**dict(START, num_frames=5))
            check(await other.unit(), "a token in the handshake")
            # memory for two
            async with Client(server, extra_headers=good) as second, Client(server, extra_headers=good) as third:
                await second.say(**LONG)
                await second.unit()
                await third.say(**dict(LONG, size="1024x1024"))
                check((await third.event("error"))["code"] == "out_of_memory", "a video that can never fit is refused")
                await third.say(**LONG)
                check(await third.event("queued", 20, position=0), "a third one waits")
                await second.say(type="stop")
                check(await third.unit(), "until there is memory")
                await third.say(type="stop")
                await third.event("done")
            c.ws.transport.abort()
            done = await viewer.event("done")
            check(done["reason"] == "owner_gone", "an owner who does not come back: %r" % done)
        await asyncio.sleep(0.7)
        begun = cpu_seconds(server)
        await asyncio.sleep(2)
        check(cpu_seconds(server) - begun <= 0.05, "idle: %g s of CPU in 2 s" % (cpu_seconds(server) - begun))
        check(server.stop() == 0, "SIGTERM when idle: %r" % server.process.returncode)
    finally:
        server.stop(signal.SIGKILL)


def tls():
    if not shutil.which("openssl"):
        return
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout", path("key.pem"),
                    "-out", path("cert.pem")], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["openssl", "genrsa", "-out", path("other.pem"), "2048"], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["openssl", "rsa", "-aes128", "-passout", "pass:x", "-in", path("key.pem"), "-out", path("locked.pem")], check=True, stderr=subprocess.DEVNULL)
    for cert, key, text in (("none.pem", "key.pem", "certificate none.pem: cannot be read: No such file"), ("cert.pem", ".", "key .: cannot be read"),
                            ("key.pem", "key.pem", "certificate key.pem: no PEM"), ("cert.pem", "cert.pem", "key cert.pem: no PEM"),
                            ("cert.pem", "locked.pem", "key locked.pem: encrypted"), ("cert.pem", "other.pem", "certificate cert.pem, key other.pem")):
        refused(longtake("serve", "--port", "0", "--model", e2e.MODEL, "--tls-cert", cert, "--tls-key", key), 1, text, "TLS with %s and %s" % (cert, key))
    server = Server("--tls-cert", "cert.pem", "--tls-key", "key.pem")
    try:
        check(server.url.startswith("https://"), "TLS: %r" % server.url)
        c = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=ssl._create_unverified_context())
        c.request("GET", "/healthz")
        check(c.getresponse().status == 200, "TLS answers")
        c.close()
        check(server.stop() == 0, "TLS: ends well")
    finally:
        server.stop(signal.SIGKILL)


refused(longtake("serve", "--host", "0.0.0.0", "--model", e2e.MODEL), 2, "token file", "other machines without tokens")
refused(longtake("serve", "--model", path("none")), 1, "none", "no model")
refused(longtake("serve", "--model", e2e.MODEL, "--tls-cert", "x"), 2, "TLS", "half of TLS")
asyncio.run(main())
asyncio.run(with_tokens())
tls()
e2e.finish()
