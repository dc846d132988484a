"""The toybox world: captioned clips of one object that moves over a ground, 128x128 at 16 frames a second.

A scene is a small dictionary of plain values; render(scene, frames) draws any of its frames (numpy, no state), so
that nothing but the scene has to be stored. Every motion wraps or saturates: minute 3 looks like minute 1.
Run it to look at it: python world.py sheet.png
"""
import sys

import numpy as np

SIZE, FPS = 128, 16
SHAPES = ["ball", "square", "triangle", "star", "ring"]
COLOURS = {"red": (0.86, 0.16, 0.15), "orange": (0.97, 0.53, 0.10), "yellow": (0.97, 0.85, 0.16),
           "green": (0.10, 0.66, 0.22), "turquoise": (0.12, 0.76, 0.76), "blue": (0.13, 0.32, 0.88),
           "purple": (0.55, 0.20, 0.76), "white": (0.96, 0.95, 0.93)}
GROUNDS = ["plain", "gradient", "checker", "grass", "night"]
MOTIONS = ["still", "left", "right", "up", "down", "grow", "shrink", "bounce", "orbit", "spin"]
LIGHTS = ["steady", "darkens", "sunrise"]

# Never seen in training: what the model makes of them shows whether it composes.
HELD_COLOUR_SHAPE = {("red", "star"), ("blue", "ring"), ("yellow", "triangle"), ("white", "square")}
HELD_SHAPE_MOTION = {("star", "left"), ("ring", "grow"), ("triangle", "up")}

_Y, _X = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) + 0.5
_HORIZON = 74.0


def held_out(scene):
    return ((scene["colour"], scene["shape"]) in HELD_COLOUR_SHAPE
            or (scene["shape"], scene["motion"]) in HELD_SHAPE_MOTION)


def sample_scene(rng, held=False, **fixed):
    """One random scene; held=None draws from everything, False or True from the training or the held-out pairs."""
    while True:
        s = {"shape": str(rng.choice(SHAPES)), "colour": str(rng.choice(list(COLOURS))),
             "ground": str(rng.choice(GROUNDS)), "motion": str(rng.choice(MOTIONS)),
             "light": str(rng.choice(LIGHTS, p=[0.6, 0.2, 0.2]))}
        s.update(fixed)
        if s["motion"] == "spin" and s["shape"] in ("ball", "ring"):
            continue  # cannot be seen
        if s["ground"] == "night" and s["light"] != "steady":
            continue
        if held is None or held_out(s) == held:
            break
    r, m = float(rng.uniform(18, 34)), s["motion"]
    if m in ("bounce", "orbit"):
        r = float(rng.uniform(18, 25))
    elif m == "still":
        r = 18 + (r - 18) / 2
    # What no caption tells varies little: a small model spends itself on choosing between places, speeds and directions.
    x = {"left": 84, "right": 44, "still": 40}.get(m, 64)
    y = {"up": 88, "down": 40, "still": 92}.get(m, 66)  # what rests lies aside: its first frame is not that of what shrinks or spins
    near = 2 if m in ("still", "spin") else 8  # a model goes back to the middle of all places, block after block: what stays has one
    phase = rng.uniform(0.6, 0.75) if m == "bounce" else rng.uniform(0, 1)  # falling at first
    s.update(radius=r, x=x + near * float(rng.uniform(-1, 1)), y=y + near * float(rng.uniform(-1, 1)), phase=float(phase),
             speed=float(rng.uniform(0.95, 1.05)), turn=1, seed=int(rng.integers(8)))
    return s


def _ease(u):
    """From 0 to 1, fastest at first: what a caption tells shows in the first frames, where only the caption can tell it."""
    return 1 - np.square(1 - np.clip(u, 0, 1))


