#!/usr/bin/env python3
"""/v1/videos from outside: the OpenAI videos API, jobs that survive kill -9, a full queue, a full disk. Clients: http.client, curl, ffmpeg,
and the official Python SDK where it can be imported: by this Python, or the one that LONGTAKE_OPENAI_PYTHON names
(python3 -m venv X && X/bin/pip install openai)."""
import asyncio
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib

import e2e
import serve
from e2e import check, longtake, path
from serve import Client, Server

e2e.make_model()
VIDEO = {"prompt": "a red ball", "mode": "ar", "cache": "self-forcing:window=3,block=3", "num_frames": 41, "seed": 7,
         "num_inference_steps": 2, "guidance_scale": 1}
LONG = dict(VIDEO, num_frames=40001)
LIVE = {"type": "start", **VIDEO, "pace": "free"}


def call(server, method, where, fields=None, **headers):
    """(status, headers, object)"""
    body = None if fields is None else fields if isinstance(fields, bytes) else json.dumps(fields)
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    status, got, data = server.request(method, where, body=body, headers={"Content-Type": "application/json", **headers})
    return status, got, json.loads(data)


def create(server, **fields):
    status, _, job = call(server, "POST", "/v1/videos", {**VIDEO, **fields})
    check(status == 200 and job["object"] == "video" and job["status"] in ("queued", "in_progress"), "create: %d %r" % (status, job))
    return job["id"]


def get(server, ident):
    return call(server, "GET", "/v1/videos/" + ident)[2]


def until(server, ident, test, seconds=300):
    end = time.monotonic() + seconds
    job = get(server, ident)
    while not test(job) and time.monotonic() < end:
        time.sleep(0.02)
        job = get(server, ident)
    check(test(job), "waited for %s: %r" % (ident, job))
    return job


def over(job):
    return job["status"] in ("completed", "failed")


def frames_of(data, name="got.mp4"):
    """How many frames are in it, by what the command and ffmpeg say."""
    with open(path(name), "wb") as f:
        f.write(data)
    info = json.loads(longtake("inspect", name, "--json").stdout or "{}")
    if shutil.which("ffmpeg"):
        r = subprocess.run(["ffmpeg", "-v", "error", "-xerror", "-i", path(name), "-f", "null", "-"], stderr=subprocess.PIPE)
        check(r.returncode == 0 and not r.stderr, "%s decodes: %r" % (name, r.stderr[:200]))
    return info.get("frames"), info.get("metadata", {})


def tiles(name, width, height):
    """Its pictures as ffmpeg decodes them, row by row cut into squares of 64: bytes of RGB."""
    r = subprocess.run(["ffmpeg", "-v", "error", "-i", path(name), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], stdout=subprocess.PIPE)
    rows = [r.stdout[i:i + 3 * width] for i in range(0, len(r.stdout), 3 * width)]
    return [b"".join(row[3 * x:3 * x + 192] for row in rows[y:y + 64]) for y in range(0, len(rows), 64) for x in range(0, width, 64)]


def most_like(picture, others):
    """The number of the one that it differs least from, in every seventh sample."""
    return min(range(len(others)), key=lambda i: sum(abs(a - b) for a, b in zip(picture[::7], others[i][::7])))


def content(server, ident, query="", **headers):
    return server.request("GET", "/v1/videos/%s/content%s" % (ident, query), headers={k.replace("_", "-"): v for k, v in headers.items()})


def metric(server, name):
    for line in server.get("/metrics")[1].decode().splitlines():
        if line.startswith("longtake_%s " % name):
            return float(line.split()[1])


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * 3 + y) % 256 for x in range(3 * width)) for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + \
        chunk(b"IEND", b"")


