# SPDX-License-Identifier: Apache-2.0
"""The rate of an ensemble whose steps cost about 1, 3 and 10 ms of processor time against one program that calls the three
plans back to back (back_to_back.cc), in alternating rounds: as many callers there as requests are in flight here, one thread
a plan in both.

    ensemble_rate.py BUILD [--rounds N] [--seconds S] [--callers N] [-o FILE]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH = 1024
LAYERS = (2, 6, 20)                                                 # products of 1024 x 1024, about half a millisecond each
STEP = """backend: "pelton"
input {{ name: "x" data_type: TYPE_FP32 dims: [ 1, {w} ] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [ 1, {w} ] }}
instance_group {{ kind: KIND_CPU count: {n} }}
"""
ENSEMBLE = """platform: "ensemble"
input {{ name: "x" data_type: TYPE_FP32 dims: [ 1, {w} ] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [ 1, {w} ] }}
ensemble_scheduling {{
  step {{ model_name: "s0" model_version: -1 input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "a" }} }}
  step {{ model_name: "s1" model_version: -1 input_map {{ key: "x" value: "a" }} output_map {{ key: "y" value: "b" }} }}
  step {{ model_name: "s2" model_version: -1 input_map {{ key: "x" value: "b" }} output_map {{ key: "y" value: "y" }} }}
}}
"""


def chain(layers, seed) -> bytes:
    rng = np.random.default_rng(seed)
    nodes, weights, name = [], [], "x"
    for i in range(layers):
        weights.append(numpy_helper.from_array((rng.standard_normal((WIDTH, WIDTH)) / 32).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{i}"], [f"m{i}"]))
        name = "y" if i == layers - 1 else f"r{i}"
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [name]))
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, WIDTH])  # noqa: E731
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--callers", type=int, default=2)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    pelton = str(args.build / "pelton")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        program = root / "back_to_back"
        subprocess.run(["g++", "-std=c++20", "-O2", "-I", str(ROOT / "include"), str(ROOT / "benchmarks/serve/back_to_back.cc"), "-o", str(program),
                        f"-L{args.build.resolve()}", "-lpelton", f"-Wl,-rpath,{args.build.resolve()}", "-pthread"], check=True)
        plans = []
        for i, layers in enumerate(LAYERS):
            model = root / f"models/s{i}"
            (model / "1").mkdir(parents=True)
            (model / "config.pbtxt").write_text(STEP.format(w=WIDTH, n=args.callers))
            (root / "m.onnx").write_bytes(chain(layers, i))
            plans.append(str(model / "1/model.pelton"))
            subprocess.run([pelton, "--device=cpu", "--threads=1", "compile", str(root / "m.onnx"), "-o", plans[-1]], check=True, capture_output=True)
        (root / "models/all/1").mkdir(parents=True)
        (root / "models/all/config.pbtxt").write_text(ENSEMBLE.format(w=WIDTH))
        server = subprocess.Popen([pelton, "--device=cpu", "--threads=1", "serve", "--model-repository", str(root / "models"), "--http-port=0",
                                   "--allow-grpc=false", "--allow-metrics=false"], stdout=subprocess.PIPE, text=True)
        address = server.stdout.readline().split()[2]
        rounds, load = [], os.getloadavg()[0]

        def ensemble():
            requests = max(50, int(args.seconds * 75 * args.callers))
            out = subprocess.run([pelton, "loadtest", f"http://{address}", "-m", "all", "--concurrency", str(args.callers), "--requests", str(requests),
                                  "--json"], capture_output=True, text=True, check=True)
            row = json.loads(out.stdout)["results"][0]
            assert row["errors"] == 0, row
            return row["throughput_per_s"]

        def alone():
            out = subprocess.run([str(program), str(args.seconds), str(args.callers), str(WIDTH), *plans], capture_output=True, text=True, check=True)
            return float(out.stdout)
        try:
            for i in range(args.rounds):
                both = {"ensemble": ensemble, "alone": alone}
                rounds.append({name: both[name]() for name in (list(both)[::1 if i % 2 else -1])})
                print(json.dumps(rounds[-1]), flush=True)
        finally:
            server.terminate()
            server.wait()
    report = {"callers": args.callers, "rounds": rounds, "ratio": statistics.median(r["ensemble"] / r["alone"] for r in rounds),
              "load_average": load, "load_average_end": os.getloadavg()[0]}
    print(json.dumps({"ratio": report["ratio"]}))
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
