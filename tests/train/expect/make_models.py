# SPDX-License-Identifier: Apache-2.0
"""Writes models.json: outputs of torchvision, timm, transformers and torch modules on weights by formula, and starts.json: how
their parameters are drawn. Needs torch, torchvision, timm and transformers (tests/peers have the same needs)."""
import json
import pathlib

import numpy as np
import timm
import torch
import torchvision
import transformers

import formula

HERE = pathlib.Path(__file__).parent


def record(cases, name, options, module, inputs, rename=lambda n: n, call=lambda m, x: m(*x)):
    module.eval()
    shapes = formula.fill(module, rename)
    with torch.no_grad():
        y = call(module, [torch.from_numpy(v) for v in inputs.values()]).numpy().astype(np.float64)
    cases.append({"model": name, "options": options, "parameters": formula.names_digest(shapes),
                  "parameter_count": len(shapes),
                  "inputs": {k: {"shape": list(v.shape), "high": int(v.max()) if v.dtype == np.int64 else 0}
                             for k, v in inputs.items()},
                  "shape": list(y.shape), "first": [float(f"{v:.8g}") for v in y.ravel()[:12]],
                  "rms": float(f"{np.sqrt((y**2).mean()):.8g}")})


def image(n, c, s):
    return {"image": formula.uniform("image", n * c * s * s).reshape(n, c, s, s)}


class Mlp(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.ReLU(),
                         torch.nn.Linear(8, 3))


class Recurrent(torch.nn.Module):
    def __init__(self, cell, features=5, hidden=7):
        super().__init__()
        self.rnn = cell(features, hidden, batch_first=True)
        self.head = torch.nn.Linear(hidden, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class SmallCnn(torch.nn.Module):
    def __init__(self, size=8):
        super().__init__()
        block = lambda i, o: torch.nn.ModuleDict({"conv": torch.nn.Conv2d(i, o, 3, padding=1, bias=False),
                                                  "bn": torch.nn.BatchNorm2d(o)})
        self.features = torch.nn.ModuleList([block(1, 8), block(8, 16)])
        self.head = torch.nn.ModuleDict({"fc1": torch.nn.Linear((size // 4) ** 2 * 16, 32), "fc2": torch.nn.Linear(32, 10)})

    def forward(self, x):
        for f in self.features:
            x = torch.nn.functional.max_pool2d(torch.relu(f["bn"](f["conv"](x))), 2)
        return self.head["fc2"](torch.relu(self.head["fc1"](x.flatten(1))))


class Twice(torch.nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(inputs, width, 3, padding=1, bias=False), torch.nn.BatchNorm2d(width)
        self.conv2, self.bn2 = torch.nn.Conv2d(width, width, 3, padding=1, bias=False), torch.nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class Up(Twice):
    def __init__(self, width):
        super().__init__(2 * width, width)
        self.grow = torch.nn.ConvTranspose2d(2 * width, width, 2, stride=2)

    def forward(self, skip, x):
        return super().forward(torch.cat([skip, self.grow(x)], 1))


class Unet(torch.nn.Module):
    def __init__(self, width, depth, classes):
        super().__init__()
        self.down = torch.nn.ModuleList([Twice(width << (i - 1) if i else 1, width << i) for i in range(depth)])
        self.middle = Twice(width << (depth - 1), width << depth)
        self.up = torch.nn.ModuleList([Up(width << i) for i in range(depth)])
        self.head = torch.nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for d in self.down:
            skips.append(d(x))
            x = torch.nn.functional.max_pool2d(skips[-1], 2)
        x = self.middle(x)
        for up, skip in reversed(list(zip(self.up, skips))):
            x = up(skip, x)
        return self.head(x)


class Autoencoder(torch.nn.Module):
    def __init__(self, features, hidden, code):
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, code))
        self.decoder = torch.nn.Sequential(torch.nn.Linear(code, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, features))

    def forward(self, x):
        return self.decoder(self.encoder(x))


FEWEST = 10000  # elements of a parameter whose distribution is compared


def start(starts, name, options, module, rename=lambda n: n):
    """What the library draws: the deviation of each large parameter, and whether it is bounded as uniform numbers are."""
    parameters = {}
    for n, t in module.named_parameters():
        if t.numel() < FEWEST or rename(n) is None:
            continue
        t = t.detach().double()
        deviation = t.std().item()
        parameters[rename(n)] = [float(f"{deviation:.4g}"), bool(t.abs().max().item() < 1.8 * deviation)]
    starts.append({"model": name, "options": options, "parameters": parameters})


def make_starts(starts):
    torch.manual_seed(1)
    hub, classes = torchvision.models, {"classes": 1000}
    start(starts, "mlp", {"features": 200, "hidden": [100, 120], "classes": 3},
          torch.nn.Sequential(torch.nn.Linear(200, 100), torch.nn.ReLU(), torch.nn.Linear(100, 120), torch.nn.ReLU(),
                              torch.nn.Linear(120, 3)))
    for name in ("resnet18", "mobilenet_v2", "efficientnet_b0"):
        start(starts, name, classes, getattr(hub, name)())
    start(starts, "inception_v3", classes, hub.inception_v3(aux_logits=False, init_weights=True))
    vit = timm.models.vision_transformer.VisionTransformer(embed_dim=192, depth=1, num_heads=3, num_classes=100)
    start(starts, "vit", {"width": 192, "layers": 1, "heads": 3, "classes": 100}, vit)
    bert = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=500, hidden_size=128, num_hidden_layers=1,
                                                                num_attention_heads=4, intermediate_size=256))
    start(starts, "bert", {"vocabulary": 500, "width": 128, "layers": 1, "heads": 4, "inner": 256}, bert)
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=500, n_embd=128, n_layer=2, n_head=4))
    start(starts, "gpt2", {"vocabulary": 500, "width": 128, "layers": 2, "heads": 4}, gpt)
    start(starts, "recurrent", {"features": 50, "hidden": 80, "cell": "lstm"}, Recurrent(torch.nn.LSTM, 50, 80))
    start(starts, "unet", {"width": 32, "depth": 2}, Unet(32, 2, 2))


