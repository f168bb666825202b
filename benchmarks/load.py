#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load: from a file on a warm page cache to the first result, and peak memory after ten runs, each in a fresh process.

usage: load.py PELTON MODEL.onnx... [--rounds N] [--output RESULT.json]
Pelton loads a plan compiled beforehand with --embed-packed, ONNX Runtime the .onnx file and its own optimised .ort file; both
use the same thread count. Python's own start and imports are not counted for ONNX Runtime's time, but are in its memory, so the
memory of the same process before its session is subtracted (`onnx_process_peak_bytes` is the whole process, Python in
it); Pelton's memory is that of the whole process. Writes one JSON object.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

PEER = """
import json, resource, sys, time
import numpy as np
import onnxruntime as ort
path, threads, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = ort.SessionOptions()
options.intra_op_num_threads = threads
options.log_severity_level = 3
if len(sys.argv) > 4:
    options.optimized_model_filepath = sys.argv[4]
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, start = peak(), time.perf_counter()
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_, "tensor(double)": np.float64}
feeds = {i.name: np.ones([d if isinstance(d, int) and d > 0 else 1 for d in i.shape], types[i.type])
         for i in session.get_inputs()}
session.run(None, feeds)
load = time.perf_counter() - start
for _ in range(runs - 1):
    session.run(None, feeds)
print(json.dumps({"load_ms": load * 1e3, "peak_bytes": peak() - before, "process_peak_bytes": peak()}))
"""


def last_json(command):
    out = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{command[0]} failed: {out.stderr.strip()}")
    return json.loads(out.stdout.splitlines()[-1])


def middle(results, key):
    return round(statistics.median(r[key] for r in results), 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pelton")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            name = pathlib.Path(model).stem
            plan, ort_file = f"{folder}/{name}.pelton", f"{folder}/{name}.ort"
            last_json([args.pelton, "compile", model, "-o", plan, "--embed-packed", "--json", "--threads", args.threads])
            peer = [sys.executable, "-c", PEER]
            last_json([*peer, model, args.threads, 1, ort_file])
            ours, onnx, ort = [], [], []
            for _ in range(args.rounds):
                ours.append(last_json([args.pelton, "bench", plan, "--iterations", 10, "--warm-up", 0, "--json", "-q",
                                       "--threads", args.threads]))
                onnx.append(last_json([*peer, model, args.threads, 10]))
                ort.append(last_json([*peer, ort_file, args.threads, 10]))
            report[name] = {"load_ms": middle(ours, "load_ms"), "onnx_load_ms": middle(onnx, "load_ms"),
                            "ort_load_ms": middle(ort, "load_ms"), "peak_bytes": middle(ours, "host_peak_bytes"),
                            "onnx_peak_bytes": middle(onnx, "peak_bytes"),
                            "onnx_process_peak_bytes": middle(onnx, "process_peak_bytes")}
            report[name]["load_ratio"] = round(report[name]["load_ms"] / report[name]["onnx_load_ms"], 3)
            for path in (plan, ort_file):
                os.unlink(path)
    cpu = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    text = json.dumps({"date": datetime.date.today().isoformat(), "cpu": cpu[0] if cpu else "", "cores": len(cpu),
                       "load_average": os.getloadavg(), "threads": args.threads, "rounds": args.rounds, "models": report},
                      indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
