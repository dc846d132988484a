#!/usr/bin/env python3
"""longtake batch from outside: the manifest, errors that stop nothing, a second run, Ctrl-C, the parameters of a file as a line."""
import fcntl
import json
import os
import signal
import struct
import subprocess
import time

import e2e
from e2e import MODEL, check, exists, longtake, path, refused

e2e.make_model()


def write(name, *lines):
    with open(path(name), "w") as f:
        for line in lines:
            f.write((line if isinstance(line, str) else json.dumps(line)) + "\n")


def batch(name, *args):
    return longtake("batch", name, "--out-dir", "out", "--model", MODEL, *args)


def manifest(last=0):
    with open(path("out/manifest.jsonl")) as f:
        return [json.loads(line) for line in f.readlines()[-last:]]


write("items.jsonl",
      {"prompt": "a red ball", "seed": 7},
      {"prompt": "a blue cube", "seed": "8", "num_frames": 5, "name": "cube", "user": "u1", "metadata": {"shot": 2}},
      "this is no JSON",
      "",
      {"prompt": "a ring", "size": "65x64"},
      {"prompt": "a ring", "sede": 3},
      {"prompt": "a star", "width": 32, "height": 48, "fps": 8, "num_inference_steps": 1, "codec": "h264"},
      {"seed": 1},
      {"prompt": "a ring", "name": "../ring"},
      {"prompt": "a ring", "name": "cube"},
      {"prompt": "a ring", "model": "another"},
      {"prompt": "a ring", "num_frames": 10},
      '{"prompt": "a", "prompt": "b"}',
      {"prompt": "a red ball", "input_reference": "none.png"},
      {"prompt": "a", "size": "32x32", "width": 64},
      '{"prompt": "a", "seed": 18446744073709551615}',
      '{"prompt": "a", "guidance_scale": NaN}',
      {"prompt": "a", "dtype": "f64"},
      {"prompt": "a", "vae": "another"},
      {"prompt": "a", "name": "a.mp4"},
      {"prompt": "  "},
      {"prompt": "a", "x" + 60 * "\u00e9": 1})
r = batch("items.jsonl")
check(r.returncode == 1, "errors: exit status %d" % r.returncode)
check("3 done, 0 skipped, 18 failed of 21" in r.stdout, "summary: %r" % r.stdout)
m = manifest()
check([e["line"] for e in m] == [1, 2, 3] + list(range(5, 23)), "an entry for each item")
status = {e["line"]: e["status"] for e in m}
message = {e["line"]: e["message"] for e in m}
check([l for l in sorted(status) if status[l] == "done"] == [1, 2, 7], "done: %r" % status)
for line, text in ((3, "JSON"), (5, "65"), (6, "nearest: seed"), (8, "prompt"), (9, "../ring"), (10, "'cube': line 2, another item"), (11, "model"),
                   (12, "10"), (13, "duplicate"), (14, "none.png"), (6, "known: prompt, name"), (6, "num_inference_steps"), (15, "size"),
                   (16, "too big integer"), (16, "written as a text"), (17, "NaN"), (18, "dtype"), (19, "vae"), (20, "without .mp4"),
                   (21, "the text is empty"), (22, "unknown field 'x")):
    check(text in message[line], "line %d: message %r, wanted %r in it" % (line, message[line], text))
known = message[6].split("known: ")[1].rstrip(")").split(", ")
words = longtake("batch", "--help").stdout.replace(",", " ").split()
check(len(known) > 20 and not [f for f in known if f not in words and "--" + f.replace("_", "-") not in words], "--help has every field: %r" % known)
by_line = {e["line"]: e for e in m}
check(by_line[2]["file"] == "cube.mp4" and by_line[2]["user"] == "u1" and by_line[2]["metadata"] == {"shot": 2}, "name and notes")
check("seed" not in by_line[3] and by_line[1]["bytes"] == os.path.getsize(path("out/" + by_line[1]["file"])), "no seed in a broken line; bytes")
check(by_line[1]["seed"] == "7" and by_line[2]["seed"] == "8" and by_line[1]["seconds"] > 0, "seeds and seconds")
info = json.loads(longtake("inspect", "out/" + by_line[7]["file"], "--json").stdout)
check((info["width"], info["height"], info["fps"], info["frames"]) == (32, 48, 8, 9), "fields reach the video: %r" % info)
check(not e2e.leftovers(), "leftovers: %r" % e2e.leftovers())

