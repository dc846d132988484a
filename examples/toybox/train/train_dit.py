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
import torch.nn.functional as F

import fused
import models
import world
from common import Clock, Ema, Log, Muon, load, save
from sample import SHIFT, sigmas
from text import Tokenizer

INSIDE = (3, 6, 12, 18, 24, 36, 90)  # where windows from inside a clip begin, in latent frames; what moves wraps after 25 to 30
RARE = (("still", "up", "spin", "star", "ball", "ring"), ("still", "still", "up", "up", "bounce", "spin"),
        ("sunrise", "sunrise", "sunrise", "still", "up", "spin"))  # shown more often: in single frames, starts, longer windows


class Pool:
    """Clean latents [16,n,16,16] (normalised), the same with the flaws of frames that a model has drawn, block after block, the
    weights of the loss, where the object is [n,4,32,32] (world.shade, of the four pictures of each latent frame) and their scenes;
    the oldest are replaced."""

    def __init__(self, vae, mean, std, size, seed, frames, first=0, block=3, rare=0.0, flawed=0.0, own=0.0,
                 draw=None):
        """first: number of the first of the latent frames within its clip. The closed-form encoder makes latent j from the
        pictures 4j-3..4j alone, so a window needs no more than one (unused) picture before it. own: share of windows whose past
        is what the model itself makes of their first frame: draw(z, scene, rng)."""
        self.vae, self.mean, self.std, self.size, self.frames, self.first = vae, mean, std, size, frames, first
        self.block, self.rare, self.flawed, self.own, self.draw = block, rare, flawed, own, draw
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
            *data, s = zip(*(self.make() for _ in range(16)))
            self.queue.put((*(torch.stack(v).half().numpy() for v in data), s))

    def _add(self, item):
        if len(self.items) < self.size:
            self.items.append(item)
        else:
            self.items[self.next] = item
            self.next = (self.next + 1) % self.size

    @torch.no_grad()
    def make(self):
        n, rare = self.frames, {}
        if self.rng.random() < self.rare:  # what differs by a few pixels alone is learned last
            names = RARE[0 if n == 1 else 1 if n <= 1 + self.block else 2]
            name = names[self.rng.integers(len(names))]
            rare = {key: name for key, known in (("shape", world.SHAPES), ("motion", world.MOTIONS), ("light", world.LIGHTS)) if name in known}
        s = world.sample_scene(self.rng, **rare)
        ts = np.arange(4 * n - 3) if self.first == 0 else np.arange(4 * self.first - 4, 4 * (self.first + n) - 3)
        clips = [world.render(s, ts)]
        if self.rng.random() < self.flawed:
            frame = np.maximum((np.arange(len(ts)) + 3) // 4 - (self.first > 0), 0)  # latent frame of each picture
            clips.append(world.render(s, ts, world.flaws(s, self.rng, block_numbers(frame, self.block))))
        zs = (self.vae.encode(torch.from_numpy(np.stack(clips)).permute(0, 4, 1, 2, 3) * 2 - 1)[0] - self.mean) / self.std
        z, drawn = zs[0], zs[-1]
        if self.own and self.rng.random() < self.own:
            drawn = self.draw(z[:, -n:], s, self.rng)
        w = torch.ones(1, z.shape[1], 16, 16)
        for i, (x0, y0, x1, y1) in enumerate(world.box(s, ts)):
            if x1 > x0 and y1 > y0:
                w[0, (i + 3) // 4, y0 // 8:(y1 + 7) // 8, x0 // 8:(x1 + 7) // 8] = 3
        o = torch.from_numpy(world.shade(s, ts))
        o = torch.cat([o[:1].expand(4, -1, -1), o[1:]]).view(-1, 4, *o.shape[1:])
        return z[:, -n:], drawn[:, -n:], w[:, -n:], o[-n:], s

    def batch(self, count, fresh):
        if self.queue is None:
            for _ in range(fresh if len(self.items) >= count else count):
                self._add(self.make())
        else:
            while len(self.items) < count or not self.queue.empty():
                *data, scenes = self.queue.get()
                for item in zip(*(torch.from_numpy(v).float() for v in data), scenes):
                    self._add(item)
        *data, s = zip(*(self.items[i] for i in self.rng.choice(len(self.items), count, replace=False)))
        return *(torch.stack(v) for v in data), s


def flow_loss(dit, text, where, z, drawn, w, seen, ids, count, sigma, noise, past=None, block=3, first=0):
    """Mean weighted squared error of the velocity of each sample; that of its means over squares of 4x4 and over the frame, in which
    light and layout are but a small part of the first; and the mean cross entropy of "where exactly is the object?", which the
    head where reads from the tokens before the last layer. sigma [B,T]; frames of sigma 0 are given and do not
    count. past [B,T]: block after block; each sees itself and the blocks before it as they were `drawn`, nearly clean (of these
    levels). seen: what Pool.make tells of the object."""
    b, _, n = z.shape[:3]
    level = lambda s: s.view(b, 1, -1, 1, 1)
    x, t, parts, m = (1 - level(sigma)) * z + level(sigma) * noise, sigma, None, 0
    if past is not None:
        parts, m = causal_parts(n, block, 64)
        old, s = drawn[:, :, :m], level(past[:, :m])
        x = torch.cat([(1 - s) * old + s * torch.randn_like(old), x], 2)
        t = torch.cat([past[:, :m], sigma], 1)
    v, tokens = dit(x, 1000 * t, *dit.context(text(ids, count), count), parts, first, len(dit.blocks) - 1, m)
    v, tokens, use = v[:, :, m:], tokens[:, m:], level(sigma > 0)
    here = F.pixel_unshuffle(seen, 4).flatten(3).transpose(2, 3)  # [B,T,tokens,64]
    miss = F.binary_cross_entropy_with_logits(where(tokens).float(), here, reduction="none") * use.view(b, n, 1, 1)
    total = lambda x: x.flatten(1).sum(1)
    error, trained, w = (v - (noise - z)) * use, total(use).clamp_min(1), (w * use).expand_as(z)
    coarse = sum(k * total(F.avg_pool2d(error.flatten(1, 2), k).square()) * (k * k / 256) for k in (4, 16))
    return total(error.square() * w) / total(w).clamp_min(1), coarse / (16 * trained), total(miss) / (64 * 64 * trained)


def noise_level(b, shift=SHIFT, uniform=0.3, use=0.35):
    """Logit-normal and shifted. A share is uniform, for the edges; another as in use, where a fifth of the steps is above 0.95:
    there nothing but the text says where the object is and will be."""
    u, kind = torch.sigmoid(torch.randn(b)), torch.rand(b)
    u = torch.where(kind < uniform + use, torch.rand(b), u)
    return torch.where(kind < uniform, u, shift * u / (1 + (shift - 1) * u))


def choose(a, step, n, b):
    """Latent frames of this step's samples, how many samples, number of the window's first latent frame, whether it is
    block-causal (half as many samples: every frame is there twice)."""
    rng = np.random.default_rng((a.seed, step))
    kind = rng.random() if n > 1 else 1
    if kind < a.single:
        return 1, a.batch, 0, False
    if n <= a.block:
        return n, b, 0, False
    if kind < a.single + a.starts:
        return 1 + a.block, max(1, a.batch // 4), 0, True
    causal = rng.random() < a.causal
    inside = rng.random() < (0.4 if causal else 0.25)
    return n, max(1, b // 2) if causal else b, int(rng.choice(INSIDE)) if inside else 0, causal


def bidirectional_levels(b, n, first):
    """One noise level for a sample. A quarter of the clips have clean leading frames, a window from inside always."""
    clean = torch.zeros(b)
    if n > 1:
        clean = torch.where(torch.rand(b) < (1 if first else 0.25), torch.randint(1, (n + 1) // 2 + 1, (b,)).float(), clean)
    return torch.where(torch.arange(n) < clean[:, None], 0.0, noise_level(b)[:, None])


def block_numbers(frames, block):
    """The first frame is a block of its own: a picture, which says where everything is. A window from inside begins with the
    last frame of a block."""
    return (frames + block - 1) // block


def causal_levels(b, n, block, first):
    """A noise level for each block, and one for each as the past of the others: clean or nearly so. A window from inside a clip
    does not train its first frame, which has no past there as it would in use."""
    g = block_numbers(torch.arange(n), block)
    m = int(g[-1]) + 1
    s, past = noise_level(b * m).view(b, m), torch.where(torch.rand(b, m) < 0.5, 0.0, 0.15 * torch.rand(b, m))
    if first:
        s[:, 0] = 0
    return s[:, g], past[:, g]


def cut_in(data, levels, block, rng, scenes):
    """A change of prompt: before a block of each clip stand frames of another one, as when kept frames are computed again under the
    new prompt; it goes on from its beginning. Only what follows is trained. A clip in which the sun rises stays as it is: of dark frames
    after bright ones a model learns that a sunrise may begin anew at any time."""
    n = levels.shape[1]
    at = 1 + block * int(rng.integers((n - 1) // block))
    levels[:, :at] = 0
    whole = torch.tensor([s["light"] == "sunrise" for s in scenes])
    cut = [torch.cat([x.roll(1, 0).narrow(axis, 0, at), x.narrow(axis, 1, n - at)], axis) for x, axis in zip(data, (2, 2, 2, 1))]
    return [torch.where(whole.view(-1, *[1] * (x.ndim - 1)), x, c) for x, c in zip(data, cut)]


def causal_parts(n, block, tokens):
    """Who looks where, for DiT: a block of the past at itself and those before it, a noisy block at itself and the past before
    it. And the number of frames of the past, which ends before the last block."""
    g = block_numbers(torch.arange(n), block)
    ends = [0] + [int((g <= i).sum()) * tokens for i in range(int(g[-1]) + 1)]
    m = ends[-2]
    spans = list(zip(ends, ends[1:]))
    return ([(slice(a, b), [slice(0, b)]) for a, b in spans[:-1]]
            + [(slice(m + a, m + b), [slice(0, a)] * (a > 0) + [slice(m + a, m + b)]) for a, b in spans], m // tokens)


@torch.no_grad()
def draw_past(dit, text, ids, count, z, block, first, steps, guidance):
    """Block after block from the first frame of z [16,n,h,w], as in use (Euler, few steps), up to the last block, which is nobody's
    past. ids, count: the caption and no words."""
    n = z.shape[1]
    g = block_numbers(torch.arange(n), block)
    ends = [int((g <= i).sum()) for i in range(int(g[-1]) + 1)]
    area = z.shape[2] * z.shape[3] // 4
    parts = [(slice(a * area, b * area), [slice(0, b * area)]) for a, b in zip([0] + ends, ends)]
    ctx = dit.context(text(ids, count), count)
    x, sig = z.clone(), sigmas(steps, SHIFT).float()
    for k, (a, b) in enumerate(zip(ends[:-2], ends[1:-1])):
        x[:, a:b] = torch.randn_like(x[:, a:b])
        for now, after in zip(sig, sig[1:]):
            t = (torch.arange(b) >= a) * 1000 * now
            v, none = dit(x[:, :b].expand(2, -1, -1, -1, -1), t.expand(2, b), *ctx, parts[:k + 2], first)
            x[:, a:b] += (after - now) * (none + guidance * (v - none))[:, a:b]
    return x


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


@torch.no_grad()
def open_text(dit, text, tok, scale=1.65):
    """Turns cross-attention away from the padding. Of its 512 rows about 500 are the same one, so ln(500) is on its side and
    the words got 2 % of the weight: motion words had no gradient to be learned by. One hidden unit of the text embedder
    becomes alive for the padding alone and adds a direction p to its row; every query and every key gets a direction u by
    their biases, and the keys turn p into -2u. Values and outputs shrink by what the words had, so that the function stays
    nearly the same. The text must mean something already."""
    rng = np.random.default_rng(8)
    home = next(dit.parameters()).device
    dit, text = dit.cpu(), text.cpu()
    ids, count = tok([world.caption(world.sample_scene(rng), rng) for _ in range(512)])
    rows = text(ids, count)
    words = rows[torch.arange(rows.shape[1]) < count[:, None]].double()
    a = torch.linalg.solve(words.T @ words / len(words) + 1e-4 * torch.eye(words.shape[1]), words.mean(0)).float()  # a . word = 1
    ctx, bias = dit.context(rows, count)
    ctx, pad = ctx[:, :-1][torch.arange(rows.shape[1]) < count[:, None]], ctx[0, -1]
    inputs = {}
    hooks = [m.attn2.to_q.register_forward_pre_hook(lambda _, x, i=i: inputs.update({i: x[0]})) for i, m in enumerate(dit.blocks)]
    first = dit.context(rows[:16], count[:16])
    dit(torch.randn(16, 16, 3, 16, 16), torch.linspace(300, 1000, 16)[:, None].expand(16, 3), *first)
    for h in hooks:
        h.remove()
    least = lambda x: torch.linalg.eigh(x.mT.double() @ x.double())[1][..., 0].float()  # where vectors hardly reach
    p = least(ctx) * ctx.norm(dim=1).mean()
    for i, block in enumerate(dit.blocks):
        m = block.attn2
        q, k = m.to_q(inputs[i]), m.to_k(ctx)
        logits = m.split(m.norm_q(q[:1])) @ m.split(m.norm_k(m.to_k(first[0][:1]))).transpose(2, 3) * (q.shape[-1] // m.heads) ** -0.5
        share = 1 - torch.softmax(logits + first[1][:1, None, None], -1)[..., -1].mean()
        u = (least(m.split(k[None])[0]) * (q.shape[-1] // m.heads) ** 0.5).flatten()
        more = 3 * k.square().mean().sqrt() * u
        m.to_out[0].bias += (1 - share) * (m.to_out[0].weight @ m.to_v(pad))
        m.to_q.bias += q.square().mean().sqrt() * u
        m.to_k.bias += more
        m.to_k.weight -= torch.outer(2 * more + m.to_k.weight @ p, p) / p.square().sum()
        m.to_v.weight -= torch.outer(m.to_v.weight @ p, p) / p.square().sum()
        for n in (m.norm_q, m.norm_k):
            n.weight *= scale
        for v in (m.to_v.weight, m.to_v.bias, m.to_out[0].weight):
            v *= share ** 0.5
    one, two = (getattr(dit.condition_embedder.text_embedder, f"linear_{i}") for i in (1, 2))
    unit = int((two.weight.norm(dim=0) * F.gelu(one(words.float())).norm(dim=0)).argmin())
    one.weight[unit], one.bias[unit], two.weight[:, unit] = -8 * a, 4.0, p / 4
    dit.to(home), text.to(home)


def groups(dit, text, where):
    """Matrices of the blocks for Muon, the rest for AdamW."""
    big = [p for n, p in [*dit.blocks.named_parameters(), *text.encoder.block.named_parameters()]
           if p.ndim == 2 and "relative" not in n]
    ids = {id(p) for p in big}
    return big, [p for p in [*dit.parameters(), *text.parameters(), *where.parameters()] if id(p) not in ids]


def optimisers(a, big, rest):
    return Muon(big, a.muon, half=a.half), torch.optim.AdamW(rest, lr=a.lr, betas=(0.9, 0.98), weight_decay=0.0)


@torch.no_grad()
def validate(dit, text, where, tok, pool, n, block):
    """Losses at three noise levels on fixed scenes, of blocks after clean ones when there is more than one."""
    held = Pool(pool.vae, pool.mean, pool.std, 48, 777, n)
    *data, scenes = held.batch({1: 48, 3: 24}.get(n, 8), 0)
    ids, count = tok([world.caption(s, held.rng) for s in scenes])
    dev = next(dit.parameters()).device
    noise = torch.randn(data[0].shape, generator=torch.Generator().manual_seed(5)).to(dev)
    *data, ids, count = (v.to(dev) for v in (*data, ids, count))
    one = torch.ones(len(ids), n, device=dev)
    return [[x.mean().item() for x in flow_loss(dit, text, where, *data, ids, count, s * one, noise,
                                                0 * one if n > block else None, block)] for s in (0.5, 0.8, 0.95)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    p.add_argument("--minutes", type=float, default=90)
    p.add_argument("--run", default="", help="a new name begins the minutes and the rates anew, from the averaged weights of the state")
    p.add_argument("--phases", default="1:64:0.45,3:32:0.65,9:12:1.0", help="latent frames:batch:until (share of the time)")
    p.add_argument("--layers", default="4:0", help="count:from (share of the time), growing; e.g. 4:0,8:0.5")
    p.add_argument("--lr", type=float, default=1.5e-3, help="AdamW")
    p.add_argument("--muon", type=float, default=5e-3)
    p.add_argument("--single", type=float, default=0.4, help="share of steps with single frames among clips: shapes are learned there")
    p.add_argument("--starts", type=float, default=0.0, help="share of steps with a first frame and one block: whatever moves or changes begins there, by the words alone")
    p.add_argument("--batch", type=int, default=64, help="of single frames; a quarter as many of those starts")
    p.add_argument("--where", type=float, default=0.5, help="weight of the question where exactly the object is: outlines and motion are learned there")
    p.add_argument("--open", type=float, default=10, help="minute at which cross-attention is turned away from the padding")
    p.add_argument("--causal", type=float, default=0.35, help="share of block-causal steps, once clips have 3 blocks")
    p.add_argument("--cuts", type=float, default=0.25, help="share of those from the beginning of a clip with a change of prompt")
    p.add_argument("--rare", type=float, default=0.3, help="share of clips with a motion or shape that is learned last (RARE)")
    p.add_argument("--flawed", type=float, default=0.0, help="share of clips whose past has the flaws of frames that a model drew (world.flaws)")
    p.add_argument("--own", type=float, default=0.0, help="share of windows whose past is what the model itself drew from their first frame")
    p.add_argument("--block", type=int, default=3, help="latent frames of a block")
    p.add_argument("--decay", type=float, default=0.35, help="share of the time in which the rates fall to 0")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", default="cpu")
    p.add_argument("--workers", type=int, default=0, help="processes that render; 0: the training process does")
    p.add_argument("--bf16", action="store_true", help="autocast and compile (for a GPU)")
    p.add_argument("--half", action="store_true", help="multiply in bfloat16 (for a processor that has it)")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if a.own and a.workers:
        p.error("--own %g and --workers %d: what renders does not have the model" % (a.own, a.workers))
    torch.set_num_threads(a.threads)
    fused.halves = a.half
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
    if state and state["run"] != a.run:
        state.update(run=a.run, seconds=0.0, step=0, muon=None, opt=None, dit=state["ema_dit"]["module"], text=state["ema_text"]["module"])
    torch.manual_seed(a.seed + (state["step"] if state else 0))
    count = (state or {"layers": int(layers[0][0])})["layers"]
    dit, text = models.DiT({**models.DIT_CONFIG, "num_layers": count}), models.TextEncoder()
    where = torch.nn.Linear(dit.proj_out.in_features, 64)  # trained with them, not exported
    dit, text, where = dit.to(dev), text.to(dev), where.to(dev)
    ema_dit, ema_text = Ema(dit, 0.99), Ema(text, 0.99)
    big, rest = groups(dit, text, where)
    muon, opt = optimisers(a, big, rest)
    step, seen, clock, opened = 0, {}, Clock(), False

    def own_past(first):
        def draw(z, scene, rng):
            ids, words = (v.to(dev) for v in tok([world.caption(scene, rng), ""]))
            return draw_past(ema_dit.module, ema_text.module, ids, words, z.to(dev), a.block, first, 6, 2.0).cpu()
        return draw

    if state:
        dit.load_state_dict(state["dit"]), text.load_state_dict(state["text"])
        where.load_state_dict(state["where"])
        ema_dit.restore(state["ema_dit"]), ema_text.restore(state["ema_text"])
        if state["opt"]:
            muon.load_state_dict(state["muon"]), opt.load_state_dict(state["opt"])
        step, seen, clock, opened = state["step"], state["seen"], Clock(state["seconds"]), state["opened"]
        log(f"resumed at step {step}, {clock() / 60:.1f} min, samples {seen}")
    pools = {}  # (latent frames, first of them) -> Pool
    run = torch.compile(flow_loss) if a.bf16 else flow_loss
    checkpoint = lambda: save(path, {
        "dit": dit.state_dict(), "text": text.state_dict(), "where": where.state_dict(), "ema_dit": ema_dit.state(), "ema_text": ema_text.state(),
        "muon": muon.state_dict(), "opt": opt.state_dict(), "step": step, "seen": seen, "seconds": clock(), "layers": count, "opened": opened, "run": a.run})
    saved = shown = clock()
    losses = []
    while (done := clock() / 60 / a.minutes) < 1:
        want = max(int(n) for n, start in layers if done >= start)
        if want > count:
            grow(dit, want), grow(ema_dit.module, want)
            count, (big, rest) = want, groups(dit, text, where)
            muon, opt = optimisers(a, big, rest)
            log(f"grown to {count} layers")
        if not opened and clock() / 60 >= a.open:
            open_text(dit, text, tok), open_text(ema_dit.module, ema_text.module, tok)
            muon, opt = optimisers(a, big, rest)
            opened = True
            log("cross-attention opened")
        n, b = next((int(n), int(b)) for n, b, until in phases if done < until)
        scale = min(1, (step + 1) / 50, max(0.02, (1 - done) / a.decay))
        muon.lr = a.muon * scale
        for g in opt.param_groups:
            g["lr"] = a.lr * scale
        whole = n
        n, b, first, causal = choose(a, step, n, b)
        if (n, first) not in pools:
            pools[n, first] = Pool(vae, mean, std, 1024 if n <= 1 + a.block else 256, (a.seed, step, n, first), n, first, a.block, a.rare,
                                   a.flawed if n > 1 else 0, a.own if n > 1 + a.block else 0, own_past(first))
            if a.workers:
                pools[n, first].hire(max(1, a.workers // (len(INSIDE) + 2)), (a.seed, step, n, first, 1))
        pool, past = pools[n, first], None
        *data, scenes = pool.batch(b, int(b / 16 + torch.rand(1).item()))  # encoding is a seventh of the time of a step
        rng = pool.rng
        ids, words = tok(["" if rng.random() < 0.1 else world.caption(s, rng) for s in scenes])
        if causal:
            levels, past = causal_levels(b, n, a.block, first)
            past = past.to(dev)
            if not first and n > a.block and rng.random() < a.cuts:
                data = cut_in(data, levels, a.block, rng, scenes)
        else:
            levels = bidirectional_levels(b, n, first)
        *data, ids, words, levels = (v.to(dev, non_blocking=True) for v in (*data, ids, words, levels))
        with torch.autocast(dev.type, torch.bfloat16, enabled=a.bf16):
            flow, coarse, miss = run(dit, text, where, *data, ids, words, levels, torch.randn_like(data[0]), past, a.block, first)
            loss = flow.mean() + coarse.mean() + a.where * miss.mean()
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
        losses.append(flow.mean().item())
        if clock() - saved > 100:
            saved = clock()
            checkpoint()
        if clock() - shown > 120:
            shown = clock()
            v = validate(ema_dit.module, ema_text.module, where, tok, pool, whole, a.block)
            log(f"min {clock() / 60:.1f} step {step} samples {seen} loss {np.nanmean(losses):.4f} skipped {np.isnan(losses).sum()} "
                "val 0.5/0.8/0.95: " + ", ".join("/".join(f"{x:.3f}" for x in part) for part in zip(*v)))
            losses = []
    checkpoint()
    log(f"end: step {step}, samples {seen}")


if __name__ == "__main__":
    main()
