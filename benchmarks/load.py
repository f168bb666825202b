#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load: from a file on a warm page cache to the first result, and peak memory after ten runs, each in a fresh process.

usage: load.py BUILD_DIR MODEL.onnx... [--rounds N] [--threads N] [--output RESULT.json]
Both sides are the same C program (load_fresh.c), which opens libpelton.so or ONNX Runtime's library and holds nothing else.
Pelton loads a plan compiled beforehand with --embed-packed, ONNX Runtime the .onnx file and its own optimised .ort file;
inputs are those of NAME.reference.npz beside the model. Times count from the first line of main, opening of the library
included; processor time, of the whole process, says more on a machine with other work. Peak memory is VmHWM of the whole process;
that of the command `pelton bench`, which carries the server and the input pipeline too, stands beside it. Writes one JSON object.
"""
import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy


def last_json(*command):
    out = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{command[0]} failed: {out.stderr.strip()}")
    return json.loads(out.stdout.splitlines()[-1])


def peer_library():
    folder = pathlib.Path(importlib.util.find_spec("onnxruntime").submodule_search_locations[0])
    return next((folder / "capi").glob("libonnxruntime.so*"))


def raw_inputs(model, folder):
    """NAME=SHAPE=FILE for each input that the reference beside the model holds."""
    reference = numpy.load(model.parent / f"{model.stem}.reference.npz")
    given = []
    for i, name in enumerate(n for n in reference.files if n != "OUTPUT"):
        (folder / f"{i}.raw").write_bytes(numpy.ascontiguousarray(reference[name]).tobytes())
        given.append(f"{name}={'x'.join(map(str, reference[name].shape))}={folder / f'{i}.raw'}")
    return given


def same_result(a, b):
    return all(abs(a[k] - b[k]) <= 1e-3 * (abs(b["squares"]) ** (0.5 if k == "sum" else 1) + 1e-6) for k in ("sum", "squares"))


def measure(model, build, threads, rounds, folder):
    plan, ort_file = folder / "plan.pelton", folder / "model.ort"
    last_json(build / "pelton", "compile", model, "-o", plan, "--embed-packed", "--json", "--threads", threads)
    fresh, given, peer = build / "load_fresh", raw_inputs(model, folder), peer_library()
    last_json(fresh, "onnxruntime", peer, model, threads, 1, *given, "--optimised", ort_file)
    sides = {"pelton": (fresh, "pelton", build / "libpelton.so", plan, threads, 10, *given),
             "onnx": (fresh, "onnxruntime", peer, model, threads, 10, *given),
             "ort": (fresh, "onnxruntime", peer, ort_file, threads, 10, *given)}
    runs = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, command in sides.items():
            result = last_json(*command)
            if turn > 0:  # the first round warms the page cache
                runs[name].append(result)
    for name in ("onnx", "ort"):
        if not same_result(runs["pelton"][0], runs[name][0]):
            sys.exit(f"{model}: results differ: {runs['pelton'][0]} and, of {name}, {runs[name][0]}")
    middle = {name: {k: round(statistics.median(r[k] for r in results), 3) for k in ("wall_ms", "processor_ms", "peak_bytes")}
              for name, results in runs.items()}
    ours = middle["pelton"]
    command = last_json(build / "pelton", "bench", plan, "--iterations", 10, "--warm-up", 0, "--json", "-q", "--threads", threads)
    return {**middle, "command_peak_bytes": command["host_peak_bytes"],
            "load_over_onnx": round(ours["wall_ms"] / middle["onnx"]["wall_ms"], 3),
            "load_over_ort": round(ours["wall_ms"] / middle["ort"]["wall_ms"], 3),
            "processor_over_onnx": round(ours["processor_ms"] / middle["onnx"]["processor_ms"], 3),
            "processor_over_ort": round(ours["processor_ms"] / middle["ort"]["processor_ms"], 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    build = args.build.resolve()
    report = {}
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            report[model.stem] = measure(model, build, args.threads, args.rounds, pathlib.Path(folder))
        print(model.stem, json.dumps(report[model.stem]), file=sys.stderr, flush=True)
    cpu = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    text = json.dumps({"date": datetime.date.today().isoformat(), "cpu": cpu[0] if cpu else "", "cores": len(cpu),
                       "load_average": os.getloadavg(), "threads": args.threads, "rounds": args.rounds, "models": report},
                      indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