# A second run skips what is done and tries the rest again; a removed file is made again, with the same bytes.
first = e2e.read("out/" + by_line[7]["file"])
os.remove(path("out/" + by_line[7]["file"]))
r = batch("items.jsonl")
check("1 done, 2 skipped, 18 failed of 21" in r.stdout, "second run: %r" % r.stdout)
check(e2e.read("out/" + by_line[7]["file"]) == first, "the seed that was chosen makes the same video again")

write("control.jsonl", {"prompt": "a", "name": "two\nlines"}, {"prompt": "a", "name": "\x1b[31m"}, {"prompt": "a", "name": "a\x7f"})
r = batch("control.jsonl")
check(r.stderr.count("a plain file name is wanted") == 3 and r.stderr.count("\n") == 4 and "\x1b" not in r.stderr, "names with control characters: " + r.stderr)

# A file that is not as it was left is made again; so is one that other parts or numbers would make.
write("one.jsonl", {"prompt": "a red ball", "seed": 7, "num_frames": 5, "num_inference_steps": 1})
r = batch("one.jsonl")
check("1 done" in r.stdout, "one: %r" % r.stderr)
video = path("out/" + manifest()[-1]["file"])
whole = e2e.read(video)
with open(video, "wb") as f:
    f.write(whole[:100])
r = batch("one.jsonl")
check("1 done, 0 skipped" in r.stdout and e2e.read(video) == whole, "a cut file is made again: %r" % r.stdout)
check("0 done, 1 skipped" in batch("one.jsonl").stdout, "a whole one is not")
for args in (("--vae", e2e.MODEL + "/vae"), ("--dtype", "f32"), ("--isa", "ref")):
    r = batch("one.jsonl", *args)
    check("1 done, 0 skipped" in r.stdout, "%s makes another video: %r %r" % (args[0], r.stdout, r.stderr))

# One batch in a folder at a time; a pipe is not waited for.
with open(path("out/manifest.jsonl")) as f:
    fcntl.flock(f, fcntl.LOCK_EX)
    refused(batch("one.jsonl"), 1, "another process is using it", "two batches")
os.mkfifo(path("pipe"))
refused(batch("pipe"), 1, "not a regular file", "a pipe of items")
write("piped.jsonl", {"prompt": "a", "image": "pipe"})
check("pipe" in batch("piped.jsonl").stderr, "a pipe as a picture")
os.mkdir(path("linked"))
os.symlink(path("one.jsonl"), path("linked/manifest.jsonl"))
before = e2e.read("one.jsonl")
refused(longtake("batch", "one.jsonl", "--out-dir", "linked", "--model", MODEL), 1, "symbolic link", "a manifest that is a link")
check(e2e.read("one.jsonl") == before, "what it leads to stays")

# Order, blanks and the caller's notes do not make another item; another value does. A torn last line of the manifest is survived.
with open(path("out/manifest.jsonl"), "a") as f:
    f.write('{"line": 1, "hash": "torn')
write("items2.jsonl", {"seed": 7, "prompt": "a red ball", "user": "somebody"}, {"prompt": "a red ball", "seed": 9})
r = batch("items2.jsonl")
check(r.returncode == 0 and "1 done, 1 skipped, 0 failed of 2" in r.stdout, "by content: %r %r" % (r.stdout, r.stderr))
r = batch("items2.jsonl", "--num-inference-steps", "2")
check("2 done, 0 skipped" in r.stdout, "options of the command line count: %r" % r.stdout)

# The parameters of a finished file are a line again, and make the same picture.
info = json.loads(longtake("inspect", "out/cube.mp4", "--json").stdout)
check(info["metadata"]["comment"]["codec"] == "h264" and info["metadata"]["comment"]["crf"] == 18, "codec and quality")
write("again.jsonl", {**info["metadata"]["comment"], "name": "again"})
r = batch("again.jsonl")
check(r.returncode == 0, "parameters as a line: %s" % r.stderr)
again = json.loads(longtake("inspect", "out/again.mp4", "--json").stdout)
check(again["metadata"]["comment"] == info["metadata"]["comment"], "the same parameters")
check(e2e.read("out/again.mp4") == e2e.read("out/cube.mp4"), "the same file")
write("block.jsonl", {"prompt": "a red ball", "seed": 3, "size": "32x32", "num_inference_steps": 1, "mode": "ar", "name": "block"})
check("1 done" in batch("block.jsonl").stdout, "blocks")
comment = json.loads(longtake("inspect", "out/block.mp4", "--json").stdout)["metadata"]["comment"]
write("block.jsonl", {**comment, "name": "block2"})
r = batch("block.jsonl")
check(r.returncode == 0 and e2e.read("out/block2.mp4") == e2e.read("out/block.mp4"), "parameters of blocks as a line: %s" % r.stderr)

