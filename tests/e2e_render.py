#!/usr/bin/env python3
"""longtake render from outside: files, metadata, equal bytes, wrong command lines, bad places, Ctrl-C."""
import json
import os
import pty
import signal
import subprocess
import time

import e2e
from e2e import MODEL, PROMPT, check, exists, longtake, path, refused, render

e2e.make_model()

# A file, exact in every respect.
r = render("a.mp4", "--seed", "7", "--report", "a.json", "--frames-dir", "frames")
check(r.returncode == 0, "render: %s" % r.stderr)
check("a.mp4: 9 frames, 64x64, 16 fps" in r.stdout, "result line: %r" % r.stdout)
check("\r" not in r.stderr, "no progress line when piped")
check(sorted(os.listdir(path("frames"))) == ["%06d.png" % i for i in range(9)], "a PNG for each frame")
probe = e2e.ffprobe("a.mp4")
if probe:
    s, f = probe
    want = {"codec_name": "h264", "profile": "High", "width": 64, "height": 64, "pix_fmt": "yuv420p", "color_range": "tv",
            "color_space": "bt709", "color_primaries": "bt709", "color_transfer": "bt709", "chroma_location": "left",
            "r_frame_rate": "16/1", "avg_frame_rate": "16/1", "start_time": "0.000000", "nb_frames": "9",
            "nb_read_packets": "9", "duration": "0.562500"}
    for k, v in want.items():
        check(s.get(k) == v, "ffprobe %s: %r, wanted %r" % (k, s.get(k), v))
    check(f["tags"]["title"] == PROMPT, "title")
    check(json.loads(f["tags"]["comment"])["seed"] == "7", "seed in the comment")
    check(json.loads(f["tags"]["AIGC"])["Label"] == "1", "AIGC label")
    check("trainedAlgorithmicMedia" in e2e.read("a.mp4").decode("latin-1"), "digital source type")
    check(subprocess.run(["ffmpeg", "-v", "error", "-xerror", "-i", path("a.mp4"), "-f", "null", "-"]).returncode == 0, "decodes")
report = json.load(open(path("a.json")))
for key in ("file", "parameters", "frames", "attention_density", "tokens", "seconds", "denoise", "decode", "passes",
            "memory_bytes", "estimate_bytes", "machine_peak"):
    check(key in report, "report has " + key)
check(report["frames"] == 9 and report["passes"]["step_allocs"] == 0, "report: frames, no allocation in a step")
check(report["denoise"]["share_of_peak"] > 0, "share of the peak: %r" % report["denoise"])

# Its parameters come back, and make the same bytes again, with any number of threads.
r = longtake("inspect", "a.mp4", "--json")
info = json.loads(r.stdout)
check(info["frames"] == 9 and info["codec"] == "h264" and info["color"] == "tv/bt709/bt709/bt709", "inspect: %r" % info)
check(info["metadata"]["prompt"] == PROMPT and "sei" in info["metadata"] and "xmp" in info["metadata"], "marks")
check("prompt: " + PROMPT in longtake("inspect", "a.mp4").stdout, "inspect as text")
for threads in ("1", "2"):
    render("same.mp4", "--seed", "7", "--threads", threads, "--overwrite")
    check(e2e.read("same.mp4") == e2e.read("a.mp4"), "same bytes with %s threads" % threads)
render("other.mp4", "--seed", "8")
check(e2e.read("other.mp4") != e2e.read("a.mp4"), "another seed, another video")
r1, r2 = render("d1.mp4"), render("d2.mp4")
check("seed " in r1.stderr and e2e.read("d1.mp4") != e2e.read("d2.mp4"), "without a seed one is drawn and stated")

# Block after block: longer than the window of its cache, and a longer video begins with the shorter one's frames.
for name, frames in (("ar.mp4", 33), ("longer.mp4", 57)):
    r = render(name, "--mode", "ar", "--cache", "self-forcing:window=3,block=3", "--num-frames", str(frames), "--seed", "7",
               "--frames-dir", name + ".d")
    check(r.returncode == 0 and json.loads(longtake("inspect", name, "--json").stdout)["frames"] == frames, name + ": " + r.stderr)
check(all(e2e.read("ar.mp4.d/%06d.png" % i) == e2e.read("longer.mp4.d/%06d.png" % i) for i in range(33)), "same beginning")
refused(render("x.mp4", "--mode", "ar", "--cache", "nothing"), 2, "nothing", "unknown cache preset")

