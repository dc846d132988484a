"""Videos drawn block after block, from outside: prompts by time, interrupted and gone on with in another process, the rest of a video
that had come to its end. Frames are compared as PNG files: equal bits or not."""
import json
import os
import signal
import subprocess
import time

import e2e
from e2e import PROMPT, check, exists, longtake, path, refused, render

e2e.make_model()
AR = ("--mode", "ar", "--cache", "self-forcing:window=4,block=2", "--seed", "7", "--num-frames", "33")


def frames(name):
    folder = path(name + ".d")
    return {n: e2e.read(os.path.join(folder, n)) for n in sorted(os.listdir(folder))}


def made(name, *args, **kw):
    r = render(name, *args, "--frames-dir", name + ".d", **kw)
    check(r.returncode == 0, "%s: %s" % (name, r.stderr))
    return r


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as f:
        f.write(text)


# Prompts by time: blocks begin with frames 0, 5, 13, 21, 29 of 16 a second.
made("plain.mp4", *AR)
plain = frames("plain.mp4")
write("story.txt", "# one prompt a line\n0.5 a blue star\n{\"frame\": 20, \"prompt\": \"a green square\", \"blend\": 2}\n99 never\n")
r = made("story.mp4", *AR, "--prompt-file", "story.txt", "--report", "story.json")
story = frames("story.mp4")
same = [n for n in plain if plain[n] == story[n]]
check(same == sorted(plain)[:13], "frames before the first change: %r" % same)
check("from frame 13: a blue star" in r.stdout and "from frame 21: a green square" in r.stdout and
      "no frame drawn with the prompt of 99 s: never" in r.stdout, "result: %r" % r.stdout)
with open(path("story.json"), encoding="utf-8") as f:
    report = json.load(f)
marks = report["blocks"]["prompts"]
check([(m["frame"], m["prompt"], m["blend"]) for m in marks] ==
      [(0, PROMPT, 0), (13, "a blue star", 0), (21, "a green square", 2)], "marks: %r" % marks)
cache = report["blocks"]["cache"]
check(cache["window_frames"] == 4 and cache["keys_and_values_bytes"] ==
      4 * cache["tokens_of_frame"] * cache["layers"] * 2 * cache["width"] * cache["number_bytes"] * cache["branches"] and
      cache["keys_and_values_bytes"] + cache["tables_bytes"] == report["blocks"]["cache_bytes"], "cache: %r" % cache)
pace = report["blocks"]["pace"]  # 5 blocks, of which the first does not count; too short for memory after block 20
check(pace["blocks"] == 4 and "memory_after_block_20" not in pace, "pace: %r" % pace)
for what in ("drawing_seconds", "seconds"):
    q = pace[what]
    check(0 < q["p50"] <= q["p90"] <= q["p99"] == q["max"], "quantiles: %r" % pace)
check(pace["drawing_seconds"]["max"] == report["blocks"]["seconds_max"] < pace["seconds"]["max"], "the longest: %r" % pace)
check(0 < pace["frames_per_second"] < 28 / 4 / pace["seconds"]["p50"] * 2, "frames a second: %r" % pace)
r = render("pace.mp4", "--mode", "ar", "--cache", "self-forcing:window=2,block=1", "--num-frames", "97", "--size", "32x32", "--seed", "7",
           "--num-inference-steps", "1", "--report", "pace.json")
with open(path("pace.json"), encoding="utf-8") as f:
    long = json.load(f)["blocks"]["pace"]
check(long["blocks"] == 24 and 0 < long["memory_after_block_20"]["peak_total"] == long["memory_at_last_block"]["peak_total"] and
      long["memory_after_block_20"]["process_peak"] <= long["memory_at_last_block"]["process_peak"], "memory: %r" % long)
