"""The curves of a training as one picture: validation loss and what the checker found, against minutes of training.

python curves.py curves.png adherence.csv LOG...    logs of train_dit.py, in the order in which they were made
adherence.csv: version,log,line,colour,ground,shape,motion,light: the weights of that version stood at this line of that log.
"""
import csv
import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LEVELS = ("0.5", "0.8", "0.95")


def read(logs):
    """Minutes of all runs one after the other: [(minute, losses at three noise levels)], starts of runs, and the minute of every
    line {(log, line): minute}. What was lost by stopping between two checkpoints is not counted twice."""
    points, starts, at, before, now = [], [], {}, 0.0, 0.0
    for number, path in enumerate(logs):
        if now:
            before, now = before + now, 0.0
            starts.append(before)
        for line, text in enumerate(open(path), 1):
            if m := re.match(r"resumed at step \d+, ([\d.]+) min", text):
                if float(m[1]) < now - 5:  # a run with a new name; otherwise a return to the last checkpoint
                    before += now
                    starts.append(before)
                now = float(m[1])
            elif m := re.match(r"min ([\d.]+) .*val 0.5/0.8/0.95: ([\d.]+)/([\d.]+)/([\d.]+)", text):
                now = float(m[1])
                points.append((before + now, *(float(m[i]) for i in (2, 3, 4))))
            at[number, line] = before + now
    return points, starts, at


def main():
    out, table, *logs = sys.argv[1:]
    points, starts, at = read(logs)
    fig, (loss, right) = plt.subplots(2, 1, figsize=(9, 7), sharex=True)
    for i, level in enumerate(LEVELS, 1):
        loss.plot([p[0] for p in points], [p[i] for p in points], ".-", ms=2, lw=0.8, label=f"noise {level}")
    for start in starts:
        loss.axvline(start, color="0.8", lw=0.8, zorder=0)
        right.axvline(start, color="0.8", lw=0.8, zorder=0)
    loss.set(yscale="log", ylabel="validation loss of the velocity", title="grey: a run with other data, world or shares; losses compare within a run")
    loss.legend()
    rows = list(csv.DictReader(open(table)))
    minutes = [at[int(r["log"]), int(r["line"])] for r in rows]
    for key in ("colour", "ground", "shape", "motion", "light"):
        right.plot(minutes, [float(r[key]) for r in rows], "o-", ms=4, lw=1, label=key)
    right.set(xlabel="minutes of training", ylabel="right, % of held-out prompts", ylim=(0, 103))
    right.legend(loc="lower right")
    fig.tight_layout()
    fig.savefig(out, dpi=80)


if __name__ == "__main__":
    main()
