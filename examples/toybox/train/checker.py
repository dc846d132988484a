"""Looks at a clip of the toybox world and says what is in it: ground, colour, shape, motion, light.

A program, not a network: the background is found by its colours far from the object, the object is what differs from
it, its outline gives the shape, its path, size and angle over time the motion. Used on rendered clips (it must be
nearly always right there) and on generated ones.

python checker.py [count [frames [seed]]]      accuracy on the generator's own clips
"""
import sys

import numpy as np

import world

_GROUND = {}


def _templates():
    """Mean background of each ground at quarter size, by full light."""
    if not _GROUND:
        for g in world.GROUNDS:
            _GROUND[g] = [small(world.background({"ground": g, "seed": s})) for s in range(8)]
    return _GROUND


def small(img):
    h = img.shape[0] // 4
    return img.reshape(h, 4, h, 4, 3).mean((1, 3))


def _fit(img, template):
    """Robust distance of a picture to a background whose light is unknown, and that light."""
    light = np.clip(np.median(img.sum(-1) / np.maximum(template.sum(-1), 0.05)), 0.1, 1.2)
    diff = np.abs(img - template * light).sum(-1)
    return np.mean(np.minimum(diff, 0.25)) / (0.35 + 0.65 * light), light


def ground(clip):
    """Ground and the best matching place of it, from several frames."""
    picks = [small(f) for f in clip[np.linspace(0, len(clip) - 1, 5).astype(int)]]
    best = min(((np.mean([_fit(p, t)[0] for p in picks]), g, i) for g, ts in _templates().items() for i, t in enumerate(ts)))
    return best[1], best[2]


def _hue_sat(c):
    hi, lo = c.max(-1), c.min(-1)
    d = np.maximum(hi - lo, 1e-6)
    r, g, b = np.moveaxis(c, -1, 0)
    h = np.where(hi == r, (g - b) / d % 6, np.where(hi == g, (b - r) / d + 2, (r - g) / d + 4)) * 60
    return h, (hi - lo) / np.maximum(hi, 1e-3)


_HUES = {n: float(_hue_sat(np.array(c))[0]) for n, c in world.COLOURS.items() if n != "white"}


def _light(frame, back):
    return np.clip(np.median(frame.sum(-1) / np.maximum(back.sum(-1), 0.05)), 0.1, 1.2)


def _without_dusk(frame, light, back):
    """The frame without the blue of dusk, and its light."""
    frame = frame - (1 - min(light, 1)) * back.mean() * np.array((0.00, 0.012, 0.05), np.float32)
    return frame, _light(frame, back)


def _with_glow(want, light):
    """The sky around the risen sun is on its way to the sun's colour."""
    k = np.clip((light - 0.36) / 0.64, 0, 1)
    glow = 0.35 * np.clip(3 * k, 0, 1) * np.exp(-((world._X - 28) ** 2 + (world._Y - 70 + 46 * k) ** 2) / 26 ** 2)
    return want + (np.array((1.0, 0.90, 0.55), np.float32) * light - want) * glow[..., None]


def _mask(frame, back, light, g, rises, pale):
    """Pixels of the object: the largest connected patch that differs from the background. At night the object alone is lit, and
    what is nearly black has a chroma of chance. rises: the sun does. pale: the object is white, so that its brightness has to
    tell it from what is nearly white too."""
    tol, dark = (0.16, 0.40) if g == "night" else (0.10, 0.12)
    want = _with_glow(back * light, light) if rises else back * light
    a, b = (v / np.maximum(v.sum(-1, keepdims=True), dark) for v in (frame, want))
    chroma = np.abs(a - b).sum(-1)
    bright = np.abs(frame - want).sum(-1) / np.maximum(light, 0.3)
    lighter = frame.sum(-1) > want.sum(-1)
    # A shadow is darker with the same chroma; the object is not. The sun is a pale yellow disc on a known path.
    hit = (chroma > tol) | (bright > 0.30) & lighter | (bright > 0.55) & (chroma > tol / 2)
    if pale and g != "night":  # shadows lie on the floor
        shade = lighter | (world._Y < 96) if g in ("checker", "grass") else True
        hit |= (bright > np.clip(4 * np.median(bright), 0.10, 0.30)) & shade
    h, sat = _hue_sat(frame)
    sun = (np.abs(world._X - 28) < 40) & (h > 25) & (h < 65) & (sat > 0.15) & (sat < 0.62) & (world._Y < 96)
    return _largest(_closed(hit & ~sun) if pale else hit & ~sun)


