# SPDX-License-Identifier: Apache-2.0
"""Makes the benchmark's photographs: make_images.py PHOTOS OUT

OUT/500x375: 512 JPEGs of 500x375, and OUT/shards: the same in 8 tar shards; OUT/1500x1000: 96 JPEGs of 1500x1000. Each is a random part of one of the photographs below PHOTOS
(shared/real/images: CC0 photographs of clothing and of everyday scenes), resized, sometimes mirrored, with a little sensor-like
noise, and coded at quality 85-95 with 4:2:0 chroma. The seed is fixed, so every machine makes the same files from the same libraries.
"""
import io, pathlib, random, sys, tarfile

import numpy as np
from PIL import Image, ImageOps

photos, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sources = sorted(photos.glob("clothing/**/*.jpg")) + sorted(photos.glob("coco-like/images/*.jpg")) * 6
rng = random.Random(1)
for (width, height), count, pool in (((500, 375), 512, sources), ((1500, 1000), 96, sorted(photos.glob("coco-like/images/*.jpg")))):
    folder = out / f"{width}x{height}"
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        image = ImageOps.exif_transpose(Image.open(rng.choice(pool))).convert("RGB")
        aspect, share = width / height, rng.uniform(0.6, 1)
        w = min(image.width, image.height * aspect) * share
        h = w / aspect
        x, y = rng.uniform(0, image.width - w), rng.uniform(0, image.height - h)
        part = image.resize((width, height), Image.LANCZOS, (x, y, x + w, y + h))
        if rng.random() < 0.5:
            part = ImageOps.mirror(part)
        noise = np.random.default_rng(i).normal(0, 2, (height, width, 1))
        pixels = np.clip(np.asarray(part) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:04d}.jpg", quality=rng.randrange(85, 96), subsampling="4:2:0")

(out / "shards").mkdir(exist_ok=True)
files = sorted((out / "500x375").glob("*.jpg"))
for s in range(8):
    with tarfile.open(out / "shards" / f"{s:02d}.tar", "w") as tar:
        for i, path in enumerate(files[s::8]):
            for suffix, content in (("jpg", path.read_bytes()), ("cls", str(i % 10).encode())):
                member = tarfile.TarInfo(f"{path.stem}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
