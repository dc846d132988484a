"""fused.c as autograd functions. Everything works without it (no compiler, a GPU): then callers use plain PyTorch."""
import ctypes
import hashlib
import os
import subprocess
import tempfile

import torch

_lib = None


def _load():
    src = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fused.c")
    with open(src, "rb") as f:
        name = "longtake-fused-" + hashlib.sha256(f.read()).hexdigest()[:12] + ".so"
    out = os.path.join(tempfile.gettempdir(), name)
    if not os.path.exists(out):
        tmp = f"{out}.{os.getpid()}"
        subprocess.run(["gcc", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-shared", "-fPIC",
                        src, "-o", tmp, "-lmvec", "-lm"], check=True)
        os.replace(tmp, out)
    return ctypes.CDLL(out)


if os.environ.get("TOYBOX_FUSED", "1") == "1":
    try:
        _lib = _load()
    except (OSError, subprocess.CalledProcessError):
        pass


def usable(x):
    return _lib is not None and x.device.type == "cpu" and x.dtype == torch.float32


def _p(t):
    return ctypes.c_void_p(t.data_ptr())


def _n(v):
    return ctypes.c_int64(v)


class NormSilu(torch.autograd.Function):
    """silu(x / |x| * g) over the channels of [B,C,T,H,W] in channels-last order."""

    @staticmethod
    def forward(ctx, x, g):
        x, g = x.contiguous(memory_format=torch.channels_last_3d), g.contiguous()
        c = x.shape[1]
        rows = x.numel() // c
        y, s = torch.empty_like(x, memory_format=torch.channels_last_3d), torch.empty(rows)
        _lib.norm_silu(_p(y), _p(s), _p(x), _p(g), _n(rows), _n(c))
        ctx.save_for_backward(x, s, g)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, s, g = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last_3d)
        dx, dg = torch.empty_like(x, memory_format=torch.channels_last_3d), torch.zeros_like(g)
        _lib.norm_silu_back(_p(dx), _p(dg), _p(dy), _p(x), _p(s), _p(g), _n(len(s)), _n(x.shape[1]))
        return dx, dg
