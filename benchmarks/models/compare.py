#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Pelton against ONNX Runtime and OpenVINO on the models of export.py, and writes JSON.

    python3 benchmarks/models/compare.py MODELS_DIR -o RESULT.json [--models a,b] [--batch 1,3,8] [--threads 1,2]
        [--precision fp32,bf16] [--rounds 7] [--seconds 0.5] [--peers onnxruntime,openvino]

Each side is a process of its own that waits while another measures. A call is timed by the wall clock around the
complete call, on rotating random inputs; sides alternate within every round; the figure is the median over rounds of
the median call. Outputs are compared with the f64 reference beside the model.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import time

import numpy

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ["onnxruntime", "openvino"]


OUTPUT = "OUTPUT"  # as export.py stores it


def reference_of(folder, model):
    """Inputs by name in the model's order, and the true output."""
    reference = numpy.load(folder / f"{model}.reference.npz")
    return {k: reference[k] for k in reference.files if k != OUTPUT}, reference[OUTPUT]


def random_like(array, batch, random):
    if array.ndim == 0:
        return array
    shape = (array.shape[0] * batch, *array.shape[1:])
    if array.dtype == numpy.int64:
        return random.integers(0, 1000, shape, dtype=numpy.int64)
    return random.standard_normal(shape, dtype=numpy.float32)


# --- one side, in its own process ------------------------------------------------------------------------------
# Each takes a list of feeds (lists of arrays in the order of the model's inputs) and yields a call of one of them by its number.
def pelton_side(path, threads, precision, names, feeds):
    import pelton_c

    start = time.perf_counter()
    plan = pelton_c.Plan(str(path), threads, precision)
    compile_s = time.perf_counter() - start
    for i, array in enumerate(feeds[0]):
        plan.bind_input(i, array)
    out = plan.bind_output(0)

    def call(number):
        for i, array in enumerate(feeds[number]):
            plan.bind_input(i, array)
        plan.run()
        return out

    return call, compile_s


def onnxruntime_side(path, threads, precision, names, feeds):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    compile_s = time.perf_counter() - start
    binding = session.io_binding()
    outputs = [o.name for o in session.get_outputs()]
    values = [{n: onnxruntime.OrtValue.ortvalue_from_numpy(a) for n, a in zip(names, feed)} for feed in feeds]

    def call(number):
        for name, value in values[number].items():
            binding.bind_ortvalue_input(name, value)
        for output in outputs:
            binding.bind_output(output)
        session.run_with_iobinding(binding)
        return binding.get_outputs()[0]

    return call, compile_s


def openvino_side(path, threads, precision, names, feeds):
    import openvino

    core = openvino.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    config["INFERENCE_PRECISION_HINT"] = "bf16" if precision == "bf16" else "f32"
    start = time.perf_counter()
    model = core.read_model(str(path))
    model.reshape({name: array.shape for name, array in zip(names, feeds[0])})
    compiled = core.compile_model(model, "CPU", config)
    compile_s = time.perf_counter() - start
    request = compiled.create_infer_request()
    tensors = [[openvino.Tensor(a, shared_memory=a.ndim > 0) for a in feed] for feed in feeds]

    def call(number):
        for name, tensor in zip(names, tensors[number]):
            request.set_tensor(name, tensor)
        request.infer()
        return request.get_output_tensor(0)

    return call, compile_s


def as_array(value):
    if isinstance(value, numpy.ndarray):
        return value
    return value.numpy() if hasattr(value, "numpy") else value.data


