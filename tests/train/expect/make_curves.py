# SPDX-License-Identifier: Apache-2.0
"""Writes curves.json: the losses of 200 updates by PyTorch on the CPU in f32 and in f64, from weights and batches by
formula, of pictures in f32 also with the channels last. Eight batches are taken in turn. The distance of the f32 curves from the
f64 one says how far rounding alone carries a curve. Needs torch, torchvision and transformers."""
import json
import pathlib

import torch
import torchvision
import transformers

import formula
from make_models import Mlp

HERE = pathlib.Path(__file__).parent
UPDATES, BATCHES = 200, 8


def images(k, n, size):
    return torch.from_numpy(formula.uniform(f"image {k}", n * 3 * size * size).reshape(n, 3, size, size))


def labels(k, shape, classes):
    return torch.from_numpy(formula.tokens(f"label {k}", shape, classes))


def curve(make, optimizer, batch, loss):
    return {"f32": one_curve(make(), optimizer, batch, loss, torch.float32),
            "f64": one_curve(make(), optimizer, batch, loss, torch.float64)}


def curve_of_pictures(make, optimizer, batch, loss):
    last = lambda x: x.to(memory_format=torch.channels_last)
    return {**curve(make, optimizer, batch, loss),
            "f32_channels_last": one_curve(last(make()), optimizer, lambda k: (last(batch(k)[0]), batch(k)[1]), loss, torch.float32)}


def one_curve(model, optimizer, batch, loss, dtype):
    formula.fill(model)
    model.to(dtype).train()
    step = optimizer(model.parameters())
    out = []
    for u in range(UPDATES):
        x, y = batch(u % BATCHES)
        step.zero_grad()
        value = loss(model, x.to(dtype) if x.is_floating_point() else x, y)
        value.backward()
        step.step()
        out.append(float(f"{value.item():.7g}"))
    return out


def classify(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y)


def language(model, x, y):
    return torch.nn.functional.cross_entropy(model(input_ids=x).logits.flatten(0, 1), y.flatten())


def sgd(lr):
    return lambda p: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=1e-4)


def main():
    torch.set_num_threads(1)
    hub = torchvision.models
    gpt = lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=99, n_positions=32, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    sgd_options = lambda lr: {"name": "sgd", "lr": lr, "momentum": 0.9, "weight_decay": 1e-4}
    cases = [
        {"model": "mlp", "options": {"features": 12, "hidden": [16, 8], "classes": 3}, "batch": 16,
         "optimizer": sgd_options(0.05),
         "loss": curve(Mlp, sgd(0.05), lambda k: (torch.from_numpy(
             formula.uniform(f"features {k}", 16 * 12).reshape(16, 12)), labels(k, (16,), 3)), classify)},
        {"model": "resnet18", "options": {"size": 64, "classes": 10}, "batch": 4, "optimizer": sgd_options(0.002),
         "loss": curve_of_pictures(lambda: hub.resnet18(num_classes=10), sgd(0.002),
                       lambda k: (images(k, 4, 64), labels(k, (4,), 10)), classify)},
        {"model": "mobilenet_v2", "options": {"size": 64, "classes": 10}, "batch": 4, "optimizer": sgd_options(2e-5),
         "loss": curve_of_pictures(lambda: hub.mobilenet_v2(num_classes=10, dropout=0.0), sgd(2e-5),
                       lambda k: (images(k, 4, 64), labels(k, (4,), 10)), classify)},
        {"model": "gpt2", "options": {"vocabulary": 99, "length": 16, "positions": 32, "width": 48, "layers": 2,
                                      "heads": 4}, "batch": 4,
         "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01},
         "loss": curve(gpt, lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.01), lambda k: (torch.from_numpy(
             formula.tokens(f"tokens {k}", (4, 16), 99)), labels(k, (4, 16), 99)), language)},
    ]
    (HERE / "curves.json").write_text(json.dumps({"cases": cases}) + "\n")


if __name__ == "__main__":
    main()
