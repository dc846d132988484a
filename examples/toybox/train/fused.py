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


halves = False  # multiply in bfloat16 where it pays; the rest stays float32


def half(x):
    return halves and x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() >= 256 * x.shape[-1]


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


class LnMod(torch.autograd.Function):
    """LayerNorm(x) * (1 + scale) + shift; x [B,T,S,D], shift and scale [B,T,1,D]."""

    @staticmethod
    def forward(ctx, x, shift, scale):
        x, shift, scale = x.contiguous(), shift.contiguous(), scale.contiguous()
        d, groups = x.shape[-1], shift.numel() // x.shape[-1]
        rows = x.numel() // d // groups
        y, stat = torch.empty_like(x), torch.empty(groups * rows, 2)
        _lib.ln_mod(_p(y), _p(stat), _p(x), _p(shift), _p(scale), _n(groups), _n(rows), _n(d))
        ctx.save_for_backward(x, stat, scale)
        ctx.dims = groups, rows, d
        return y

    @staticmethod
    def backward(ctx, dy):
        x, stat, scale = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dshift, dscale = torch.empty_like(x), torch.empty_like(scale), torch.empty_like(scale)
        _lib.ln_mod_back(_p(dx), _p(dshift), _p(dscale), _p(dy), _p(x), _p(stat), _p(scale), *map(_n, ctx.dims))
        return dx, dshift, dscale


class GateAdd(torch.autograd.Function):
    """x + gate * y; x and y [B,T,S,D], gate [B,T,1,D]."""

    @staticmethod
    def forward(ctx, x, gate, y):
        x, gate, y = x.contiguous(), gate.contiguous(), y.contiguous()
        d, groups = x.shape[-1], gate.numel() // x.shape[-1]
        out = torch.empty_like(x)
        ctx.dims = groups, x.numel() // d // groups, d
        _lib.gate_add(_p(out), _p(x), _p(gate), _p(y), *map(_n, ctx.dims))
        ctx.save_for_backward(gate, y)
        return out

    @staticmethod
    def backward(ctx, dout):
        gate, y = ctx.saved_tensors
        dout = dout.contiguous()
        dy, dgate = torch.empty_like(y), torch.empty_like(gate)
        _lib.gate_add_back(_p(dy), _p(dgate), _p(dout), _p(gate), _p(y), *map(_n, ctx.dims))
        return dout, dgate, dy


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        _lib.gelu(_p(y), _p(x), _n(x.numel()))
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        dy, dx = dy.contiguous(), torch.empty_like(x)
        _lib.gelu_back(_p(dx), _p(dy), _p(x), _n(x.numel()))
        return dx


class HalfLinear(torch.autograd.Function):
    """F.linear with factors rounded to bfloat16, sums in float32: on a processor with bf16 dot products about three times as fast."""

    @staticmethod
    def forward(ctx, x, w, b):
        x2, w = x.flatten(0, -2).bfloat16(), w.bfloat16()
        ctx.save_for_backward(x2, w)
        return torch.nn.functional.linear(x2, w, b.bfloat16()).float().view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy2 = dy.flatten(0, -2)
        d = dy2.bfloat16()
        return (d @ w).float().view(*dy.shape[:-1], -1), (d.T @ x).float(), dy2.sum(0)


class Qkv(torch.autograd.Function):
    """[B,N,3D] -> q, k, v [B,H,N,dh] with RMS norm over D and rotation of q and k."""

    @staticmethod
    def forward(ctx, qkv, wq, wk, rope, heads):
        qkv = qkv.contiguous()
        b, n, d3 = qkv.shape
        d = d3 // 3
        rope = rope.contiguous()
        out, inv = torch.empty(2, b, heads, n, d // heads), torch.empty(2, b * n)
        ctx.dims = b, n, heads, d // heads, d3
        for i, w in enumerate((wq, wk)):
            _lib.rms_rope(_p(out[i]), _p(inv[i]), _p(qkv[0, 0, i * d:]), _p(w), _p(rope), *map(_n, ctx.dims))
        ctx.save_for_backward(qkv, wq, wk, rope, inv)
        return out[0], out[1], qkv[..., 2 * d:].unflatten(-1, (heads, -1)).transpose(1, 2).contiguous()

    @staticmethod
    def backward(ctx, dq, dk, dv):
        qkv, wq, wk, rope, inv = ctx.saved_tensors
        b, n, heads, dh, d3 = ctx.dims
        d = d3 // 3
        out, dws = torch.empty_like(qkv), [torch.zeros_like(wq), torch.zeros_like(wk)]
        for i, (w, g) in enumerate(((wq, dq), (wk, dk))):
            g = g.contiguous()
            _lib.rms_rope_back(_p(out[0, 0, i * d:]), _p(dws[i]), _p(g), _p(qkv[0, 0, i * d:]), _p(inv[i]), _p(w), _p(rope),
                               *map(_n, ctx.dims))
        out[..., 2 * d:] = dv.transpose(1, 2).flatten(2)
        return out, dws[0], dws[1], None, None
