"""Trains the VAE: images first (with random colours), then clips of 5, 9 and 17 frames. Resumes by itself.

python train_vae.py --work DIR --minutes 15 --images      encoder and decoder together, single frames: DIR/joint.pt
python train_vae.py --work DIR --minutes 60               the decoder for the encoder of fit_encoder.py: DIR/vae.pt;
                                                          starts from the decoder in joint.pt when there is one
The learning rate and the phases follow the training time.
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
IMAGES = [(0.5, 1, 16, 64, 0.5), (1.0, 1, 16, 64, 0.2)]
CLIPS = [(0.10, 1, 16, 64, 0.1), (0.35, 5, 6, 64, 0.1), (0.80, 9, 4, 64, 0.05), (1.0, 17, 2, 128, 0.0)]
NOISE = 0.04  # on the latents the decoder learns from, in units of their std: generated ones are not exact


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


@torch.no_grad()
def adopt(vae, joint, std):
    """Starts from the decoder of the joint run: post_quant_conv translates the new latents into the old ones."""
    old = models.VAE()
    old.load_state_dict(joint)
    vae.decoder.load_state_dict(old.decoder.state_dict())
    x, _ = batch(np.random.default_rng(5), 1, 64, 128, 0)
    rows = lambda z: z.transpose(0, 1).flatten(1).T.double()
    new = rows(vae.encode(x)[0]) / std
    new = torch.cat([new, torch.ones(len(new), 1)], 1)
    target = rows(old.post_quant_conv(old.encode(x)[0]))
    k = torch.linalg.solve(new.T @ new + torch.eye(new.shape[1]), new.T @ target)
    vae.post_quant_conv.weight.copy_((k[:-1] / std[:, None]).T.reshape_as(vae.post_quant_conv.weight))
    vae.post_quant_conv.bias.copy_(k[-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--images", action="store_true")
    p.add_argument("--lr", type=float, default=1.3e-3)
    p.add_argument("--muon", type=float, default=3.0, help="step size of the convolutions, in units of --lr")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    name, phases = ("joint", IMAGES) if a.images else ("vae", CLIPS)
    log, path = Log(f"{a.work}/{name}.log"), f"{a.work}/{name}.pt"

    vae = models.VAE()
    vae.init_for_images()
    state, frozen, std = load(path), [], None
    if not a.images:
        e = load(f"{a.work}/encoder.pt")
        vae.encoder.load_state_dict(e["encoder"]), vae.quant_conv.load_state_dict(e["quant_conv"])
        models.mark_linear(vae.encoder)
        frozen = [*vae.encoder.parameters(), *vae.quant_conv.parameters()]
        for q in frozen:
            q.requires_grad_(False)
        std = torch.tensor(load(f"{a.work}/stats.pt")["std"])
        joint = load(f"{a.work}/joint.pt")
        if joint and not state:
            adopt(vae, joint["ema"]["module"], std)
    ema = Ema(vae, 0.998)
    train = [(n, q) for n, q in vae.named_parameters() if q.requires_grad]
    big = lambda q: q.ndim == 5 and q.shape[2] == 3 and min(q.shape[:2]) > 3
    taps = [0, 3]
    muon = Muon([q for _, q in train if big(q)], a.lr, view=lambda w: w[:, :, taps[0]:taps[1]])
    opt = torch.optim.Adam([q for _, q in train if not big(q)], lr=a.lr, betas=(0.9, 0.99))
    step, phase_start, phase, clock = 0, 0, -1, Clock()
    if state:
        vae.load_state_dict(state["vae"]), ema.restore(state["ema"])
        opt.load_state_dict(state["opt"]), muon.load_state_dict(state["muon"])
        step, phase_start, phase, clock = state["step"], state["phase_start"], state["phase"], Clock(state["seconds"])
        log(f"resumed at step {step}, {clock() / 60:.1f} min")
    rng, clips = np.random.default_rng((a.seed, step)), held_out_clips()
    checkpoint = lambda: save(path, {"vae": vae.state_dict(), "ema": ema.state(), "opt": opt.state_dict(), "step": step,
                                     "muon": muon.state_dict(), "phase": phase, "phase_start": phase_start, "seconds": clock()})
    saved = shown = clock()
    mean = 0.0
    if not step:
        log("start: psnr video %.2f first %.2f box %.2f" % evaluate(ema.module, clips))
    while (done := clock() / 60 / a.minutes) < 1:
        now = next(i for i, ph in enumerate(phases) if done < ph[0])
        if now != phase:
            if phase >= 0 and phases[now][1] > 1 and phases[phase][1] == 1:
                clear_adam(opt)
            phase, phase_start = now, step
        _, n, count, size, share = phases[phase]
        lr = a.lr * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        lr *= min(1, (step - phase_start + 1) / (40 if n > 1 or phase == 0 else 1))
        for g in opt.param_groups:
            g["lr"] = lr
        # Single frames train the last tap in time alone.
        muon.lr, taps[0] = lr * a.muon, 2 if n == 1 else 0
        x, w = batch(rng, n, count, size, share)
        kl = torch.zeros(())
        if a.images:
            m, logvar = vae.encode(x)
            z = m + torch.randn_like(m) * (0.5 * logvar.clamp(-20, 5)).exp()
            kl = (m.square() + logvar.exp() - 1 - logvar).mean()
        else:
            with torch.no_grad():
                z = vae.encode(x)[0]
                z = z + NOISE * std.view(1, -1, 1, 1, 1) * torch.randn_like(z)
        d = vae.decode(z) - x
        loss = (w * (d.abs() + 0.5 * d.square())).mean() / w.mean() + 1e-5 * kl
        opt.zero_grad(set_to_none=True)
        for q in muon.params:
            q.grad = None
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([q for _, q in train], 0.5)
        if torch.isfinite(norm):
            opt.step()
            muon.step()
            ema.update(vae)
        step += 1
        mean = 0.97 * mean + 0.03 * loss.item() if step > 30 else loss.item()
        if clock() - saved > 90:
            saved = clock()
            checkpoint()
        if clock() - shown > 120:
            shown = clock()
            v = evaluate(ema.module, clips)
            log(f"min {clock() / 60:.1f} step {step} frames {n} lr {lr:.1e} loss {mean:.4f} kl {kl.item():.1f} "
                f"psnr video {v[0]:.2f} first {v[1]:.2f} box {v[2]:.2f}")
    checkpoint()
    log("end: psnr video %.2f first %.2f box %.2f" % evaluate(ema.module, clips))


if __name__ == "__main__":
    main()
