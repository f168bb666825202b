#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training part of `make demo`: a small CNN learns scikit-learn's digits, is compiled to a plan, and the plan is run on
the test images."""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from sklearn.datasets import load_digits

GOAL = 0.985
RECIPE = pathlib.Path(__file__).resolve().parents[1] / "train" / "digits.toml"


def pelton(binary, *arguments, show=True):
    if show:
        print("$ pelton", *arguments, flush=True)
    return subprocess.run([binary, *map(str, arguments)], check=True, text=True, stdout=subprocess.PIPE).stdout


def write_arrays(folder):
    """Every fourth image is for the test; pixels go from 0..16 to 0..1."""
    digits = load_digits()
    image = (digits.images / 16).astype(np.float32)[:, None]
    label = digits.target.astype(np.int64)
    test = np.arange(len(label)) % 4 == 3
    np.savez(folder / "digits_train.npz", image=image[~test], label=label[~test])
    np.savez(folder / "digits_test.npz", image=image[test], label=label[test])
    return image[test], label[test]


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        image, label = write_arrays(RECIPE.parent)  # where the recipe looks for them
        run, plan = folder / "run", folder / "digits.pelton"
        start = time.time()
        pelton(binary, "train", RECIPE, "--dry-run", "--set", f"output.folder={run}")
        lines = pelton(binary, "train", RECIPE, "--json", "--set", f"output.folder={run}").splitlines()
        for line in map(json.loads, lines):
            if line.get("kind") == "eval":
                print(f"epoch {line['epoch']:5.1f}  loss {line['loss']:.4f}  accuracy {line['accuracy']:.4f}")
        final = json.loads(lines[-1])
        print(f"{final['updates']} updates in {final['seconds']:.1f} s, {final['samples_per_s']:.0f} samples/s")
        print(pelton(binary, "compile", run, "-o", plan), end="")
        np.save(folder / "image.npy", image)
        pelton(binary, "run", plan, "--input", f"image={folder / 'image.npy'}", "--output-dir", folder / "out")
        accuracy = (np.load(folder / "out" / "logits.npy").argmax(1) == label).mean()
        print(f"the compiled plan names {accuracy:.2%} of {len(label)} test digits ({time.time() - start:.0f} s in all)")
        if accuracy < GOAL or abs(accuracy - final["best"]["accuracy"]) > 1e-9:
            sys.exit(f"expected at least {GOAL:.1%}, and what training measured: {final['best']['accuracy']:.2%}")


if __name__ == "__main__":
    main()
