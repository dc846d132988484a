"""The drift monitor from outside: renders that are watched and corrected, faults, measure, the benchmark."""
import csv
import json
import os
import subprocess

import e2e
from e2e import check, exists, longtake, path, refused, render

e2e.make_model()
FAST = ("--num-inference-steps", "1", "--guidance-scale", "1", "--size", "32x32", "--seed", "3")
WAYS = {"ar": ("--mode", "ar", "--cache", "longlive:window=6,sink=1,block=2"), "extend": ("--mode", "extend:segment=17,overlap=2")}


def load(name):
    with open(path(name)) as f:
        return json.load(f)


def measured(name):
    r = longtake("measure", name, "--csv")
    check(r.returncode == 0, "measure %s: %s" % (name, r.stderr))
    return r.stdout


# Watching changes nothing and tells; the report and the file have it.
for way, args in WAYS.items():
    for drift in ("off", "watch", "correct"):
        name = "%s_%s" % (way, drift)
        r = render(name + ".mp4", *args, *FAST, "--num-frames", "49", "--drift", drift, "--report", name + ".json")
        check(r.returncode == 0, "%s: %s" % (name, r.stderr))
    check(measured(way + "_off.mp4") == measured(way + "_watch.mp4"), way + ": watching changes the video")
    j = load(way + "_watch.json")
    vectors = j["drift"]["vectors"]
    check("drift" not in load(way + "_off.json"), way + ": off says nothing")
    check(vectors and sum(v["frames"] for v in vectors) == 49 and vectors[0]["frame"] == 0, way + ": vectors cover the video")
    check(j["drift"]["summary"]["vectors"] == len(vectors) and all(v["action"] == "left" for v in vectors), way + ": only watched")
    check(j["parameters"]["drift"] == "watch" and "drift" not in load(way + "_off.json")["parameters"], way + ": parameters")
    meta = json.loads(longtake("inspect", way + "_watch.mp4", "--json").stdout)["metadata"]
    check(len(meta["drift_report"]["vectors"]) == len(vectors) and meta["drift"] == "watch", way + ": metadata")

# The same bytes with another number of threads: nothing of the clock is in the file.
for threads in ("1", "2"):
    render("t%s.mp4" % threads, *WAYS["ar"], *FAST, "--num-frames", "33", "--drift", "correct", "--threads", threads)
check(e2e.read("t1.mp4") == e2e.read("t2.mp4"), "watched renders are the same to the byte")

# What is broken is drawn again, and neither black nor NaN is seen.
for fault in ("nan,at=1", "black,at=1"):
    r = render("fault.mp4", *WAYS["ar"], *FAST, "--num-frames", "33", "--drift", "correct", "--inject", fault, "--report", "fault.json",
               "--overwrite")
    check(r.returncode == 0, fault + ": " + r.stderr)
    j = load("fault.json")
    again = [v for v in j["drift"]["vectors"] if v["action"] == "redrawn"]
    check(j["drift"]["summary"]["redraws"] == 1 and len(again) == 1 and again[0]["kind"] != "broken" and again[0]["attempts"] == 1,
          fault + ": drawn again: %r" % again)
    check(json.loads(longtake("measure", "fault.mp4", "--json").stdout)["black_frames"] == 0, fault + ": black frames")

# Measures of a video.
r = longtake("measure", "ar_off.mp4", "--json")
j = json.loads(r.stdout)
check(j["frames"] == 49 and j["width"] == 32 and len(j["seconds"]) == 4 and j["monitor"]["vectors"] > 0, "measure --json")
check(all(-12 <= s["exposure_ev"] <= 0 and 0 <= s["sharpness"] <= 1 for s in j["seconds"]), "measures are in range")
rows = list(csv.reader(measured("ar_off.mp4").splitlines()))
check(len(rows) == 5 and all(len(r) == len(rows[0]) for r in rows) and rows[0][0] == "second", "measure --csv")
check("monitor:" in longtake("measure", "ar_off.mp4").stdout, "measure for people")

if e2e.ffprobe("ar_off.mp4"):  # ffmpeg is there: a picture every two seconds; a second without one is not a black one
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "color=white:size=32x32:rate=1/2:duration=8", path("slow.mkv")],
                   check=True)
    j = json.loads(longtake("measure", "slow.mkv", "--json").stdout)
    check(j["frames"] == 4 and [s is None for s in j["seconds"]] == [False, True] * 3 + [False], "seconds without a frame: %r" % j["seconds"])
    check(len(measured("slow.mkv").splitlines()) == 5, "no line for such a second")