def form(fields, files=()):
    """A multipart body and its type."""
    parts = [b'--BOUND\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (k.encode(), str(v).encode()) for k, v in fields.items()]
    parts += [b'--BOUND\r\nContent-Disposition: form-data; name="%s"; filename="x"\r\nContent-Type: image/png\r\n\r\n%s\r\n' % (k.encode(), v) for k, v in files]
    return b"".join(parts) + b"--BOUND--\r\n", "multipart/form-data; boundary=BOUND"


def one_job(server):
    """From the request to the file."""
    ident = create(server, seconds="2", num_frames=None)
    job = until(server, ident, over)
    check(job["status"] == "completed" and job["progress"] == 100 and job["seconds"] == "2" and job["size"] == "64x64" and job["error"] is None and
          job["completed_at"] >= job["created_at"] and job["expires_at"] > job["completed_at"] and job["seed"] == "7", "completed: %r" % job)
    status, headers, whole = content(server, ident)
    check(status == 200 and headers["content-type"] == "video/mp4" and headers["accept-ranges"] == "bytes", "content: %d %r" % (status, headers))
    frames, meta = frames_of(whole)
    check(frames == 33 and meta["prompt"] == "a red ball" and meta["seed"] == "7" and "sei" in meta and "xmp" in meta and
          meta["comment"]["num_inference_steps"] == 2, "inspect prints the parameters of the file: %r %r" % (frames, meta))
    check(whole.find(b"moov") < whole.find(b"mdat") and b"moof" not in whole, "the index is at the front")
    # ranges
    size, tag = len(whole), headers["etag"]
    for text, extra, want, span in (("bytes=0-9", {}, 206, (0, 9)), ("bytes=100-", {}, 206, (100, size - 1)), ("bytes=-5", {}, 206, (size - 5, size - 1)),
                                    ("bytes=7-7", {"If_Range": tag}, 206, (7, 7)), ("bytes=7-7", {"If_Range": '"other"'}, 200, None),
                                    ("bytes=%d-" % size, {}, 416, None), ("bytes=0-1,5-6", {}, 200, None), ("lines=1-2", {}, 200, None)):
        status, headers, data = content(server, ident, Range=text, **extra)
        what = "%s %r" % (text, extra)
        check(status == want, "%s: %d" % (what, status))
        if span:
            check(data == whole[span[0]:span[1] + 1] and headers["content-range"] == "bytes %d-%d/%d" % (*span, size), what)
        elif want == 416:
            check(headers["content-range"] == "bytes */%d" % size and "error" in json.loads(data), what)
        else:
            check(data == whole, what)
    status, headers, data = server.request("HEAD", "/v1/videos/%s/content" % ident)
    check(status == 200 and data == b"" and int(headers["content-length"]) == size, "HEAD")
    for variant, sides in (("thumbnail", (64, 64)), ("spritesheet", (320, 320))):
        status, headers, data = content(server, ident, "?variant=" + variant)
        check(status == 200 and headers["content-type"] == "image/jpeg" and data[:2] == b"\xff\xd8" and b"AI-generated" in data, "%s: %d %r" % (variant, status, headers))
        with open(path("got.jpg"), "wb") as f:
            f.write(data)
        probe = e2e.ffprobe("got.jpg")
        check(not probe or (probe[0]["width"], probe[0]["height"]) == sides, "%s: %r" % (variant, probe))
        if shutil.which("ffmpeg"):
            frames = tiles("got.mp4", 64, 64)
            shown = [most_like(t, frames) for t in tiles("got.jpg", *sides)]
            want = [0] if variant == "thumbnail" else [int((k + 0.5) * 33 / 25) for k in range(25)]
            check(shown == want, "%s: shows the frames %r" % (variant, shown))
    for variant in ("sound", "", "x" * 50):
        check(content(server, ident, "?variant=" + variant)[0] == 400, "variant %r" % variant)
    # the same again with another prompt
    status, _, other = call(server, "POST", "/v1/videos/%s/remix" % ident, {"prompt": "a blue square"})
    check(status == 200 and other["remixed_from_video_id"] == ident and other["prompt"] == "a blue square" and other["seed"] == "7" and other["seconds"] == "2",
          "remix: %d %r" % (status, other))
    check(call(server, "POST", "/v1/videos/%s/remix" % other["id"], {"prompt": "x"})[0] == 400 or over(get(server, other["id"])), "not of what is not complete")
    check(until(server, other["id"], over)["status"] == "completed", "it is drawn")
    for fields, param in (({}, "prompt"), ({"prompt": 1}, "prompt"), ({"prompt": "x", "seed": 1}, "seed"), ({"prompt": "a\x07"}, "prompt")):
        status, _, e = call(server, "POST", "/v1/videos/%s/remix" % ident, fields)
        check(status == 400 and e["error"]["param"] == param, "remix %r: %d %r" % (fields, status, e))
    check(call(server, "POST", "/v1/videos/video_none/remix", {"prompt": "x"})[0] == 404, "remix of nothing")
    call(server, "DELETE", "/v1/videos/" + other["id"])
    if shutil.which("curl"):
        url = "http://127.0.0.1:%d/v1/videos" % server.port
        with open(path("half.mp4"), "wb") as f:
            f.write(whole[:1000])
        subprocess.run(["curl", "-sf", "-C", "-", "-o", path("half.mp4"), "%s/%s/content" % (url, ident)], check=False)
        check(e2e.read("half.mp4") == whole, "curl goes on with half a file")
        out = subprocess.run(["curl", "-s", "-X", "POST", "%s/%s/cancel" % (url, ident)], stdout=subprocess.PIPE).stdout
        check(json.loads(out)["status"] == "completed", "what is complete is not cancelled: %r" % out)
    status, _, gone = call(server, "DELETE", "/v1/videos/" + ident)
    check(status == 200 and gone == {"id": ident, "object": "video.deleted", "deleted": True}, "delete: %r" % gone)
    check(call(server, "GET", "/v1/videos/" + ident)[0] == 404 and content(server, ident)[0] == 404 and call(server, "DELETE", "/v1/videos/" + ident)[0] == 404,
          "and it is gone")
    check(not [n for n in os.listdir(path("jobs")) if ident in n], "with its files: %r" % os.listdir(path("jobs")))


def forms(server):
    body, kind = form({**{k: v for k, v in VIDEO.items()}, "num_frames": 42, "round_frames": "true", "extra_body": '{"fps": 8}'})
    status, _, job = call(server, "POST", "/v1/videos", body, Content_Type=kind)
    check(status == 200 and job["num_frames"] == 41 and job["fps"] == 8, "a form: %d %r" % (status, job))
    job = until(server, job["id"], over)
    check(job["status"] == "completed" and frames_of(content(server, job["id"])[2])[0] == 41, "and it is drawn")
    picture = png(100, 80)
    import base64
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    body, kind = form({"prompt": "x", "num_frames": 5, "mode": "ar"}, [("input_reference", picture)])
    outcomes = [call(server, "POST", "/v1/videos", body, Content_Type=kind)] + \
               [call(server, "POST", "/v1/videos", {"prompt": "x", "num_frames": 5, "mode": "ar", "input_reference": r}) for r in (url, {"image_url": url})]
    for status, _, job in outcomes:
        check(status == 200, "a first picture: %d %r" % (status, job))
        if status == 200:
            check(until(server, job["id"], over)["status"] == "completed", "is drawn from: %r" % job)
    for files, text in (([("input_reference", b"GIF89a" + b"0" * 50)], "PNG"), ([("input_reference", picture[:60])], "decoded"),
                        ([("input_reference", picture[:16] + struct.pack(">II", 9000, 9000) + picture[24:])], "4096"), ([("mask", picture)], "mask")):
        body, kind = form({"prompt": "x", "num_frames": 5, "mode": "ar"}, files)
        status, _, e = call(server, "POST", "/v1/videos", body, Content_Type=kind)
        check(status == 400 and text in e["error"]["message"] and e["error"]["param"] in ("input_reference", "mask"), "%s: %d %r" % (text, status, e))
    check(not [n for n in os.listdir(path("jobs")) if n.endswith((".in", ".png"))], "no picture is left: %r" % os.listdir(path("jobs")))


def refusals(server):
    for fields, param in (({"prompt": None}, "prompt"), ({"num_frames": 42}, "num_frames"), ({"size": "63x64"}, "size"), ({"size": "64x64", "width": 128}, "size"), ({"size": "16384x16384", "mode": "clip", "cache": None, "num_frames": 481}, "size"), ({"seconds": "x"}, "seconds"),
                          ({"seconds": "1e9", "num_frames": None}, "seconds"), ({"colour": 1}, "colour"), ({"prompt": "a\x07b"}, "prompt"), ({"fps": 0}, "fps"),
                          ({"input_reference": "https://example.com/x.png"}, "input_reference"), ({"input_reference": {"file_id": "x"}}, "input_reference"),
                          ({"extra_body": 1}, "extra_body")):
        status, _, e = call(server, "POST", "/v1/videos", {**VIDEO, **fields})
        check(status == 400 and e["error"]["param"] == param and e["error"]["type"] == "invalid_request_error" and e["error"]["code"] and e["error"]["message"],
              "%r: %d %r" % (fields, status, e))
    for body, kind, want in ((b"{", "application/json", 400), (b"[]", "application/json", 400), (b"", "application/json", 400), (b"[" * 5000, "application/json", 400),
                             (b"x", "multipart/form-data", 400), (b"--B\r\n", "multipart/form-data; boundary=B", 400)):
        status, _, e = call(server, "POST", "/v1/videos", body, Content_Type=kind)
        check(status == want and "error" in e, "%r: %d %r" % (body[:10], status, e))
    check("multipart" in call(server, "POST", "/v1/videos", b"prompt=x", Content_Type="application/x-www-form-urlencoded")[2]["error"]["message"], "which forms are taken")
    status, _, e = call(server, "POST", "/v1/videos", b"{}", Content_Length=str(64 << 20))
    check(status == 413, "too large: %d" % status)
    for method, where, want in (("GET", "/v1/videos/video_none", 404), ("GET", "/v1/videos/..%2fjobs.journal", 404), ("DELETE", "/v1/videos", 405),
                                ("GET", "/v1/videos?limit=101", 400), ("GET", "/v1/videos?limit=x", 400), ("GET", "/v1/videos?order=up", 400),
                                ("GET", "/v1/videos?after=video_none", 404)):
        status, _, e = call(server, method, where)
        check(status == want and "error" in e, "%s %s: %d" % (method, where, status))


def lists(server):
    for job in call(server, "GET", "/v1/videos?limit=100")[2]["data"]:
        call(server, "DELETE", "/v1/videos/" + job["id"])
    idents = [create(server, num_frames=5, prompt="video %d" % i) for i in range(5)]
    for ident in idents:
        until(server, ident, over)
    newest = call(server, "GET", "/v1/videos")[2]
    check([v["id"] for v in newest["data"]] == idents[::-1] and newest["has_more"] is False and newest["object"] == "list" and
          (newest["first_id"], newest["last_id"]) == (idents[4], idents[0]), "list: %r" % newest)
    got, after, pages = [], "", 0
    while pages < 9:
        part = call(server, "GET", "/v1/videos?order=asc&limit=2" + after)[2]
        got += [v["id"] for v in part["data"]]
        pages += 1
        if not part["has_more"]:
            break
        after = "&after=" + part["last_id"]
    check(got == idents and pages == 3, "pages: %r" % got)


def same_again(server):
    fields = {**VIDEO, "num_frames": 5}
    first, second = (call(server, "POST", "/v1/videos", fields, Idempotency_Key="k-1")[2] for _ in range(2))
    check(first["id"] == second["id"], "the same request again is the same job")
    check(call(server, "POST", "/v1/videos", {**fields, "seed": 8}, Idempotency_Key="k-1")[0] == 422, "another request of that key")
    check(call(server, "POST", "/v1/videos", fields, Idempotency_Key="k" * 300)[0] == 431, "a key that is too long is not one that was not given")
    check(call(server, "POST", "/v1/videos", fields, Idempotency_Key="k-2")[2]["id"] != first["id"], "another key")


def while_made(server):
    """/content?live=1: all of it, and before it is complete."""
    ident = create(server, num_frames=40001)
    check(content(server, ident)[0] == 404, "not complete yet")
    if shutil.which("ffmpeg"):
        url = "http://127.0.0.1:%d/v1/videos/%s/content?live=1" % (server.port, ident)
        first = subprocess.run(["ffmpeg", "-v", "error", "-i", url, "-frames:v", "5", "-f", "null", "-"], stderr=subprocess.PIPE)
        check(first.returncode == 0 and not over(get(server, ident)), "ffmpeg shows the first frames before the last are drawn (%r)" % first.stderr[:200])
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    c.request("GET", "/v1/videos/%s/content?live=1" % ident)
    reply = c.getresponse()
    check(call(server, "DELETE", "/v1/videos/" + ident)[0] == 200 and metric(server, "jobs_failed_total") == 0, "deleted while it is drawn")
    try:
        check(False, "what was deleted looks whole: %d bytes" % len(reply.read()))
    except http.client.IncompleteRead:
        pass
    c.close()
    ident = create(server, num_frames=401, seconds=3)
    check(get(server, ident)["seconds"] == "25.0625", "frames count more than seconds: %r" % get(server, ident)["seconds"])
    status, headers, data = content(server, ident, "?live=1")
    check(status == 200 and frames_of(data)[0] == 401, "all frames came while they were made")
    check(until(server, ident, over)["status"] == "completed", "and the job is complete")
    check(frames_of(content(server, ident, "?live=1")[2])[0] == 401, "afterwards it is the file")


async def shared(server):
    """Live videos come first; a long denoising lets them; the queue is bounded and says how long."""
    begun = time.monotonic()
    # so long that it is under way whenever it is looked at; it is not drawn to its end
    endless = dict(mode="clip", cache=None, num_frames=161, num_inference_steps=1000, size="128x128")
    slow = create(server, **endless)
    job = until(server, slow, lambda j: j["progress"] > 0)
    async with Client(server) as c:
        await c.say(**LIVE)
        await c.until(lambda i: isinstance(i, serve.Unit) and i.kind == "end")
        check(len(c.frames()) == 41, "a live video is drawn beside it")
    job = get(server, slow)
    check(job["status"] == "in_progress" and 0 < job["progress"] < 90, "in the middle of its denoising: %r" % job)
    waiting = [create(server) for _ in range(2)]
    percent = get(server, slow)["progress"]
    jobs = [get(server, i) for i in waiting]
    journal = e2e.read("jobs/jobs.journal")
    status, headers, e = call(server, "POST", "/v1/videos", VIDEO)
    wait = (time.monotonic() - begun) * (100 - percent) / percent  # until the slow one ends, at most, by what it had done
    length = VIDEO["num_frames"] / 16  # what is taken for the time of one that has not begun
    check([j["queue_position"] for j in jobs] == [0, 1] and 0 < jobs[0]["eta_seconds"] <= wait and length < jobs[1]["eta_seconds"] <= wait + length,
          "position and time: %r" % jobs)
    check(e2e.read("jobs/jobs.journal") == journal, "what is refused is not written down")
    check(status == 429 and e["error"]["type"] == "rate_limit_error" and 1 <= int(headers["retry-after"]) <= wait + 2, "a full queue: %d %r %r, %g" % (status, headers, e, wait))
    check(call(server, "POST", "/v1/videos/%s/cancel" % slow, {})[2]["error"]["code"] == "cancelled", "cancelled")
    check(call(server, "DELETE", "/v1/videos/" + waiting[1])[0] == 200, "one that waits is deleted")
    check(until(server, waiting[0], over)["status"] == "completed", "the other one runs")
    async with Client(server) as long, Client(server) as c:
        await long.say(**{**LIVE, **endless})
        await long.event("progress", phase="denoise")
        await c.say(**LIVE)
        await c.until(lambda i: isinstance(i, serve.Unit) and i.kind == "end")
        await long.say(type="stop")
        done = await long.event("done")
        check(len(c.frames()) == 41 and done["frames"] == 0 and done["reason"] == "stopped", "a long denoising that is watched lets others, too: %r" % done)
    check(get(server, slow)["status"] == "failed" and metric(server, "jobs_active") == 0, "the device is free")


async def on_disk(server):
    """What does not fit in a stream's memory is on the disk, and the download has all of it."""
    async with Client(server) as c:
        await c.say(**dict(LIVE, num_frames=401, crf=1), reliable=True)
        accepted = await c.event("accepted")
        await c.until(lambda i: isinstance(i, serve.Unit) and i.kind == "end")
        url = "/v1/live/%s/content?key=%s" % (accepted["session_id"], accepted["key"])
        status, headers, data = server.request("GET", url)
        check(status == 200 and int(headers["content-length"]) == len(data) > 1 << 20 and frames_of(data)[0] == 401, "the download of %d bytes" % len(data))
        check(metric(server, "jobs_disk_bytes") == len(data), "it counts")
        await c.say(type="seek", pts=0, event_id="s")
        check((await c.event("applied", event_id="s"))["frame"] > 0, "memory has lost its beginning")
    async with Client(server) as c:
        await c.say(**dict(LIVE, num_frames=81, crf=1))
        accepted = await c.event("accepted")
        check(server.get(url)[0] == 200, "who has gone can still have it")
        await c.until(lambda i: isinstance(i, serve.Unit) and i.kind == "end")
    # streams that have ended have the memory of those that may run, 1 MiB, and the oldest leave
    end = time.monotonic() + 60
    while server.get(url)[0] == 200 and time.monotonic() < end:
        time.sleep(0.05)
    url = "/v1/live/%s/content?key=%s" % (accepted["session_id"], accepted["key"])
    check(time.monotonic() < end and server.get(url)[0] == 200, "the older of two leaves")


def sdk(server):
    """The official client."""
    python = os.environ.get("LONGTAKE_OPENAI_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import openai; openai.OpenAI(api_key='x').videos"], stderr=subprocess.DEVNULL).returncode:
        print("skip: the OpenAI SDK cannot be imported by %s" % python)
        return
    with open(path("first.png"), "wb") as f:
        f.write(png(64, 64))
    code = """
import sys, time, openai
client = openai.OpenAI(api_key="none", base_url=sys.argv[1])
video = client.videos.create(prompt="a red ball", model="sora-2", seconds="2", size="64x64", extra_body={"num_inference_steps": 2, "mode": "ar"})
assert video.status in ("queued", "in_progress"), video
while video.status in ("queued", "in_progress"):
    time.sleep(0.05)
    video = client.videos.retrieve(video.id)
assert video.status == "completed" and video.progress == 100 and video.seconds == "2" and video.model == "sora-2", video
client.videos.download_content(video.id).write_to_file(sys.argv[2])
with open(sys.argv[2] + ".jpg", "wb") as f:
    f.write(client.videos.download_content(video.id, variant="thumbnail").read())
assert client.videos.remix(video.id, prompt="a blue square").remixed_from_video_id == video.id
polled = client.videos.create_and_poll(prompt="x", seconds="1", input_reference=open(sys.argv[3], "rb"), extra_body={"num_inference_steps": 2, "mode": "ar"})
assert polled.status == "completed", polled
seen = [v.id for v in client.videos.list(limit=1)]
assert seen[0] == polled.id and seen[2] == video.id, seen
assert client.videos.delete(video.id).deleted
try:
    client.videos.retrieve(video.id)
    raise SystemExit("still there")
except openai.NotFoundError as e:
    assert e.code == "not_found", e
try:
    client.videos.create(prompt="x", size="63x64")
    raise SystemExit("accepted")
except openai.BadRequestError as e:
    assert e.param == "size", e
print("good")
"""
    r = subprocess.run([python, "-c", code, "http://127.0.0.1:%d/v1" % server.port, path("sdk.mp4"), path("first.png")], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True, timeout=600)
    check(r.stdout.strip() == "good", "the OpenAI SDK: %s%s" % (r.stdout, r.stderr[-800:]))
    check(r.stdout.strip() != "good" or e2e.read("sdk.mp4.jpg")[:2] == b"\xff\xd8", "its thumbnail")
    check(r.stdout.strip() != "good" or frames_of(e2e.read("sdk.mp4"), "sdk.mp4")[0] == 33, "its download")