def side_main(args):
    folder = pathlib.Path(args["folder"])
    batch = args["batch"]
    reference, truth = reference_of(folder, args["model"])
    feeds = [[random_like(a, batch, numpy.random.default_rng(seed)) for a in reference.values()] for seed in range(4)]
    feeds.append([a if batch == 1 else numpy.repeat(a, batch, axis=0) for a in reference.values()])
    make = {"pelton": pelton_side, "onnxruntime": onnxruntime_side, "openvino": openvino_side}[args["side"]]
    call, compile_s = make(folder / f"{args['model']}.onnx", args["threads"], args["precision"], list(reference), feeds)
    got = numpy.array(as_array(call(4)), dtype=numpy.float64)[:1]
    error = float(numpy.abs(got - truth).max() / max(1e-30, numpy.abs(truth).max()))
    print(json.dumps({"compile_s": compile_s, "relative_error": error}), flush=True)
    turn = 0
    for line in sys.stdin:
        seconds, times = float(line), []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            call(turn % 4)
            times.append(time.perf_counter() - start)
            turn += 1
        print(json.dumps({"median_s": float(numpy.median(times)), "calls": len(times)}), flush=True)


class Side:
    def __init__(self, name, **config):
        self.name = name
        command = [sys.executable, __file__, "--side", json.dumps({"side": name, **config})]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE)
        self.facts = self.read()
        self.rounds = []

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()}")
        return json.loads(line)

    def measure(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.rounds.append(self.read()["median_s"])

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def result(self):
        median = float(numpy.median(self.rounds))
        spread = (max(self.rounds) - min(self.rounds)) / median
        return {"median_ms": median * 1e3, "spread": round(spread, 3), **self.facts}


def compare(config, names, rounds, seconds):
    sides = []
    for name in names:
        try:
            sides.append(Side(name, **config))
        except RuntimeError as e:
            print(f"  {e}", file=sys.stderr)
    for s in sides:
        s.measure(seconds)  # warm-up
        s.rounds.clear()
    for r in range(rounds):
        for s in sides if r % 2 == 0 else reversed(sides):
            s.measure(seconds)
    for s in sides:
        s.close()
    return {s.name: s.result() for s in sides}


def versions(names):
    out = {"python": platform.python_version(), "numpy": numpy.__version__}
    for name in names:
        if name != "pelton":
            out[name] = __import__(name).__version__
    return out


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("-o", "--output")
    parser.add_argument("--models", default="")
    parser.add_argument("--batch", default="1,3,8")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--side")
    args = parser.parse_args()
    if args.side:
        return side_main(json.loads(args.side))
    folder = pathlib.Path(args.folder).resolve()
    models = args.models.split(",") if args.models else sorted(p.name.split(".")[0] for p in folder.glob("*.reference.npz"))
    names = ["pelton"] + [p for p in args.peers.split(",") if p]
    report = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "cores": os.cpu_count(),
              "versions": versions(names), "rounds": args.rounds, "seconds_per_round": args.seconds, "cases": []}
    ratios = {n: [] for n in names[1:]}
    print(f"{'model':24}{'b':>3}{'t':>3} {'prec':5}" + "".join(f"{n:>14}" for n in names) + "   (ms; ratio peer/pelton)")
    for model in models:
        several = len(reference_of(folder, model)[0]) > 1  # a model with state runs one stream
        for batch in [1] if several else map(int, args.batch.split(",")):
            for threads in map(int, args.threads.split(",")):
                for precision in args.precision.split(","):
                    config = {"folder": str(folder), "model": model, "batch": batch, "threads": threads, "precision": precision}
                    result = compare(config, names, args.rounds, args.seconds)
                    report["cases"].append({**{k: v for k, v in config.items() if k != "folder"}, **result})
                    row = f"{model:24}{batch:3}{threads:3} {precision:5}"
                    for n in names:
                        row += f"{result[n]['median_ms']:14.2f}" if n in result else f"{'-':>14}"
                    for n in names[1:]:
                        if n in result and "pelton" in result:
                            ratio = result[n]["median_ms"] / result["pelton"]["median_ms"]
                            ratios[n].append(ratio)
                            row += f"  {ratio:.2f}x {n}"
                    print(row, flush=True)
        save(report, ratios, args.output)  # what is measured is kept if a later model fails
    save(report, ratios, args.output)
    print("geometric mean (peer time / Pelton time):", report["geometric_mean_ratio"])


def save(report, ratios, path):
    report["geometric_mean_ratio"] = {n: math.exp(sum(map(math.log, r)) / len(r)) for n, r in ratios.items() if r}
    if path:
        pathlib.Path(path).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