# The benchmark: every rollout, a page that needs nothing else.
r = longtake("bench", "drift", "--model", e2e.MODEL, "--seconds", "15", "--seeds", "2", "--scenes", "still switch",
             "--num-inference-steps", "1", "--guidance-scale", "1", "--size", "32x32", "--cache", WAYS["ar"][3], "--methods",
             "ar extend:naive,segment=33", "--out-dir", "page", "--json", "d.json", "--csv", "d.csv", "--inject",
             "exposure=0.2,into=frames")
check(r.returncode == 0, "bench drift: " + r.stderr)
if r.returncode == 0:
    j = load("d.json")
    check(len(j["rollouts"]) == (3 + 2) + (2 + 2) + (3 + 2) and j["inject"] == "exposure=0.2,into=frames", "bench drift: rollouts")
    check(all(0 <= x["false_actions"] <= x["actions"] and (x["false_actions"] == 0 or x["scene"] == "switch")
              for x in j["rollouts"]), "bench drift: false actions")
    check(all(len(x["windows"]) == 3 and bool(x["vectors"]) == (x["drift"] != "off") for x in j["rollouts"]), "bench drift: windows")
    check(all(x["change"]["holds_seconds"] in (5, 10, 15) and (x["change"]["holds_seconds"] == 15) == (x["change"]["breaks_by"] is None)
              for x in j["rollouts"]), "bench drift: how long it holds")
    pairs = {}
    for x in j["rollouts"]:
        pairs.setdefault((x["way"], x["scene"], x["seed"]), {})[x["drift"]] = x
    check(all({"off", "correct"} <= set(p) and ("watch" in p) == (k[1:] == ("still", 1)) for k, p in pairs.items()), "bench drift: pairs")
    check(all(not p["off"]["taken_over"] or (k[2] == 2 and p["off"]["windows"] == p["correct"]["windows"]) for k, p in pairs.items()),
          "bench drift: what was left alone is not drawn twice")
    check({b["verdict"] for b in j["bars"]} <= {"pass", "miss", "same", "told"} and len(j["bars"]) > 20, "bench drift: bars")
    with open(path("d.csv"), newline="") as f:
        table = list(csv.reader(f))
    check(len(table) == 1 + 3 * len(j["rollouts"]) and all(len(t) == len(table[0]) for t in table), "bench drift: CSV")
    with open(path("page/drift.html")) as f:
        page = f.read()
    check(page.count("data:image/png;base64,") == 6 and page.count("<svg") == 21 and "http" not in page and page.endswith("</html>\n"),
          "the page is whole and asks nobody")

# What fails on its way keeps what is whole: a contact sheet cannot be written where a folder is.
os.makedirs(path("bad/strip001.png"))
r = longtake("bench", "drift", "--model", e2e.MODEL, "--seconds", "15", "--seeds", "1", "--scenes", "still", "--num-inference-steps", "1",
             "--guidance-scale", "1", "--size", "32x32", "--cache", WAYS["ar"][3], "--methods", "ar", "--out-dir", "bad", "--json", "bad.json")
refused(r, 1, "strip001.png", "a sheet that cannot be written")
check(exists("bad.json") and [x["drift"] for x in load("bad.json")["rollouts"]] == ["off"] and exists("bad/drift.html"),
      "the report of what was whole")

refused(render("x.mp4", "--drift", "correct", "--mode", "clip"), 2, "drawn at once", "a clip that is corrected")
refused(render("x.mp4", "--mode", "ar", "--inject", "rain"), 2, "rain", "an unknown fault")
refused(longtake("measure"), 2, "one video", "no video")
refused(longtake("measure", "absent.mp4"), 1, "absent.mp4", "a video that is not there")
refused(longtake("measure", "ar_off.mp4", "--json", "--csv"), 2, "one of the two", "two forms at once")
refused(longtake("bench", "drift", "--seconds", "5"), 2, "15", "too short to drift")
refused(longtake("bench", "drift", "--scenes", "still rain"), 2, "rain", "an unknown scene")
check(not exists("x.mp4"), "nothing is left")
e2e.finish()
