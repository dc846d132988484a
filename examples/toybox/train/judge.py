"""How well does the model follow prompts? Generates clips of held-out prompts and lets the checker read them.

python judge.py FOLDER --command build/longtake --videos DIR    rendered by the command (batch; a second run goes on)
python judge.py FOLDER [--frames 9] [--sheet sheet.png]         generated here, in PyTorch
python judge.py --videos DIR                                    read from DIR/<n>.mp4 (ffmpeg), n = 0, 1, ...
--count 100, --held 1: the pairs that training never shows.
"""
import argparse
import json
import os
import subprocess

import numpy as np

import checker
import world

KEYS = ("colour", "ground", "light", "shape", "motion")


def prompts(count, held, seed=2024):
    """Scenes and wordings that the training never draws (other seed); held: from the held-out pairs only."""
    rng = np.random.default_rng((seed, held))
    scenes = [world.sample_scene(rng, held=bool(held)) for _ in range(count)]
    return [(s, world.caption(s, rng)) for s in scenes]


def score(pairs):
    """[(scene, what the checker read)] -> share of right answers; light only where the prompt has one."""
    out = {}
    for k in KEYS:
        use = [(s, g) for s, g in pairs if k != "light" or s["light"] != "steady"]
        out[k] = round(float(np.mean([s[k] == g[k] for s, g in use])), 3) if use else None
    return out


def video(path):
    raw = subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
                         check=True, capture_output=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, world.SIZE, world.SIZE, 3).astype(np.float32) / 255


def render(command, folder, out, todo, seconds, more):
    """Clips by the C engine at its defaults, out/<n>.mp4."""
    os.makedirs(out, exist_ok=True)
    jobs = os.path.join(out, "jobs.jsonl")
    with open(jobs, "w") as f:
        for i, (_, text) in enumerate(todo):
            f.write(json.dumps({"prompt": text, "name": str(i), "seed": i}) + "\n")
    subprocess.run([command, "batch", jobs, "--out-dir", out, "--model", folder, "--seconds", str(seconds), *more], check=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder", nargs="?")
    p.add_argument("--count", type=int, default=100)
    p.add_argument("--held", type=int, default=0)
    p.add_argument("--frames", type=int, default=21)
    p.add_argument("--steps", type=int, default=25)
    p.add_argument("--guidance", type=float, default=4.0)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--videos")
    p.add_argument("--command")
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--mode", help="of the command, instead of the model's")
    p.add_argument("--sheet")
    p.add_argument("--json")
    a = p.parse_args()
    todo, pairs, rows = prompts(a.count, a.held), [], []
    if a.command:
        render(a.command, a.folder, a.videos, todo, a.seconds, ["--mode", a.mode] if a.mode else [])
    if not a.videos:
        import torch
        import sample
        torch.set_num_threads(a.threads)
        model = sample.Folder(a.folder)
    for i, (scene, text) in enumerate(todo):
        clip = video(f"{a.videos}/{i}.mp4") if a.videos else sample.generate(
            model, [text], a.frames, a.steps, a.guidance, seed=i)[0].numpy()
        pairs.append((scene, checker.read(clip)))
        print(i, text, "|", " ".join(f"{k}:{'ok' if scene[k] == pairs[-1][1][k] else pairs[-1][1][k]}" for k in KEYS), flush=True)
        if i < 12:
            rows.append(list(clip[np.linspace(0, len(clip) - 1, 8).astype(int)]))
    print(json.dumps(score(pairs)))
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"count": a.count, "held": a.held, "score": score(pairs)}, f, indent=1)
    if a.sheet:
        world.sheet(rows, a.sheet)


if __name__ == "__main__":
    main()