def killed():
    """kill -9 in the middle of ten jobs."""
    args = ("--data-dir", "ten", "--save-seconds", "0.001", "--log-requests")
    server = Server(*args)
    lengths = [5, 41, 1601, 41, 5, 41, 5, 41, 5, 41]

    def drawn(ident):  # how often the log says so; said last, when others know already
        with open(path("serve.log")) as f:
            return f.read().count('"job_id":"%s","outcome":"completed"' % ident)
    try:
        server.wait_ready()
        idents = [create(server, num_frames=n, **({"mode": "clip", "cache": None} if n == 5 else {})) for n in lengths]
        # files are made of what is drawn beside the device: those before may take until the long one is in its middle
        for ident in idents[:2]:
            until(server, ident, lambda j: over(j) and drawn(ident))
        until(server, idents[2], lambda j: j["progress"] > 10 or over(j))
        before = content(server, idents[0])[2]
    finally:
        server.stop(signal.SIGKILL)
    check(os.path.exists(path("ten/%s.session" % idents[2])), "the long one was being drawn: %r" % os.listdir(path("ten")))
    with open(path("ten/jobs.journal"), "r+b") as f:  # a record that was being written
        f.seek(len(f.read().rstrip(b"\0")))
        f.write(b"\x40\0\0\0half")
    server = Server(*args)
    try:
        server.wait_ready()
        jobs = [until(server, i, lambda j: over(j) and drawn(i)) for i in idents]  # what it was made of is gone before the log says so
        check([j["status"] for j in jobs] == ["completed"] * 10, "all ten complete: %r" % [(j["status"], j["error"]) for j in jobs])
        got = [content(server, i)[2] for i in idents]
        check([frames_of(data)[0] for data in got] == lengths, "none is corrupt")
        check(got[0] == before, "what was complete is as it was")
        check(metric(server, "jobs_resumed_total") == 1, "the one in the middle went on where it was: %r" % metric(server, "jobs_resumed_total"))
        check([v["id"] for v in call(server, "GET", "/v1/videos?order=asc")[2]["data"]] == idents, "none twice")
        check(sorted(os.listdir(path("ten"))) == sorted(["jobs.journal", "jobs.journal.damaged"] + [i + e for i in idents for e in (".mp4", ".jpg", ".sheet")]), "nothing is left over: %r" % os.listdir(path("ten")))
        check(e2e.longtake("serve", "--port", "0", "--model", e2e.MODEL, "--data-dir", "ten").returncode == 1, "a second server does not share the folder")
        # SIGTERM: what is drawn is kept, and the next server goes on
        last = create(server, num_frames=8001)
        until(server, last, lambda j: j["progress"] > 5)
        check(server.stop() == 0, "ends well")
        server = Server(*args)
        server.wait_ready()
        check(metric(server, "jobs_resumed_total") == 0 or get(server, last)["progress"] >= 5, "its progress is not lost")
        until(server, last, lambda j: metric(server, "jobs_resumed_total") == 1)
        check(all(drawn(i) == 1 for i in idents), "each was drawn to its end once")
    finally:
        server.stop(signal.SIGKILL)
    damaged(args, idents)


