#!/usr/bin/env python3
"""The VAE of examples/toybox on held-out clips of its world, through the engine: parity_clips.py PARITY [CLIPS FRAMES]"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "examples/toybox/train"))
import world

LEAST = {"whole": 32, "first": 32, "box": 27}  # dB


def arrays(clips, frames):
    rng = np.random.default_rng(99)
    for k in range(clips):
        s = world.sample_scene(rng, held=True, ground=world.GROUNDS[k % len(world.GROUNDS)])
        ts = np.arange(10, 10 + frames)
        yield "in.%d.video" % k, np.round(world.render(s, ts) * 255)
        yield "in.%d.box" % k, world.box(s, ts)


def write(path, clips, frames):
    config = {"kind": "clips", "clips": clips, "least_db": LEAST, "model": os.path.relpath(ROOT + "/examples/toybox", os.path.dirname(path))}
    header, data, at = {"__metadata__": {"format": "golden-1", "config": json.dumps(config)}}, [], 0
    for name, x in arrays(clips, frames):
        data.append(x.astype("<f4").tobytes())
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(data))


with tempfile.TemporaryDirectory() as folder:
    case = os.path.join(folder, "clips.safetensors")
    write(case, *(int(a) for a in sys.argv[2:4] or (5, 5)))
    sys.exit(subprocess.run([sys.argv[1], case]).returncode)
