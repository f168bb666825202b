#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps on one GPU, Pelton against PyTorch, in alternating rounds of one job.

    python3 benchmarks/train/gpu.py PELTON -o RESULT.json [--cases gpt2,mlp] [--modes eager,compile,graph] [--rounds 2]

A step is forward, loss, backward and update. Each figure is the wall clock around a round of complete steps, ended by a
synchronisation, divided by their number; the median over rounds is compared. The batch lies on the GPU on both sides
(`pelton train --dry-run`; with_copies_ms is Pelton's step with a copy of a batch from the host to each). PyTorch runs bf16 autocast (f32 for the
mlp), fused optimizers, pictures channels_last, in the named modes: eager, compile (torch.compile), autotune (its mode
max-autotune), graph (the eager step captured by hand in one CUDA graph). Memory is the most that each side allocated.
"""
import argparse
import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

CASES = {  # name: (Pelton's model and options, precision, batch, optimizer)
    "gpt2": ({"name": "gpt2", "dropout": 0.0}, "bf16", 32, "adamw"),
    "resnet50": ({"name": "resnet50", "classes": 10}, "bf16", 128, "sgd"),
    "mobilenet_v2": ({"name": "mobilenet_v2", "classes": 10, "dropout": 0.0}, "bf16", 128, "sgd"),
    "mobilenet_v2_b32": ({"name": "mobilenet_v2", "classes": 10, "dropout": 0.0}, "bf16", 32, "sgd"),
    "bert": ({"name": "bert", "dropout": 0.0}, "bf16", 64, "adamw"),
    "mlp": ({"name": "mlp", "features": 256, "hidden": [256] * 9, "classes": 10}, "fp32", 256, "sgd"),
}
OPTIMIZERS = {"adamw": 'name = "adamw", lr = 1e-4, weight_decay = 0.01',
              "sgd": 'name = "sgd", lr = 0.001, momentum = 0.9'}
# What the claims compare with.
BAR_MODES = {"gpt2": "compile", "resnet50": "compile,graph", "mobilenet_v2": "eager,compile,graph",
             "mobilenet_v2_b32": "eager,compile,graph", "bert": "compile", "mlp": "eager"}
STEPS = 10  # of a round


# --- PyTorch, in a process of its own that answers one line a command -------------------------------------------
def torch_problem(case):
    """(model, function to the loss on one fixed batch, function to the optimizer, whether bf16)"""
    import torch
    import torch.nn.functional as F

    options, precision, batch, optimizer = CASES[case]
    kind = options["name"]
    if kind == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel
        model = GPT2LMHeadModel(GPT2Config(use_cache=False, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)).cuda()
        x, y = torch.randint(0, 50257, (2, batch, 1024), device="cuda")
        loss = lambda: F.cross_entropy(model(x).logits.float().view(-1, 50257), y.view(-1))
    elif kind == "bert":
        from transformers import BertConfig, BertForMaskedLM
        model = BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).cuda()
        x, y = torch.randint(0, 30522, (2, batch, 128), device="cuda")
        loss = lambda: F.cross_entropy(model(x).logits.float().view(-1, 30522), y.view(-1))
    elif kind == "mlp":
        widths = [options["features"], *options["hidden"]]
        layers = [m for a, b in zip(widths, widths[1:]) for m in (torch.nn.Linear(a, b), torch.nn.ReLU())]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 10)).cuda()
        x, y = torch.randn(batch, 256, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")
        loss = lambda: F.cross_entropy(model(x), y)
    else:
        import torchvision
        model = getattr(torchvision.models, kind)(num_classes=10).cuda().to(memory_format=torch.channels_last)
        if kind == "mobilenet_v2":
            model.classifier[0] = torch.nn.Identity()
        x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(0, 10, (batch,), device="cuda")
        loss = lambda: F.cross_entropy(model(x), y)
    if optimizer == "adamw":
        make = lambda captured: torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=captured)
    else:
        make = lambda captured: torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, fused=True)
    return model, loss, make, precision == "bf16"


def torch_step(case, mode):
    import torch

    _, loss, make, low = torch_problem(case)
    optimizer = make(mode == "graph")

    def forward():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=low, cache_enabled=mode != "graph"):
            return loss()

    if mode in ("compile", "autotune"):
        forward = torch.compile(forward, mode="max-autotune" if mode == "autotune" else "default")

    def step():
        optimizer.zero_grad(set_to_none=True)
        forward().backward()
        optimizer.step()

    if mode != "graph":
        for _ in range(8):
            step()
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def torch_worker(case, mode):
    import torch

    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high" if CASES[case][1] == "bf16" else "highest")
    try:
        start = time.perf_counter()
        step = torch_step(case, mode)
        torch.cuda.synchronize()
        ready = {"prepare_s": time.perf_counter() - start, "version": torch.__version__,
                 "device": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    except Exception as error:  # a mode that a model cannot take is left out, with its reason
        print(json.dumps({"error": repr(error)[:300]}), flush=True)
        return
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        if line.strip() != "round":
            break
        times = []
        for _ in range(5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(STEPS):
                step()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / STEPS * 1e3)
        print(json.dumps({"ms": times, "peak_bytes": torch.cuda.max_memory_allocated()}), flush=True)


class Peer:
    def __init__(self, case, mode):
        self.process = subprocess.Popen([sys.executable, __file__, "--torch", case, mode], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.known, self.times, self.peak = None, [], 0

    @property
    def facts(self):  # waits until the step is ready
        if self.known is None:
            self.known = self.answer()
        return self.known

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        return {"error": f"ended with {self.process.wait()}"}

    def round(self):
        if "error" in self.facts:
            return
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        got = self.answer()
        if "error" in got:
            self.known = got
            return
        self.times += got["ms"]
        self.peak = max(self.peak, got["peak_bytes"])

    def result(self):
        self.process.stdin.close()
        self.process.wait()
        if not self.times:
            return {"error": self.facts.get("error", "no round")}
        return {"ms": statistics.median(self.times), "fastest_ms": min(self.times), "slowest_ms": max(self.times),
                "peak_bytes": self.peak, "prepare_s": round(self.facts["prepare_s"], 1)}


# --- Pelton -------------------------------------------------------------------------------------------------------
def recipe(case, folder):
    import random

    options, precision, batch, optimizer = CASES[case]
    model = ", ".join(f"{k} = {json.dumps(v)}" for k, v in options.items())
    kind = options["name"]
    if kind == "gpt2":
        draw = random.Random(1)
        tokens = b"".join(draw.randrange(50257).to_bytes(2, "little") for _ in range(batch * 1024 + 1))
        (folder / "tokens.bin").write_bytes(tokens)
        data = 'tokens = ["tokens.bin"], token_type = "u16"'
    elif kind == "bert":
        import numpy
        draw = numpy.random.default_rng(1)
        numpy.savez(folder / "bert.npz", tokens=draw.integers(0, 30522, (batch, 128)),
                    mask=numpy.ones((batch, 128), numpy.float32), label=draw.integers(0, 30522, (batch, 128)))
        data = 'train = { kind = "npy", path = "bert.npz" }'
    else:
        dims = [256] if kind == "mlp" else [3, 224, 224]
        data = f"synthetic = {dims}, synthetic_count = {batch}"
    path = folder / f"{case}.toml"
    path.write_text(f"version = 1\nmodel = {{ {model} }}\ndata = {{ {data}, batch = {batch} }}\n"
                    f'step = {{ steps = 1, precision = "{precision}" }}\noptimizer = {{ {OPTIMIZERS[optimizer]} }}\n')
    return path


def pelton_round(binary, path, timeout):
    try:
        done = subprocess.run([binary, "train", path, "--dry-run", "--json", "--device", "cuda"], capture_output=True,
                              text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {timeout} s"}
    if done.returncode:
        return {"error": (done.stdout + done.stderr)[-600:]}
    return json.loads(done.stdout.splitlines()[-1])


def start_peers(cases, modes):
    return {case: {mode: Peer(case, mode) for mode in modes(case)} for case in cases}


def main(argv=None, ready=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton", nargs="?")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--modes", default="eager,compile,graph", help="or 'bars': for each case those that the claims name")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one round of Pelton")
    parser.add_argument("--together", action="store_true",
                        help="prepare PyTorch's steps of all cases at once, before anything is timed")
    parser.add_argument("--torch", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.torch:
        return torch_worker(*args.torch)
    facts = {}
    report = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "host": platform.node(),
              "steps_per_round": STEPS, "cases": {}}
    def modes(case):
        return [mode for mode in (BAR_MODES[case] if args.modes == "bars" else args.modes).split(",") if mode]

    if ready is None:
        ready = start_peers(args.cases.split(","), modes) if args.together else {}
    for peers in ready.values():
        for peer in peers.values():
            peer.facts
    for case in args.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path = recipe(case, pathlib.Path(folder))
            peers = ready.get(case) or {mode: Peer(case, mode) for mode in modes(case)}
            rounds = []
            for _ in range(args.rounds):
                for peer in peers.values():
                    peer.round()
                    facts.update({k: peer.facts[k] for k in ("version", "device", "cuda", "cudnn") if k in peer.facts})
                rounds.append(pelton_round(args.pelton, path, args.timeout))
                if "error" in rounds[-1]:
                    break
        good = [r for r in rounds if "error" not in r]
        entry = {"precision": CASES[case][1], "batch": CASES[case][2],
                 "torch": {mode: peer.result() for mode, peer in peers.items()}}
        if good:
            entry["pelton"] = {"ms": statistics.median(r["resident_seconds"] * 1e3 for r in good),
                               "with_copies_ms": statistics.median(r["step_seconds"] * 1e3 for r in good),
                               "peak_bytes": max(r["memory_bytes"] for r in good), "nodes": good[-1]["nodes"],
                               "implementations": good[-1]["implementations"],
                               "node_ms": {k: round(v * 1e3, 3) for k, v in
                                           sorted(good[-1]["node_seconds"].items(), key=lambda i: -i[1])[:16]}}
            entry["speedup"] = {mode: round(r["ms"] / entry["pelton"]["ms"], 3) for mode, r in entry["torch"].items()
                                if "ms" in r}
        else:
            entry["pelton"] = rounds[-1] if rounds else {"error": "no round"}
        report["cases"][case] = entry
        report["torch"] = facts
        print(json.dumps({case: entry}), flush=True)
        if args.output:
            args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
