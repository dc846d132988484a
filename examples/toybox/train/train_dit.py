"""Trains the transformer and the text encoder together on latents of the closed-form encoder. Resumes by itself.

python train_dit.py --work DIR --minutes 90
One set of weights for everything: whole clips (a quarter with clean leading frames), continuations (windows from inside a clip,
always with clean leading frames) and, in a share --causal of the steps, block-causal attention with a noise level for each block
and mostly clean blocks before it. Latents are rendered and encoded on the way (a pool, partly renewed at every step); captions are worded anew at every
visit. The number of latent frames grows with the training time (--phases). Writes DIR/dit.pt and DIR/dit.log.
"""
import argparse
import copy
import os
import time

import numpy as np
import torch

import models
import world
from common import Clock, Ema, Log, Muon, load, save
from sample import SHIFT
from text import Tokenizer

INSIDE = (3, 6, 12, 30, 90)  # where windows from inside a clip begin, in latent frames


class Pool:
    """Clean latents [16,n,16,16] (normalised), the weights of the loss and their scenes; the oldest are replaced."""

    def __init__(self, vae, mean, std, size, seed, frames, first=0):
        """first: number of the first of the latent frames within its clip. The closed-form encoder makes latent j from the
        pictures 4j-3..4j alone, so a window needs no more than one (unused) picture before it."""
        self.vae, self.mean, self.std, self.size, self.frames, self.first = vae, mean, std, size, frames, first
        self.rng, self.items, self.next = np.random.default_rng(seed), [], 0
        self.queue = None

    def hire(self, workers, seed):
        """From now on processes do the rendering; batch() takes what they have."""
        ctx = torch.multiprocessing.get_context("fork")
        self.queue = ctx.Queue(64)
        for k in range(workers):
            ctx.Process(target=self._work, args=((*seed, k),), daemon=True).start()

    def _work(self, seed):
        torch.set_num_threads(1)
        self.rng = np.random.default_rng(seed)
        while True:
            z, w, s = zip(*(self.make() for _ in range(16)))
            self.queue.put((torch.stack(z).half().numpy(), torch.stack(w).half().numpy(), s))

    def _add(self, item):
        if len(self.items) < self.size:
            self.items.append(item)
        else:
            self.items[self.next] = item
            self.next = (self.next + 1) % self.size

    @torch.no_grad()
    def make(self):
        n, s = self.frames, world.sample_scene(self.rng)
        ts = np.arange(4 * n - 3) if self.first == 0 else np.arange(4 * self.first - 4, 4 * (self.first + n) - 3)
        x = torch.from_numpy(world.render(s, ts)).permute(3, 0, 1, 2)[None] * 2 - 1
        z = (self.vae.encode(x)[0][0] - self.mean) / self.std
        w = torch.ones(1, z.shape[1], 16, 16)
        for i, (x0, y0, x1, y1) in enumerate(world.box(s, ts)):
            if x1 > x0 and y1 > y0:
                w[0, (i + 3) // 4, y0 // 8:(y1 + 7) // 8, x0 // 8:(x1 + 7) // 8] = 3
        return z[:, -n:], w[:, -n:], s

    def batch(self, count, fresh):
        if self.queue is None:
            for _ in range(fresh if len(self.items) >= count else count):
                self._add(self.make())
        else:
            while len(self.items) < count or not self.queue.empty():
                z, w, scenes = self.queue.get()
                for item in zip(torch.from_numpy(z).float(), torch.from_numpy(w).float(), scenes):
                    self._add(item)
        z, w, s = zip(*(self.items[i] for i in self.rng.choice(len(self.items), count, replace=False)))
        return torch.stack(z), torch.stack(w), s


def flow_loss(dit, text, z, w, ids, count, sigma, noise, bias=None, first=0, train=None):
    """Mean weighted squared error of the velocity of each sample. sigma [B,T]; frames of sigma 0 are given, and with
    train [B,T] (bool) only its frames count."""
    b, _, n = z.shape[:3]
    sv = sigma.view(b, 1, n, 1, 1)
    v = dit((1 - sv) * z + sv * noise, 1000 * sigma, *dit.context(text(ids, count), count), bias, first)
    w = w * ((sv > 0) if train is None else train.view(b, 1, n, 1, 1))
    w = w.expand_as(z)
    return ((v - (noise - z)).square() * w).flatten(1).sum(1) / w.flatten(1).sum(1).clamp_min(1)


def noise_level(b, shift=SHIFT, uniform=0.3):
    """Logit-normal and shifted: what is where in a clip is settled above 0.9. A share is uniform, for the edges."""
    u = torch.sigmoid(torch.randn(b))
    return torch.where(torch.rand(b) < uniform, torch.rand(b), shift * u / (1 + (shift - 1) * u))


def choose(a, step, n):
    """Whether this step is of single frames; number of the window's first latent frame; whether it is block-causal."""
    rng = np.random.default_rng((a.seed, step))
    if n > 1 and rng.random() < a.single:
        return True, 0, False
    if n < 3 * a.block:
        return False, 0, False
    causal = rng.random() < a.causal
    inside = rng.random() < (0.6 if causal else 0.25)
    return False, int(rng.choice(INSIDE)) if inside else 0, causal


def bidirectional_levels(b, n, first):
    """One noise level for a sample. A quarter of the clips have clean leading frames, a window from inside always."""
    clean = torch.zeros(b)
    if n > 1:
        clean = torch.where(torch.rand(b) < (1 if first else 0.25), torch.randint(1, (n + 1) // 2 + 1, (b,)).float(), clean)
    return torch.where(torch.arange(n) < clean[:, None], 0.0, noise_level(b)[:, None])


def causal_levels(b, n, block, first):
    """A noise level for each block; in 70 % of the samples everything before a random block is (nearly) clean.
    A window from inside a clip does not train its first block, which has no past there as it would in use."""
    m = n // block
    s = noise_level(b * m).view(b, m)
    cut = torch.randint(0, m, (b,))
    past = (torch.arange(m) < cut[:, None]) & (torch.rand(b) < 0.7)[:, None]
    near = torch.where(torch.rand(b, m) < 0.5, 0.0, 0.15 * torch.rand(b, m))
    train = ~past
    if first:
        train[:, 0] = False
    return torch.where(past, near, s).repeat_interleave(block, 1), train.repeat_interleave(block, 1)


def causal_bias(n, block, tokens):
    """True where a token may look: its own block and the blocks before."""
    g = (torch.arange(n) // block).repeat_interleave(tokens)
    return g[:, None] >= g[None, :]


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
    """Loss at three noise levels on fixed scenes, all channels alike."""
    held = Pool(pool.vae, pool.mean, pool.std, 48, 777, n)
    z, w, scenes = held.batch({1: 48, 3: 24}.get(n, 8), 0)
    ids, count = tok([world.caption(s, held.rng) for s in scenes])
    dev = next(dit.parameters()).device
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(5)).to(dev)
    z, w, ids, count = (v.to(dev) for v in (z, w, ids, count))
    one = torch.ones(z.shape[0], z.shape[2], device=dev)
    return [flow_loss(dit, text, z, w, ids, count, s * one, noise).mean().item() for s in (0.5, 0.8, 0.95)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    p.add_argument("--minutes", type=float, default=90)
    p.add_argument("--phases", default="1:64:0.45,3:32:0.65,9:12:1.0", help="latent frames:batch:until (share of the time)")
    p.add_argument("--layers", default="4:0", help="count:from (share of the time), growing; e.g. 4:0,8:0.5")
    p.add_argument("--lr", type=float, default=1.5e-3, help="AdamW")
    p.add_argument("--muon", type=float, default=5e-3)
    p.add_argument("--single", type=float, default=0.4, help="share of steps with single frames among clips: shapes are learned there")
    p.add_argument("--batch", type=int, default=64, help="of those steps")
    p.add_argument("--causal", type=float, default=0.35, help="share of block-causal steps, once clips have 3 blocks")
    p.add_argument("--block", type=int, default=3, help="latent frames of a block")
    p.add_argument("--decay", type=float, default=0.35, help="share of the time in which the rates fall to 0")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", default="cpu")
    p.add_argument("--workers", type=int, default=0, help="processes that render; 0: the training process does")
    p.add_argument("--bf16", action="store_true", help="autocast and compile (for a GPU)")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    dev = torch.device(a.device)
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
    count = (state or {"layers": int(layers[0][0])})["layers"]
    dit, text = models.DiT({**models.DIT_CONFIG, "num_layers": count}), models.TextEncoder()
    dit, text = dit.to(dev), text.to(dev)
    ema_dit, ema_text = Ema(dit, 0.998), Ema(text, 0.998)
    big, rest = groups(dit, text)
    muon, opt = Muon(big, a.muon), torch.optim.AdamW(rest, lr=a.lr, betas=(0.9, 0.98), weight_decay=0.0)
    step, seen, clock = 0, {}, Clock()
    if state:
        dit.load_state_dict(state["dit"]), text.load_state_dict(state["text"])
        ema_dit.restore(state["ema_dit"]), ema_text.restore(state["ema_text"])
        if state["opt"]:
            muon.load_state_dict(state["muon"]), opt.load_state_dict(state["opt"])
        step, seen, clock = state["step"], state["seen"], Clock(state["seconds"])
        log(f"resumed at step {step}, {clock() / 60:.1f} min, samples {seen}")
    pools = {}  # (latent frames, first of them) -> Pool
    run = torch.compile(flow_loss) if a.bf16 else flow_loss
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
        single, first, causal = choose(a, step, n)
        if single:
            n, b = 1, a.batch
        if (n, first) not in pools:
            pools[n, first] = Pool(vae, mean, std, 1024 if n == 1 else 256, (a.seed, step, n, first), n, first)
            if a.workers:
                pools[n, first].hire(max(1, a.workers // (len(INSIDE) + 2)), (a.seed, step, n, first, 1))
        pool, mask, train = pools[n, first], None, None
        z, w, scenes = pool.batch(b, max(1, b // 3))
        rng = pool.rng
        ids, words = tok(["" if rng.random() < 0.1 else world.caption(s, rng) for s in scenes])
        if causal:
            mask = causal_bias(n, a.block, 64).to(dev)
            levels, train = causal_levels(b, n, a.block, first)
        else:
            levels = bidirectional_levels(b, n, first)
        z, w, ids, words, levels = (v.to(dev, non_blocking=True) for v in (z, w, ids, words, levels))
        with torch.autocast(dev.type, torch.bfloat16, enabled=a.bf16):
            loss = run(dit, text, z, w, ids, words, levels, torch.randn_like(z), mask, first,
                       None if train is None else train.to(dev)).mean()
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
            n = max(seen)
            v = validate(ema_dit.module, ema_text.module, tok, pool, n)
            log(f"min {clock() / 60:.1f} step {step} samples {seen} loss {np.nanmean(losses):.4f} skipped {np.isnan(losses).sum()} "
                "val 0.5/0.8/0.95: " + "/".join(f"{x:.3f}" for x in v))
            losses = []
    checkpoint()
    log(f"end: step {step}, samples {seen}")


if __name__ == "__main__":
    main()