check(0 < report["seconds"]["first_frame"] < report["seconds"]["total"], "the first frame: %r" % report["seconds"])
info = json.loads(longtake("inspect", "story.mp4", "--json").stdout)["metadata"]
told = json.loads(info["prompts"]) if isinstance(info["prompts"], str) else info["prompts"]
check([m["frame"] for m in told] == [0, 13, 21], "metadata: %r" % told)
check(len(json.loads(info["timeline"]) if isinstance(info["timeline"], str) else info["timeline"]) == 3, "timeline")
write("first.txt", "0 " + PROMPT + "\n")
r = longtake("render", "-o", "first.mp4", "--model", e2e.MODEL, *AR, "--prompt-file", "first.txt", "--frames-dir", "first.mp4.d")
check(r.returncode == 0 and frames("first.mp4") == plain, "the first prompt from a file: %s" % r.stderr)
r = longtake("render", "-o", "pipe.mp4", "--model", e2e.MODEL, *AR[:-1], "5", "--prompt-file", "/dev/stdin", input="0 " + PROMPT + "\n")
check(r.returncode == 0 and exists("pipe.mp4"), "the first prompt from a pipe: %s" % r.stderr)

for text, says in (("1 a\nx b\n", "line 2: not a time"), ("", "no prompt in it"), ("2 a\n1 b\n", "line 2: earlier")):
    write("bad.txt", text)
    refused(render("x.mp4", *AR, "--prompt-file", "bad.txt"), 2, says, "prompt file %r" % text)
refused(longtake("render", "another", "-o", "x.mp4", "--model", e2e.MODEL, *AR, "--prompt-file", "first.txt"), 2,
        "given twice: 'another', and in 'first.txt'", "two first prompts")
refused(render("x.mp4", "--mode", "clip", "--prompt-file", "story.txt"), 2, "only mode ar", "prompts of a clip")
refused(render("x.mp4", *AR, "--prompt-file", "none.txt"), 1, "none.txt", "a file that is not there")
check(not exists("x.mp4"), "nothing is left of what was refused")

# Batch items have it too.
write("items.jsonl", json.dumps({"prompt": PROMPT, "prompt_file": "story.txt", "name": "item", "seed": 7}) + "\n")
r = longtake("batch", "items.jsonl", "--out-dir", "out", "--model", e2e.MODEL, "--mode", "ar", "--num-frames", "33")
check(r.returncode == 0 and exists("out/item.mp4"), "batch: %s" % r.stderr)
# ... and what a file says of itself is a line, its timeline included. The first prompt may be in the file of prompts alone.
comment = json.loads(info["comment"]) if isinstance(info["comment"], str) else info["comment"]
write("items.jsonl", json.dumps(dict(comment, name="again")) + "\n" + json.dumps(dict(comment, name="x", first_frame=5)) + "\n" +
      json.dumps(dict(comment, name="y", prompt="another", timeline=[dict(time=0, prompt="one")])) + "\n" +
      json.dumps({"prompt_file": "first.txt", "name": "first", "num_frames": 5, "mode": "ar"}) + "\n" +
      json.dumps({"prompt_file": "story.txt", "name": "z", "mode": "ar"}) + "\n")
r = longtake("batch", "items.jsonl", "--out-dir", "out", "--model", e2e.MODEL)
check(r.returncode == 1 and e2e.read("out/again.mp4") == e2e.read("story.mp4") and exists("out/first.mp4"), "lines: %s" % r.stderr)
for says in ("line 2: first_frame", "line 3: the first prompt is given twice: 'another', and in 'timeline' 'one'",
             "line 5: the first prompt is missing: 'story.txt'"):
    check(says in r.stderr, "%r in %s" % (says, r.stderr))

# Interrupted, and gone on with in another process.
LONG = AR[:-1] + ("99997",)


def interrupted(name, session, then=lambda: None):
    """A render that has written some frames gets a signal, and `then` is called just before it."""
    p = subprocess.Popen([e2e.PROGRAM, "render", PROMPT, "-o", name, "--model", e2e.MODEL, *LONG, "--prompt-file", "story.txt",
                          "--frames-dir", name + ".d", "--save-session", session], cwd=e2e.WORK, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    end = time.time() + 120
    while time.time() < end and p.poll() is None and not (os.path.isdir(path(name + ".d")) and len(os.listdir(path(name + ".d"))) > 9):
        time.sleep(0.01)
    then()
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=600)
    return p.returncode, err


