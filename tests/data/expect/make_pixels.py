# SPDX-License-Identifier: Apache-2.0
"""Writes pixels.json: what Pillow, torchvision and OpenCV make of the images in shared/real/images.

usage: make_pixels.py IMAGES_DIR > pixels.json

decode: file -> SHA-256 (16 digits) of Pillow's upright RGB pixels with their size, or null where Pillow refuses.
resize: random crops and sizes with the digest of each library's result.
"""
import hashlib, json, os, random, sys

import cv2, numpy as np, PIL, torch, torchvision
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "peers"))
from data_pixels import PIL_FILTERS, SUFFIXES, Image, pillow_pixels

root = sys.argv[1]
digest = lambda a: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16]
paths = sorted(os.path.join(d, f) for d, _, files in os.walk(root) for f in files if f.lower().endswith(SUFFIXES))
decode, pixels = {}, []
for path in paths:
    image, _ = pillow_pixels(path)
    decode[os.path.relpath(path, root)] = None if image is None else f"{image.shape[1]}x{image.shape[0]} {digest(image)}"
    if image is not None and image.shape[0] * image.shape[1] < 400000:
        pixels.append((os.path.relpath(path, root), image))
rng, cases = random.Random(20), []
MODES = [("torchvision", "linear", 1), ("torchvision", "linear", 0), ("torchvision", "cubic", 1), ("torchvision", "nearest", 0),
         ("opencv", "linear", 0), ("opencv", "nearest", 0)] + [("pillow", name, 1) for name in PIL_FILTERS]
TORCH = {"linear": InterpolationMode.BILINEAR, "cubic": InterpolationMode.BICUBIC, "nearest": InterpolationMode.NEAREST}
for _ in range(200):
    name, image = rng.choice(pixels)
    h, w = image.shape[:2]
    x0, y0 = rng.randrange(w), rng.randrange(h)
    x1, y1 = rng.randrange(x0, w) + 1, rng.randrange(y0, h) + 1
    width, height = rng.randrange(1, 300), rng.randrange(1, 300)
    crop = np.ascontiguousarray(image[y0:y1, x0:x1])
    match, filter, antialias = rng.choice(MODES)
    if match == "pillow":
        out = np.asarray(Image.fromarray(crop).resize((width, height), PIL_FILTERS[filter]))
    elif match == "opencv":
        out = cv2.resize(crop, (width, height), interpolation={"linear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}[filter])
    else:
        tensor = torch.from_numpy(crop.copy()).permute(2, 0, 1)
        out = tv.resize(tensor, [height, width], interpolation=TORCH[filter], antialias=bool(antialias)).permute(1, 2, 0).numpy()
    cases.append([name, match, filter, antialias, x0, y0, x1, y1, width, height, digest(out)])
versions = {"pillow": PIL.__version__, "torch": torch.__version__.split("+")[0], "torchvision": torchvision.__version__.split("+")[0],
            "opencv": cv2.__version__}
lines = ",\n".join("  " + json.dumps(c) for c in cases)
names = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in decode.items())
print(f'{{"versions": {json.dumps(versions)},\n"decode": {{\n{names}}},\n"resize": [\n{lines}]}}')
