# SPDX-License-Identifier: Apache-2.0
"""Writes optimizers.json: five updates of a matrix and a vector by torch.optim (SGD, Adam, AdamW, RMSprop), timm
(LARS, LAMB; their vectors take the plain steps of SGD and AdamW) and NumPy in f64 (Muon, whose PyTorch form rounds
to bf16), on gradients by formula."""
import json
import pathlib

import numpy as np
import timm.optim
import torch

import formula

HERE = pathlib.Path(__file__).parent
SHAPES = {"w": (3, 4), "b": (4,)}
UPDATES = 5


def gradient(name, update, shape):
    return formula.uniform(f"grad {update} {name}", int(np.prod(shape))).reshape(shape)


def by_torch(make):
    params = {n: torch.nn.Parameter(torch.from_numpy(formula.uniform(n, int(np.prod(s))).reshape(s)))
              for n, s in SHAPES.items()}
    optimizer = make(list(params.values()))
    for u in range(UPDATES):
        for n, p in params.items():
            p.grad = torch.from_numpy(gradient(n, u, p.shape))
        optimizer.step()
    return {n: p.detach().numpy().ravel().astype(float).tolist() for n, p in params.items()}


def muon(lr, decay):
    out = {}
    for n, s in SHAPES.items():
        p = formula.uniform(n, int(np.prod(s))).reshape(s).astype(np.float64)
        buffer, m, v = np.zeros(s), np.zeros(s), np.zeros(s)
        for u in range(UPDATES):
            g = gradient(n, u, s).astype(np.float64)
            if len(s) == 2:
                buffer = 0.95 * buffer + 0.05 * g
                x = 0.05 * g + 0.95 * buffer
                tall = x.shape[0] > x.shape[1]
                x = x.T if tall else x
                x = x / max(np.linalg.norm(x), 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.T if tall else x
                step = x * max(1, s[0] / s[1]) ** 0.5
            else:
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                step = m / (1 - 0.9 ** (u + 1)) / (np.sqrt(v / (1 - 0.999 ** (u + 1))) + 1e-8)
            p = p - lr * decay * p - lr * step
        out[n] = p.ravel().tolist()
    return out


def main():
    o, t = torch.optim, timm.optim
    cases = [
        ("sgd", {"lr": 0.1}, by_torch(lambda p: o.SGD(p, 0.1))),
        ("sgd", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05},
         by_torch(lambda p: o.SGD(p, 0.1, momentum=0.9, weight_decay=0.05))),
        ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True},
         by_torch(lambda p: o.SGD(p, 0.1, momentum=0.9, nesterov=True))),
        ("adam", {"lr": 0.01, "weight_decay": 0.1}, by_torch(lambda p: o.Adam(p, 0.01, weight_decay=0.1))),
        ("adamw", {"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.95]},
         by_torch(lambda p: o.AdamW(p, 0.01, betas=(0.8, 0.95), weight_decay=0.1))),
        ("rmsprop", {"lr": 0.01}, by_torch(lambda p: o.RMSprop(p, 0.01))),
        ("rmsprop", {"lr": 0.01, "centered": True, "momentum": 0.5, "weight_decay": 0.1, "alpha": 0.9},
         by_torch(lambda p: o.RMSprop(p, 0.01, alpha=0.9, centered=True, momentum=0.5, weight_decay=0.1))),
        ("lars", {"lr": 1.0, "weight_decay": 0.1, "trust": 0.01},
         {**by_torch(lambda p: t.Lars(p, 1.0, momentum=0.9, weight_decay=0.1, trust_coeff=0.01)),
          "b": by_torch(lambda p: o.SGD(p, 1.0, momentum=0.9, weight_decay=0.1))["b"]}),
        ("lamb", {"lr": 0.01, "weight_decay": 0.1},
         {**by_torch(lambda p: t.Lamb(p, 0.01, weight_decay=0.1, max_grad_norm=None)),
          "b": by_torch(lambda p: o.AdamW(p, 0.01, eps=1e-6, weight_decay=0.1))["b"]}),
        ("muon", {"lr": 0.02, "weight_decay": 0.1}, muon(0.02, 0.1)),
    ]
    (HERE / "optimizers.json").write_text(json.dumps(
        {"cases": [{"name": n, "options": c, "result": {k: [float(f"{x:.9g}") for x in v] for k, v in r.items()}}
                   for n, c, r in cases]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
