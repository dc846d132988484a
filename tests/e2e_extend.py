#!/usr/bin/env python3
"""longtake render from outside: segments that go on from each other, videos that are continued."""
import json
import os
import shutil
import subprocess

import e2e
from e2e import check, exists, longtake, path, refused, render

e2e.make_model()


def frames(name):
    return json.loads(longtake("inspect", name, "--json").stdout)["frames"]


def pictures(folder):
    return [e2e.read(folder + "/" + name) for name in sorted(os.listdir(path(folder)))]


# Longer than a clip, segment by segment; the first one is a clip; a longer video begins with the shorter one's frames.
EXTEND = ["--mode", "extend:segment=9,overlap=1", "--seed", "7"]
r = render("clip.mp4", "--mode", "clip", "--num-frames", "9", "--seed", "7", "--frames-dir", "clip")
r = render("long.mp4", *EXTEND, "--num-frames", "25", "--frames-dir", "long", "--report", "long.json")
check(r.returncode == 0 and frames("long.mp4") == 25, "extend: %s" % r.stderr)
check(pictures("long")[:9] == pictures("clip"), "the first segment is a clip")
report = json.load(open(path("long.json")))
check(report["blocks"]["count"] == 3 and report["passes"]["step_allocs"] == 0, "report: %r" % report["blocks"])
check(report["parameters"]["mode"] == "extend:segment=9,overlap=1", "parameters: %r" % report["parameters"])
render("short.mp4", *EXTEND, "--num-frames", "13", "--frames-dir", "short")
check(pictures("short") == pictures("long")[:13], "a longer video begins the same")
r = render("naive.mp4", "--mode", "extend:naive,segment=9", "--num-frames", "25", "--seed", "7", "--frames-dir", "naive")
check(r.returncode == 0 and pictures("naive")[:9] == pictures("clip"), "naive: %s" % r.stderr)
check(pictures("naive")[9:] != pictures("long")[9:], "naive is another way")
refused(render("x.mp4", "--mode", "extend:overlap=9"), 2, "overlap 9", "overlap")
refused(render("x.mp4", "--mode", "extend:segment=10"), 2, "9 and 13", "segment")
refused(render("x.mp4", "--mode", "clip:naive"), 2, "only extend takes keys", "keys of a clip")

# Videos that are continued: their frames first, then the new ones, or these alone. Prompts are counted from the first new one.
with open(path("later.txt"), "w", encoding="utf-8") as f:
    f.write("f4 a blue star\n")
for mode, extra in (("extend", ["--mode", "extend:segment=13,overlap=2"]), ("ar", ["--mode", "ar", "--cache", "self-forcing:window=6,block=1", "--prompt-file", "later.txt"])):
    r = render(mode + "-on.mp4", "--video", "long.mp4", *extra, "--num-frames", "12", "--seed", "1", "--frames-dir", mode + "-on")
    check(r.returncode == 0 and frames(mode + "-on.mp4") == 25 + 12, "%s goes on: %s" % (mode, r.stderr))
    check("after 25 of 'long.mp4'" in r.stderr, "said: %r" % r.stderr)
    render(mode + "-new.mp4", "--video", "long.mp4", *extra, "--num-frames", "12", "--seed", "1", "--new-only", "--frames-dir",
           mode + "-new")
    told = json.loads(longtake("inspect", mode + "-on.mp4", "--json").stdout)["metadata"].get("prompts", "[]")
    told = [(m["frame"], m["file_frame"]) for m in (json.loads(told) if isinstance(told, str) else told)]
    check(mode != "ar" or ("from frame 4 (29 of the file): a blue star" in r.stdout and told == [(0, 25), (4, 29)]), "%r %r" % (r.stdout, told))
    check(pictures(mode + "-new") == pictures(mode + "-on")[25:], "the new frames alone")
    check(json.loads(longtake("inspect", mode + "-on.mp4", "--json").stdout)["metadata"].get("video") == "long.mp4", "metadata")
r = render("i.mp4", "--mode", "ar", "--image", "long/000000.png", "--num-frames", "13", "--seed", "3")
check(r.returncode == 0 and frames("i.mp4") == 13, "a picture before blocks: %s" % r.stderr)
if e2e.ffprobe("long.mp4"):  # ffmpeg is there: another size, rate and container, and a telephone's turned picture
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc=size=90x60:rate=32:duration=1", "-c:v", "libvpx",
                    path("other.webm")], check=True)
    r = render("w.mp4", "--video", "other.webm", "--seconds", "0.5", "--seed", "1")  # the mode is chosen: a clip could not
    check(r.returncode == 0 and frames("w.mp4") == 16 + 8 and "(32 a second there)" in r.stderr, "webm: %s" % r.stderr)
refused(render("x.mp4", "--video", "long.mp4", "--mode", "ar", "--cache", "self-forcing:window=2,block=2", "--num-frames", "12"), 2,
        "a window of 2 frames is the block that is drawn", "a window that holds nothing of the video")
refused(render("x.mp4", "--video", "none.mp4"), 1, "none.mp4", "missing video")
refused(render("x.mp4", "--video", "long.json"), 1, "long.json", "a video that is none")
refused(render("x.mp4", "--video", "long.mp4", "--mode", "clip"), 2, "a clip continues nothing", "video and clip")
refused(render("x.mp4", "--video", "long.mp4", "--num-frames", "13"), 2, "12 and 16", "new frames come in fours")
refused(render("x.mp4", "--new-only"), 2, "--new-only", "new-only alone")
check(not exists("x.mp4"), "nothing is left of what was refused")

# A model with one time for all frames goes on too, from what it drew, a video, a picture.
shutil.copytree(e2e.MODEL, path("one-time"))
with open(path("one-time/model_index.json")) as f:
    index = json.load(f)
index["expand_timesteps"] = False
with open(path("one-time/model_index.json"), "w") as f:
    json.dump(index, f)
check(json.loads(longtake("inspect", path("one-time"), "--json").stdout)["family"] == "wan2.1-t2v", "read as Wan2.1")
for name, count, how in (("ext", 17, EXTEND), ("nai", 17, ["--mode", "extend:naive,segment=9"]), ("vid", 33, ["--video", "long.mp4"]),
                         ("pic", 9, ["--mode", "clip", "--image", "long/000000.png"])):
    r = longtake("render", e2e.PROMPT, "-o", name + ".mp4", "--model", "one-time", "--num-frames", "8" if name == "vid" else str(count), *how)
    check(r.returncode == 0 and frames(name + ".mp4") == count, "one time, %s: %s" % (name, r.stderr))

# A batch knows them too.
with open(path("items.jsonl"), "w") as f:
    f.write(json.dumps({"prompt": "a red ball", "mode": "extend:segment=9,overlap=1", "num_frames": 13, "name": "e"}) + "\n")
    f.write(json.dumps({"prompt": "a red ball", "video": path("long.mp4"), "num_frames": 8, "name": "v"}) + "\n")
r = longtake("batch", "items.jsonl", "--out-dir", "out", "--model", e2e.MODEL)
check(r.returncode == 0 and frames("out/e.mp4") == 13 and frames("out/v.mp4") == 33, "batch: %s %s" % (r.stdout, r.stderr))

e2e.finish()