# A line that says the same as an earlier one has its video, and an entry for its own notes; one that fails is not tried twice.
write("twice.jsonl", {"prompt": "a red ball", "seed": 5, "name": "five"}, {"prompt": "a red ball", "seed": 5, "name": "five", "user": "u2"},
      {"prompt": "a red ball", "seed": 6, "name": "five"}, {"prompt": "a", "image": "none.png"}, {"image": "none.png", "prompt": "a"})
r = batch("twice.jsonl")
check(r.returncode == 1 and "1 done, 1 skipped, 3 failed of 5" in r.stdout, "twice: %r" % r.stdout)
for text in ("line 2: the same as line 1, which has the video", "line 3: name 'five': line 1, another item, has it",
             "line 5: the same as line 4, which failed"):
    check(text in r.stderr, "twice: %r not in %r" % (text, r.stderr))
m = manifest(5)
check([(e["line"], e["status"], e["file"]) for e in m] == [(1, "done", "five.mp4"), (2, "done", "five.mp4"), (3, "failed", ""),
                                                           (4, "failed", ""), (5, "failed", "")], "twice: %r" % m)
check(m[0]["hash"] == m[1]["hash"] and m[0]["bytes"] == m[1]["bytes"] and m[1]["user"] == "u2" and "line 1" in m[1]["message"], "twice: notes")
check("0 done, 2 skipped, 3 failed of 5" in batch("twice.jsonl").stdout, "twice: a second run")

# A line's length stands in place of the command line's, in frames or in seconds.
write("length.jsonl", {"prompt": "a red ball", "seed": 1, "seconds": 0.5, "num_frames": 9})
r = batch("length.jsonl")
check(r.returncode == 1 and "--seconds 0.5 and --num-frames 9" in r.stderr, "two lengths in a line: %s" % r.stderr)
write("length.jsonl", {"prompt": "a red ball", "seed": 1, "seconds": 0.5}, {"prompt": "a red ball", "seed": 1, "num-frames": 13},
      {"prompt": "a red ball", "seed": 1})
with open(path("length.jsonl"), "rb+") as f: # a byte order mark is no part of the first line
    text = f.read()
    f.seek(0)
    f.write(b"\xef\xbb\xbf" + text)
for option, frames in (("--num-frames=5", [9, 13, 5]), ("--seconds=0.3", [9, 13, 5])):
    r = batch("length.jsonl", "--size", "32x32", "--num-inference-steps", "1", "--fps", "16", option)
    made = [json.loads(longtake("inspect", "out/" + e["file"], "--json").stdout)["frames"] for e in manifest(3)]
    check(r.returncode == 0 and made == frames, "%s and lines: %r %s" % (option, made, r.stderr))

# A batch that was killed between a video and its record: the next run knows the video, and takes no other for it.
write("killed.jsonl", {"prompt": "a red ball", "seed": 21, "size": "32x32", "num_frames": 5, "num_inference_steps": 1, "name": "killed"})
check("1 done" in batch("killed.jsonl").stdout, "a named item")
whole = e2e.read("out/killed.mp4")
with open(path("out/manifest.jsonl")) as f:
    lines = [line for line in f if "killed.mp4" not in line]
with open(path("out/manifest.jsonl"), "w") as f:
    f.writelines(lines)
r = batch("killed.jsonl")
check("1 done, 0 skipped, 0 failed" in r.stdout and e2e.read("out/killed.mp4") == whole, "a video that was not recorded: " + r.stderr)
with open(path("out/manifest.jsonl"), "w") as f:
    f.writelines(lines)
write("killed.jsonl", {"prompt": "a red ball", "seed": 22, "size": "32x32", "num_frames": 5, "num_inference_steps": 1, "name": "killed"})
r = batch("killed.jsonl")
check("exists already" in r.stderr and e2e.read("out/killed.mp4") == whole, "another video of that name stays: " + r.stdout)

# Whatever makes another video makes another item, also when only the contents of a file it names have changed.
write("base.jsonl", {"prompt": "a red ball", "seed": 3, "size": "32x32", "num_frames": 9, "num_inference_steps": 1})
write("named.jsonl", {"prompt": "a red ball", "seed": 3, "size": "32x32", "num_frames": 9, "num_inference_steps": 1, "image": "first.bmp",
                      "prompt_file": "prompts.txt"})
AR = ("--mode", "ar", "--cache", "self-forcing:window=4,block=2")


