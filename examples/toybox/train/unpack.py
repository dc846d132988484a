"""Turns a model folder back into the state of the training scripts, so that training can go on where only the folder is left.

python unpack.py FOLDER --work DIR writes DIR/spiece.model, encoder.pt, stats.pt, vae.pt and dit.pt
The averaged weights, rounded to bfloat16, are all there is: name a new --run. The head of --where begins at zero.
"""
import argparse
import os
import shutil

import torch

import sample
from common import Ema, save


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    if os.path.exists(f"{a.work}/dit.pt"):
        p.error(f"{a.work}/dit.pt exists: it knows more than the folder")
    m = sample.Folder(a.folder)
    shutil.copy(f"{a.folder}/tokenizer/spiece.model", f"{a.work}/spiece.model")
    save(f"{a.work}/encoder.pt", {"encoder": m.vae.encoder.state_dict(), "quant_conv": m.vae.quant_conv.state_dict()})
    numbers = lambda t: [float(str(v)) for v in t.flatten().numpy()]  # shortest in float32: as they were written
    save(f"{a.work}/stats.pt", {"mean": numbers(m.mean), "std": numbers(m.std)})
    save(f"{a.work}/vae.pt", {"ema": {"module": m.vae.state_dict()}})
    where = {"weight": torch.zeros(64, m.dit.proj_out.in_features), "bias": torch.zeros(64)}
    averaged = [{**Ema(n, 0).state(), "steps": 1000} for n in (m.dit, m.text)]  # not to be forgotten in the first steps
    save(f"{a.work}/dit.pt", {
        "dit": m.dit.state_dict(), "text": m.text.state_dict(), "where": where, "ema_dit": averaged[0], "ema_text": averaged[1],
        "muon": None, "opt": None, "step": 0, "seen": {}, "seconds": 0.0, "layers": len(m.dit.blocks), "opened": True, "run": "unpacked"})


if __name__ == "__main__":
    main()
