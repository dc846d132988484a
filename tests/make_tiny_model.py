#!/usr/bin/env python3
"""Writes a model folder with random weights in the Diffusers layout (standard library only).

usage: make_tiny_model.py FOLDER [--width W] [--height H] [--num-frames N] [--steps N]

The architecture is that of the embedded model, much smaller: what it draws is noise, and it is written in a second.
For the quick start while there is no trained model, and for end-to-end tests.
"""
import argparse
import array
import json
import math
import os
import random
import shutil
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
DIT = {"num_attention_heads": 2, "attention_head_dim": 24, "in_channels": 16, "out_channels": 16, "num_layers": 2,
       "ffn_dim": 64, "freq_dim": 256, "text_dim": 32, "patch_size": [1, 2, 2], "cross_attn_norm": True,
       "qk_norm": "rms_norm_across_heads", "eps": 1e-6, "rope_max_seq_len": 1024, "image_dim": None,
       "added_kv_proj_dim": None, "pos_embed_seq_len": None}
VAE = {"base_dim": 8, "decoder_base_dim": 8, "z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 1,
       "attn_scales": [], "temperal_downsample": [False, True, True], "dropout": 0.0}
TEXT = {"vocab_size": 320, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0}


class Tensors(dict):
    """name -> shape, in order of writing."""

    def linear(self, name, n_in, n_out, bias=True):
        self[name + ".weight"] = (n_out, n_in)
        if bias:
            self[name + ".bias"] = (n_out,)

    def conv(self, name, n_in, n_out, *kernel):
        self[name + ".weight"] = (n_out, n_in) + kernel
        self[name + ".bias"] = (n_out,)


def transformer():
    t, d, f = Tensors(), DIT["num_attention_heads"] * DIT["attention_head_dim"], DIT["ffn_dim"]
    t.conv("patch_embedding", 16, d, 1, 2, 2)
    c = "condition_embedder."
    t.linear(c + "text_embedder.linear_1", DIT["text_dim"], d)
    t.linear(c + "text_embedder.linear_2", d, d)
    t.linear(c + "time_embedder.linear_1", DIT["freq_dim"], d)
    t.linear(c + "time_embedder.linear_2", d, d)
    t.linear(c + "time_proj", d, 6 * d)
    for i in range(DIT["num_layers"]):
        b = "blocks.%d." % i
        t[b + "scale_shift_table"] = (1, 6, d)
        for a in ("attn1.", "attn2."):
            for p in ("to_q", "to_k", "to_v", "to_out.0"):
                t.linear(b + a + p, d, d)
            t[b + a + "norm_q.weight"] = t[b + a + "norm_k.weight"] = (d,)
        t[b + "norm2.weight"] = t[b + "norm2.bias"] = (d,)
        t.linear(b + "ffn.net.0.proj", d, f)
        t.linear(b + "ffn.net.2", f, d)
    t["scale_shift_table"] = (1, 2, d)
    t.linear("proj_out", d, 64)
    return t


