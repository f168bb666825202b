#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer on the GPU beside PyTorch's (cuDNN), in one run with the same weights; writes JSON after every row.

    python3 benchmarks/gpu/recurrent.py PELTON [-o RESULT.json] [--steps 128] [--hidden 512] [--cells lstm,gru] [--batches 1,32,128]
        [--precisions fp32,tf32,fp16] [--seconds 0.1] [--rounds 5]

As run.py: Pelton through its C interface in a process of its own (pelton_side.py), PyTorch as it is and captured in a CUDA graph, in turn,
with the same loop and clock; inputs and results stay in device memory, random inputs take turns. The figure is the median of the rounds'
medians, of PyTorch's faster mode. `error` is the distance from PyTorch's f64 on the CPU over the norm of that, of one input.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy
import torch

from cases import ROTATED
from run import HERE, Side
from torch_side import captured, measured


class Layer(torch.nn.Module):
    def __init__(self, cell, size):
        super().__init__()
        self.layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[cell](size, size)

    def forward(self, x):
        return self.layer(x)[0]


def error(result, truth):
    return float((result.double().cpu() - truth).norm() / truth.norm())


class Peer:
    """PyTorch's layer in one precision: by mode its calls, one for each input, and what could not be made."""

    def __init__(self, cell, source, inputs, precision, truth):
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        dtype = torch.float16 if precision == "fp16" else torch.float32
        layer = Layer(cell, inputs[0].shape[2]).cuda().to(dtype)
        layer.load_state_dict(source.state_dict())
        layer.layer.flatten_parameters()
        given = [x.cuda().to(dtype) for x in inputs]
        self.calls, self.facts = {"eager": [lambda x=x: layer(x) for x in given]}, {"error": error(layer(given[0]), truth)}
        try:
            self.calls["cudagraph"] = [captured(torch, layer, x) for x in given]
        except RuntimeError as reason:
            self.facts["cudagraph_error"] = str(reason)[:200]


class Pelton:
    def __init__(self, binary, folder):
        self.binary, self.folder = str(pathlib.Path(binary).resolve()), folder
        environment = dict(os.environ)
        environment.setdefault("PELTON_LIBRARY", str(pathlib.Path(self.binary).with_name("libpelton.so")))
        self.side = Side([HERE / "pelton_side.py"], environment, folder / "pelton_side.log")

    def call(self, *what):
        done = subprocess.run([self.binary, "--device", "cuda", *map(str, what)], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(done.stderr[-300:])

    def load(self, onnx, precision, x, truth):
        plan = self.folder / f"{precision}.plan"
        numpy.save(self.folder / "input.npy", x.numpy())
        self.call("compile", onnx, "--precision", precision, "-o", plan)
        self.call("run", plan, "--input", f"input={self.folder / 'input.npy'}", "--output-dir", self.folder)
        self.side.ask(load="layer", path=str(plan), shape=list(x.shape), dtype="float32")
        return {"error": error(torch.from_numpy(numpy.load(self.folder / "output.npy")), truth)}


def row(pelton, onnx, cell, source, inputs, precision, truth, o):
    peer = Peer(cell, source, inputs, precision, truth)
    ours = pelton.load(onnx, precision, inputs[0], truth)
    own, times = [], {mode: [] for mode in peer.calls}
    for turn in range(o.rounds):  # each side begins every other round
        if turn % 2 == 0:
            own.append(pelton.side.ask(name="layer", seconds=o.seconds)["ms"])
        for mode, calls in peer.calls.items():
            times[mode].append(measured(torch, calls, o.seconds))
        if turn % 2:
            own.append(pelton.side.ask(name="layer", seconds=o.seconds)["ms"])
    pelton.side.ask(drop="layer")
    modes = {mode: {"ms": statistics.median(t), "spread": [min(t), max(t)]} for mode, t in times.items()}
    ours |= {"ms": statistics.median(own), "spread": [min(own), max(own)]}
    return {"cell": cell, "steps": o.steps, "hidden": o.hidden, "batch": inputs[0].shape[1], "precision": precision, "pelton": ours,
            "torch": peer.facts | modes, "faster": min(m["ms"] for m in modes.values()) / ours["ms"]}


def rows(o, folder):
    pelton = Pelton(o.pelton, folder)
    for cell in o.cells.split(","):
        for batch in map(int, o.batches.split(",")):
            torch.manual_seed(0)
            source = Layer(cell, o.hidden).eval()
            inputs = [torch.randn(o.steps, batch, o.hidden) for _ in range(ROTATED)]
            wide = Layer(cell, o.hidden).double().eval()
            wide.load_state_dict(source.state_dict())
            truth = wide(inputs[0].double())
            onnx = folder / "layer.onnx"
            torch.onnx.export(source, (inputs[0],), str(onnx), input_names=["input"], output_names=["output"], opset_version=18, dynamo=False)
            for precision in o.precisions.split(","):
                yield row(pelton, onnx, cell, source, inputs, precision, truth, o)
    pelton.side.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--cells", default="lstm,gru")
    parser.add_argument("--batches", default="1,32,128")
    parser.add_argument("--precisions", default="fp32,tf32,fp16")
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    torch.set_grad_enabled(False)
    result = {"what": f"benchmarks/gpu/recurrent.py, seconds {o.seconds}, rounds {o.rounds}", "torch": torch.__version__,
              "cudnn": torch.backends.cudnn.version(), "gpu": torch.cuda.get_device_name(), "date": time.strftime("%Y-%m-%d"), "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        for r in rows(o, pathlib.Path(folder)):
            result["rows"].append(r)
            best = r["pelton"]["ms"] * r["faster"]
            print(f"{r['cell']} b{r['batch']} {r['precision']}: {r['pelton']['ms']:.3f} | {best:.3f}, {r['faster']:.2f}x, "
                  f"errors {r['pelton']['error']:.1e} {r['torch']['error']:.1e}", flush=True)
            if o.output:
                o.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
