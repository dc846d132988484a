"""Trains the VAE: images first (with random colours), then clips of 5, 9 and 17 frames. Resumes by itself.

python train_vae.py --work DIR --minutes 45
Writes DIR/vae.pt (state) and DIR/vae.log. The learning rate and the phases follow the training time.
"""
import argparse
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

import models
import world
from common import Clock, Ema, Log, Muon, clear_adam, load, save

#         until, frames, batch, crop, recolour: the parts of the training time
PHASES = [(0.20, 1, 16, 64, 0.5), (0.42, 1, 16, 64, 0.2), (0.62, 5, 6, 64, 0.1), (0.85, 9, 4, 64, 0.0), (1.0, 17, 2, 128, 0.0)]


def recolour(x, rng):
    m = torch.from_numpy(rng.normal(0, 0.6, (3, 3)).astype(np.float32)) + 0.4 * torch.eye(3)
    return (torch.einsum("ij,jthw->ithw", m, x) + float(rng.normal(0, 0.3))).clamp(-1, 1)


def batch(rng, n, count, size, recolour_share):
    """Clips [B,3,T,s,s] in -1..1 and a weight for each pixel that favours the object."""
    xs, ws = [], []
    for _ in range(count):
        s = world.sample_scene(rng)
        t0 = int(rng.integers(0, 81 - n)) if n > 1 else int(rng.integers(0, 81))
        ts = np.arange(t0, t0 + n)
        x = torch.from_numpy(world.render(s, ts)).permute(3, 0, 1, 2) * 2 - 1
        w = torch.ones(1, n, world.SIZE, world.SIZE)
        boxes = world.box(s, ts)
        for i, (x0, y0, x1, y1) in enumerate(boxes):
            w[:, i, y0:y1, x0:x1] = 2.5
        if size < world.SIZE:  # two crops of three near the object
            if rng.random() < 0.67:
                mid = boxes[n // 2]
                cx, cy = (mid[0] + mid[2]) / 2 - size / 2, (mid[1] + mid[3]) / 2 - size / 2
                cx, cy = cx + rng.uniform(-24, 24), cy + rng.uniform(-24, 24)
            else:
                cx, cy = rng.uniform(0, world.SIZE - size, 2)
            cx, cy = (int(np.clip(c, 0, world.SIZE - size)) for c in (cx, cy))
            x, w = x[:, :, cy:cy + size, cx:cx + size], w[:, :, cy:cy + size, cx:cx + size]
        if rng.random() < recolour_share:
            x = recolour(x, rng)
        xs.append(x), ws.append(w)
    return torch.stack(xs), torch.stack(ws)


@torch.no_grad()
def evaluate(vae, clips):
    """PSNR of whole clips, of their first frames and inside the object's box."""
    err, box_err, box_n, first = [], 0.0, 0, []
    for x, inside in clips:
        y = vae.decode(vae.encode(x)[0]).clamp(-1, 1)
        d = ((y - x) / 2).square().mean(1, keepdim=True)
        err.append(d.mean().item()), first.append(d[:, :, 0].mean().item())
        box_err, box_n = box_err + (d * inside).sum().item(), box_n + inside.sum().item()
    db = lambda e: -10 * math.log10(e)
    return db(np.mean(err)), db(np.mean(first)), db(box_err / box_n)


def held_out_clips(count=8, n=9):
    rng, out = np.random.default_rng(99), []
    for i in range(count):
        s = world.sample_scene(rng, held=True, ground=world.GROUNDS[i % 5])
        ts = np.arange(10, 10 + n)
        inside = torch.zeros(1, 1, n, world.SIZE, world.SIZE)
        for j, (x0, y0, x1, y1) in enumerate(world.box(s, ts)):
            inside[0, 0, j, y0:y1, x0:x1] = 1
        out.append((torch.from_numpy(world.render(s, ts)).permute(3, 0, 1, 2)[None] * 2 - 1, inside))
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    p.add_argument("--minutes", type=float, default=45)
    p.add_argument("--lr", type=float, default=1.3e-3)
    p.add_argument("--muon", type=float, default=2.0, help="step size of the convolutions, in units of --lr")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    log, path = Log(f"{a.work}/vae.log"), f"{a.work}/vae.pt"

    vae = models.VAE()
    vae.init_for_images()
    ema = Ema(vae, 0.998)
    matrices = [p for n, p in vae.named_parameters() if p.ndim == 5 and p.shape[2] == 3 and min(p.shape[:2]) > 3]
    rest = [p for p in vae.parameters() if not any(p is q for q in matrices)]
    taps = [0, 3]
    muon = Muon(matrices, a.lr, view=lambda w: [w[:, :, taps[0]:taps[1]]])  # images: the last tap alone
    opt = torch.optim.Adam(rest, lr=a.lr, betas=(0.9, 0.99))
    step, phase_start, phase, clock = 0, 0, -1, Clock()
    if state := load(path):
        vae.load_state_dict(state["vae"]), ema.restore(state["ema"]), opt.load_state_dict(state["opt"]), muon.load_state_dict(state["muon"])
        step, phase_start, phase, clock = state["step"], state["phase_start"], state["phase"], Clock(state["seconds"])
        log(f"resumed at step {step}, {clock() / 60:.1f} min")
    rng, clips = np.random.default_rng((a.seed, step)), held_out_clips()
    saved = shown = clock()
    mean = 0.0
    while (done := clock() / 60 / a.minutes) < 1:
        now = next(i for i, ph in enumerate(PHASES) if done < ph[0])
        if now != phase:
            if phase >= 0 and PHASES[now][1] > 1 and PHASES[phase][1] == 1:
                clear_adam(opt)
            phase, phase_start = now, step
        _, n, count, size, share = PHASES[phase]
        lr = a.lr * (0.5 if n > 1 else 1) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        lr *= min(1, (step - phase_start + 1) / (60 if n > 1 or phase == 0 else 1))
        for g in opt.param_groups:
            g["lr"] = lr
        muon.lr, taps[0] = lr * a.muon, 2 if n == 1 else 0
        x, w = batch(rng, n, count, size, share)
        m, logvar = vae.encode(x)
        y = vae.decode(m + torch.randn_like(m) * (0.5 * logvar.clamp(-20, 5)).exp())
        d = y - x
        kl = (m.square() + logvar.exp() - 1 - logvar).mean()
        loss = (w * (d.abs() + 0.5 * d.square())).mean() / w.mean() + 1e-5 * kl
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(vae.parameters(), 0.5)
        if torch.isfinite(norm):
            opt.step()
            muon.step()
            ema.update(vae)
        step += 1
        mean = 0.98 * mean + 0.02 * loss.item() if step > 50 else loss.item()
        if clock() - saved > 90:
            saved = clock()
            save(path, {"vae": vae.state_dict(), "ema": ema.state(), "opt": opt.state_dict(), "muon": muon.state_dict(), "step": step,
                        "phase": phase, "phase_start": phase_start, "seconds": clock()})
        if clock() - shown > 120:
            shown = clock()
            v = evaluate(ema.module, clips)
            log(f"min {clock() / 60:.1f} step {step} frames {n} lr {lr:.1e} loss {mean:.4f} kl {kl.item():.1f} "
                f"psnr video {v[0]:.2f} first {v[1]:.2f} box {v[2]:.2f}")
    save(path, {"vae": vae.state_dict(), "ema": ema.state(), "opt": opt.state_dict(), "muon": muon.state_dict(), "step": step,
                "phase": phase, "phase_start": phase_start, "seconds": clock()})
    log("psnr video %.2f first %.2f box %.2f" % evaluate(ema.module, clips))


if __name__ == "__main__":
    main()