status, err = interrupted("cut.mp4", "cut.session")
check(status == 1 and "go on with --resume cut.session" in err and exists("cut.partial.mp4"), "Ctrl-C: %d %r" % (status, err))
cut = frames("cut.mp4")
info = json.loads(longtake("inspect", "cut.session", "--json").stdout)
check(info["next_frame"] == len(cut) and info["seed"] == "7", "the saved session: %r" % info)
total = len(cut) + 16
total += (1 - total) % 4
r = longtake("render", "-o", "rest.mp4", "--model", e2e.MODEL, "--resume", "cut.session", "--num-frames", str(total), "--frames-dir",
             "rest.mp4.d")
check(r.returncode == 0 and "GiB" not in r.stderr, "resumed: %s" % r.stderr)
made("whole.mp4", *AR[:-1], str(total), "--prompt-file", "story.txt")
rest, whole = frames("rest.mp4"), frames("whole.mp4")
check(len(cut) + len(rest) == total and {**cut, **rest} == whole, "%d and %d frames are the %d of one run" % (len(cut), len(rest), total))

# Where it cannot be saved any more, that is what is said; the frames are there all the same.
os.mkdir(path("gone"))
status, err = interrupted("lost.mp4", "gone/s.session", lambda: os.rmdir(path("gone")))
check(status == 1 and "longtake: 'gone/s.session" in err and exists("lost.partial.mp4"), "a folder that is gone: %d %r" % (status, err))

# A video at its end is made longer, with another prompt.
made("short.mp4", *AR[:-1], "17", "--save-session", "short.session")
refused(longtake("render", "-o", "x.mp4", "--model", e2e.MODEL, "--resume", "short.session"), 2, "17 frames already", "no length")
r = longtake("render", "a blue star", "-o", "more.mp4", "--model", e2e.MODEL, "--resume", "short.session", "--num-frames", "33",
             "--frames-dir", "more.mp4.d")
more = frames("more.mp4")
differ = [n for n in more if more[n] != plain[n]]
check(r.returncode == 0 and differ == sorted(plain)[21:], "another prompt from the next block on: %s %r" % (r.stderr, differ))
refused(longtake("render", "-o", "x.mp4", "--model", e2e.MODEL, "--resume", "short.session", "--seed", "8"), 2, "--seed", "another seed")
for option, value in (("--drift", "watch"), ("--drift", "off"), ("--attention", "dense"), ("--inject", "blur")):
    refused(longtake("render", "-o", "x.mp4", "--resume", "short.session", option, value), 2, option, "a session's own " + option)
refused(longtake("render", "-o", "x.mp4", "--model", e2e.MODEL, "--resume", "more.mp4", "--num-frames", "33"), 1,
        "is not a saved session", "not a session")
refused(render("x.mp4", "--mode", "clip", "--save-session", "x.session"), 2, "only mode ar", "a clip cannot be saved")
kept = e2e.read("short.mp4")
refused(render("x.mp4", *AR[:-1], "5", "--save-session", "short.mp4"), 1, "'short.mp4' exists already", "a session in place of a video")
refused(render("x.mp4", *AR[:-1], "5", "--save-session", "cut.session"), 1, "'cut.session' exists already", "or of another session")
check(e2e.read("short.mp4") == kept, "it is as it was")
r = longtake("render", "-o", "on.mp4", "--model", e2e.MODEL, "--resume", "short.session", "--num-frames", "25", "--save-session",
             "./short.session")
check(r.returncode == 0 and json.loads(longtake("inspect", "short.session", "--json").stdout)["next_frame"] == 25,
      "the one that was gone on with is replaced: %s" % r.stderr)
data = bytearray(e2e.read("short.session"))
data[len(data) // 2] ^= 1
with open(path("bad.session"), "wb") as f:
    f.write(data)
refused(longtake("render", "-o", "x.mp4", "--model", e2e.MODEL, "--resume", "bad.session", "--num-frames", "33"), 1, "bad.session",
        "a damaged session")
check(not exists("x.mp4") and not exists("x.session") and not e2e.leftovers(), "leftovers: %r" % e2e.leftovers())
e2e.finish()
