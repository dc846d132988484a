"""Trains the transformer and the text encoder together on latents of the closed-form encoder. Resumes by itself.

python train_dit.py --work DIR --minutes 90
Latents are rendered and encoded on the way (a pool, partly renewed at every step); captions are worded anew at every
visit. The number of latent frames grows with the training time (--phases). Writes DIR/dit.pt and DIR/dit.log.
"""
import argparse
import copy
import math
import os

import numpy as np
import torch

import models
import world
from common import Clock, Ema, Log, Muon, load, save
from text import Tokenizer

SHIFT = 3.0


class Pool:
    """Clean latents [16,n,16,16] (normalised), the weights of the loss and their scenes; the oldest are replaced."""

    def __init__(self, vae, mean, std, size, seed):
        self.vae, self.mean, self.std, self.size = vae, mean, std, size
        self.rng, self.items, self.next, self.frames = np.random.default_rng(seed), [], 0, 0

    @torch.no_grad()
    def make(self, n):
        s = world.sample_scene(self.rng)
        ts = np.arange(4 * n - 3)
        x = torch.from_numpy(world.render(s, ts)).permute(3, 0, 1, 2)[None] * 2 - 1
        z = (self.vae.encode(x)[0][0] - self.mean) / self.std
        w = torch.ones(1, n, 16, 16)
        for i, (x0, y0, x1, y1) in enumerate(world.box(s, ts)):
            if x1 > x0 and y1 > y0:
                w[0, (i + 3) // 4, y0 // 8:(y1 + 7) // 8, x0 // 8:(x1 + 7) // 8] = 3
        return z, w, s

    def batch(self, n, count, fresh):
        if n != self.frames:
            self.items, self.next, self.frames = [], 0, n
        for _ in range(fresh if len(self.items) >= count else count):
            if len(self.items) < self.size:
                self.items.append(self.make(n))
            else:
                self.items[self.next] = self.make(n)
                self.next = (self.next + 1) % self.size
        new = list(range(max(0, len(self.items) - fresh), len(self.items)))[:count]
        pick = new + [int(i) for i in self.rng.integers(0, len(self.items), count - len(new))]
        z, w, s = zip(*(self.items[i] for i in pick))
        return torch.stack(z), torch.stack(w), s


def flow_loss(dit, text, z, w, ids, count, sigma, clean, noise):
    """Mean weighted squared error of the velocity. sigma [B]; clean [B]: leading frames given without noise."""
    b, _, n = z.shape[:3]
    given = torch.arange(n, device=z.device) < clean[:, None]
    s = torch.where(given, 0.0, sigma[:, None])
    sv = s.view(b, 1, n, 1, 1)
    v = dit((1 - sv) * z + sv * noise, 1000 * s, *dit.context(text(ids, count), count))
    w = w * (~given).view(b, 1, n, 1, 1)
    e = ((v - (noise - z)).square() * w).flatten(1).sum(1) / (w.flatten(1).sum(1) * z.shape[1])
    return e


def noise_level(b):
    u = torch.sigmoid(torch.randn(b))
    return SHIFT * u / (1 + (SHIFT - 1) * u)


@torch.no_grad()
def grow(dit, layers):
    """More layers, the function unchanged: every block is followed by a copy of itself whose outputs are zero."""
    while len(dit.blocks) < layers:
        blocks = []
        for i, old in enumerate(dit.blocks):
            blocks.append(old)
            if len(dit.blocks) + len(blocks) - i - 1 < layers:
                new = copy.deepcopy(old)
                for m in (new.attn1.to_out[0], new.attn2.to_out[0], new.ffn.net[2]):
                    m.weight.zero_(), m.bias.zero_()
                blocks.append(new)
        dit.blocks = torch.nn.ModuleList(blocks)


def groups(dit, text):
    """Matrices of the blocks for Muon, the rest for AdamW."""
    big = [p for n, p in [*dit.blocks.named_parameters(), *text.encoder.block.named_parameters()]
           if p.ndim == 2 and "relative" not in n]
    ids = {id(p) for p in big}
    return big, [p for p in [*dit.parameters(), *text.parameters()] if id(p) not in ids]


@torch.no_grad()
def validate(dit, text, tok, pool, n):
    """Loss at three noise levels on fixed scenes."""
    held = Pool(pool.vae, pool.mean, pool.std, 16, 777)
    z, w, scenes = held.batch(n, 16 if n < 9 else 6, 0)
    ids, count = tok([world.caption(s, held.rng) for s in scenes])
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(5))
    one = torch.ones(len(z))
    return [flow_loss(dit, text, z, w, ids, count, s * one, 0 * one, noise).mean().item() for s in (0.5, 0.8, 0.95)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    p.add_argument("--minutes", type=float, default=90)
    p.add_argument("--phases", default="1:64:0.45,3:32:0.65,9:12:1.0", help="latent frames:batch:until (share of the time)")
    p.add_argument("--layers", default="8:0", help="count:from (share of the time), growing; e.g. 4:0,8:0.5")
    p.add_argument("--lr", type=float, default=1.5e-3, help="AdamW")
    p.add_argument("--muon", type=float, default=5e-3)
    p.add_argument("--decay", type=float, default=0.35, help="share of the time in which the rates fall to 0")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    phases = [tuple(float(v) for v in ph.split(":")) for ph in a.phases.split(",")]
    layers = [tuple(float(v) for v in ph.split(":")) for ph in a.layers.split(",")]
    log, path = Log(f"{a.work}/dit.log"), f"{a.work}/dit.pt"
    tok = Tokenizer(f"{a.work}/spiece.model")
    vae, e, stats = models.VAE(), load(f"{a.work}/encoder.pt"), load(f"{a.work}/stats.pt")
    vae.encoder.load_state_dict(e["encoder"]), vae.quant_conv.load_state_dict(e["quant_conv"])
    models.mark_linear(vae.encoder)
    mean, std = (torch.tensor(stats[k]).view(-1, 1, 1, 1) for k in ("mean", "std"))

    state = load(path)
    torch.manual_seed(a.seed + (state["step"] if state else 0))
    count = state["layers"] if state else int(layers[0][0])
    dit, text = models.DiT({**models.DIT_CONFIG, "num_layers": count}), models.TextEncoder()
    ema_dit, ema_text = Ema(dit, 0.998), Ema(text, 0.998)
    big, rest = groups(dit, text)
    muon, opt = Muon(big, a.muon), torch.optim.AdamW(rest, lr=a.lr, betas=(0.9, 0.98), weight_decay=0.0)
    step, seen, clock = 0, {}, Clock()
    if state:
        dit.load_state_dict(state["dit"]), text.load_state_dict(state["text"])
        ema_dit.restore(state["ema_dit"]), ema_text.restore(state["ema_text"])
        muon.load_state_dict(state["muon"]), opt.load_state_dict(state["opt"])
        step, seen, clock = state["step"], state["seen"], Clock(state["seconds"])
        log(f"resumed at step {step}, {clock() / 60:.1f} min, samples {seen}")
    pool = Pool(vae, mean, std, 1536, (a.seed, step))
    checkpoint = lambda: save(path, {
        "dit": dit.state_dict(), "text": text.state_dict(), "ema_dit": ema_dit.state(), "ema_text": ema_text.state(),
        "muon": muon.state_dict(), "opt": opt.state_dict(), "step": step, "seen": seen, "seconds": clock(), "layers": count})
    saved = shown = clock()
    losses = []
    while (done := clock() / 60 / a.minutes) < 1:
        want = max(int(n) for n, start in layers if done >= start)
        if want > count:
            grow(dit, want), grow(ema_dit.module, want)
            count, (big, rest) = want, groups(dit, text)
            muon, opt = Muon(big, a.muon), torch.optim.AdamW(rest, lr=a.lr, betas=(0.9, 0.98), weight_decay=0.0)
            log(f"grown to {count} layers")
        n, b = next((int(n), int(b)) for n, b, until in phases if done < until)
        scale = min(1, (step + 1) / 50, max(0.02, (1 - done) / a.decay))
        muon.lr = a.muon * scale
        for g in opt.param_groups:
            g["lr"] = a.lr * scale
        z, w, scenes = pool.batch(n, b, max(1, b // 3))
        rng = pool.rng
        ids, words = tok(["" if rng.random() < 0.1 else world.caption(s, rng) for s in scenes])
        clean = torch.zeros(b)
        if n > 1:
            clean = torch.where(torch.rand(b) < 0.25, torch.randint(1, (n + 1) // 2 + 1, (b,)).float(), clean)
        loss = flow_loss(dit, text, z, w, ids, words, noise_level(b), clean, torch.randn_like(z)).mean()
        opt.zero_grad(set_to_none=True)
        for q in big:
            q.grad = None
        loss.backward()
        if torch.isfinite(torch.nn.utils.clip_grad_norm_(rest, 1.0)):
            opt.step()
            muon.step()
            ema_dit.update(dit), ema_text.update(text)
        step += 1
        seen[n] = seen.get(n, 0) + b
        losses.append(loss.item())
        if clock() - saved > 100:
            saved = clock()
            checkpoint()
        if clock() - shown > 120:
            shown = clock()
            v = validate(ema_dit.module, ema_text.module, tok, pool, n)
            log(f"min {clock() / 60:.1f} step {step} frames {n} samples {seen} loss {np.nanmean(losses):.4f} skipped {np.isnan(losses).sum()} "
                "val 0.5/0.8/0.95: " + "/".join(f"{x:.3f}" for x in v))
            losses = []
    checkpoint()
    log(f"end: step {step}, samples {seen}")


if __name__ == "__main__":
    main()
