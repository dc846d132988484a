"""A state of the training whose averaged weights lie between those of two others: what one run lost against the other comes back in part.

python mean.py A.pt B.pt --part 0.6 --out DIR/dit.pt     0.4 of A and 0.6 of B; all else is B's
"""
import argparse

from common import load, save


def main():
    p = argparse.ArgumentParser()
    p.add_argument("a")
    p.add_argument("b")
    p.add_argument("--part", type=float, default=0.5, help="of b")
    p.add_argument("--out", required=True)
    o = p.parse_args()
    a, b = load(o.a), load(o.b)
    for name in ("ema_dit", "ema_text"):
        of_a, of_b = a[name]["module"], b[name]["module"]
        for key, value in of_b.items():
            if value.is_floating_point():
                of_b[key] = (1 - o.part) * of_a[key] + o.part * value
    save(o.out, b)


if __name__ == "__main__":
    main()
