"""Generates clips from a model folder in PyTorch: the reference beside the C engine, and the judge's hands.

python sample.py FOLDER "a red ball bounces on green grass" sheet.png [--frames 21] [--steps 25] [--guidance 4]
"""
import argparse
import json

import torch
from safetensors.torch import load_file

import models
from text import Tokenizer


SHIFT = 5.0  # of the noise schedule, in training and use


class Folder:
    """The networks of an exported folder, in float32."""

    def __init__(self, path):
        cfg = lambda d: json.load(open(f"{path}/{d}/config.json"))
        self.vae, self.dit, self.text = models.VAE(cfg("vae")), models.DiT(cfg("transformer")), models.TextEncoder(cfg("text_encoder"))
        for m, f in ((self.vae, "vae/diffusion_pytorch_model"), (self.dit, "transformer/diffusion_pytorch_model"),
                     (self.text, "text_encoder/model")):
            m.load_state_dict({k: v.float() for k, v in load_file(f"{path}/{f}.safetensors").items()})
            m.eval().requires_grad_(False)
        self.tokenizer = Tokenizer(f"{path}/tokenizer/spiece.model")
        v = cfg("vae")
        shape = lambda k: torch.tensor(v[k]).view(1, -1, 1, 1, 1)
        self.mean, self.std = shape("latents_mean"), shape("latents_std")

    def encode(self, video):
        return (self.vae.encode(video)[0] - self.mean) / self.std

    def decode(self, z):
        return self.vae.decode(z * self.std + self.mean).clamp(-1, 1)


def sigmas(steps, shift):
    u = 1 - torch.arange(steps, dtype=torch.float64) / steps
    return torch.cat([shift * u / (1 + (shift - 1) * u), torch.zeros(1, dtype=torch.float64)])


@torch.no_grad()
def sample(dit, rows, count, noise, sig, guidance, given=None, trace=None):
    """Euler. rows and count hold the conditional texts, then as many empty ones. given: clean leading latent frames."""
    x, b = noise.clone(), noise.shape[0]
    rows, bias = dit.context(rows, count)
    keep = 0 if given is None else given.shape[2]
    for i in range(len(sig) - 1):
        if keep:
            x[:, :, :keep] = given
        t = torch.full((b, x.shape[2]), 1000 * float(sig[i]))
        t[:, :keep] = 0
        vc, vu = dit(torch.cat([x, x]), torch.cat([t, t]), rows, bias).chunk(2)
        if trace is not None:
            trace.append((x.clone(), vc, vu))
        x = x + float(sig[i + 1] - sig[i]) * (vu + guidance * (vc - vu))
    if keep:
        x[:, :, :keep] = given
    return x if trace is None else (x, trace)


@torch.no_grad()
def generate(m, prompts, frames=21, steps=25, guidance=4.0, shift=SHIFT, seed=0, given=None):
    """Videos [B,T,H,W,3] in 0..1."""
    ids, count = m.tokenizer(list(prompts) + [""] * len(prompts))
    noise = torch.randn(len(prompts), 16, frames, 16, 16, generator=torch.Generator().manual_seed(seed))
    z = sample(m.dit, m.text(ids, count), count, noise, sigmas(steps, shift), guidance, given)
    return torch.cat([m.decode(v[None]) for v in z]).permute(0, 2, 3, 4, 1).add(1).div(2)


if __name__ == "__main__":
    import world
    p = argparse.ArgumentParser()
    p.add_argument("folder"), p.add_argument("prompt"), p.add_argument("out")
    p.add_argument("--frames", type=int, default=21)
    p.add_argument("--steps", type=int, default=25)
    p.add_argument("--guidance", type=float, default=4.0)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    torch.set_num_threads(1)
    v = generate(Folder(a.folder), [a.prompt], a.frames, a.steps, a.guidance, seed=a.seed)[0].numpy()
    world.sheet([list(v[::max(1, len(v) // 8)])], a.out)
