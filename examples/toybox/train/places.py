"""Prints ../../checker_places.h: the random numbers behind the clouds, meadows and stars of the eight places, for the checker in C.

python places.py > ../../checker_places.h
"""
import numpy as np


def grid(seed, cell):
    n = 128 // cell + 2
    return np.random.default_rng(seed).standard_normal((n, n)).astype(np.float32).ravel() * 4096


def stars(seed):
    rng = np.random.default_rng(seed)
    return np.ravel([(rng.uniform(4, 124) * 64, rng.uniform(4, 84) * 64, rng.uniform(0.3, 0.7) * 4096) for _ in range(9)])


def table(name, rows):
    print(f"static const int16_t {name}[8][{len(rows[0])}] = {{")
    for r in rows:
        words = [f"{int(round(float(v)))}" for v in r]
        lines, line = [], "    {" + words[0]
        for w in words[1:]:
            if len(line) + len(w) + 3 > 98:
                lines.append(line + ",")
                line = "     " + w
            else:
                line += ", " + w
        print("\n".join(lines + [line + "},"]))
    print("};")


print("/* checker_places.h: written by toybox/train/places.py: random numbers of the eight places of the toybox world: coarse grids of\n"
      " * the clouds (6 x 6) and the meadow (10 x 10) times 4096, and nine stars: x and y times 64, light times 4096. */")
print("/* clang-format off */")
table("cloud_grid", [grid(s, 32) for s in range(8)])
table("lawn_grid", [grid(s + 1, 16) for s in range(8)])
table("star_list", [stars(s) for s in range(8)])