def state(scene, t):
    """Centre x, y, radius and angle of the object at frames t (float array)."""
    t = np.asarray(t, np.float32)
    one = np.ones_like(t)
    x, y, r, a = scene["x"] * one, scene["y"] * one, scene["radius"] * one, 0 * one
    m, v = scene["motion"], scene["speed"]
    span = SIZE + 2 * scene["radius"]  # leaves fully, then comes in at the other side
    wrap = lambda p: (p + scene["radius"]) % span - scene["radius"]
    if m == "left":
        x = wrap(x - v * t)
    elif m == "right":
        x = wrap(x + v * t)
    elif m == "up":
        y = wrap(y - v * t)
    elif m == "down":
        y = wrap(y + v * t)
    elif m in ("grow", "shrink"):
        k = _ease(t * v / 50)
        small, big = 12 + 0.15 * (r - 18), 28 + 0.4 * (r - 18)
        r = small + (big - small) * (k if m == "grow" else 1 - k)
    elif m == "bounce":
        low, high = 112 - r, 26 + 0.6 * r
        y = low - (low - high) * np.abs(np.sin(np.pi * (t * v / 30 + scene["phase"])))
    elif m == "orbit":
        w = 2 * np.pi * (scene["turn"] * t * v / 80 + scene["phase"])
        x, y = 64 + 32 * np.cos(w), 64 + 30 * np.sin(w)
    elif m == "spin":
        a = scene["turn"] * t * v * 2 * np.pi / 66
    return x, y, r, a.astype(np.float32)


def brightness(scene, t):
    """Light of the whole picture, 1 = day."""
    k = _ease(np.asarray(t, np.float32) * scene["speed"] / 60)
    if scene["light"] == "darkens":
        return 1 - 0.68 * k
    if scene["light"] == "sunrise":
        return 0.36 + 0.64 * k
    return np.ones_like(k)


def _noise(seed, cell):
    """Smooth noise of unit size: random values on a coarse grid, cubic-blended."""
    n = SIZE // cell + 2
    g = np.random.default_rng(seed).standard_normal((n, n)).astype(np.float32)
    u = np.arange(SIZE, dtype=np.float32) / cell
    i, f = u.astype(int), u - u.astype(int)
    f = f * f * (3 - 2 * f)
    rows = g[i] * (1 - f)[:, None] + g[i + 1] * f[:, None]
    return rows[:, i] * (1 - f) + rows[:, i + 1] * f


def _mix(a, b, k):
    return a + (b - a) * k[..., None]