def once(name, *args):
    r = batch(name, *args)
    check("1 done, 0 skipped, 0 failed of 1" in r.stdout, "another item: %s %s: %r %r" % (name, args, r.stdout, r.stderr))


def content(name, text):
    with open(path(name), "w") as f:
        f.write(text)


def picture(blue):  # one pixel, as a BMP
    with open(path("first.bmp"), "wb") as f:
        f.write(b"BM" + struct.pack("<IHHIIiiHHIIiiII", 58, 0, 0, 54, 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0) + bytes((blue, 0, 0, 0)))


def windows(side):  # of the tiny model's layers and heads
    with open(path("tiny/transformer/config.json")) as f:
        c = json.load(f)
    content("windows.txt", "windows %d %d\n" % (c["num_layers"], c["num_attention_heads"]) +
            (side + " ") * (c["num_layers"] * c["num_attention_heads"]))


windows("1x1x1")
content("prompts.txt", "f4 a blue cube\n")
picture(255)
for args in ((), AR, AR[:2] + ("--cache", "self-forcing:window=5,block=2"), AR + ("--drift", "watch"), AR + ("--drift", "correct"),
             AR + ("--inject", "blur,at=0"), AR + ("--inject", "exposure=3,at=0"), ("--attention", "radial:layers=0,base=2"),
             ("--attention", "topk:keep=0.3,tile=1x2x2"), ("--attention", "sta:file=%s,tile=1x2x2" % path("windows.txt")),
             ("--mode", "extend:segment=5")):
    once("base.jsonl", *args)
WINDOWS = ("--attention", "sta:file=%s,tile=1x2x2" % path("windows.txt"))
check("0 done, 1 skipped" in batch("base.jsonl", *WINDOWS).stdout, "the same windows")
windows("3x1x1")
once("base.jsonl", *WINDOWS)
comment = json.loads(longtake("inspect", "out/" + manifest(1)[0]["file"], "--json").stdout)["metadata"]["comment"]
check(comment["attention"] == "sta:file=windows.txt,tile=1x2x2", "no path of this machine is in a file: %r" % comment)
once("named.jsonl", *AR)
check("0 done, 1 skipped" in batch("named.jsonl", *AR).stdout, "the same files")
content("prompts.txt", "f4 a blue ball\n")
once("named.jsonl", *AR)
picture(0)
once("named.jsonl", *AR)

# Somebody else's file is not replaced.
write("mine.jsonl", {"prompt": "a red ball", "seed": 1, "name": "mine"})
with open(path("out/mine.mp4"), "w") as f:
    f.write("mine")
r = batch("mine.jsonl")
check(r.returncode == 1 and e2e.read("out/mine.mp4") == b"mine", "a foreign file stays: %s" % r.stderr)

# Ctrl-C: the item of the moment leaves nothing, the same command goes on.
write("many.jsonl", *[{"prompt": "ball %d" % i, "num_inference_steps": 40, "size": "128x128"} for i in range(30)])
p = subprocess.Popen([e2e.PROGRAM, "batch", "many.jsonl", "--out-dir", "many", "--model", MODEL], cwd=e2e.WORK,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
deadline = time.time() + 120
while p.poll() is None and time.time() < deadline and len([f for f in os.listdir(path("many"))
                                                           if f.endswith(".mp4")] if exists("many") else []) < 2:
    time.sleep(0.02)
p.send_signal(signal.SIGINT)
out, err = p.communicate(timeout=900)
check(p.returncode == 1 and "goes on" in err, "Ctrl-C: %d %r" % (p.returncode, err))
done = [json.loads(l) for l in open(path("many/manifest.jsonl"))]
videos = [f for f in os.listdir(path("many")) if f.endswith(".mp4")]
check(2 <= len(done) < 30 and all(e["status"] == "done" for e in done) and len(videos) == len(done), "what is done is recorded")
check(not e2e.leftovers(), "leftovers: %r" % e2e.leftovers())
r = longtake("batch", "many.jsonl", "--out-dir", "many", "--model", MODEL)
check(r.returncode == 0 and "%d skipped, 0 failed of 30" % len(done) in r.stdout, "goes on: %r" % r.stdout)

# Wrong command lines.
refused(longtake("batch", "items.jsonl"), 2, "--out-dir", "no folder")
refused(longtake("batch", "--out-dir", "out"), 2, "batch", "no file")
refused(batch("nothing.jsonl"), 1, "nothing.jsonl", "no such file")
refused(batch("items.jsonl", "--prompt", "x"), 2, "--prompt", "a field that is no option")
e2e.finish()
