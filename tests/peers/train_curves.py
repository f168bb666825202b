#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's loss curves computed here against the stored ones that tests/train/curves_test.cc follows: says how far this
PyTorch on this machine is from what was stored, in f32 and f64. Needs what make_curves.py needs."""
import json
import pathlib
import sys
import tempfile

EXPECT = pathlib.Path(__file__).resolve().parents[1] / "train" / "expect"
sys.path.insert(0, str(EXPECT))
import make_curves  # noqa: E402


def distance(a, b):
    return (sum((x - y) ** 2 for x, y in zip(a, b)) / len(a)) ** 0.5


def main():
    stored = json.loads((EXPECT / "curves.json").read_text())["cases"]
    with tempfile.TemporaryDirectory() as folder:
        make_curves.HERE = pathlib.Path(folder)
        make_curves.main()
        fresh = json.loads((pathlib.Path(folder) / "curves.json").read_text())["cases"]
    failed = False
    for old, new in zip(stored, fresh):
        rounding = distance(old["loss"]["f32"], old["loss"]["f64"])
        f32 = distance(old["loss"]["f32"], new["loss"]["f32"])
        f64 = distance(old["loss"]["f64"], new["loss"]["f64"])
        bad = f32 > 3 * rounding + 1e-5 or f64 > 1e-3 * rounding + 1e-5
        failed |= bad
        print(f"{old['model']:14} f32 {f32:.2e}  f64 {f64:.2e}  (f32 from f64: {rounding:.2e}){'  DIFFERS' if bad else ''}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
