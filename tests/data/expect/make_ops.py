# SPDX-License-Identifier: Apache-2.0
"""Writes ops.json: what Pillow and NumPy make of one picture. usage: make_ops.py > ops.json"""
import io
import json

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

H, W = 20, 26
FILL = (9, 99, 200)


def base():
    y, x = np.mgrid[0:H, 0:W]
    noise = np.random.default_rng(7).integers(-25, 26, (H, W, 3))
    p = np.stack([40 + 7 * x, 230 - 9 * y, 128 + 90 * np.sin(x / 3) * np.cos(y / 4)], 2) + noise
    return np.clip(p, 12, 243).astype(np.uint8)


def moved(image, forward, resample):
    """`forward` takes positions of the picture to positions of the result (corners of pixels at whole numbers)."""
    inverse = np.linalg.inv(forward)
    return image.transform((W, H), Image.Transform.AFFINE, inverse[:2].ravel(), resample, fillcolor=FILL)


def placement(angle, scale, shear_x, shear_y, move_x, move_y):
    a = np.deg2rad(angle)
    turn = np.array([[np.cos(a), np.sin(a), 0], [-np.sin(a), np.cos(a), 0], [0, 0, 1]])  # y points down
    shear = np.array([[1, np.tan(np.deg2rad(shear_x)), 0], [np.tan(np.deg2rad(shear_y)), 1, 0], [0, 0, 1]])
    centre = np.array([[1, 0, W / 2], [0, 1, H / 2], [0, 0, 1]])
    move = np.array([[1, 0, move_x * W], [0, 1, move_y * H], [0, 0, 1]])
    return move @ centre @ turn @ np.diag([scale, scale, 1]) @ shear @ np.linalg.inv(centre)


def cubic(p, forward):
    """Keys' cubic with a = -0.5, rows and columns beyond the rim repeated. Pillow's transform takes a = -1."""
    def weights(f):
        d = np.abs(np.arange(-1, 3) - f)
        return np.where(d < 1, 1.5 * d**3 - 2.5 * d**2 + 1, -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2)
    inverse, out = np.linalg.inv(forward), np.empty((H, W, 3))
    for j in range(H):
        for i in range(W):
            x, y, _ = inverse @ (i + 0.5, j + 0.5, 1)
            if not (0 <= x < W and 0 <= y < H):
                out[j, i] = FILL
                continue
            x0, y0 = int(np.floor(x - 0.5)), int(np.floor(y - 0.5))
            part = p[np.clip(range(y0 - 1, y0 + 3), 0, H - 1)][:, np.clip(range(x0 - 1, x0 + 3), 0, W - 1)]
            out[j, i] = np.einsum("y,x,yxc->c", weights(y - 0.5 - y0), weights(x - 0.5 - x0), part)
    return out


def blurred(p, sigma):
    radius = int(np.ceil(3 * sigma))
    k = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    k /= k.sum()
    q = p.astype(np.float64)
    for axis in (0, 1):
        pad = [(0, 0)] * 3
        pad[axis] = (radius, radius)
        wide = np.pad(q, pad, mode="edge")
        q = sum(w * np.take(wide, np.arange(i, i + q.shape[axis]), axis) for i, w in enumerate(k))
    return q


def hued(p, degrees):
    yiq = np.array([[0.299, 0.587, 0.114], [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]])
    t = np.deg2rad(degrees)
    turn = np.array([[1, 0, 0], [0, np.cos(t), -np.sin(t)], [0, np.sin(t), np.cos(t)]])
    return p @ (np.linalg.inv(yiq) @ turn @ yiq).T


def jpeg(image, quality):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return Image.open(io.BytesIO(out.getvalue())).convert("RGB")


p = base()
image = Image.fromarray(p)
bilinear, nearest = Image.Resampling.BILINEAR, Image.Resampling.NEAREST
cases = [  # stage, options, result, tolerance in levels
    ("posterize", {"bits": 3}, ImageOps.posterize(image, 3), 0),
    ("solarize", {"threshold": 100}, ImageOps.solarize(image, 100), 0),
    ("equalize", {}, ImageOps.equalize(image), 0),
    ("autocontrast", {}, ImageOps.autocontrast(image), 1),
    ("sharpness", {"factor": 1.8}, ImageEnhance.Sharpness(image).enhance(1.8), 1),
    ("sharpness", {"factor": 0}, ImageEnhance.Sharpness(image).enhance(0), 1),
    ("gaussian_blur", {"sigma": 1.3}, blurred(p, 1.3), 0.51),
    ("brightness", {"factor": 1.4}, ImageEnhance.Brightness(image).enhance(1.4), 1),
    ("contrast", {"factor": 0.6}, 127.5 + 0.6 * (p - 127.5), 0.51),
    ("saturation", {"factor": 1.6}, ImageEnhance.Color(image).enhance(1.6), 1),
    ("hue", {"degrees": 40}, hued(p, 40), 0.51),
    ("grayscale", {}, image.convert("L").convert("RGB"), 1),
    ("jpeg_distortion", {"quality": 30}, jpeg(image, 30), 0),
    ("rotate", {"angle": 23, "fill": FILL}, moved(image, placement(23, 1, 0, 0, 0, 0), bilinear), 1),
    ("rotate", {"angle": 23, "fill": FILL, "filter": "nearest"}, moved(image, placement(23, 1, 0, 0, 0, 0), nearest), 0),
    ("affine", {"angle": -9, "scale": 1.3, "shear_x": 12, "shear_y": -5, "translate_x": 0.1, "translate_y": -0.07,
                "fill": FILL}, moved(image, placement(-9, 1.3, 12, -5, 0.1, -0.07), bilinear), 1),
    ("affine", {"angle": 31, "scale": 1.1, "filter": "cubic", "fill": FILL},
     cubic(p, placement(31, 1.1, 0, 0, 0, 0)), 0.51)]
out = {"width": W, "height": H, "pixels": p.ravel().tolist(), "cases": []}
for op, options, result, tolerance in cases:
    values = np.clip(np.asarray(result, np.float64), 0, 255).round(3).ravel().tolist()
    out["cases"].append({"op": op, "options": options, "tolerance": tolerance, "values": values})
print(json.dumps(out, separators=(",", ":")))