def damaged(args, idents):
    """A byte of the journal turned over costs one record; without a journal no video is thrown away."""
    with open(path("ten/jobs.journal"), "r+b") as f:
        f.seek(f.read().index(idents[1].encode()))
        f.write(b"V")
    for gone in (idents[1:2], idents):
        server = Server(*args)
        try:
            server.wait_ready()
            have = [v["id"] for v in call(server, "GET", "/v1/videos?order=asc")[2]["data"]]
            check([i for i in idents if i not in have] == gone, "gone: %r" % have)
            kept = sorted(n for n in os.listdir(path("ten")) if n.endswith(".mp4"))
            check(kept == sorted(["%s%s.mp4" % ("lost_" * (i in gone), i) for i in idents]), "no video is thrown away: %r" % kept)
        finally:
            server.stop(signal.SIGKILL)
        check(os.path.exists(path("ten/jobs.journal.damaged")), "the damaged journal is kept")
        os.remove(path("ten/jobs.journal"))


def disk_of(mib):
    """How to start a server whose folder "full" is a disk of its own, of so many MiB; None where this user may not."""
    os.makedirs(path("full"), exist_ok=True)
    within = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=%dm tmpfs "$0" && exec "$@"' % mib, path("full")]
    tried = shutil.which("unshare") and subprocess.run([*within, "true"], stderr=subprocess.DEVNULL).returncode == 0
    return within if tried else None


