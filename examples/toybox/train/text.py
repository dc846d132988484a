"""The tokenizer of toybox: a SentencePiece unigram model with byte fallback, trained on captions of the world.

python text.py --work DIR writes DIR/spiece.model
"""
import argparse
import os

import numpy as np
import sentencepiece as spm
import torch

import world

EOS = 1


def train(path, vocab=440, seed=7):
    """The words of the world by themselves, many times, beside a few captions: then words stay whole (93 of 94);
    from captions alone they fall apart ("gre en")."""
    rng = np.random.default_rng(seed)
    lines = [world.caption(world.sample_scene(rng, held=None), rng) for _ in range(20000)]
    words = sorted({w.lower().strip(".,") for line in lines for w in line.split()})
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(words * 50 + lines[:200]), model_prefix=os.path.splitext(path)[0], vocab_size=vocab,
        hard_vocab_limit=False, model_type="unigram", byte_fallback=True, character_coverage=1.0,
        normalization_rule_name="nmt_nfkc_cf", pad_id=0, eos_id=EOS, bos_id=2, unk_id=3, pad_piece="<pad>",
        minloglevel=2)


class Tokenizer:
    def __init__(self, path):
        self.sp = spm.SentencePieceProcessor(model_file=path)

    def __len__(self):
        return self.sp.vocab_size()

    def __call__(self, texts):
        """-> ids [B,n] padded with 0, count [B]; every text ends in EOS, an empty one is EOS alone."""
        rows = [self.sp.encode(" ".join(t.split())) + [EOS] for t in texts]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for i, r in enumerate(rows):
            ids[i, :len(r)] = torch.tensor(r)
        return ids, torch.tensor([len(r) for r in rows])


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--work", default=os.path.expanduser("~/.cache/longtake-toybox"))
    path = os.path.join(p.parse_args().work, "spiece.model")
    train(path)
    t = Tokenizer(path)
    print(len(t), t.sp.encode("A red ball bounces on green grass while the sky darkens, überall", out_type=str))