def main():
    cases, starts = [], []
    make_starts(starts)
    hub = torchvision.models
    record(cases, "mlp", {"features": 12, "hidden": [16, 8], "classes": 3}, Mlp(),
           {"features": formula.uniform("features", 24).reshape(2, 12)})
    record(cases, "small_cnn", {"size": 8, "widths": [8, 16], "hidden": 32}, SmallCnn(), image(2, 1, 8))
    for name in ("resnet18", "resnet50"):
        record(cases, name, {"size": 64, "classes": 10}, getattr(hub, name)(num_classes=10), image(2, 3, 64))
    for name in ("resnet34", "resnet152"):
        record(cases, name, {"size": 32, "classes": 10}, getattr(hub, name)(num_classes=10), image(1, 3, 32))
    record(cases, "unet", {"size": 16, "width": 4, "depth": 2, "classes": 3}, Unet(4, 2, 3), image(2, 1, 16))
    record(cases, "autoencoder", {"features": 12, "hidden": [9], "code": 4}, Autoencoder(12, 9, 4),
           {"features": formula.uniform("features", 24).reshape(2, 12)})
    record(cases, "mobilenet_v2", {"size": 64, "classes": 10}, hub.mobilenet_v2(num_classes=10), image(2, 3, 64))
    record(cases, "efficientnet_b0", {"size": 64, "classes": 10}, hub.efficientnet_b0(num_classes=10),
           image(2, 3, 64))
    record(cases, "inception_v3", {"size": 96, "classes": 10},
           hub.inception_v3(num_classes=10, aux_logits=False, transform_input=False, init_weights=False),
           image(1, 3, 96))
    vit = timm.models.vision_transformer.VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=2,
                                                           num_heads=4, num_classes=10)
    record(cases, "vit", {"size": 32, "patch": 8, "width": 48, "layers": 2, "heads": 4, "classes": 10}, vit,
           image(2, 3, 32))
    small = dict(vocab_size=99, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                 intermediate_size=96, max_position_embeddings=32)
    options = {"vocabulary": 99, "length": 16, "positions": 32, "width": 48, "inner": 96, "layers": 2, "heads": 4}
    text = {"tokens": formula.tokens("tokens", (2, 16), 99),
            "mask": np.ones((2, 16), np.float32)}
    text["mask"][1, 10:] = 0
    call = lambda m, x: m(input_ids=x[0], attention_mask=x[1]).logits
    def tied_once(name):
        if name == "cls.predictions.decoder.bias":
            return None
        return name
    mlm = transformers.BertForMaskedLM(transformers.BertConfig(**small))
    record(cases, "bert", options, mlm, text, tied_once, call)
    classify = transformers.BertForSequenceClassification(transformers.BertConfig(**small, num_labels=3))
    record(cases, "bert", {**options, "head": "classify", "classes": 3}, classify, text,
           tied_once, call)
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=99, n_positions=32, n_embd=48, n_layer=2,
                                                               n_head=4))
    record(cases, "gpt2", {"vocabulary": 99, "length": 16, "positions": 32, "width": 48, "layers": 2, "heads": 4},
           gpt, {"tokens": text["tokens"]}, call=lambda m, x: m(input_ids=x[0]).logits)
    for cell, module in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)):
        record(cases, "recurrent", {"length": 6, "features": 5, "hidden": 7, "cell": cell}, Recurrent(module),
               {"series": formula.uniform("series", 2 * 6 * 5).reshape(2, 6, 5)})
    (HERE / "models.json").write_text(json.dumps({"cases": cases}, indent=1) + "\n")
    (HERE / "starts.json").write_text("[\n" + ",\n".join(map(json.dumps, starts)) + "\n]\n")


if __name__ == "__main__":
    main()
