#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer on the GPU beside PyTorch's (cuDNN), in one run with the same weights and input.

  recurrent.py PELTON [-o FILE.json] [--steps 128] [--hidden 512] [--cells lstm gru] [--batches 1 32]

Both sides' input and results stay on the device; a time is the median from the call to its end. PyTorch runs as it is and as a CUDA
graph, the faster one counts; its f32 with TF32 and without stands beside Pelton's tf32 and fp32. `error` is the distance from PyTorch's f64
on the CPU over the norm of that.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from torch_side import captured  # noqa: E402


class Layer(torch.nn.Module):
    def __init__(self, cell, size):
        super().__init__()
        self.layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[cell](size, size)

    def forward(self, x):
        return self.layer(x)[0]


def timed(call, seconds):
    times = []
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 10:
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def error(result, truth):
    return float((result.double().cpu() - truth).norm() / truth.norm())


def torch_times(model, x, truth, seconds):
    out = {}
    for name, dtype, tf32 in (("fp32", torch.float32, False), ("tf32", torch.float32, True), ("fp16", torch.float16, False)):
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        with torch.no_grad():
            there, given = Layer(model.cell, x.shape[2]).cuda().to(dtype), x.cuda().to(dtype)
            there.load_state_dict(model.state_dict())
            there.layer.flatten_parameters()
            out[name] = {"eager_ms": timed(lambda: there(given), seconds), "error": error(there(given), truth)}
            try:
                replay = captured(torch, there, given)
                out[name]["graph_ms"] = timed(lambda: replay(given), seconds)
            except Exception as reason:  # eager stands alone
                out[name]["graph_error"] = repr(reason)[:200]
    return out


def pelton_times(pelton, onnx, x, truth, folder, seconds):
    def call(*what):
        return subprocess.run([pelton, "--device", "cuda", "--json", *what], capture_output=True, text=True, timeout=120)

    out = {}
    numpy.save(folder / "input.npy", x.numpy())
    for precision in ("fp32", "tf32", "fp16"):
        plan = folder / f"{precision}.plan"
        made = call("compile", str(onnx), "--precision", precision, "-o", str(plan))
        ran = call("run", str(plan), "--input", f"input={folder / 'input.npy'}", "--output-dir", str(folder))
        bench = call("bench", str(plan), "--device-buffers", "--seconds", str(seconds))
        for result in (made, ran, bench):
            if result.returncode:
                out[precision] = {"failed": result.stderr[-300:]}
                break
        else:
            out[precision] = {"ms": json.loads(bench.stdout)["latency_ms"]["median"],
                              "error": error(torch.from_numpy(numpy.load(folder / "output.npy")), truth)}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--cells", nargs="+", default=["lstm", "gru"], choices=["lstm", "gru", "rnn"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--seconds", type=float, default=0.5)
    o = parser.parse_args()
    rows = []
    for cell in o.cells:
        for batch in o.batches:
            torch.manual_seed(0)
            model, x = Layer(cell, o.hidden).eval(), torch.randn(o.steps, batch, o.hidden)
            model.cell = cell
            with torch.no_grad():
                truth = Layer(cell, o.hidden).double().eval()
                truth.load_state_dict(model.state_dict())
                truth = truth(x.double())
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                torch.onnx.export(model, (x,), str(folder / "layer.onnx"), input_names=["input"], output_names=["output"],
                                  opset_version=18, dynamo=False)
                row = {"cell": cell, "steps": o.steps, "hidden": o.hidden, "batch": batch,
                       "pelton": pelton_times(o.pelton, folder / "layer.onnx", x, truth, folder, o.seconds),
                       "torch": torch_times(model, x, truth, o.seconds)}
            rows.append(row)
            print(json.dumps(row), flush=True)
            if o.output:
                facts = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "gpu": torch.cuda.get_device_name(),
                         "date": time.strftime("%Y-%m-%d")}
                o.output.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
