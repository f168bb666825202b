# SPDX-License-Identifier: Apache-2.0
"""Writes gradients.json: of the first update of each case of curves.json and of a small network on larger pictures, some elements of
every parameter's gradient by PyTorch in f64, and how far its own f32 gradients are from them (relative, root mean square; of
pictures the further of its two layouts); also the statistics that batch norms keep after it. Needs torch, torchvision and transformers."""
import json
import pathlib

import torch

import formula
from make_curves import Case, cases, classify, labels
from make_models import SmallCnn

HERE = pathlib.Path(__file__).parent
SAMPLES = 32  # elements a parameter, evenly apart


def sample(t):
    flat, count = t.detach().double().flatten(), min(SAMPLES, t.numel())  # in logical order
    return flat[torch.arange(count) * t.numel() // count]


def first_update(model, batch, loss, dtype):
    """Samples of gradients and of statistics."""
    formula.fill(model)
    model.to(dtype).train()
    x, y = batch(0)
    loss(model, x.to(dtype) if x.is_floating_point() else x, y).backward()
    return ({name: sample(p.grad) for name, p in model.named_parameters()},
            {name: sample(b) for name, b in model.named_buffers() if "running_" in name})


def distance(got, exact):
    return ((got - exact).square().sum() / exact.square().sum()).sqrt().item()


def numbers(t):
    return [float(f"{v:.9g}") for v in t.tolist()]


def small_cnn():
    pictures = lambda k: torch.from_numpy(formula.uniform(f"image {k}", 32 * 28 * 28).reshape(32, 1, 28, 28))
    return Case("small_cnn", {"size": 28, "widths": [8, 16], "hidden": 32}, 32, {}, lambda: SmallCnn(28),
                lambda k: (pictures(k), labels(k, (32,), 10)), classify, True)


def main():
    torch.set_num_threads(1)
    out = []
    for c in [*cases(), small_cnn()]:
        exact, statistics = first_update(*c.plain(), torch.float64)
        f32 = [first_update(*form(), torch.float32)[0] for form in c.forms.values()]
        out.append({"model": c.name, "options": c.options, "batch": c.size,
                    "parameters": {name: {"exact": numbers(g), "f32": float(f"{max(distance(f[name], g) for f in f32):.3g}")}
                                   for name, g in exact.items()},
                    "statistics": {name: numbers(t) for name, t in statistics.items()}})
    (HERE / "gradients.json").write_text("[\n" + ",\n".join(map(json.dumps, out)) + "\n]\n")


if __name__ == "__main__":
    main()
