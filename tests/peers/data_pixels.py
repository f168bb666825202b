# SPDX-License-Identifier: Apache-2.0
"""Live comparison of decoded and resized pixels with Pillow, torchvision and OpenCV.

usage: data_pixels.py BINARY IMAGES_DIR [--cases N] [--seed S]

Decodes every image below IMAGES_DIR with Pillow and with Pelton, then resizes N random crops to random sizes in
every mode that the libraries share. Prints one line a group and exits with 1 when a bound is broken.
"""
import argparse, collections, os, random, subprocess, sys

import numpy as np
from PIL import Image, ImageOps

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".pgm", ".ppm", ".pbm")
PIL_FILTERS = {"nearest": Image.NEAREST, "box": Image.BOX, "linear": Image.BILINEAR, "hamming": Image.HAMMING,
               "cubic": Image.BICUBIC, "lanczos": Image.LANCZOS}


class Pelton:
    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        self.process.stdin.write((line + "\n").encode())
        self.process.stdin.flush()
        head = self.process.stdout.readline().decode()
        if head.startswith("error"):
            return None, head[6:].strip()
        shape = tuple(int(v) for v in head.split())
        return np.frombuffer(self.process.stdout.read(int(np.prod(shape))), np.uint8).reshape(shape), None


def pillow_pixels(path):
    try:
        with Image.open(path) as image:
            image.load()
            deep = image.mode.startswith("I")
            upright = ImageOps.exif_transpose(image) if image.format in ("JPEG", "PNG", "WEBP", "TIFF") else image
            if deep:  # Pillow's conversion of 16-bit grey to RGB saturates; the high byte is meant
                grey = (np.asarray(upright).astype(np.uint32) >> 8).astype(np.uint8)
                return np.repeat(grey[:, :, None], 3, 2), None
            return np.asarray(upright.convert("RGB")), None
    except Exception as error:
        return None, str(error)


def report(name, differences, bound_max=None, bound_mean=None):
    if not differences:
        print(f"{name}: no case")
        return True
    largest = max(d.max() for d in differences)
    mean = max(d.mean() for d in differences)
    exact = sum(d.max() == 0 for d in differences)
    good = (bound_max is None or largest <= bound_max) and (bound_mean is None or mean <= bound_mean)
    print(f"{name}: {len(differences)} cases, {exact} exact, largest difference {largest}, worst mean {mean:.3f}"
          + ("" if good else "  FAILED"))
    return good


def difference(a, b):
    return np.abs(a.astype(np.int16) - b.astype(np.int16))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("images")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    pelton = Pelton(args.binary)
    paths = sorted(os.path.join(d, f) for d, _, files in os.walk(args.images) for f in files if f.lower().endswith(SUFFIXES))
    good, readable, decoded, only_one = True, [], [], []
    for path in paths:
        ours, our_error = pelton.ask(f"decode {path}")
        theirs, their_error = pillow_pixels(path)
        if (ours is None) != (theirs is None):
            only_one.append((path, our_error or "read", their_error or "read"))
        if ours is None or theirs is None:
            continue
        if ours.shape != theirs.shape:
            print(f"{path}: {ours.shape} and {theirs.shape}  FAILED")
            good = False
            continue
        d = difference(ours, theirs)
        decoded.append(d)
        readable.append((path, theirs))
        if args.v and d.max():
            print(f"  {path}: max {d.max()} mean {d.mean():.4f}")
    good &= report("decode against Pillow", decoded)
    for path, ours, theirs in only_one:
        print(f"  read by one only: {os.path.relpath(path, args.images)}: Pelton: {ours}; Pillow: {theirs}")

    rng = random.Random(args.seed)
    groups = collections.defaultdict(list)
    try:
        import torch
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms.v2 import functional as tv
    except ImportError:
        torch = None
        print("torchvision: skipped, not installed")
    try:
        import cv2
    except ImportError:
        cv2 = None
        print("opencv: skipped, not installed")
    for _ in range(args.cases):
        path, pixels = rng.choice(readable)
        h, w = pixels.shape[:2]
        x0, y0 = rng.randrange(w), rng.randrange(h)
        x1, y1 = rng.randrange(x0, w) + 1, rng.randrange(y0, h) + 1
        width, height = rng.randrange(1, 400), rng.randrange(1, 400)
        crop = pixels[y0:y1, x0:x1]
        ask = lambda match, name, aa: pelton.ask(f"resize {match} {name} {aa} {x0} {y0} {x1} {y1} {width} {height} {path}")
        name = rng.choice(list(PIL_FILTERS))
        ours, error = ask("pillow", name, 1)
        theirs = np.asarray(Image.fromarray(crop).resize((width, height), PIL_FILTERS[name]))
        groups[f"pillow {name}"].append(difference(ours, theirs))
        ours, error = ask("none", name, 1)
        groups[f"default mode {name} against Pillow"].append(difference(ours, theirs))
        if torch:
            name, aa = rng.choice([("linear", 1), ("linear", 0), ("cubic", 1), ("nearest", 0)])
            mode = {"linear": InterpolationMode.BILINEAR, "cubic": InterpolationMode.BICUBIC, "nearest": InterpolationMode.NEAREST}[name]
            tensor = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[:, y0:y1, x0:x1]
            theirs = tv.resize(tensor, [height, width], interpolation=mode, antialias=bool(aa)).permute(1, 2, 0).numpy()
            ours, error = ask("torchvision", name, aa)
            groups[f"torchvision {name} antialias={aa}"].append(difference(ours, theirs))
        if cv2:
            name, flag = rng.choice([("nearest", cv2.INTER_NEAREST), ("linear", cv2.INTER_LINEAR), ("cubic", cv2.INTER_CUBIC), ("box", cv2.INTER_AREA)])
            if name == "box" and (width > x1 - x0 or height > y1 - y0):
                name, flag = "linear", cv2.INTER_LINEAR
            theirs = cv2.resize(np.ascontiguousarray(crop), (width, height), interpolation=flag)
            ours, error = ask("opencv", name, int(name == "box"))
            groups[f"opencv {name}"].append(difference(ours, theirs))
    for name in sorted(groups):
        exact = name.startswith(("pillow", "torchvision")) or name in ("opencv nearest", "opencv linear")
        if name.startswith("default"):
            # Pillow clips to 0..255 between its two passes, where cubic and Lanczos overshoot at sharp edges; and it
            # steps to the nearest pixel by repeated addition, which decides ties.
            bound = {"cubic": 2, "lanczos": 2, "nearest": None}.get(name.split()[2], 0.5)
            good &= report(name, groups[name], bound_mean=bound)
        else:
            good &= report(name, groups[name], bound_max=0 if exact else 1)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
