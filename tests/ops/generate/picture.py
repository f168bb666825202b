# SPDX-License-Identifier: Apache-2.0
"""Picture resampling: under match against the libraries themselves (Pillow, torchvision, OpenCV), else against sums in f64."""
import cv2
import numpy as np
import torch
from opcases import Cases, Dims, array
from PIL import Image

c = Cases("picture")
CLOSE = {"rtol": 1e-5, "atol": 2e-4}  # of 0..255


def pixels(*dims):
    return c.rng.integers(0, 256, dims).astype(np.uint8)


def kernel(name, x):
    if name == "box":
        return 1.0 if -0.5 < x <= 0.5 else 0.0
    x = abs(x)
    if name == "linear":
        return max(0.0, 1 - x)
    if name == "cubic":
        return 1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0
    window = 0.54 + 0.46 * np.cos(np.pi * x) if name == "hamming" else np.sinc(x / 3)
    return float(np.sinc(x) * window) if x < (1 if name == "hamming" else 3) else 0.0


def weights(n, m, name, antialias):
    """[m, n]: the weights of all source positions, for each result."""
    out = np.zeros((m, n))
    widen = max(1.0, n / m) if antialias else 1.0
    for i in range(m):
        centre = (i + 0.5) * n / m
        if name == "nearest":
            out[i, min(int(centre), n - 1)] = 1
            continue
        out[i] = [kernel(name, (k + 0.5 - centre) / widen) for k in range(n)]
        out[i] /= out[i].sum()
    return out


def default(x, h, w, name, antialias=True):
    rows, columns = weights(x.shape[-3], h, name, antialias), weights(x.shape[-2], w, name, antialias)
    return np.einsum("ih,jw,...hwc->...ijc", rows, columns, x.astype(np.float64)).astype(np.float32)


for name in ["nearest", "box", "linear", "hamming", "cubic", "lanczos"]:
    for h, w in [(3, 4), (9, 11)]:
        x = pixels(6, 7, 3)
        c.case(f"{name} {h} {w}", "picture_resample", [x], default(x, h, w, name), bounds=CLOSE, dims=Dims([h, w, 3]), filter=name)
x = pixels(8, 5, 1)
c.case("no antialias", "picture_resample", [x], default(x, 3, 2, "linear", False), bounds=CLOSE, dims=Dims([3, 2, 1]), antialias=False)
x = pixels(2, 20, 6, 3)
whole = default(x, 19, 9, "linear")
c.case("two pictures", "picture_resample", [x], whole, bounds=CLOSE, dims=Dims([2, 19, 9, 3]))
c.case("window", "picture_resample", [x], whole[:, 1:18, 3:8], bounds=CLOSE, dims=Dims([2, 17, 5, 3]), size=Dims([19, 9]), origin=Dims([1, 3]))
c.case("no pictures", "picture_resample", [pixels(0, 4, 4, 3)], np.zeros((0, 2, 2, 3), np.float32), dims=Dims([0, 2, 2, 3]))
c.case("nothing wanted", "picture_resample", [pixels(4, 4, 3)], np.zeros((0, 2, 3), np.float32), dims=Dims([0, 2, 3]))
one = array([[[9]]], "u8")
c.case("one pixel", "picture_resample", [one], np.full((2, 2, 1), 9, np.float32), bounds=CLOSE, dims=Dims([2, 2, 1]), filter="cubic")

PIL = {"nearest": 0, "box": 4, "linear": 2, "hamming": 5, "cubic": 3, "lanczos": 1}
for name, mode in PIL.items():
    for h, w in [(3, 9), (10, 4)]:
        x = pixels(8, 6, 3)
        c.case(f"pillow {name} {h} {w}", "picture_resample", [x], np.asarray(Image.fromarray(x).resize((w, h), mode)),
               dims=Dims([h, w, 3]), filter=name, match="pillow")
for name, antialias in [("nearest", True), ("linear", True), ("linear", False), ("cubic", True)]:
    x = pixels(2, 7, 6, 3)
    mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[name]
    kwargs = {} if name == "nearest" else {"antialias": antialias, "align_corners": False}
    t = torch.from_numpy(x).permute(0, 3, 1, 2)
    y = torch.nn.functional.interpolate(t, (4, 9), mode=mode, **kwargs).permute(0, 2, 3, 1).numpy()
    c.case(f"torchvision {name} {antialias}", "picture_resample", [x], np.ascontiguousarray(y), dims=Dims([2, 4, 9, 3]), filter=name,
           antialias=antialias, match="torchvision")
CV = {"nearest": cv2.INTER_NEAREST, "linear": cv2.INTER_LINEAR, "box": cv2.INTER_AREA}
for name, mode in CV.items():
    for h, w in [(3, 4), (4, 3)]:
        x = pixels(8, 6, 3)
        y = cv2.resize(x, (w, h), interpolation=mode)
        c.case(f"opencv {name} {h} {w}", "picture_resample", [x], y, bounds={"atol": 1, "rtol": 0} if name == "box" else None,
               dims=Dims([h, w, 3]), filter=name, antialias=name == "box", match="opencv")

t = ["u8[4,4,3]"]
c.refused("C1", "usage", ["no filter 'area'"], "picture_resample", t, dims=Dims([2, 2, 3]), filter="area")
c.refused("C1", "usage", ["no match 'dali'"], "picture_resample", t, dims=Dims([2, 2, 3]), match="dali")
c.refused("C2", "usage", ["pillow", "antialias = true"], "picture_resample", t, dims=Dims([2, 2, 3]), match="pillow", antialias=False)
c.refused("C2", "usage", ["opencv", "INTER_AREA"], "picture_resample", t, dims=Dims([2, 2, 3]), match="opencv")
c.refused("C2", "usage", ["torchvision", "cubic"], "picture_resample", t, dims=Dims([2, 2, 3]), match="torchvision", filter="lanczos")
c.refused("C3", "bad_type", ["u8 pictures", "f32"], "picture_resample", ["f32[4,4,3]"], dims=Dims([2, 2, 3]))
c.refused("C3", "bad_shape", ["H, W, 1 or 3"], "picture_resample", ["u8[4,4,2]"], dims=Dims([2, 2, 2]))
c.refused("C4", "bad_shape", ["1 is not 3"], "picture_resample", t, dims=Dims([2, 2, 1]))
c.refused("C4", "bad_shape", ["3 result sizes"], "picture_resample", t, dims=Dims([2, 2]))
c.refused("C5", "usage", ["two sizes and two places"], "picture_resample", t, dims=Dims([2, 2, 3]), size=Dims([4, 4]))
c.refused("C5", "usage", ["whole result"], "picture_resample", t, dims=Dims([2, 2, 3]), size=Dims([4, 4]), origin=Dims([0, 0]), match="pillow")
c.refused("C5", "bad_shape", ["3 .. 5 of 4"], "picture_resample", t, dims=Dims([2, 2, 3]), size=Dims([4, 4]), origin=Dims([3, 0]))
c.fails("bad_shape", ["empty picture"], "picture_resample", [pixels(0, 4, 3)], "f32[2,2,3]", dims=Dims([2, 2, 3]))
c.fails("usage", ["only shrinks"], "picture_resample", [pixels(4, 4, 3)], "u8[5,5,3]", dims=Dims([5, 5, 3]), filter="box", match="opencv")
c.write()