async def beside(c, work, *args):
    """What work(*args) returns, while a connection is read."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    while not task.done():
        await c.unit(seconds=0.1)
    return task.result()


async def full_disk():
    """A real disk of 1 MiB, or where there is none to be had files that cannot grow beyond 400 kB: the job fails and says why, streams go on."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400000, 400000))
    within = disk_of(1)
    server = Server("--data-dir", "full", "--history", "1", **(dict(within=within) if within else dict(before=limit)))
    try:
        server.wait_ready()
        async with Client(server) as c:
            await c.say(**dict(LIVE, num_frames=40001, pace="realtime", crf=1))
            await c.unit()
            ident = create(server, num_frames=4001, crf=1)
            job = await beside(c, until, server, ident, over)
            check(job["status"] == "failed" and job["error"]["code"] == "disk_full" and "/" not in job["error"]["message"], "the reason: %r" % job["error"])
            seen = c.frames()[-1].seq
            check(await c.unit(lambda u: u.seq > seen + 8), "the stream goes on")
            check((await beside(c, until, server, create(server), over))["status"] == "completed", "and so do small jobs")
            if within:  # not a byte is left
                filler = "/proc/%d/root%s/filler" % (server.process.pid, path("full"))
                with open(filler, "wb", buffering=0) as f:
                    try:
                        while f.write(bytes(4096)):
                            pass
                    except OSError:
                        pass
                status, _, e = call(server, "POST", "/v1/videos", VIDEO)
                if status == 200:  # there was room to write it down
                    e = await beside(c, until, server, e["id"], over)
                check(status in (200, 507) and e["error"]["code"] == "disk_full", "the reason of a job without a byte: %d %r" % (status, e))
                seen = c.frames()[-1].seq
                check(await c.unit(lambda u: u.seq > seen + 24), "the stream goes on without its recording")
                check(call(server, "DELETE", "/v1/videos/" + ident)[0] == 200 and server.get("/readyz")[0] == 200, "what failed can be deleted")
                os.unlink(filler)
                check((await beside(c, until, server, create(server), over))["status"] == "completed", "with room again jobs are taken")
            await c.say(type="stop")
            check((await c.event("done"))["reason"] == "stopped", "the stream ends well")
    finally:
        server.stop(signal.SIGKILL)