def _spread(hit):
    """With the four neighbours of each pixel."""
    out = hit.copy()
    out[1:] |= hit[:-1]
    out[:-1] |= hit[1:]
    out[:, 1:] |= hit[:, :-1]
    out[:, :-1] |= hit[:, 1:]
    return out


def _closed(hit):
    """Without lines of one or two pixels where an object is as bright as what is behind it."""
    return ~_spread(~_spread(hit))


def _largest(hit):
    """Largest 4-connected component (labels spread by minimum over neighbours)."""
    if hit.sum() < 20:
        return np.zeros_like(hit)
    label = np.where(hit, np.arange(1, hit.size + 1).reshape(hit.shape), 0)
    for _ in range(12):
        new = label.copy()
        for axis in (0, 1):  # runs along an axis take the largest label of the run
            for flip in (False, True):
                m = np.moveaxis(new, axis, 0)
                m = m[::-1] if flip else m
                for i in range(1, len(m)):
                    m[i] = np.where(m[i] > 0, np.maximum(m[i], np.where(m[i - 1] > 0, m[i - 1], 0)), 0)
        if (new == label).all():
            break
        label = new
    ids, counts = np.unique(label[label > 0], return_counts=True)
    return label == ids[np.argmax(counts)]


def _outline(mask):
    """Distance from the middle to the edge over 72 directions, scaled to its mean; whether there is a hole."""
    y, x = np.nonzero(mask)
    cy, cx = y.mean(), x.mean()
    a = np.arctan2(y - cy, x - cx)
    d = np.hypot(y - cy, x - cx)
    bins = ((a + np.pi) / (2 * np.pi) * 72).astype(int) % 72
    r = np.zeros(72)
    np.maximum.at(r, bins, d)
    size = np.sqrt(mask.sum() / np.pi)
    hole = 1 - mask[int(round(cy)) - 2:int(round(cy)) + 3, int(round(cx)) - 2:int(round(cx)) + 3].mean()
    return r / max(r.mean(), 1e-6), hole, size


def _inside(mask):
    return not (mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any())


def _shape(mask):
    r, hole, _ = _outline(mask)
    if hole > 0.5:
        return "ring", 0.0
    f = np.abs(np.fft.rfft(r)) / 72
    turns = {"triangle": f[3], "square": f[4], "star": f[5]}
    best = max(turns, key=turns.get)
    phase = np.angle(np.fft.rfft(r)[{"triangle": 3, "square": 4, "star": 5}[best]])
    return ("ball" if turns[best] < 0.022 else best), phase


def _vote(items):
    names, counts = np.unique(items, return_counts=True)
    return str(names[np.argmax(counts)])