def vae():
    t, z, n = Tensors(), VAE["z_dim"], VAE["num_res_blocks"]

    def res(name, a, b):
        t[name + ".norm1.gamma"] = (a, 1, 1, 1)
        t.conv(name + ".conv1", a, b, 3, 3, 3)
        t[name + ".norm2.gamma"] = (b, 1, 1, 1)
        t.conv(name + ".conv2", b, b, 3, 3, 3)
        if a != b:
            t.conv(name + ".conv_shortcut", a, b, 1, 1, 1)

    def middle(name, c):
        res(name + ".mid_block.resnets.0", c, c)
        a = name + ".mid_block.attentions.0"
        t[a + ".norm.gamma"] = (c, 1, 1)
        t.conv(a + ".to_qkv", c, 3 * c, 1, 1)
        t.conv(a + ".proj", c, c, 1, 1)
        res(name + ".mid_block.resnets.1", c, c)

    def ends(name, c, out):
        t[name + ".norm_out.gamma"] = (c, 1, 1, 1)
        t.conv(name + ".conv_out", c, out, 3, 3, 3)

    down = VAE["temperal_downsample"]
    a, k = VAE["base_dim"], 0
    t.conv("encoder.conv_in", 3, a, 3, 3, 3)
    for i, m in enumerate(VAE["dim_mult"]):
        for _ in range(n):
            res("encoder.down_blocks.%d" % k, a, VAE["base_dim"] * m)
            a, k = VAE["base_dim"] * m, k + 1
        if i < len(down):
            t.conv("encoder.down_blocks.%d.resample.1" % k, a, a, 3, 3)
            if down[i]:
                t.conv("encoder.down_blocks.%d.time_conv" % k, a, a, 3, 1, 1)
            k += 1
    middle("encoder", a)
    ends("encoder", a, 2 * z)
    t.conv("quant_conv", 2 * z, 2 * z, 1, 1, 1)
    t.conv("post_quant_conv", z, z, 1, 1, 1)
    dims = [VAE["decoder_base_dim"] * m for m in [VAE["dim_mult"][-1]] + VAE["dim_mult"][::-1]]
    t.conv("decoder.conv_in", z, dims[0], 3, 3, 3)
    middle("decoder", dims[0])
    for i, (a, b) in enumerate(zip(dims, dims[1:])):
        a = a // 2 if i else a
        for j in range(n + 1):
            res("decoder.up_blocks.%d.resnets.%d" % (i, j), a, b)
            a = b
        if i < len(down):
            u = "decoder.up_blocks.%d.upsamplers.0" % i
            t.conv(u + ".resample.1", b, b // 2, 3, 3)
            if down[::-1][i]:
                t.conv(u + ".time_conv", b, 2 * b, 3, 1, 1)
    ends("decoder", dims[-1], 3)
    return t


def text_encoder():
    t, d, inner = Tensors(), TEXT["d_model"], TEXT["d_kv"] * TEXT["num_heads"]
    t["shared.weight"] = (TEXT["vocab_size"], d)
    for i in range(TEXT["num_layers"]):
        b = "encoder.block.%d.layer." % i
        for p in "qkv":
            t.linear(b + "0.SelfAttention." + p, d, inner, False)
        t.linear(b + "0.SelfAttention.o", inner, d, False)
        t[b + "0.SelfAttention.relative_attention_bias.weight"] = (32, TEXT["num_heads"])
        t[b + "0.layer_norm.weight"] = (d,)
        t.linear(b + "1.DenseReluDense.wi_0", d, TEXT["d_ff"], False)
        t.linear(b + "1.DenseReluDense.wi_1", d, TEXT["d_ff"], False)
        t.linear(b + "1.DenseReluDense.wo", TEXT["d_ff"], d, False)
        t[b + "1.layer_norm.weight"] = (d,)
    t["encoder.final_layer_norm.weight"] = (d,)
    return t


def write_tensors(path, tensors, rng):
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for name, shape in tensors.items():
            gain = "norm" in name or "gamma" in name
            fan = math.prod(shape[1:]) if len(shape) > 1 else 400
            reach = 0.05 if gain else 0.3 if "table" in name else 1.0 if "shared" in name else 1.4 / math.sqrt(fan)
            middle = 1.0 if gain and not name.endswith("bias") else 0.0
            array.array("f", [middle + rng.uniform(-reach, reach) for _ in range(math.prod(shape))]).tofile(f)


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("folder")
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--height", type=int, default=128)
    p.add_argument("--num-frames", type=int, default=17)
    p.add_argument("--steps", type=int, default=4)
    a = p.parse_args()
    rng = random.Random(7)
    parts = (("transformer", "diffusion_pytorch_model", transformer(), {"_class_name": "WanTransformer3DModel", **DIT}),
             ("vae", "diffusion_pytorch_model", vae(),
              {"_class_name": "AutoencoderKLWan", **VAE, "latents_mean": [0.0] * 16, "latents_std": [1.0] * 16}),
             ("text_encoder", "model", text_encoder(), {"model_type": "umt5", "is_gated_act": True, **TEXT}))
    for folder, name, tensors, config in parts:
        os.makedirs(os.path.join(a.folder, folder), exist_ok=True)
        write_tensors(os.path.join(a.folder, folder, name + ".safetensors"), tensors, rng)
        write_json(os.path.join(a.folder, folder, "config.json"), config)
    for folder in ("tokenizer", "scheduler"):
        os.makedirs(os.path.join(a.folder, folder), exist_ok=True)
    shutil.copyfile(os.path.join(HERE, "data", "tiny.model"), os.path.join(a.folder, "tokenizer", "spiece.model"))
    write_json(os.path.join(a.folder, "scheduler", "scheduler_config.json"), {
        "_class_name": "UniPCMultistepScheduler", "num_train_timesteps": 1000, "solver_order": 2, "solver_type": "bh2",
        "prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0, "predict_x0": True,
        "lower_order_final": True, "final_sigmas_type": "zero"})
    write_json(os.path.join(a.folder, "longtake.json"), {
        "width": a.width, "height": a.height, "num_frames": a.num_frames, "fps": 16, "num_inference_steps": a.steps,
        "guidance_scale": 3.0, "flow_shift": 3.0, "negative_prompt": ""})
    write_json(os.path.join(a.folder, "model_index.json"), {
        "_class_name": "WanPipeline", "expand_timesteps": True, "boundary_ratio": None,
        "scheduler": ["diffusers", "UniPCMultistepScheduler"], "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "T5Tokenizer"], "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": [None, None], "vae": ["diffusers", "AutoencoderKLWan"]})


if __name__ == "__main__":
    main()