def expired():
    """A crowd of connections takes no descriptor that a job needs; a second after its end it has expired."""
    server = Server("--data-dir", "short", "--retain-seconds", "1", before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160)))
    try:
        server.wait_ready()
        asks = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(2)]
        for c in asks:  # they have their places before the crowd comes
            c.connect()
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        end = time.monotonic() + 60
        files = "/proc/%d/fd" % server.process.pid
        while len(os.listdir(files)) <= 90 and time.monotonic() < end:
            time.sleep(0.02)
        most = len(os.listdir(files))
        for c, frames in zip(asks, (401, 5)):
            c.request("POST", "/v1/videos", json.dumps(dict(VIDEO, num_frames=frames)), {"Content-Type": "application/json"})
            ident = json.loads(c.getresponse().read())["id"]
        # the journal keeps that it was complete; the video may be gone when one looks
        while b'"op":"done","id":"%s"' % ident.encode() not in e2e.read("short/jobs.journal") and time.monotonic() < end:
            most = max(most, len(os.listdir(files)))
            time.sleep(0.02)
        check(time.monotonic() < end and 90 < most < 130, "drawn in a crowd: %d descriptors, %r" % (most, os.listdir(path("short"))))
        for k in crowd + asks:
            k.close()
        while call(server, "GET", "/v1/videos/" + ident)[0] == 200 and time.monotonic() < end:
            time.sleep(0.05)
        check(os.listdir(path("short")) == ["jobs.journal"], "a second after its end it has expired: %r" % os.listdir(path("short")))
    finally:
        server.stop(signal.SIGKILL)