def background(scene):
    """The ground and sky by full light, [H,W,3] float32."""
    g, seed = scene["ground"], scene["seed"]
    rgb = lambda *c: np.array(c, np.float32)
    up = np.clip(_Y / SIZE, 0, 1)
    if g == "plain":
        return _mix(rgb(0.80, 0.79, 0.76), rgb(0.62, 0.62, 0.63), np.clip(((_X - 50) ** 2 + (_Y - 40) ** 2) / 14000, 0, 1))
    if g == "gradient":
        img = _mix(rgb(0.42, 0.33, 0.62), rgb(0.95, 0.55, 0.52), np.clip(up * 1.7, 0, 1))
        return _mix(img, rgb(0.99, 0.80, 0.55), np.clip(up * 2 - 1, 0, 1))
    if g == "checker":
        wall = _mix(rgb(0.70, 0.79, 0.87), rgb(0.88, 0.91, 0.92), np.clip(_Y / _HORIZON, 0, 1))
        depth = 22 / np.maximum(_Y - _HORIZON + 14, 1)
        k = np.sin((_X - 64) * depth / 9.0) * np.sin(depth * 17.0)  # soft on purpose: sharp edges hold the VAE back
        floor = _mix(rgb(0.80, 0.70, 0.58), rgb(0.62, 0.49, 0.42), 0.5 + 0.5 * k / (np.abs(k) + 0.35))
        return _mix(wall, floor, np.clip((_Y - _HORIZON) / 2 + 0.5, 0, 1))
    if g == "grass":
        sky = _mix(rgb(0.36, 0.62, 0.90), rgb(0.80, 0.90, 0.95), np.clip(_Y / _HORIZON, 0, 1))
        cloud = np.clip(_noise(seed, 32) * 0.7 - 0.1, 0, 1) * np.clip(1 - _Y / 56, 0, 1)
        sky = _mix(sky, rgb(1.0, 1.0, 1.0), cloud * 0.8)
        near = np.clip((_Y - _HORIZON) / (SIZE - _HORIZON), 0, 1)
        lawn = _mix(rgb(0.56, 0.74, 0.36), rgb(0.27, 0.52, 0.20), near) + 0.03 * _noise(seed + 1, 16)[..., None]
        hill = _HORIZON + 3 * np.sin(_X / 21 + seed % 7)
        return _mix(sky, lawn, np.clip((_Y - hill) / 2 + 0.5, 0, 1))
    sky = _mix(rgb(0.04, 0.05, 0.16), rgb(0.15, 0.17, 0.36), up)
    rng = np.random.default_rng(seed)
    for _ in range(9):
        x, y, b = rng.uniform(4, 124), rng.uniform(4, 84), rng.uniform(0.3, 0.7)
        sky += (b * np.exp(-((_X - x) ** 2 + (_Y - y) ** 2) / 2.6))[..., None] * rgb(1, 1, 0.9)
    moon = np.clip(9.5 - np.hypot(_X - 102, _Y - 24), 0, 1)
    sky = _mix(sky, rgb(0.93, 0.91, 0.78), moon)
    hill = 108 + 5 * np.sin(_X / 25 + seed % 7)
    return _mix(sky, rgb(0.05, 0.09, 0.10), np.clip((_Y - hill) / 3 + 0.5, 0, 1))


_POINTS = {"square": (4, 0.7071, np.pi / 4, 1.12), "triangle": (3, 0.5, -np.pi / 2, 1.18), "star": (5, 0.5, -np.pi / 2, 1.15)}


def _object(shape, dx, dy, r, angle):
    """Signed distance (negative inside) and a light factor for the pixels at offsets dx, dy from the centre."""
    d = np.hypot(dx, dy)
    if shape == "ball":
        nx, ny = dx / r, dy / r
        nz = np.sqrt(np.clip(1 - nx * nx - ny * ny, 0, 1))
        lit = np.clip(-0.46 * nx - 0.58 * ny + 0.67 * nz, 0, 1)
        return d - r, 0.42 + 0.68 * lit, 0.55 * lit ** 14
    if shape == "ring":
        mid, half = 0.70 * r, 0.28 * r
        u = np.clip((d - mid) / half, -1, 1)
        c = u / np.maximum(d, 1e-3)
        lit = np.clip((-0.46 * dx - 0.58 * dy) * c + 0.67 * np.sqrt(1 - u * u), 0, 1)
        return np.abs(d - mid) - half, 0.50 + 0.60 * lit, 0.35 * lit ** 12
    n, inner, turn, scale = _POINTS[shape]
    r = r * scale
    m = np.pi / n
    a = np.abs((np.arctan2(dy, dx) - turn - angle + m) % (2 * m) - m)
    ex, ey = inner * np.cos(m) - 1, inner * np.sin(m)  # edge of a unit star from outer to inner corner
    norm = np.hypot(ex, ey)
    sd = ((d * np.cos(a) - r) * ey - d * np.sin(a) * ex) / norm
    lit = 1.0 - 0.20 * (0.6 * dx + 0.8 * dy) / r - 0.28 * np.clip(1 + sd / (0.14 * r), 0, 1)
    return sd, lit, 0.0 * sd


