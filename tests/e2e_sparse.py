"""Sparse attention from outside: renders, their report and metadata, its two benchmarks; and that of speed."""
import csv
import json
import os
import re
import signal
import subprocess
import time

import e2e
from e2e import check, longtake, path, render

e2e.make_model()

# Renders with every method; the text comes back from the file, densities from the report.
for name, text in enumerate(("sta:window=3x1x1,tile=1x2x2", "svg:density=0.2,layers=0", "radial:layers=0,base=2",
                             "topk:keep=0.3,tile=1x2x2", "topk:p=0.5,centroid,tile=1x2x2,warmup=0")):
    video, report = "%d.mp4" % name, "%d.json" % name
    r = render(video, "--attention", text, "--seed", "1", "--report", report)
    check(r.returncode == 0, "%s: %s" % (text, r.stderr))
    if r.returncode:
        continue
    with open(path(report)) as f:
        j = json.load(f)
    check(j["parameters"]["attention"] == text, "%s: the report says %r" % (text, j["parameters"]["attention"]))
    check(0 < j["sparse_density"] < 1 and j["sparse_density"] <= j["attention_density"] < 1 and j["planning_seconds"] > 0,
          "%s: density %r, of sparse passes %r" % (text, j["attention_density"], j["sparse_density"]))
    r = longtake("inspect", video, "--json")
    check(json.loads(r.stdout)["metadata"]["attention"] == text, "%s: metadata" % text)

# The same video again, and another one than dense.
check(render("again.mp4", "--attention", "topk:keep=0.3,tile=1x2x2", "--seed", "1", "--threads", "1").returncode == 0, "again")
with open(path("3.mp4"), "rb") as a, open(path("again.mp4"), "rb") as b:
    check(a.read() == b.read(), "the same bytes with one thread")

# One call with every method: figures that must be there, in JSON and CSV.
r = longtake("bench", "attention", "--size", "64x64", "--num-frames", "17", "--heads", "2", "--repeat", "2", "--json", "a.json",
             "--csv", "a.csv", "--methods", "sta:window=1x1x1,tile=1x2x2 topk:keep=1,tile=1x2x2 topk:keep=0.2,centroid radial")
check(r.returncode == 0, "bench attention: " + r.stderr)
with open(path("a.json")) as f:
    rows = json.load(f)["methods"]
check(len(rows) == 4 and all(m["speedup"] > 0 and m["seconds"] > 0 for m in rows), "bench attention: figures")
full = rows[1]
check(full["density"] == 1 and abs(full["recall"] - 1) < 1e-4 and full["output_error"] < 1e-2, "a full plan: %r" % full)
check(rows[0]["density"] == 1 / 20 and rows[0]["recall"] < 1 and rows[2]["recall"] > rows[2]["density"], "recall")
with open(path("a.csv"), newline="") as f:
    table = list(csv.reader(f))
check(len(table) == 5 and all(len(t) == len(table[0]) for t in table) and table[2][0] == "topk:keep=1,tile=1x2x2", "CSV")

# Whole clips: a page that needs nothing else.
r = longtake("bench", "quality", "--model", e2e.MODEL, "--seeds", "1", "--num-inference-steps", "2", "--out-dir", "page",
             "--json", "q.json", "--csv", "q.csv", "--methods", "topk:keep=0.2,tile=1x2x2,warmup=0", "--size", "64x64")
check(r.returncode == 0, "bench quality: " + r.stderr)
with open(path("q.json")) as f:
    j = json.load(f)
    rows = j["methods"]
check(j["mode"] == "clip", "the mode: %r" % j["mode"])
check(len(rows) == 2 and rows[0]["psnr_db"]["mean"] > 45 and rows[0]["ssim"]["mean"] > 0.99, "noise floor: %r" % rows[:1])
check(rows[1]["sparse_density"]["mean"] < 0.5 and rows[1]["psnr_db"]["mean"] < rows[0]["psnr_db"]["mean"], "a method: %r" % rows[1:])
with open(path("page/quality.html")) as f:
    page = f.read()
check(page.count("data:image/png;base64,") == 3 and page.count("<svg") == 3 and "http" not in page and page.endswith("</html>\n"),
      "the page is whole and asks nobody")
check(sorted(os.listdir(path("page"))) == ["quality.html", "strip00.png", "strip01.png", "strip02.png"], "files of the page")

# A clip of one frame does not flicker; that is a number too. What is wrong is said before anything is drawn.
r = longtake("bench", "quality", "--model", e2e.MODEL, "--seeds", "1", "--num-inference-steps", "1", "--num-frames", "1", "--size", "64x64",
             "--json", "still.json", "--methods", "dense")
check(r.returncode == 0, "bench quality of a frame: " + r.stderr)
with open(path("still.json")) as f:
    check(all(m["flicker_to_dense"]["mean"] == 1 for m in json.load(f)["methods"]), "flicker of a frame")
for what, option, value, status, text in (("attention", "--csv", "no/x.csv", 1, "no/x.csv.part"), ("quality", "--json", "no/x.json", 1, "no/x.json.part"),
                                          ("attention", "--methods", "topk sta:file=no.txt", 1, "--methods: no.txt cannot be read: No such file"),
                                          ("quality", "--methods", "topk svg:x=1", 2, "--methods: attention: svg takes no")):
    r = longtake("bench", what, option, value)
    e2e.refused(r, status, text, "bench %s %s" % (what, option))
    check(not r.stdout, "bench %s %s: known before the first line: %r" % (what, option, r.stdout))

