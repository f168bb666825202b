# SPDX-License-Identifier: Apache-2.0
"""Writes curves.json: the losses of 200 updates by PyTorch on the CPU in f32 and in f64, from weights and batches by
formula, of pictures in f32 also with the channels last. Eight batches are taken in turn. The distance of the f32 curves from the
f64 one says how far rounding alone carries a curve. Of ResNet-18, where that differs much from curve to curve, also "draws": the
distances over the first 40 updates of curves that are the same in exact arithmetic: f32 with the pictures of each batch in other
orders, and f64 from weights that round to the same f32 weights. "mixed": the distances of curves under autocast, with the loss
scaled in fp16 (whose convolutions take PyTorch on the CPU too long). `make_curves.py cuda` adds to the file "mixed_cuda", the same of
every case on a GPU, of the two layouts of pictures the further. Needs torch, torchvision and transformers."""
import dataclasses
import json
import pathlib
import sys
import typing

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


@dataclasses.dataclass
class Case:
    """A model with its recipe; make() gives the module, batch(k) its inputs and labels."""
    name: str
    options: dict
    size: int  # of a batch
    optimizer: dict
    make: typing.Callable
    batch: typing.Callable
    loss: typing.Callable
    pictures: bool = False

    def plain(self):
        return self.make(), self.batch, self.loss

    def last(self):
        last = lambda x: x.to(memory_format=torch.channels_last)
        return last(self.make()), lambda k: (last(self.batch(k)[0]), self.batch(k)[1]), self.loss

    @property
    def forms(self):
        return {"f32": self.plain, "f32_channels_last": self.last} if self.pictures else {"f32": self.plain}


def make_step(options, parameters):
    options = dict(options)
    return {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[options.pop("name")](parameters, **options)


def one_curve(optimizer, model, batch, loss, dtype, updates=UPDATES, start=lambda p: p):
    formula.fill(model)
    model.to(dtype).train()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(start(p))
    step = make_step(optimizer, model.parameters())
    out = []
    for u in range(updates):
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


def cases():
    hub = torchvision.models
    gpt = lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=99, n_positions=32, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    sgd = lambda lr: {"name": "sgd", "lr": lr, "momentum": 0.9, "weight_decay": 1e-4}
    features = lambda k: torch.from_numpy(formula.uniform(f"features {k}", 16 * 12).reshape(16, 12))
    pictures = lambda k: (images(k, 4, 64), labels(k, (4,), 10))
    text = lambda k: (torch.from_numpy(formula.tokens(f"tokens {k}", (4, 16), 99)), labels(k, (4, 16), 99))
    small = {"vocabulary": 99, "length": 16, "positions": 32, "width": 48, "layers": 2, "heads": 4}
    size = {"size": 64, "classes": 10}
    return [
        Case("mlp", {"features": 12, "hidden": [16, 8], "classes": 3}, 16, sgd(0.05), Mlp, lambda k: (features(k), labels(k, (16,), 3)), classify),
        Case("resnet18", size, 4, sgd(0.002), lambda: hub.resnet18(num_classes=10), pictures, classify, True),
        Case("mobilenet_v2", size, 4, sgd(2e-5), lambda: hub.mobilenet_v2(num_classes=10, dropout=0.0), pictures, classify, True),
        Case("gpt2", small, 4, {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01}, gpt, text, language),
    ]


ORDERS = ("0123", "1032", "2301", "3210", "0213", "1203", "3021", "2130")
DRAWN_UPDATES = 40


def draws(case):
    exact = one_curve(case.optimizer, *case.plain(), torch.float64, DRAWN_UPDATES)
    out = {"updates": DRAWN_UPDATES, "orders": ORDERS, "f64": []}
    for form, parts in case.forms.items():
        out[form] = []
        for order in ORDERS:
            rows = [int(r) for r in order]
            model, batch, loss = parts()
            losses = one_curve(case.optimizer, model, lambda k: tuple(t[rows] for t in batch(k)), loss, torch.float32, DRAWN_UPDATES)
            out[form].append(distance(losses, exact))
    for seed in range(len(ORDERS)):
        torch.manual_seed(seed)
        # Less than half the distance to the next f32.
        start = lambda p: p * (1 + (torch.rand_like(p) - 0.5) * 2.0**-24)
        out["f64"].append(distance(one_curve(case.optimizer, *case.plain(), torch.float64, DRAWN_UPDATES, start), exact))
    return out


def mixed(case, dtype, device="cpu", form="f32"):
    model, batch, loss = case.forms[form]()
    formula.fill(model)
    model.to(device).train()
    step = make_step(case.optimizer, model.parameters())
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    out = []
    for u in range(UPDATES):
        x, y = (t.to(device) for t in batch(u % BATCHES))
        step.zero_grad()
        with torch.autocast(device, dtype):
            value = loss(model, x, y)
        scaler.scale(value).backward()
        scaler.step(step)
        scaler.update()
        out.append(value.item())
    return out


MIXED = {"mlp": ("bf16", "fp16"), "resnet18": ("bf16",), "gpt2": ("bf16", "fp16")}
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def distance(losses, exact):
    return float(f"{(torch.tensor(losses).double() - torch.tensor(exact).double()).square().mean().sqrt().item():.3g}")


def add_cuda():
    stored = json.loads((HERE / "curves.json").read_text())
    for c, s in zip(cases(), stored["cases"]):
        s["mixed_cuda"] = {p: max(distance(mixed(c, t, "cuda", form), s["loss"]["f64"]) for form in c.forms) for p, t in TYPES.items()}
    (HERE / "curves.json").write_text(json.dumps(stored) + "\n")


def main():
    torch.set_num_threads(1)
    out = []
    for c in cases():
        loss = {form: one_curve(c.optimizer, *parts(), torch.float32) for form, parts in c.forms.items()}
        loss["f64"] = one_curve(c.optimizer, *c.plain(), torch.float64)
        out.append({"model": c.name, "options": c.options, "batch": c.size, "optimizer": c.optimizer, "loss": loss})
        if c.name == "resnet18":
            out[-1]["draws"] = draws(c)
        if c.name in MIXED:
            out[-1]["mixed"] = {p: distance(mixed(c, TYPES[p]), loss["f64"]) for p in MIXED[c.name]}
    (HERE / "curves.json").write_text(json.dumps({"cases": out}) + "\n")


if __name__ == "__main__":
    add_cuda() if sys.argv[1:] == ["cuda"] else main()