def read(clip):
    """clip [T,H,W,3] in 0..1 -> dict with ground, colour, shape, motion, light (None where nothing was found)."""
    g, place = ground(clip)
    back = world.background({"ground": g, "seed": place})
    times = range(0, len(clip), max(1, len(clip) // 40))
    lights = [_light(clip[t], back) for t in times]
    k = max(1, len(lights) // 5)
    change = np.mean(lights[-k:]) / max(np.mean(lights[:k]), 1e-3)
    light = "darkens" if change < 0.8 else "sunrise" if change > 1.25 else "steady"
    found = _object(clip, times, lights, back, g, light == "sunrise", False)
    if found["colour"] == "white":
        found = _object(clip, times, lights, back, g, light == "sunrise", True)
    return {"ground": g, **found, "light": light if _goes_one_way(lights, light) else "unsteady"}


def _goes_one_way(lights, light):
    """A sun that rises again and again has not risen: light that changes does not come back by 0.15 of full daylight."""
    up = np.array(lights) * (1 if light == "sunrise" else -1)
    return light == "steady" or (np.maximum.accumulate(up) - up).max() <= 0.15


def _object(clip, times, lights, back, g, rises, pale):
    shapes, colours, track = [], [], []
    for t, light in zip(times, lights):
        frame, light = _without_dusk(clip[t], light, back) if pale else (clip[t], light)
        m = _mask(frame, back, light, g, rises, pale)
        if m.sum() < 60:
            continue
        whole = _inside(m)
        y, x = np.nonzero(m)
        s, phase = _shape(m)
        track.append((t, x.mean(), y.mean(), np.sqrt(m.sum()), phase, whole))
        if whole:
            shapes.append(s)
        h, sat = _hue_sat(frame[m])
        if np.median(sat) < 0.22:
            colours.append("white")
        else:
            hue = np.angle(np.exp(1j * np.deg2rad(h[sat > 0.3])).mean() if (sat > 0.3).any() else 1)
            gap = {n: abs((np.rad2deg(hue) - v + 180) % 360 - 180) for n, v in _HUES.items()}
            colours.append(min(gap, key=gap.get))
    if not track:
        return {"colour": None, "shape": None, "motion": None}
    shape = _vote(shapes) if shapes else None
    return {"colour": _vote(colours), "shape": shape, "motion": _motion(np.array(track, float), shape)}


def _motion(tr, shape):
    whole = tr[tr[:, 5] > 0]
    if len(whole) < 3:
        whole = tr
    t, x, y, size = whole[:, 0], whole[:, 1], whole[:, 2], whole[:, 3]
    rx, ry = np.ptp(x), np.ptp(y)
    if len(t) > 4 and max(rx, ry) < 14:  # what grows stays where it is
        k = max(1, len(t) // 6)
        ratio = size[-k:].mean() / size[:k].mean()
        if ratio > 1.28:
            return "grow"
        if ratio < 0.78:
            return "shrink"
    if max(rx, ry) < 5:
        if shape in ("square", "triangle", "star") and len(t) > 3:
            n = {"triangle": 3, "square": 4, "star": 5}[shape]
            phase = np.unwrap(whole[:, 4])
            if abs(phase[-1] - phase[0]) > 0.5 * n:  # in the end: what trembles does not spin
                return "spin"
        return "still"
    if rx > 14 and ry > 14 and (_swings(y) >= 1 or _swings(x) >= 1 or min(rx, ry) > 0.35 * max(rx, ry)):
        return "orbit"
    if ry > rx:
        if _swings(y) >= 1:
            return "bounce"
        return "down" if _slope(t, y) > 0 else "up"
    return "right" if _slope(t, x) > 0 else "left"


def _slope(t, v):
    """Median step: a wrap round the edge does not count."""
    return np.median(np.diff(v) / np.maximum(np.diff(t), 1))


def _swings(v):
    """How often the value turns round by more than 6 pixels."""
    count, lo, hi, way = 0, v[0], v[0], 0
    for p in v[1:]:
        lo, hi = min(lo, p), max(hi, p)
        if p - lo > 6 and abs(p - lo) < 60 and way <= 0:
            count, way, hi = count + (way < 0), 1, p
        elif hi - p > 6 and abs(hi - p) < 60 and way >= 0:
            count, way, lo = count + (way > 0), -1, p
        if way > 0:
            hi, lo = max(hi, p), p if p > hi - 1 else lo
            lo = min(lo, p) if hi - p > 6 else p
        elif way < 0:
            lo = min(lo, p)
            hi = max(p, lo) if p - lo <= 6 else hi
    return count


def main():
    count, length = int(sys.argv[1]) if len(sys.argv) > 1 else 100, int(sys.argv[2]) if len(sys.argv) > 2 else 81
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 31
    rng, right, wrong = np.random.default_rng(seed), {}, []
    for _ in range(count):
        s = world.sample_scene(rng, held=None)
        got = read(world.render(s, range(length)))
        for k, v in got.items():
            right[k] = right.get(k, 0) + (v == s[k])
            if v != s[k]:
                wrong.append((k, s[k], v, s["shape"], s["colour"], s["ground"], s["motion"], s["light"]))
    print({k: round(v / count, 3) for k, v in right.items()})
    for w in wrong[:40]:
        print(*w)


if __name__ == "__main__":
    main()