def flaws(scene, rng, part):
    """What a model that goes on from its own frames may have got wrong in them, for render: each part (part: a number for each
    frame) a little off its place, size and light, and sometimes the whole in another shape or colour, or between two. Part 0 is
    where it should be: nothing tells where that is but itself."""
    off = rng.normal(0, 1, (4, int(part.max()) + 1)) * np.array([[1.3], [1.3], [0.03], [0.03]])
    off[:3, 0] = 0
    pick = lambda names, share: (str(rng.choice(list(names))), float(rng.uniform(0.2, 1)) if rng.random() < share else 0.0)
    return {"off": off[:, part], "shape": pick(SHAPES, 0.35), "colour": pick(COLOURS, 0.1)}


def render(scene, frames, flaws=None):
    """Frames (list or array of frame numbers) of a scene: [T,H,W,3] float32 in 0..1. flaws: what flaws() says of them."""
    t = np.asarray(frames, np.float32)
    bg = background(scene)
    out = np.empty((len(t), SIZE, SIZE, 3), np.float32)
    base = np.array(COLOURS[scene["colour"]], np.float32)
    xs, ys, rs, angles = state(scene, t)
    lights, other, by = brightness(scene, t), None, 0
    if flaws:
        dx, dy, dr, gain = flaws["off"].astype(np.float32)
        xs, ys, rs, lights = xs + dx, ys + dy, rs * (1 + dr), np.minimum(lights * (1 + gain), 1)
        other, by = flaws["shape"]
        colour, k = flaws["colour"]
        base = (1 - k) * base + k * np.array(COLOURS[colour], np.float32)
    for i, (x, y, r, a, light) in enumerate(zip(xs, ys, rs, angles, lights)):
        img = bg
        if scene["light"] == "sunrise":
            k = (light - 0.36) / 0.64
            sun = np.hypot(_X - 28, _Y - (70 - 46 * k))
            disc = np.clip((10 - sun) * 0.7, 0, 1)
            glow = (disc + (1 - disc) * 0.35 * np.exp(-(sun / 26) ** 2)) * np.clip(3 * k, 0, 1)
            img = _mix(img, np.array((1.0, 0.90, 0.55), np.float32), glow)
        if scene["ground"] in ("checker", "grass"):
            high = np.clip((112 - y - r) / 90, 0, 1)
            e = ((_X - x) / (r * (1.05 - 0.35 * high))) ** 2 + ((_Y - 114) / (0.24 * r + 2)) ** 2
            img = img * (1 - (0.42 - 0.30 * high) * np.exp(-e * 1.6))[..., None]
        y0, y1 = int(max(y - 1.3 * r - 2, 0)), int(min(y + 1.3 * r + 3, SIZE))
        x0, x1 = int(max(x - 1.3 * r - 2, 0)), int(min(x + 1.3 * r + 3, SIZE))
        if img is bg:
            img = bg.copy()
        if y1 > y0 and x1 > x0:
            box = np.s_[y0:y1, x0:x1]
            sd, lit, gloss = _object(scene["shape"], _X[box] - x, _Y[box] - y, r, a)
            if by:
                sd, lit, gloss = ((1 - by) * u + by * v for u, v in zip((sd, lit, gloss), _object(other, _X[box] - x, _Y[box] - y, r, a)))
            paint = np.clip(base * lit[..., None] + gloss[..., None], 0, 1)
            img[box] = _mix(img[box], paint, np.clip(0.5 - sd / 1.6, 0, 1))
        if light < 1:
            img = img * light + (1 - light) * np.array((0.00, 0.012, 0.05), np.float32) * img.mean()
        out[i] = img
    return np.clip(out, 0, 1)


def shade(scene, frames):
    """How much of each cell of 4x4 pixels the object covers, about: [T,32,32] in 0..1."""
    x, y, r, a = (v[:, None, None] for v in state(scene, frames))
    grid = np.s_[None, 2::4, 2::4]
    sd, _, _ = _object(scene["shape"], _X[grid] - x, _Y[grid] - y, r, a)
    return np.clip(0.5 - sd / 4, 0, 1).astype(np.float32)