# Stopped in the middle it keeps nothing, and does not say so.
p = subprocess.Popen([e2e.PROGRAM, "bench", "quality", "--model", e2e.MODEL, "--num-inference-steps", "1000", "--size", "64x64"], cwd=e2e.WORK,
                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
blocked = lambda: re.search(r"SigBlk:\s*(\w+)", e2e.read("/proc/%d/status" % p.pid).decode()).group(1)
while int(blocked(), 16) == 0 and p.poll() is None:
    time.sleep(0.02)
p.send_signal(signal.SIGTERM)
err = p.communicate(timeout=600)[1]
check(p.returncode == 1 and "stopping (again" in err and "kept" not in err, "stopped: %d %r" % (p.returncode, err))

# Block after block as well: the noise floor is near dense there too.
r = longtake("bench", "quality", "--model", e2e.MODEL, "--mode", "ar", "--seeds", "1", "--num-inference-steps", "1", "--num-frames", "13", "--size",
             "64x64", "--json", "ar.json", "--methods", "topk:keep=0.2,tile=1x2x2,warmup=0")
check(r.returncode == 0, "bench quality in blocks: " + r.stderr)
with open(path("ar.json")) as f:
    ar = json.load(f)
check(ar["mode"] == "ar" and ar["methods"][0]["psnr_db"]["mean"] > 45 and ar["methods"][1]["density"]["mean"] < 1, "in blocks: %r" % ar)

# Windows by head: the search writes a file, a render uses it.
r = longtake("bench", "attention", "--search", "w.txt", "--model", e2e.MODEL, "--seeds", "1", "--num-inference-steps", "2", "--size",
             "64x64", "--methods", "sta:window=3x1x1,tile=1x2x2,warmup=0", "--json", "w.json")
check(r.returncode == 0, "bench attention --search: " + r.stderr)
with open(path("w.json")) as f:
    w = json.load(f)
with open(path("w.txt")) as f:
    lines = [l for l in f.read().splitlines() if not l.startswith("#")]
check(lines[0].split()[0] == "windows" and sum(len(l.split()) for l in lines[1:]) == len(w["heads"]) > 1, "windows: %r" % lines)
check(0 < w["error"] <= w["given_error"] and all(h["error"] <= h["given_error"] for h in w["heads"]), "windows: errors")
r = render("w.mp4", "--attention", "sta:file=w.txt,tile=1x2x2", "--report", "wr.json")
check(r.returncode == 0, "sta:file: " + r.stderr)
with open(path("wr.json")) as f:
    check(0 < json.load(f)["sparse_density"] < 1, "sta:file: density")
with open(path("bad.txt"), "w") as f:
    f.write("windows 1 2\n3x3x3 3x2x3\n")
e2e.refused(render("b.mp4", "--attention", "sta:file=bad.txt"), 1, "bad.txt: layer 0, head 1: '3x2x3'", "bad windows")
with open(path("few.txt"), "w") as f:
    f.write("windows 1 1\n3x3x3\n")
e2e.refused(render("b.mp4", "--attention", "sta:file=few.txt"), 2, "few.txt: windows of 1 layers of 1 heads", "too few windows")
r = longtake("bench", "speed", "--model", e2e.MODEL, "--size", "32x32", "--num-frames", "5", "--num-inference-steps", "2", "--repeat", "1",
             "--json", "s.json")
check(r.returncode == 0, "bench speed: " + r.stderr)
with open(path("s.json")) as f:
    parts = {p["part"]: p for p in json.load(f)["parts"]}
check(sorted(parts) == ["decoding, all frames", "prompt", "transformer, one pass"] and all(p["seconds"] > 0 for p in parts.values()) and
      parts["transformer, one pass"]["share_of_peak"] > 0, "bench speed: %r" % parts)
e2e.refused(longtake("bench", "quality", "--search", "x"), 2, "--search", "search in quality")
r = longtake("bench", "speed", "--model", e2e.MODEL, "--size", "32x32", "--seconds", "4", "--num-inference-steps", "1", "--json", "pace.json")
with open(path("pace.json")) as f:
    pace = json.load(f)
check(r.returncode == 0 and pace["blocks"] > 4 and pace["num_frames"] == 65 and pace["first_frame_seconds"] > 0 and
      pace["seconds"]["p99_to_p50"] >= 1 and pace["seconds"]["p50"] > pace["drawing_seconds"]["p50"], "pace: %r %s" % (pace, r.stderr))
check("machine_seconds" not in pace or pace["machine_seconds"]["measured"] == (pace["blocks"] + 1) // 2 - 1, "fixed work: %r" % pace)
e2e.refused(longtake("bench", "speed", "--model", e2e.MODEL, "--seconds", "4", "--mode", "clip"), 2, "--seconds 4: of blocks", "pace of a clip")
e2e.refused(longtake("bench", "--seconds", "5", "attention"), 2, "--seconds", "an option of another benchmark")
for what, known in (("drift", True), ("speed", True), ("attention", False)):
    check(("\n  --seconds " in longtake("bench", what, "--help").stdout) == known, "the help of bench " + what)

r = longtake("bench", "attention", "--size", "64x64", "--num-frames", "17", "--repeat", "1", "--methods", "topk:refresh=4")
check(r.returncode == 0 and "topk:refresh=4 (list)" in r.stdout, "one call of a method that refreshes: " + r.stdout + r.stderr)
for args, text in ((("bench", "attention", "--size", "60x64"), "multiples of 16"),
                   (("bench", "attention", "--methods", "top"), "'top'"), (("bench", "quality", "--methods", "svg:x=1"), "x=1"),
                   (("bench", "quality", "--model", e2e.MODEL, "--size", "16x16"), "--size: 16x16"), (("bench", "quantity"), "quantity")):
    e2e.refused(longtake(*args), 2, text, " ".join(args))
e2e.finish()