# The other codec; lengths in seconds.
r = render("av1.mp4", "--codec", "av1", "--seconds", "0.9", "--fps", "10", "--seed", "1")
check(r.returncode == 0 and "9 frames at 10 fps (0.90 s) [asked for 0.9 s]" in r.stderr, "seconds: %s" % r.stderr)
check("Svt" not in r.stderr, "the encoder is quiet")
check(json.loads(longtake("inspect", "av1.mp4", "--json").stdout)["codec"] == "av1", "av1")
refused(render("both.mp4", "--seconds", "5", "--num-frames", "5"), 2, "--seconds 5 and --num-frames 5", "both lengths")
whole = e2e.read("a.mp4")
with open(path("cut.mp4"), "wb") as f:
    f.write(whole[:len(whole) * 4 // 5])
refused(longtake("inspect", "cut.mp4"), 1, "'cut.mp4' is cut off: it ends at frame", "inspect of a part of a file")

# A first frame.
render("i.mp4", "--image", "frames/000000.png", "--seed", "3")
check(json.loads(longtake("inspect", "i.mp4", "--json").stdout)["metadata"].get("image") == "000000.png", "image in the metadata")
refused(render("j.mp4", "--image", "none.png"), 1, "none.png", "missing image")
refused(render("j.mp4", "--image", "a.json"), 1, "a.json", "an image that is none")
if probe:  # ffmpeg is there: of a JPEG that was cut its decoder would show green
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc=size=90x60", "-frames:v", "1", path("whole.jpg")], check=True)
    check(render("jpeg.mp4", "--image", "whole.jpg").returncode == 0, "a JPEG")
    with open(path("cut.jpg"), "wb") as f:
        f.write(e2e.read("whole.jpg")[:-500])
    refused(render("j.mp4", "--image", "cut.jpg"), 1, "'cut.jpg': the picture cannot be decoded", "a cut JPEG")
    check(not exists("j.mp4"), "nothing of a cut JPEG")

# On a terminal: a line of progress that is written over.
master, slave = pty.openpty()
p = subprocess.Popen([e2e.PROGRAM, "render", PROMPT, "-o", "tty.mp4", "--model", MODEL, "--seed", "7"], cwd=e2e.WORK,
                     stdout=subprocess.DEVNULL, stderr=slave)
os.close(slave)
seen = b""
try:
    while chunk := os.read(master, 4096):
        seen += chunk
except OSError:  # the other end is closed
    pass
check(p.wait() == 0 and b"\rdenoising  step 3/3" in seen and b"s a step" in seen and b"frame " in seen, "progress: %r" % seen)

# Wrong command lines: status 2, one line that names option and value. Nothing is made.
before = sorted(os.listdir(e2e.WORK))
for args, text in ((("--size", "63x64"), "63"), (("--size", "640x"), "640x"), (("--num-frames", "10"), "10"),
                   (("--num-frames", "864002", "--mode", "ar"), "nearest are 864001"),  # an hour at 240 a second
                   (("--seed", "-1"), "--seed: '-1'"), (("--sede", "1"), "--seed"), (("--guidance-scale", "nan"), "nan"),
                   (("--fps", "0"), "--fps"), (("--codec", "h265"), "h265"), (("--crf", "99"), "99"),
                   (("--attention", "dnse"), "dnse"), (("--attention", "topk:keep=2"), "keep=2"),
                   (("second",), "second")):
    refused(render("x.mp4", *args), 2, text, " ".join(args))
refused(longtake("render", "-o", "x.mp4"), 2, "prompt is missing", "no prompt")
refused(longtake("render", PROMPT), 2, "-o", "no output")
refused(longtake("render", "", "-o", "x.mp4", "--model", MODEL), 2, "prompt", "empty prompt")
refused(longtake("rendr"), 2, "rendr", "unknown command")
refused(render("x.avi"), 2, ".mp4", "another container")
# What this build cannot do, and bad places: status 1.
for args, text in ((("--device", "cuda"), "cuda"),
                   (("--prompt-file", "absent.txt"), "absent.txt"),
                   (("--size", "16384x16384", "--num-frames", "81"), "GiB")):
    refused(render("x.mp4", *args), 1, text, " ".join(args))
refused(render("nowhere/x.mp4"), 1, "nowhere/x.mp4", "no such folder")
refused(render("a.mp4"), 1, "exists already", "an existing file")
refused(render("y.mp4", "--frames-dir", "frames"), 1, "frames/000000.png' exists already", "pictures of another run")
refused(render("y.mp4", "--report", "y.mp4.x", "--save-session", "y.mp4.x"), 2, "are both 'y.mp4.x'", "one file for two")
refused(longtake("render", PROMPT, "-o", "x.mp4", "--model", "nothing"), 1, "nothing", "no such model")
refused(longtake("render", PROMPT, "-o", "x.mp4", "--model", MODEL + "/vae"), 1, MODEL + "/vae", "half a model")
r = longtake("render", PROMPT, "-o", "e.mp4", env={"LONGTAKE_MODEL": MODEL})
check(r.returncode == 0, "LONGTAKE_MODEL: " + r.stderr)
os.remove(path("e.mp4"))
check(sorted(os.listdir(e2e.WORK)) == before, "nothing is made: %r" % (set(os.listdir(e2e.WORK)) ^ set(before)))

# A full disk (a limit on the size of files stands for it).
r = subprocess.run(["sh", "-c", 'ulimit -f 1; exec "$0" render ball -o full.mp4 --model "$1" --size 256x256',
                    e2e.PROGRAM, MODEL], cwd=e2e.WORK, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
refused(r, 1, "full.mp4", "full disk")
check(not exists("full.mp4"), "nothing under the name after a full disk")

# What has been made when something fails is kept, under a name that says so.
os.makedirs(path("kf/000003.png"))
r = render("k.mp4", "--frames-dir", "kf")
refused(r, 1, "000003.png", "a picture that cannot be written")
check("the first 4 frames are in 'k.partial.mp4'" in r.stderr and not exists("k.mp4"), "what was made is kept: %r" % r.stderr)
if exists("k.partial.mp4"):
    check(json.loads(longtake("inspect", "k.partial.mp4", "--json").stdout)["frames"] == 4, "four frames play")

# A truncated model, a hostile header.
os.makedirs(path("broken/transformer"))
dit = open(MODEL + "/transformer/diffusion_pytorch_model.safetensors", "rb").read()
for data, what in ((dit[:1000], "truncated"), (dit[:-100], "cut"), (b"\xff" * 8 + dit[8:], "huge header"), (b"", "empty")):
    with open(path("broken/transformer/diffusion_pytorch_model.safetensors"), "wb") as f:
        f.write(data)
    refused(longtake("render", PROMPT, "-o", "x.mp4", "--model", "broken"), 1, "diffusion_pytorch_model.safetensors", what)
    check(longtake("inspect", "broken").returncode == 1, "inspect of a %s model" % what)
r = longtake("inspect", MODEL, "--json")
check(r.returncode == 0 and json.loads(r.stdout)["family"].startswith("wan2"), "inspect of a model")


def interrupt(name, sig, wait, *args, stderr=subprocess.PIPE):
    """Starts a long render, and a signal when wait() says so."""
    p = subprocess.Popen([e2e.PROGRAM, "render", PROMPT, "-o", name, "--model", MODEL, "--seed", "7", *args], cwd=e2e.WORK,
                         stdout=subprocess.PIPE, stderr=stderr, text=True)
    deadline = time.time() + 120
    while not wait() and p.poll() is None and time.time() < deadline:
        time.sleep(0.02)
    p.send_signal(sig)
    out, err = p.communicate(timeout=900)
    return p.returncode, out, err


# Ctrl-C while denoising: nothing is there yet. While decoding: what is done plays, under a name that says so.
status, out, err = interrupt("c.mp4", signal.SIGINT, lambda: exists("c.mp4.part"), "--num-inference-steps", "1000", "--size", "256x256")
check(status == 1 and "stopped" in err and not exists("c.mp4") and not exists("c.partial.mp4"), "Ctrl-C before frames: %r" % err)
status, out, err = interrupt("c.mp4", signal.SIGINT, lambda: exists("cf/000004.png"), "--frames-dir", "cf", "--num-frames", "2001",
                             "--num-inference-steps", "1", "--guidance-scale", "1", "--report", "c.json")
check(json.load(open(path("c.json")))["machine_peak"] is None, "who stops a render does not wait for the machine to be measured")
check(status == 1 and "c.partial.mp4" in err and not exists("c.mp4"), "Ctrl-C while decoding: %d %r" % (status, err))
if exists("c.partial.mp4"):
    info = json.loads(longtake("inspect", "c.partial.mp4", "--json").stdout)
    check(5 <= info["frames"] < 2001 and abs(info["seconds"] - info["frames"] / 16) < 1e-6, "partial file: %r" % info)
    check(str(info["frames"]) in err, "the message says how many frames there are")
else:
    check(False, "a partial file")
with open(os.devnull, "rb") as gone:  # as when the terminal has been closed: what is said goes nowhere
    status, out, err = interrupt("h.mp4", signal.SIGHUP, lambda: exists("hf/000000.png"), "--frames-dir", "hf", "--num-frames", "401",
                                 "--num-inference-steps", "1", "--guidance-scale", "1", stderr=gone)
check(status == 1 and not exists("h.mp4") and exists("h.partial.mp4"), "SIGHUP without a terminal: %d" % status)
status, out, err = interrupt("t.mp4", signal.SIGTERM, lambda: exists("t.mp4.part"), "--num-inference-steps", "1000", "--size", "256x256")
check(status == 1, "SIGTERM: %d" % status)
check(not [p for p in e2e.leftovers() if p != "full.mp4.part"], "leftovers: %r" % e2e.leftovers())
e2e.finish()
