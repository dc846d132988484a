"""Writes the model folder (Diffusers layout, bfloat16) from the state of the training scripts.

python export.py --work DIR --out FOLDER [--golden FILE] [--check]
Without state it exports untrained weights. --golden also writes one whole trajectory computed here from the rounded
weights, for the parity test of the engine; --check loads the folder with diffusers and transformers and compares.
"""
import argparse
import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file

import models
import sample
from common import load
from text import Tokenizer


def write_json(path, obj):
    with open(path, "w") as f:
        json.dump(obj, f, indent=2)
        f.write("\n")


def export(out, vae, dit, text, spiece, mean, std):
    weights = lambda m: {k: v.detach().to(torch.bfloat16).contiguous() for k, v in m.state_dict().items()}
    for d in ("transformer", "vae", "text_encoder", "tokenizer", "scheduler"):
        os.makedirs(os.path.join(out, d), exist_ok=True)
    save_file(weights(dit), f"{out}/transformer/diffusion_pytorch_model.safetensors", {"format": "pt"})
    save_file(weights(vae), f"{out}/vae/diffusion_pytorch_model.safetensors", {"format": "pt"})
    save_file(weights(text), f"{out}/text_encoder/model.safetensors", {"format": "pt"})
    shutil.copy(spiece, f"{out}/tokenizer/spiece.model")
    write_json(f"{out}/transformer/config.json", {"_class_name": "WanTransformer3DModel", **models.DIT_CONFIG})
    write_json(f"{out}/vae/config.json", {"_class_name": "AutoencoderKLWan", **models.VAE_CONFIG,
                                          "latents_mean": mean, "latents_std": std})
    write_json(f"{out}/text_encoder/config.json", {
        "architectures": ["UMT5EncoderModel"], "model_type": "umt5", **models.TEXT_CONFIG, "is_gated_act": True,
        "dense_act_fn": "gelu_new", "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
        "tie_word_embeddings": True, "use_cache": False, "torch_dtype": "bfloat16"})
    write_json(f"{out}/tokenizer/tokenizer_config.json", {
        "tokenizer_class": "T5Tokenizer", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>",
        "extra_ids": 0, "model_max_length": 512, "legacy": False})
    write_json(f"{out}/tokenizer/special_tokens_map.json", {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})
    write_json(f"{out}/scheduler/scheduler_config.json", {
        "_class_name": "UniPCMultistepScheduler", "num_train_timesteps": 1000, "solver_order": 2, "solver_type": "bh2",
        "prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": sample.SHIFT, "predict_x0": True,
        "lower_order_final": True, "final_sigmas_type": "zero", "thresholding": False, "timestep_spacing": "linspace"})
    write_json(f"{out}/model_index.json", {
        "_class_name": "WanPipeline", "expand_timesteps": True, "boundary_ratio": None,
        "scheduler": ["diffusers", "UniPCMultistepScheduler"], "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "T5Tokenizer"], "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": [None, None], "vae": ["diffusers", "AutoencoderKLWan"]})
    write_json(f"{out}/longtake.json", {  # what the command runs the model with unless told otherwise
        "width": 128, "height": 128, "num_frames": 81, "fps": 16, "num_inference_steps": 25, "guidance_scale": 2.0,
        "flow_shift": sample.SHIFT, "negative_prompt": "", "mode": "ar", "cache": "self-forcing:first=1,first-of=4,window=10",
        "ar_num_inference_steps": 10})


@torch.no_grad()
def golden(path, folder, prompt="a red ball bounces on green grass", frames=3, steps=8, guidance=4.0, shift=sample.SHIFT):
    """One trajectory by Euler steps: token ids, text rows, noise, two latents on the way and the last one."""
    m = sample.Folder(folder)
    noise = torch.randn(1, 16, frames, 16, 16, generator=torch.Generator().manual_seed(11))
    ids, count = m.tokenizer([prompt, ""])
    rows = m.text(ids, count)
    x, trace = sample.sample(m.dit, rows, count, noise, sample.sigmas(steps, shift), guidance, trace=[])
    out = {"in.noise": noise[0], "out.latent": x[0]}
    for i, name in enumerate(("cond", "uncond")):
        out[f"out.ids.{name}"], out[f"out.context.{name}"] = ids[i, :count[i]], rows[i, :count[i]]
    for i in (1, steps // 2):
        out[f"out.step{i}.x"] = trace[i][0][0]
    meta = {"format": "golden-1", "source": "toybox in PyTorch, float32 from the bfloat16 weights", "config": json.dumps(
        {"kind": "toybox", "model": os.path.relpath(folder, os.path.dirname(path) or "."), "prompt": prompt,
         "steps": steps, "guidance": guidance, "shift": shift, "t": "1000 sigma, not truncated"})}
    save_file({k: v.float().contiguous() for k, v in out.items()}, path, meta)


@torch.no_grad()
def check(folder):
    """The same numbers from diffusers and transformers, with the same weights in float32."""
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
    from transformers import AutoTokenizer, UMT5EncoderModel
    m = sample.Folder(folder)
    show = lambda name, a, b: print(f"{name}: max |difference| {(a - b).abs().max():.2e} of {b.abs().max():.2f}")
    g = torch.Generator().manual_seed(0)

    vae = AutoencoderKLWan.from_pretrained(folder, subfolder="vae", torch_dtype=torch.float32)
    video = torch.rand(1, 3, 17, 64, 96, generator=g) * 2 - 1
    z = m.vae.encode(video)[0]
    show("vae encode", vae.encode(video).latent_dist.mean, z)
    show("vae decode", vae.decode(z).sample, m.vae.decode(z).clamp(-1, 1))

    prompts = ["a red ball bounces on green grass", "In the night sky, a Purple ring orbits.", ""]
    ids, count = m.tokenizer(prompts)
    tok = AutoTokenizer.from_pretrained(f"{folder}/tokenizer")
    theirs = [tok(p)["input_ids"] for p in prompts]
    print("tokenizer:", "same ids" if theirs == [i[:n].tolist() for i, n in zip(ids, count)] else f"DIFFERS {theirs}")
    enc = UMT5EncoderModel.from_pretrained(f"{folder}/text_encoder", torch_dtype=torch.float32)
    mask = torch.arange(ids.shape[1]) < count[:, None]
    rows = m.text(ids, count)
    show("text encoder", enc(ids, attention_mask=mask.long()).last_hidden_state * mask[..., None], rows)

    dit = WanTransformer3DModel.from_pretrained(folder, subfolder="transformer", torch_dtype=torch.float32)
    x = torch.randn(3, 16, 5, 8, 12, generator=g)
    t = torch.full((3, 5), 700.0)
    t[:, 0] = 0
    full = torch.zeros(3, models.TEXT_ROWS, rows.shape[2])
    full[:, :rows.shape[1]] = rows
    theirs = dit(x, t.repeat_interleave(24, 1), full, return_dict=False)[0]
    show("transformer", theirs, m.dit(x, t, *m.dit.context(rows, count)))
    UniPCMultistepScheduler.from_pretrained(folder, subfolder="scheduler")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    p.add_argument("--out", required=True)
    p.add_argument("--golden")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    torch.manual_seed(0)
    vae, dit, text = models.VAE(), models.DiT(), models.TextEncoder()
    mean, std = [0.0] * 16, [1.0] * 16
    vae.init_for_images()
    if s := load(f"{a.work}/vae.pt"):
        vae.load_state_dict(s["ema"]["module"])
    if s := load(f"{a.work}/stats.pt"):
        mean, std = s["mean"], s["std"]
    if s := load(f"{a.work}/dit.pt"):
        models.DIT_CONFIG["num_layers"] = s["layers"]
        dit = models.DiT()
        dit.load_state_dict(s["ema_dit"]["module"]), text.load_state_dict(s["ema_text"]["module"])
    else:
        torch.nn.init.normal_(dit.proj_out.weight, std=0.02)
    export(a.out, vae, dit, text, f"{a.work}/spiece.model", mean, std)
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(a.out) for f in fs)
    print(f"{a.out}: {size / 1e6:.1f} MB; parameters " + ", ".join(
        f"{n} {sum(p.numel() for p in m.parameters()) / 1e6:.2f} M" for n, m in (("vae", vae), ("dit", dit), ("text", text))))
    if a.golden:
        golden(a.golden, a.out)
    if a.check:
        check(a.out)


if __name__ == "__main__":
    main()