def box(scene, frames):
    """Box of the object, [T,4] ints x0 y0 x1 y1, clipped to the picture (empty when it is outside)."""
    x, y, r, _ = state(scene, frames)
    reach = r * (1.18 if scene["shape"] in _POINTS else 1.0) + 1
    return np.clip(np.stack([x - reach, y - reach, x + reach, y + reach], 1), 0, SIZE).round().astype(int)


_NAMES = {"ball": ["ball", "ball", "sphere"], "square": ["square", "square", "box"], "triangle": ["triangle"],
          "star": ["star"], "ring": ["ring", "ring", "hoop"], "turquoise": ["turquoise", "cyan"], "purple": ["purple", "violet"]}
_WHERE = {"plain": ["in front of a plain grey wall", "on a plain background", "in front of a plain wall"],
          "gradient": ["in front of a pink sunset sky", "against a sunset gradient", "in a sunset sky"],
          "checker": ["over a checkered floor", "above a checker floor", "in a room with a checkered floor"],
          "grass": ["on green grass", "over a green meadow", "on grass under a blue sky"],
          "night": ["at night", "in the night sky", "under the stars at night"]}
_DOES = {"still": ["stands still", "does not move", "rests"], "left": ["moves left", "drifts to the left", "slides left"],
         "right": ["moves right", "drifts to the right", "slides right"], "up": ["rises", "moves up", "floats upwards"],
         "down": ["sinks", "moves down", "falls slowly"], "grow": ["grows", "gets bigger", "is growing larger"],
         "shrink": ["shrinks", "gets smaller", "is shrinking"], "bounce": ["bounces", "bounces up and down", "is bouncing"],
         "orbit": ["moves in a circle", "circles around", "orbits"], "spin": ["spins", "is spinning", "turns round and round"]}
_LIGHT = {"darkens": ["the sky darkens", "it gets dark", "night falls"],
          "sunrise": ["the sun rises", "the sun comes up", "it gets light"]}


def caption(scene, rng):
    """One of many wordings of a scene."""
    pick = lambda table, key: str(rng.choice(table[key]))
    name = f"{pick(_NAMES, scene['colour']) if scene['colour'] in _NAMES else scene['colour']} {pick(_NAMES, scene['shape'])}"
    name = ("an " if name[0] in "aeiou" else "a ") + name
    where, does = pick(_WHERE, scene["ground"]), pick(_DOES, scene["motion"])
    form = int(rng.integers(4))
    if scene["motion"] == "still" and form == 0:
        text = f"{name} {where}"
    elif form <= 1:
        text = f"{name} {does} {where}"
    elif form == 2:
        text = f"{where}, {name} {does}"
    else:
        text = f"{name} {where} {does}"
    if scene["light"] != "steady":
        light = pick(_LIGHT, scene["light"])
        text = [f"{text} while {light}", f"{text}, {light}", f"{light} and {text}"][int(rng.integers(3))]
    if rng.random() < 0.3:
        text = text[0].upper() + text[1:]
    return text + ("." if rng.random() < 0.2 else "")


def sheet(rows, path, gap=2):
    """Rows of pictures (lists of [H,W,3] in 0..1) as one PNG."""
    from PIL import Image
    h, w = rows[0][0].shape[:2]
    canvas = np.ones((len(rows) * (h + gap), max(map(len, rows)) * (w + gap), 3), np.float32)
    for i, row in enumerate(rows):
        for j, img in enumerate(row):
            canvas[i * (h + gap):i * (h + gap) + h, j * (w + gap):j * (w + gap) + w] = img
    Image.fromarray((canvas.clip(0, 1) * 255).astype(np.uint8)).save(path)


if __name__ == "__main__":
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    scenes = [sample_scene(rng, held=None, motion=m, ground=g) for m, g in zip(MOTIONS, GROUNDS * 2)]
    for s in scenes:
        print(caption(s, rng))
    sheet([list(render(s, range(0, 81, 10))) for s in scenes], sys.argv[1])
