"""The three networks of toybox in the Wan architectures, with the tensor names of the Diffusers layout.

VAE: the causal Wan2.1 VAE, computed on whole clips (equal to the streaming rule, see Resample). DiT: the Wan
transformer with one timestep per latent frame. Text: the UMT5 encoder. state_dict() of each is what gets exported.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import fused

VAE_CONFIG = {"base_dim": 8, "decoder_base_dim": 16, "z_dim": 16, "dim_mult": [1, 2, 4, 8], "num_res_blocks": 1,
              "attn_scales": [], "temperal_downsample": [False, True, True], "dropout": 0.0}
DIT_CONFIG = {"num_attention_heads": 2, "attention_head_dim": 128, "in_channels": 16, "out_channels": 16,
              "num_layers": 8, "ffn_dim": 1024, "freq_dim": 256, "text_dim": 128, "patch_size": [1, 2, 2],
              "cross_attn_norm": True, "qk_norm": "rms_norm_across_heads", "eps": 1e-6, "rope_max_seq_len": 1024,
              "image_dim": None, "added_kv_proj_dim": None, "pos_embed_seq_len": None}
TEXT_CONFIG = {"vocab_size": 384, "d_model": 128, "d_kv": 64, "d_ff": 256, "num_layers": 2, "num_heads": 2,
               "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
               "layer_norm_epsilon": 1e-6, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0}
TEXT_ROWS = 512  # rows that cross-attention sees, padding included


# ---------------------------------------------------------------- VAE

def frames(x):
    """[B,C,T,H,W] -> [B*T,C,H,W], a view when x is channels-last."""
    return x.permute(0, 2, 1, 3, 4).flatten(0, 1)


def clip(x, t):
    return x.unflatten(0, (-1, t)).permute(0, 2, 1, 3, 4)


class CausalConv3d(nn.Conv3d):
    """Zero frames before, none after. The faster of two ways: one 3-D convolution, or a sum of 2-D ones over time."""

    def forward(self, x):
        kt, (ph, pw), n = self.kernel_size[0], self.padding[1:], x.shape[2]
        w = self.weight
        if kt > 1 and n > 1 and self.in_channels < 48:
            return F.conv3d(F.pad(x, (0, 0, 0, 0, kt - 1, 0)), w, self.bias, padding=(0, ph, pw))
        f = lambda z, k, b=None: clip(F.conv2d(frames(z), w[:, :, k].contiguous(memory_format=torch.channels_last), b,
                                               padding=(ph, pw)), z.shape[2])
        y = f(x, kt - 1, self.bias)
        for d in range(1, min(kt, n)):
            y = y + F.pad(f(x[:, :, :n - d], kt - 1 - d), (0, 0, 0, 0, d, 0))
        return y


class RMSNorm(nn.Module):
    def __init__(self, dim, ndim):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim, *[1] * ndim))

    def forward(self, x):
        s = x.square().sum(1, keepdim=True).clamp_min(1e-24).rsqrt()
        return x * s * (self.gamma * self.gamma.shape[0] ** 0.5)

    def silu(self, x):
        """silu(forward(x))."""
        if fused.usable(x):
            return fused.NormSilu.apply(x, self.gamma.flatten() * self.gamma.shape[0] ** 0.5)
        return F.silu(self(x))


class ResBlock(nn.Module):
    linear = False  # the residual branch is known to be zero

    def __init__(self, a, b):
        super().__init__()
        self.norm1, self.conv1 = RMSNorm(a, 3), CausalConv3d(a, b, 3, padding=1)
        self.norm2, self.conv2 = RMSNorm(b, 3), CausalConv3d(b, b, 3, padding=1)
        self.conv_shortcut = CausalConv3d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x):
        if self.linear:
            return self.conv_shortcut(x)
        y = self.conv1(self.norm1.silu(x))
        return self.conv_shortcut(x) + self.conv2(self.norm2.silu(y))


class AttnBlock(nn.Module):
    linear = False

    def __init__(self, c):
        super().__init__()
        self.norm, self.to_qkv, self.proj = RMSNorm(c, 2), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        if self.linear:
            return x
        t, h, w = x.shape[2:]
        q, k, v = self.to_qkv(self.norm(frames(x))).flatten(2).transpose(1, 2).unsqueeze(1).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).unflatten(2, (h, w))
        return x + clip(self.proj(y.contiguous(memory_format=torch.channels_last)), t)


def mark_linear(module):
    """Skip the branches that a closed-form encoder (fit_encoder.py) leaves at zero."""
    for m in module.modules():
        if isinstance(m, (ResBlock, AttnBlock)):
            last = m.conv2 if isinstance(m, ResBlock) else m.proj
            m.linear = not (last.weight.any() or last.bias.any())


class MidBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.resnets = nn.ModuleList([ResBlock(c, c), ResBlock(c, c)])
        self.attentions = nn.ModuleList([AttnBlock(c)])

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class Resample(nn.Module):
    """Half or double size, and half or double rate. The first frame stays alone: going up it skips time_conv and is
    not in its history; going down it passes unchanged and later frames j are conv(w[2j-2], w[2j-1], w[2j])."""

    def __init__(self, c, up, time):
        super().__init__()
        self.up = up
        conv = nn.Conv2d(c, c // 2, 3, padding=1) if up else nn.Conv2d(c, c, 3, stride=2)
        self.resample = nn.Sequential(nn.Identity(), conv)
        if time:
            self.time_conv = CausalConv3d(c, 2 * c if up else c, (3, 1, 1), padding=(1, 0, 0))

    def forward(self, x):
        timed = hasattr(self, "time_conv") and x.shape[2] > 1
        if self.up and timed:
            y = self.time_conv(x[:, :, 1:])
            y = torch.stack(y.chunk(2, 1), 3).flatten(2, 3)
            x = torch.cat([x[:, :, :1], y], 2)
        t, z = x.shape[2], frames(x)
        if self.up:
            z = F.interpolate(z, scale_factor=2, mode="nearest")
        else:
            z = F.pad(z, (0, 1, 0, 1))
        x = clip(self.resample[1](z), t)
        if not self.up and timed:
            w = self.time_conv
            x = torch.cat([x[:, :, :1], F.conv3d(x, w.weight, w.bias, stride=(2, 1, 1))], 2)
        return x


class UpBlock(nn.Module):
    def __init__(self, a, b, count, up, time):
        super().__init__()
        self.resnets = nn.ModuleList([ResBlock(a if i == 0 else b, b) for i in range(count)])
        self.upsamplers = nn.ModuleList([Resample(b, True, time)]) if up else []

    def forward(self, x):
        for m in (*self.resnets, *self.upsamplers):
            x = m(x)
        return x


class Encoder(nn.Module):
    def __init__(self, dim, z2, mult, count, times):
        super().__init__()
        self.conv_in, a = CausalConv3d(3, dim * 1, 3, padding=1), dim
        self.down_blocks = nn.ModuleList()
        for i, m in enumerate(mult):
            for _ in range(count):
                self.down_blocks.append(ResBlock(a, dim * m))
                a = dim * m
            if i < len(mult) - 1:
                self.down_blocks.append(Resample(a, False, times[i]))
        self.mid_block, self.norm_out = MidBlock(a), RMSNorm(a, 3)
        self.conv_out = CausalConv3d(a, z2, 3, padding=1)

    def forward(self, x):
        x = self.conv_in(x)
        for m in self.down_blocks:
            x = m(x)
        return self.conv_out(self.norm_out.silu(self.mid_block(x)))


class Decoder(nn.Module):
    def __init__(self, dim, z, mult, count, times):
        super().__init__()
        dims = [dim * m for m in [mult[-1]] + mult[::-1]]
        self.conv_in, self.mid_block = CausalConv3d(z, dims[0], 3, padding=1), MidBlock(dims[0])
        self.up_blocks = nn.ModuleList()
        for i, (a, b) in enumerate(zip(dims, dims[1:])):
            up = i < len(mult) - 1
            self.up_blocks.append(UpBlock(a // 2 if i else a, b, count + 1, up, up and times[::-1][i]))
        self.norm_out, self.conv_out = RMSNorm(dims[-1], 3), CausalConv3d(dims[-1], 3, 3, padding=1)

    def forward(self, x):
        x = self.mid_block(self.conv_in(x))
        for m in self.up_blocks:
            x = m(x)
        return self.conv_out(self.norm_out.silu(x))


class VAE(nn.Module):
    """Pictures [B,3,4n+1,H,W] in -1..1 <-> latents [B,16,n+1,H/8,W/8] (raw, not normalised)."""

    def __init__(self, cfg=VAE_CONFIG):
        super().__init__()
        z, mult, n, times = cfg["z_dim"], cfg["dim_mult"], cfg["num_res_blocks"], cfg["temperal_downsample"]
        self.encoder = Encoder(cfg["base_dim"], 2 * z, mult, n, times)
        self.quant_conv, self.post_quant_conv = CausalConv3d(2 * z, 2 * z, 1), CausalConv3d(z, z, 1)
        self.decoder = Decoder(cfg["decoder_base_dim"], z, mult, n, times)

    def encode(self, x):
        """Mean and log-variance."""
        return self.quant_conv(self.encoder(x.contiguous(memory_format=torch.channels_last_3d))).chunk(2, 1)

    def decode(self, z):
        return self.decoder(self.post_quant_conv(z.contiguous(memory_format=torch.channels_last_3d)))

    @torch.no_grad()
    def init_for_images(self):
        """Only the last tap in time is alive and time convolutions copy, so image training already decodes video."""
        for name, m in self.named_modules():
            if isinstance(m, CausalConv3d):
                if "time_conv" in name:
                    m.weight.zero_(), m.bias.zero_()
                    for k in range(m.out_channels):
                        m.weight[k, k % m.in_channels, 2] = 1
                elif m.kernel_size[0] == 3:
                    m.weight *= 3 ** 0.5  # fan-in of one tap instead of three
                    m.weight[:, :, :2] = 0
            if isinstance(m, ResBlock):
                m.conv2.weight *= 0.3
        z = self.quant_conv.out_channels // 2
        self.quant_conv.weight[z:] = 0
        self.quant_conv.bias[z:] = -6


# ---------------------------------------------------------------- DiT

class RMS(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def linear(x, weight, bias):
    return fused.HalfLinear.apply(x, weight, bias) if fused.half(x) else F.linear(x, weight, bias)


class Linear(nn.Linear):
    def forward(self, x):
        return linear(x, self.weight, self.bias)


def attend(q, k, v):
    if fused.half(q):
        return F.scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), v.bfloat16()).float()
    return F.scaled_dot_product_attention(q, k, v)


class Attention(nn.Module):
    def __init__(self, dim, heads, eps):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = Linear(dim, dim), Linear(dim, dim), Linear(dim, dim)
        self.norm_q, self.norm_k = RMS(dim, eps), RMS(dim, eps)
        self.to_out = nn.ModuleList([Linear(dim, dim)])

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, rope, parts=None):
        """parts: (queries, their keys) as ranges of tokens, all queries in order; None: every token looks at every one."""
        m = (self.to_q, self.to_k, self.to_v)
        qkv = linear(x, torch.cat([l.weight for l in m]), torch.cat([l.bias for l in m]))
        if fused.usable(x):
            q, k, v = fused.Qkv.apply(qkv, self.norm_q.weight, self.norm_k.weight, rope, self.heads)
        else:
            q, k, v = qkv.chunk(3, -1)
            q, k = rotate(self.split(self.norm_q(q)), rope), rotate(self.split(self.norm_k(k)), rope)
            v = self.split(v)
        look = lambda of, at: attend(
            q[:, :, of], *(x[:, :, at[0]] if len(at) == 1 else torch.cat([x[:, :, r] for r in at], 2) for x in (k, v)))
        y = look(slice(None), [slice(None)]) if parts is None else torch.cat([look(*p) for p in parts], 2)
        return self.to_out[0](y.transpose(1, 2).flatten(2))

    def cross(self, x, ctx, bias):
        q, k = self.split(self.norm_q(self.to_q(x))), self.split(self.norm_k(self.to_k(ctx)))
        p = torch.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 + bias[:, None, None], -1)
        return self.to_out[0]((p @ self.split(self.to_v(ctx))).transpose(1, 2).flatten(2))


def rope_table(shape, d=128, first=0, device=None):
    """Cosines and sines [N, d/2, 2] of the tokens of a (frames, rows, columns) grid."""
    angles, kind = [], {"dtype": torch.float64, "device": device}
    for n, size, start in zip(shape, (d - 4 * (d // 6), 2 * (d // 6), 2 * (d // 6)), (first, 0, 0)):
        w = 10000.0 ** (-torch.arange(0, size, 2, **kind) / size)
        angles.append(torch.outer(torch.arange(start, start + n, **kind), w))
    f, h, w = shape
    a = torch.cat([angles[0][:, None, None].expand(f, h, w, -1), angles[1][None, :, None].expand(f, h, w, -1),
                   angles[2][None, None].expand(f, h, w, -1)], -1).flatten(0, 2)
    return torch.stack([a.cos(), a.sin()], -1).float()


def rotate(x, rope):
    (u, v), (c, s) = x.float().unflatten(-1, (-1, 2)).unbind(-1), rope.unbind(-1)
    return torch.stack([u * c - v * s, u * s + v * c], -1).flatten(-2).type_as(x)


def ln_mod(x, shift, scale):
    if fused.usable(x):
        return fused.LnMod.apply(x, shift, scale)
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


def gate_add(x, gate, y):
    return fused.GateAdd.apply(x, gate, y) if fused.usable(x) else x + gate * y


def gelu(x):
    return fused.Gelu.apply(x) if fused.usable(x) else F.gelu(x, approximate="tanh")


class FFN(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        proj = nn.Module()
        proj.proj = Linear(dim, hidden)
        self.net = nn.ModuleList([proj, nn.Identity(), Linear(hidden, dim)])

    def forward(self, x):
        return self.net[2](gelu(self.net[0].proj(x)))


class Block(nn.Module):
    def __init__(self, dim, heads, hidden, eps):
        super().__init__()
        self.attn1, self.attn2 = Attention(dim, heads, eps), Attention(dim, heads, eps)
        self.norm2 = nn.LayerNorm(dim, eps)
        self.ffn = FFN(dim, hidden)
        self.scale_shift_table = nn.Parameter(torch.randn(1, 6, dim) / dim ** 0.5)

    def forward(self, x, e, ctx, ctx_bias, rope, parts):
        """x [B,T,S,D], e [B,T,6,D]."""
        t = x.shape[1]
        m = (self.scale_shift_table[0] + e).unsqueeze(3).unbind(2)
        a = ln_mod(x, m[0], m[1])
        x = gate_add(x, m[2], self.attn1(a.flatten(1, 2), rope, parts).unflatten(1, (t, -1)))
        x = x + self.attn2.cross(self.norm2(x).flatten(1, 2), ctx, ctx_bias).unflatten(1, (t, -1))
        return gate_add(x, m[5], self.ffn(ln_mod(x, m[3], m[4])))


class TwoLinear(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(a, b), nn.Linear(b, b)


class DiT(nn.Module):
    def __init__(self, cfg=DIT_CONFIG):
        super().__init__()
        self.heads, self.freq = cfg["num_attention_heads"], cfg["freq_dim"]
        d = self.heads * cfg["attention_head_dim"]
        self.patch_embedding = nn.Conv3d(cfg["in_channels"], d, (1, 2, 2), stride=(1, 2, 2))
        self.condition_embedder = nn.Module()
        self.condition_embedder.time_embedder = TwoLinear(self.freq, d)
        self.condition_embedder.time_proj = nn.Linear(d, 6 * d)
        self.condition_embedder.text_embedder = TwoLinear(cfg["text_dim"], d)
        self.blocks = nn.ModuleList(Block(d, self.heads, cfg["ffn_dim"], cfg["eps"]) for _ in range(cfg["num_layers"]))
        self.scale_shift_table = nn.Parameter(torch.randn(1, 2, d) / d ** 0.5)
        self.proj_out = nn.Linear(d, 4 * cfg["out_channels"])
        with torch.no_grad():
            self.proj_out.weight.zero_(), self.proj_out.bias.zero_()
            self.condition_embedder.time_proj.weight *= 0.1

    def context(self, rows, count):
        """Text rows [B,n,text_dim] of which count [B] are real -> projected rows with one zero-text row at the end,
        and the bias that makes them stand for 512 rows."""
        m = self.condition_embedder.text_embedder
        rows = torch.cat([rows, rows.new_zeros(rows.shape[0], 1, rows.shape[2])], 1)
        n = rows.shape[1] - 1
        real = torch.arange(n + 1, device=rows.device) < count[:, None]
        bias = torch.where(real, 0.0, float("-inf"))
        bias[:, n] = torch.log(TEXT_ROWS - count.float())
        return m.linear_2(F.gelu(m.linear_1(rows), approximate="tanh")), bias

    def forward(self, x, t, ctx, ctx_bias, parts=None, first=0, tap=None, past=0):
        """x [B,C,T,h,w], t [B,T] in 0..1000 -> velocity [B,C,T,h,w] in float32; with tap, and the tokens [B,T,N,D] after
        that many blocks. past: so many leading frames are copies of those that follow them, at the same positions. parts: of
        self-attention."""
        b, c, f, h, w = x.shape
        h, w = h // 2, w // 2
        p = x.reshape(b, c, f, h, 2, w, 2).permute(0, 2, 3, 5, 1, 4, 6).reshape(b, f, h * w, 4 * c)
        y = F.linear(p, self.patch_embedding.weight.flatten(1), self.patch_embedding.bias)
        k = torch.exp(-math.log(10000) / (self.freq // 2) * torch.arange(self.freq // 2, device=x.device))
        a = t.float()[..., None] * k
        m = self.condition_embedder
        e = m.time_embedder.linear_1(torch.cat([a.cos(), a.sin()], -1))
        e = m.time_embedder.linear_2(F.silu(e))
        e6 = m.time_proj(F.silu(e)).unflatten(-1, (6, -1))
        rope = rope_table((f - past, h, w), y.shape[-1] // self.heads, first, x.device)
        rope = torch.cat([rope[:past * h * w], rope])
        for i, block in enumerate(self.blocks):
            y = block(y, e6, ctx, ctx_bias, rope, parts)
            if i + 1 == tap:
                tapped = y
        shift, scale = (self.scale_shift_table[0] + e[:, :, None]).unsqueeze(3).unbind(2)
        y = self.proj_out(ln_mod(y, shift, scale))
        y = y.reshape(b, f, h, w, 2, 2, -1).permute(0, 6, 1, 2, 4, 3, 5)
        y = y.reshape(b, -1, f, 2 * h, 2 * w).float()
        return y if tap is None else (y, tapped)


# ---------------------------------------------------------------- text

class TextLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, inner = c["d_model"], c["num_heads"] * c["d_kv"]
        lin = lambda a, b: nn.Linear(a, b, bias=False)
        self.heads = c["num_heads"]
        attn, ff = nn.Module(), nn.Module()
        attn.SelfAttention = nn.Module()
        s = attn.SelfAttention
        s.q, s.k, s.v, s.o = lin(d, inner), lin(d, inner), lin(d, inner), lin(inner, d)
        s.relative_attention_bias = nn.Embedding(c["relative_attention_num_buckets"], self.heads)
        ff.DenseReluDense = nn.Module()
        ff.DenseReluDense.wi_0, ff.DenseReluDense.wi_1, ff.DenseReluDense.wo = lin(d, c["d_ff"]), lin(d, c["d_ff"]), lin(c["d_ff"], d)
        attn.layer_norm, ff.layer_norm = RMS(d), RMS(d)
        self.layer = nn.ModuleList([attn, ff])
        nn.init.normal_(s.q.weight, std=(d * c["d_kv"]) ** -0.5)
        nn.init.normal_(s.k.weight, std=d ** -0.5)
        nn.init.normal_(s.relative_attention_bias.weight, std=0.1)

    def forward(self, x, bucket, mask):
        s = self.layer[0].SelfAttention
        y = self.layer[0].layer_norm(x)
        q, k, v = (m(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (s.q, s.k, s.v))
        p = torch.softmax(q @ k.transpose(2, 3) + s.relative_attention_bias(bucket).permute(2, 0, 1) + mask, -1)
        x = x + s.o((p @ v).transpose(1, 2).flatten(2))
        g = self.layer[1].DenseReluDense
        y = self.layer[1].layer_norm(x)
        return x + g.wo(F.gelu(g.wi_0(y), approximate="tanh") * g.wi_1(y))


class TextEncoder(nn.Module):
    def __init__(self, cfg=TEXT_CONFIG):
        super().__init__()
        self.shared = nn.Embedding(cfg["vocab_size"], cfg["d_model"])
        self.encoder = nn.Module()
        self.encoder.block = nn.ModuleList(TextLayer(cfg) for _ in range(cfg["num_layers"]))
        self.encoder.final_layer_norm = RMS(cfg["d_model"])

    def forward(self, ids, count):
        """ids [B,n] padded with 0, count [B] -> rows [B,n,d], zero beyond count."""
        n, dev = ids.shape[1], ids.device
        delta = torch.arange(n, device=dev)[None] - torch.arange(n, device=dev)[:, None]
        a = delta.abs()
        far = torch.bucketize(a, torch.tensor([8, 12, 16, 23, 32, 46, 64, 91], device=dev), right=True) + 7
        bucket = (delta > 0) * 16 + torch.where(a < 8, a, far)
        real = torch.arange(n, device=ids.device) < count[:, None]
        mask = torch.where(real, 0.0, -1e9)[:, None, None]
        x = self.shared(ids)
        for layer in self.encoder.block:
            x = layer(x, bucket, mask)
        return self.encoder.final_layer_norm(x) * real[..., None]
