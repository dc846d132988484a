"""Sets the VAE's encoder in closed form: a principal-component code of the world, level by level.

The Wan encoder with its residual branches at zero is a chain of linear maps: three stages of 2x2 blocks, two of them
joining pairs of frames. Each stage keeps the directions of largest variance. norm_out and SiLU are made harmless:
large constant channels hold the norm still, and silu(a) - silu(-a) = a. So the latents are known before any training:
the transformer and the decoder can be trained independently, and a better decoder never asks for a new transformer.

python fit_encoder.py --work DIR writes DIR/encoder.pt and DIR/stats.pt
"""
import argparse
import math
import os

import numpy as np
import torch

import models
import world
from common import save

HOLD = 64.0  # value of the constant channels in front of norm_out


def blocks(x):
    """[N,C,T,H,W] -> [N,C*4,T,H/2,W/2], order (channel, row, column)."""
    n, c, t, h, w = x.shape
    return x.reshape(n, c, t, h // 2, 2, w // 2, 2).permute(0, 1, 4, 6, 2, 3, 5).reshape(n, c * 4, t, h // 2, w // 2)


def half(w):
    return torch.nn.functional.avg_pool3d(w, (1, 2, 2))


def components(x, w, k):
    """Top k principal directions [k,C] of x [N,C,T,H,W] under weights w [N,1,T,H,W], most important first."""
    x, w = x.transpose(0, 1).flatten(1).double(), w.flatten().double()
    m = (x * w).sum(1, keepdim=True) / w.sum()
    cov = ((x - m) * w) @ (x - m).T / w.sum()
    return torch.linalg.eigh(cov)[1].flip(1)[:, :k].T.float()


def apply(p, x):
    return torch.einsum("kc,ncthw->nkthw", p, x)


def join(x, w, k):
    """Code of frame pairs: [k, 2C] with the directions turned so that still content keeps the code of one frame."""
    pair = torch.cat([x[:, :, 1::2], x[:, :, 2::2]], 1)
    p = components(pair, w[:, :, 2::2], k)
    z, one = apply(p, pair), x[:, :k, 2::2]
    flat = lambda v: v.transpose(0, 1).flatten(1).double()
    u, _, v = torch.linalg.svd((flat(one) * w[:, :, 2::2].flatten()) @ flat(z).T)
    p = (u @ v).float() @ p / 2 ** 0.5
    return p, torch.cat([x[:, :k, :1], apply(p, pair)], 2)


def data(count, n, seed):
    rng, xs, ws = np.random.default_rng(seed), [], []
    for _ in range(count):
        s = world.sample_scene(rng)
        ts = int(rng.integers(0, 72)) + np.arange(n)
        xs.append(torch.from_numpy(world.render(s, ts)).permute(3, 0, 1, 2) * 2 - 1)
        w = torch.ones(1, n, world.SIZE, world.SIZE)
        for i, (x0, y0, x1, y1) in enumerate(world.box(s, ts)):
            w[:, i, y0:y1, x0:x1] = 4
        ws.append(w)
    return torch.stack(xs), torch.stack(ws)


def fit(x, w):
    """The five maps."""
    a = components(blocks(x), half(w), 8)
    x, w = apply(a, blocks(x)), half(w)
    b = components(blocks(x), half(w), 16)
    x, w = apply(b, blocks(x)), half(w)
    bt, x = join(x, w, 16)
    w = w[:, :, ::2]
    c = components(blocks(x), half(w), 32)
    x, w = apply(c, blocks(x)), half(w)
    ct, x = join(x, w, 16)
    return a, b, bt, c, ct


@torch.no_grad()
def install(vae, maps):
    e = vae.encoder
    a, b, bt, c, ct = maps
    for m in e.modules():
        if isinstance(m, models.ResBlock):
            m.conv2.weight.zero_(), m.conv2.bias.zero_()
        if isinstance(m, models.AttnBlock):
            m.proj.weight.zero_(), m.proj.bias.zero_()
    convs = [e.conv_in] + [m for m in e.down_blocks if isinstance(m, models.Resample)]
    for m in convs:
        for q in m.parameters():
            q.zero_()
    for k in range(3):
        e.conv_in.weight[k, k, 2, 1, 1] = 1
    for m, p in zip(convs[1:], (a, b, c)):
        m.resample[1].weight[:len(p), :p.shape[1] // 4, :2, :2] = p.reshape(len(p), -1, 2, 2)
    for m, p in zip(convs[2:], (bt, ct)):
        n = p.shape[1] // 2
        m.time_conv.weight[:len(p), :n, 1, 0, 0], m.time_conv.weight[:len(p), :n, 2, 0, 0] = p[:, :n], p[:, n:]
    shortcuts = [m.conv_shortcut for m in e.down_blocks if isinstance(m, models.ResBlock) and m.norm1.gamma.shape[0] != m.norm2.gamma.shape[0]]
    for m in shortcuts:
        m.weight.zero_(), m.bias.zero_()
        for k in range(m.in_channels):
            m.weight[k, k] = 1
    last, z = shortcuts[-1], vae.quant_conv.out_channels // 2
    last.weight.zero_()
    for k in range(z):
        last.weight[k, k], last.weight[k + z, k] = 1, -1
    width = last.out_channels
    last.bias[2 * z:] = HOLD
    e.norm_out.gamma.fill_(HOLD * (width - 2 * z) ** 0.5 / width ** 0.5)
    for m in (e.conv_out, vae.quant_conv):
        m.weight.zero_(), m.bias.zero_()
    for k in range(z):
        e.conv_out.weight[k, k, 2, 1, 1], e.conv_out.weight[k, k + z, 2, 1, 1] = 1, -1
        vae.quant_conv.weight[k, k] = 1
    vae.quant_conv.bias[z:] = -10
    for m in (e, vae.quant_conv):
        for q in m.parameters():
            q.copy_(q.to(torch.bfloat16).float())  # what is exported is what the latents were made with


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    p.add_argument("--scenes", type=int, default=300)
    a = p.parse_args()
    torch.set_num_threads(1)
    x, w = data(a.scenes, 9, 3)
    vae = models.VAE()
    install(vae, fit(x, w))
    models.mark_linear(vae.encoder)
    save(f"{a.work}/encoder.pt", {"encoder": vae.encoder.state_dict(), "quant_conv": vae.quant_conv.state_dict()})
    with torch.no_grad():
        z = torch.cat([vae.encode(v)[0] for v in x.split(16)])
        mean, std = z.mean((0, 2, 3, 4)), z.std((0, 2, 3, 4))
        # Divided by this, the first channels (colour, layout) keep a deviation of 0.7 and the edges 0.1 to 0.2, so that they appear
        # in this order as the noise falls. With 1 everywhere the outline had to be decided with the layout, and never was whole.
        std /= 0.7 * (std / std.max()).sqrt()
        save(f"{a.work}/stats.pt", {"mean": [round(float(v), 4) for v in mean], "std": [round(float(v), 4) for v in std]})
        print("divisor", [round(float(v), 2) for v in std])
        print("std first frame", [round(float(v), 2) for v in z[:, :, 0].std((0, 2, 3))])
        # What a linear decoder of one cell and its neighbours makes of it, on other scenes.
        y, wy = data(60, 9, 4)
        zy = torch.cat([vae.encode(v)[0] for v in y.split(16)])
        for name, cut, n in (("first", slice(0, 1), 1), ("later", slice(1, None), 4)):
            def rows(z, x):
                t = z[:, :, cut].transpose(1, 2).flatten(0, 1)
                t = torch.nn.functional.unfold(t, 3, padding=1).transpose(1, 2).flatten(0, 1)
                x = (x[:, :, :1] if n == 1 else x[:, :, 1:]).unflatten(2, (-1, n)).unflatten(4, (16, 8)).unflatten(6, (16, 8))
                return torch.cat([t, torch.ones(len(t), 1)], 1), x.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(0, 3).flatten(1)
            t, target = rows(z, x)
            g = t.T @ t + 1e-2 * torch.eye(t.shape[1])
            k = torch.linalg.solve(g.double(), (t.T @ target).double()).float()
            t, target = rows(zy, y)
            print(f"linear decoder, {name} frames: {-10 * math.log10((((t @ k).clamp(-1, 1) - target) / 2).square().mean()):.2f} dB")


if __name__ == "__main__":
    main()
