"""What the training scripts share: state that can be interrupted at any moment, averaged weights, the clock."""
import copy
import os
import time

import torch


def save(path, obj):
    """Atomic: a kill in the middle leaves the previous file."""
    torch.save(obj, path + ".tmp")
    os.replace(path + ".tmp", path)


def load(path):
    return torch.load(path, map_location="cpu", weights_only=False) if os.path.exists(path) else None


class Ema:
    """Exponential average of a module's weights; the decay grows with the step so that the start is forgotten."""

    def __init__(self, module, decay):
        self.module, self.decay, self.steps = copy.deepcopy(module).requires_grad_(False), decay, 0

    @torch.no_grad()
    def update(self, module):
        self.steps += 1
        d = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(list(self.module.parameters()), list(module.parameters()), 1 - d)

    def state(self):
        return {"module": self.module.state_dict(), "steps": self.steps}

    def restore(self, s):
        self.module.load_state_dict(s["module"])
        self.steps = s["steps"]


class Clock:
    """Training seconds, over all runs; the schedules follow it."""

    def __init__(self, before=0.0):
        self.before, self.start = before, time.time()

    def __call__(self):
        return self.before + time.time() - self.start


class Log:
    def __init__(self, path):
        self.path = path

    def __call__(self, text):
        print(text, flush=True)
        with open(self.path, "a") as f:
            f.write(text + "\n")


def clear_adam(opt):
    """Forget the moments: taps in time have second moments of zero, their first steps would be enormous."""
    opt.state.clear()


def orthogonal(g, steps=5, half=False):
    """Newton-Schulz iteration towards the nearest orthogonal matrices (coefficients of Jordan et al. 2024); [...,r,c]. half: in
    bfloat16."""
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    flip = x.shape[-2] > x.shape[-1]
    x = x.mT if flip else x
    x = x.bfloat16() if half else x
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.mT if flip else x).type_as(g)


class Muon:
    """Orthogonalised momentum for matrices (convolutions as [out, rest]); step sizes on Adam's scale (update RMS 0.2 lr).
    view(tensor) -> the part of a parameter that is trained."""

    def __init__(self, params, lr, view=lambda t: t, momentum=0.95, half=False):
        self.params, self.lr, self.momentum, self.view, self.half = list(params), lr, momentum, view, half
        self.state = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        shapes = {}  # matrices of one shape go together
        for p, m in zip(self.params, self.state):
            if p.grad is not None:
                m.lerp_(p.grad, 1 - self.momentum)
                u = self.view(p.grad.lerp(m, self.momentum)).flatten(1)
                shapes.setdefault(u.shape, []).append((self.view(p), u))
        for shape, items in shapes.items():
            o = orthogonal(torch.stack([u for _, u in items]), half=self.half)
            for (w, _), d in zip(items, o):
                w.add_(d.view_as(w), alpha=-self.lr * 0.2 * max(shape) ** 0.5)

    def state_dict(self):
        return self.state

    def load_state_dict(self, s):
        for a, b in zip(self.state, s):
            a.copy_(b)
