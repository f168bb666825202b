#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps a second on the CPU, Pelton against PyTorch, in alternating rounds.

A step is forward, loss, backward and update on one fixed batch; data loading is not in it. Pelton's time is the median that
`pelton train --dry-run` measures, PyTorch's the median of the same number of eager steps, plain or channels_last,
whichever is faster (--compile adds torch.compile). Both sides take --threads threads. --cpu-time compares processor time
instead, for a machine that other work uses too (with one thread, or waiting threads count as work).
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time

GPT = {"vocabulary": 512, "length": 64, "positions": 64, "width": 128, "layers": 4, "heads": 4}
CASES = {  # name: (model options, batch, synthetic dims or None for tokens)
    "mlp": ({"features": 784, "hidden": [512, 512, 256], "classes": 10}, 128, [784]),
    "small_cnn": ({"size": 28, "classes": 10}, 64, [1, 28, 28]),
    "resnet18": ({"size": 64, "classes": 10}, 16, [3, 64, 64]),
    "mobilenet_v2": ({"size": 64, "classes": 10, "dropout": 0.0}, 16, [3, 64, 64]),
    "gpt2": ({**GPT, "dropout": 0.0}, 8, None),
}


def recipe(name, folder):
    options, batch, dims = CASES[name]
    text = ", ".join(f"{k} = {json.dumps(v)}" for k, v in options.items())
    data = f"synthetic = {dims}, synthetic_count = {batch}"
    if dims is None:
        (folder / "tokens.bin").write_bytes(bytes(i * 7 % 251 for i in range(batch * 64 + 1)))
        data = 'tokens = ["tokens.bin"], token_type = "text"'
    path = folder / f"{name}.toml"
    path.write_text(f'version = 1\nmodel = {{ name = "{name}", {text} }}\ndata = {{ {data}, batch = {batch} }}\n'
                    'step = { steps = 1 }\noptimizer = { name = "sgd", lr = 0.001, momentum = 0.9 }\n')
    return path


def pelton_ms(binary, path, threads, key):
    out = subprocess.run([binary, "train", path, "--dry-run", "--json", "--threads", str(threads)], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)[key] * 1e3


def torch_model(name):
    import torch
    import torchvision
    options, _, _ = CASES[name]
    if name == "mlp":
        widths = [options["features"], *options["hidden"]]
        layers = [m for a, b in zip(widths, widths[1:]) for m in (torch.nn.Linear(a, b), torch.nn.ReLU())]
        return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 10))
    if name == "small_cnn":
        block = lambda i, o: [torch.nn.Conv2d(i, o, 3, padding=1, bias=False), torch.nn.BatchNorm2d(o), torch.nn.ReLU(),
                              torch.nn.MaxPool2d(2)]
        return torch.nn.Sequential(*block(1, 32), *block(32, 64), torch.nn.Flatten(), torch.nn.Linear(64 * 49, 128),
                                   torch.nn.ReLU(), torch.nn.Linear(128, 10))
    if name == "gpt2":
        import transformers
        config = transformers.GPT2Config(vocab_size=512, n_positions=64, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0,
                                         embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)
        return transformers.GPT2LMHeadModel(config)
    return getattr(torchvision.models, name)(num_classes=10)


def torch_step(name, channels_last=False, compiled=False):
    import torch
    _, batch, dims = CASES[name]
    model = torch_model(name)
    if dims is None:
        x, y = torch.randint(0, 251, (batch, 64)), torch.randint(0, 251, (batch, 64))
    else:
        x, y = torch.randn(batch, *dims), torch.randint(0, 10, (batch,))
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
    forward = torch.compile(model) if compiled else model

    def step():
        optimizer.zero_grad()
        logits = forward(input_ids=x).logits.flatten(0, 1) if dims is None else forward(x)
        torch.nn.functional.cross_entropy(logits, y.flatten()).backward()
        optimizer.step()
    return step


def median_ms(step, seconds, clock):
    for _ in range(3):
        step()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = clock()
        step()
        times.append((clock() - start) * 1e3)
    return statistics.median(times)


def machine():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} processors"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of a side in a round")
    parser.add_argument("--models", nargs="*", default=list(CASES))
    parser.add_argument("--compile", action="store_true", help="time torch.compile as well")
    parser.add_argument("--cpu-time", action="store_true", help="compare processor time")
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    import torch
    torch.set_num_threads(args.threads)
    key, clock = ("step_cpu_seconds", time.process_time) if args.cpu_time else ("step_seconds", time.perf_counter)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            path = recipe(name, pathlib.Path(folder))
            sides = {"eager": torch_step(name)}
            if CASES[name][2] is not None and len(CASES[name][2]) == 3:
                sides["channels_last"] = torch_step(name, channels_last=True)
            if args.compile:
                sides["compile"] = torch_step(name, compiled=True)
            ours, theirs = [], {k: [] for k in sides}
            for _ in range(args.rounds):
                ours.append(pelton_ms(args.binary, path, args.threads, key))
                for k, step in sides.items():
                    theirs[k].append(median_ms(step, args.seconds, clock))
            peer = {k: min(v) for k, v in theirs.items()}
            best = min(peer, key=peer.get)
            rows.append({"model": name, "batch": CASES[name][1], "pelton_ms": min(ours), "torch_ms": peer, "torch_best": best,
                         "speedup": peer[best] / min(ours), "rounds": {"pelton": ours, **theirs}})
            print(f"{name:14} Pelton {min(ours):9.2f} ms  PyTorch ({best}) {peer[best]:9.2f} ms  {rows[-1]['speedup']:.2f}x", flush=True)
    mean = statistics.geometric_mean(r["speedup"] for r in rows)
    print(f"geometric mean {mean:.2f}x")
    if args.output:
        args.output.write_text(json.dumps({
            "machine": machine(), "load": os.getloadavg(), "threads": args.threads, "torch": torch.__version__,
            "precision": "f32", "clock": "processor" if args.cpu_time else "wall", "rows": rows, "geometric_mean": mean}, indent=1) + "\n")


if __name__ == "__main__":
    main()
