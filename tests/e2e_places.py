#!/usr/bin/env python3
"""longtake in hostile places: links, pipes, closed and full standard files, ignored signals, reports over other files."""
import json
import os
import signal
import subprocess
import time

import e2e
from e2e import MODEL, PROMPT, check, exists, longtake, path, refused, render

e2e.make_model()
SHORT = ("--num-frames", "5", "--num-inference-steps", "1", "--seed", "7")


def shell(text, *args, **kw):
    """Runs a line of sh in WORK; "$0" is the command."""
    return subprocess.run(["sh", "-c", text, e2e.PROGRAM, *args], cwd=e2e.WORK, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=1400, **kw)


def write(name, text="mine"):
    with open(path(name), "w") as f:
        f.write(text)


# Closed standard files: no file of ours takes their number.
r = render("a.mp4", *SHORT)
check(r.returncode == 0, "render: " + r.stderr)
for closed, status in (("2>&-", 0), ("0<&-", 0), ("0<&- 1>&- 2>&-", 1)):  # 1: nobody can read where the file is
    r = shell('exec "$0" render "$@" ' + closed, PROMPT, "-o", "b.mp4", "--overwrite", "--model", MODEL, *SHORT)
    check(r.returncode == status and e2e.read("b.mp4") == e2e.read("a.mp4"), "closed: %s: %d" % (closed, r.returncode))

# Results that cannot be printed: a full disk behind standard output, or nothing.
write("item.jsonl", json.dumps({"prompt": PROMPT, "num_frames": 5, "num_inference_steps": 1}))
everything = ("--help", "--version", "render --help", "inspect a.mp4 --json", "inspect " + MODEL, "measure a.mp4", "measure a.mp4 --csv",
              "batch item.jsonl --out-dir out --model " + MODEL,
              "bench attention --size 16x16 --num-frames 1 --repeat 1 --methods radial")
for out, commands in ((">&-", everything), (">/dev/full", everything[:4] if os.path.exists("/dev/full") else ())):
    for words in commands:
        r = shell('exec "$0" %s %s' % (words, out))
        check(r.returncode == 1 and r.stderr.count("longtake: cannot write to standard output") == 1,
              "%s: %s: %d %s" % (out, words, r.returncode, r.stderr))

# The part, the report's part and the video's name lead elsewhere.
write("other.txt")
for name in ("l.mp4.part", "l.json.part", "dangling.mp4", "l.json"):
    os.symlink("nothing" if name == "dangling.mp4" else "other.txt", path(name))
    if name == "l.json" and exists("l.json.part"):
        os.remove(path("l.json.part"))
    video = "l2.mp4" if "json" in name else name.replace(".part", "")
    report = ("--report", "l.json") if "json" in name else ()
    refused(render(video, "--overwrite", *report, *SHORT), 1, name, name)
    check(e2e.read("other.txt") == b"mine", "what %s leads to stays" % name)
    check(not exists("l2.mp4"), "%s is known before the work" % name)
refused(longtake("bench", "attention", "--size", "16x16", "--num-frames", "1", "--repeat", "1", "--methods", "radial", "--csv", "l.json"), 1,
        "l.json': it is a symbolic link", "a table through a link")
check(e2e.read("other.txt") == b"mine", "what the table's link leads to stays")
os.mkdir(path("folder.mp4"))
refused(render("folder.mp4", "--overwrite"), 1, "folder.mp4", "a folder as the video")
refused(render("%0250d.mp4" % 0), 2, "too long", "a long name")
refused(render("x.mp4", "--frames-dir", "other.txt"), 1, "not a folder", "a file as the folder of frames")
os.mkfifo(path("pipe.png"))
refused(render("x.mp4", "--image", "pipe.png"), 1, "pipe.png", "a pipe as a picture")

# Reports replace nothing that is not theirs.
refused(render("x.mp4", "--report", "x.mp4"), 2, "--report", "the report is the video")
refused(render("x.mp4", "--report", "x.mp4.part"), 2, "--report", "the report is the part")
refused(render("x.mp4", "--report", "other.txt"), 1, "exists already", "another file as the report")
# A pipe stands for a device: with this broken, and run by root, a name in /dev would really be replaced.
refused(render("x.mp4", "--report", "pipe.png", "--overwrite"), 1, "pipe.png' is not a regular file", "a pipe as the report")
refused(render("x.mp4", "--report", "nowhere/r.json"), 1, "nowhere/r.json", "no folder for the report")
check(e2e.read("other.txt") == b"mine" and not exists("x.mp4"), "reports: nothing is replaced, nothing made")
r = render("x.mp4", "--report", "other.txt", "--overwrite", "--crf", "30", "--vae", MODEL + "/vae", *SHORT)
check(r.returncode == 0, "report over a file that may be replaced: " + r.stderr)
p = json.loads(e2e.read("other.txt"))["parameters"]
check((p["codec"], p["crf"], p["vae"]) == ("h264", 30, "vae") and "text_encoder" not in p, "parameters: %r" % p)
check(json.loads(longtake("inspect", "x.mp4", "--json").stdout)["metadata"]["comment"] == p, "the same in the file")

# Small words.
refused(longtake("render", " \t", "-o", "y.mp4", "--model", MODEL), 2, "empty", "a prompt of blanks")
r = longtake("render", "a ball " * 2000, "-o", "w.mp4", "--model", MODEL, *SHORT)
check(r.returncode == 0 and r.stderr.count("longtake warning: event=prompt_too_long used_tokens=") == 1, "a long prompt: %r" % r.stderr)
check("--model" not in longtake("inspect", "--help").stdout, "inspect takes a path, no --model")
help_text = longtake("render", "--help").stdout
check("given twice" in help_text and "\n  radial: bands" in help_text, "the help says which of two counts, and attention's methods")
r = longtake("render", "red\x1b[31m\nseed: 1", "-o", "z.mp4", "--model", MODEL, *SHORT)
out = longtake("inspect", "z.mp4").stdout
check("prompt: red\\x1b[31m\\nseed: 1" in out and "\x1b" not in out, "control characters are shown, not sent: %r" % out)


def start(name, *args, **kw):
    p = subprocess.Popen([e2e.PROGRAM, "render", PROMPT, "-o", name, "--model", MODEL, *args], cwd=e2e.WORK,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
    deadline = time.time() + 120
    while not exists(name + ".part") and p.poll() is None and time.time() < deadline:
        time.sleep(0.01)
    return p


# nohup: what was ignored stays ignored.
p = start("n.mp4", "--size", "128x128", "--num-inference-steps", "10", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
p.send_signal(signal.SIGHUP)
out, err = p.communicate(timeout=900)
check(p.returncode == 0 and exists("n.mp4"), "SIGHUP under nohup: %d %r" % (p.returncode, err))

# Ctrl-C twice: no part without a frame stays.
p = start("q.mp4", "--size", "512x512", "--num-inference-steps", "1000")
for _ in range(50):
    if p.poll() is None:
        p.send_signal(signal.SIGINT)
        time.sleep(0.02)
out, err = p.communicate(timeout=900)
check(p.returncode in (-signal.SIGINT, 1) and not exists("q.mp4.part"), "Ctrl-C twice: %d %r" % (p.returncode, err))
e2e.finish()