def owners():
    with open(path("tokens"), "w") as f:
        f.write("0123456789abcdef\nfedcba9876543210\n")
    server = Server("--token-file", "tokens", "--data-dir", "owned", "--disk", "1")
    try:
        server.wait_ready()
        mine, theirs = ({"Authorization": "Bearer " + t} for t in ("0123456789abcdef", "fedcba9876543210"))
        check(call(server, "GET", "/v1/videos")[0] == 401 and call(server, "POST", "/v1/videos", VIDEO)[0] == 401, "without a token")
        ident = call(server, "POST", "/v1/videos", {**VIDEO, "num_frames": 5}, **mine)[2]["id"]
        check(call(server, "GET", "/v1/videos/" + ident, **theirs)[0] == 404 and call(server, "DELETE", "/v1/videos/" + ident, **theirs)[0] == 404 and
              call(server, "GET", "/v1/videos", **theirs)[2]["data"] == [] and len(call(server, "GET", "/v1/videos", **mine)[2]["data"]) == 1, "each has its own")
        # a disk of 1 MiB: old videos leave for new ones, and what alone is too large fails
        end = time.monotonic() + 300
        while not over(call(server, "GET", "/v1/videos/" + ident, **mine)[2]) and time.monotonic() < end:
            time.sleep(0.02)  # before that it is no old one
        status, _, big = call(server, "POST", "/v1/videos", {**VIDEO, "num_frames": 2001, "crf": 1}, **mine)
        end = time.monotonic() + 300
        while not over(big) and time.monotonic() < end:
            time.sleep(0.05)
            big = call(server, "GET", "/v1/videos/" + big["id"], **mine)[2]
        check(big["status"] == "failed" and big["error"]["code"] == "disk_full", "more than its disk: %r" % big["error"])
        check(call(server, "GET", "/v1/videos/" + ident, **mine)[0] == 404, "the old one left")
        check(server.stop() == 0, "ends well")
    finally:
        server.stop(signal.SIGKILL)


server = Server("--log-requests", "--data-dir", "jobs", "--max-queue", "2")
try:
    server.wait_ready()
    one_job(server)
    forms(server)
    refusals(server)
    same_again(server)
    while_made(server)
    asyncio.run(shared(server))
    check("a red ball" not in open(path("serve.log")).read(), "no prompt in the log")
finally:
    server.stop(signal.SIGKILL)
server = Server("--log-requests", "--history", "1", "--max-sessions", "1")
try:
    server.wait_ready()
    asyncio.run(on_disk(server))
    lists(server)
    sdk(server)
    check(server.stop() == 0, "ends well: %r" % server.process.returncode)
finally:
    server.stop(signal.SIGKILL)
killed()
asyncio.run(full_disk())
expired()
owners()
e2e.finish()
