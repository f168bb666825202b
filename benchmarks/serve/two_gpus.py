# SPDX-License-Identifier: Apache-2.0
"""Instances on every GPU of the machine against instances on one: the most requests a second at the same p99, dynamic batches.
Before that every GPU's answers are compared with the CPU's, over HTTP and gRPC with tritonclient and through its CUDA shared
memory on each GPU.

    two_gpus.py PELTON [--gpus N] [--requests N] [-o FILE]

A stack of 3x3 convolutions of which one card runs a few thousand a second, so that the cards and not the host are the limit.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.request

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH, CHANNELS, SIDE, LAYERS, CLASSES, BATCH = 64, 256, 14, 24, 16, 32


def model() -> bytes:
    rng = np.random.default_rng(5)
    weights, nodes = [], []

    def weight(name, shape, fan):
        weights.append(numpy_helper.from_array((rng.standard_normal(shape) / fan ** 0.5).astype(np.float32), name))

    weight("w", (WIDTH, CHANNELS * SIDE * SIDE), WIDTH)
    weights.append(numpy_helper.from_array(np.array([0, CHANNELS, SIDE, SIDE], np.int64), "shape"))
    nodes += [helper.make_node("MatMul", ["x", "w"], ["flat"]), helper.make_node("Reshape", ["flat", "shape"], ["h0"])]
    for i in range(LAYERS):
        weight(f"k{i}", (CHANNELS, CHANNELS, 3, 3), CHANNELS * 9 / 2)
        nodes += [helper.make_node("Conv", [f"h{i}", f"k{i}"], [f"c{i}"], pads=[1, 1, 1, 1]), helper.make_node("Relu", [f"c{i}"], [f"h{i + 1}"])]
    weight("last", (CHANNELS, CLASSES), CHANNELS)
    nodes += [helper.make_node("GlobalAveragePool", [f"h{LAYERS}"], ["mean"]), helper.make_node("Flatten", ["mean"], ["row"]),
              helper.make_node("MatMul", ["row", "last"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def config(group):
    return f"""backend: "onnxruntime" max_batch_size: {BATCH}
input {{ name: "x" data_type: TYPE_FP32 dims: {WIDTH} }}
output {{ name: "y" data_type: TYPE_FP32 dims: {CLASSES} }}
dynamic_batching {{ preferred_batch_size: {BATCH} max_queue_delay_microseconds: 5000 }}
instance_group {{ {group} }}
parameters {{ key: "shape.x" value {{ string_value: "1:{BATCH}:{BATCH}x{WIDTH}" }} }}
"""


def ask(address, name, x):
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}]}
    request = urllib.request.Request(f"http://{address}/v2/models/{name}/infer", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as answer:
        return np.array(json.load(answer)["outputs"][0]["data"], np.float32).reshape(len(x), -1)


def through_shared_memory(client, module, name, gpu, x):
    """Input and output in the memory of one GPU."""
    import tritonclient.utils.cuda_shared_memory as shm
    given, size = module.InferInput("x", list(x.shape), "FP32"), len(x) * CLASSES * 4
    input_region, output_region = (shm.create_shared_memory_region(f"{part}{gpu}", n, gpu) for part, n in (("in", x.nbytes), ("out", size)))
    try:
        shm.set_shared_memory_region(input_region, [x])
        client.register_cuda_shared_memory(f"in{gpu}", shm.get_raw_handle(input_region), gpu, x.nbytes)
        client.register_cuda_shared_memory(f"out{gpu}", shm.get_raw_handle(output_region), gpu, size)
        given.set_shared_memory(f"in{gpu}", x.nbytes)
        wanted = module.InferRequestedOutput("y")
        wanted.set_shared_memory(f"out{gpu}", size)
        client.infer(name, [given], outputs=[wanted])
        return shm.get_contents_as_numpy(output_region, np.float32, [len(x), CLASSES]).copy()
    finally:
        client.unregister_cuda_shared_memory()
        for region in (input_region, output_region):
            shm.destroy_shared_memory_region(region)


def largest_errors(addresses, gpus, names):
    """Of all models and ways against the CPU, relative to the largest value."""
    import tritonclient.grpc
    import tritonclient.http
    x = np.random.default_rng(1).standard_normal((8, WIDTH)).astype(np.float32)
    expected = ask(addresses["http"], "cpu", x)
    error = lambda got: float(np.abs(got - expected).max() / np.abs(expected).max())  # noqa: E731
    found = {f"{name}, JSON": error(ask(addresses["http"], name, x)) for name in names}
    for scheme, module in (("http", tritonclient.http), ("grpc", tritonclient.grpc)):
        client = module.InferenceServerClient(addresses[scheme])
        given = module.InferInput("x", list(x.shape), "FP32")
        given.set_data_from_numpy(x)
        for name in names:
            found[f"{name}, tritonclient.{scheme}"] = error(client.infer(name, [given]).as_numpy("y"))
            for gpu in range(gpus):
                found[f"{name}, tritonclient.{scheme}, shared memory of GPU {gpu}"] = error(through_shared_memory(client, module, name, gpu, x))
    return found


def load(pelton, address, name, concurrency, requests):
    out = subprocess.run([pelton, "loadtest", f"http://{address}", "-m", name, "--concurrency", str(concurrency), "--requests", str(requests), "--json"],
                         capture_output=True, text=True, timeout=120)
    if out.returncode:
        raise SystemExit(out.stderr + out.stdout)
    row = json.loads(out.stdout)["results"][0]
    return {"in_flight": concurrency, "per_s": row["throughput_per_s"], "p50_us": row["latency_us"]["p50"], "p99_us": row["latency_us"]["p99"], "errors": row["errors"]}


def statistics_of(address, name):
    with urllib.request.urlopen(f"http://{address}/v2/models/{name}/stats") as answer:
        s = json.load(answer)["model_stats"][0]
    return {"inferences": s["inference_count"], "executions": s["execution_count"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--requests", type=int, default=12_000)
    parser.add_argument("--kind", default="GPU", help="CPU: try the script on a machine without GPUs")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    report = {"gpus": args.gpus, "cores": os.cpu_count(), "load": {"one": [], "all": []}}

    def save():
        if args.output:
            args.output.write_text(json.dumps(report, indent=1) + "\n")

    where = lambda gpus: "kind: KIND_CPU count: %d" % len(gpus) if args.kind == "CPU" else f"kind: KIND_GPU count: 2 gpus: {gpus}"  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        content = model()
        for name, group in (("cpu", "kind: KIND_CPU"), ("one", where([0])), ("all", where(list(range(args.gpus))))):
            version = pathlib.Path(folder) / name / "1"
            version.mkdir(parents=True)
            (version / "model.onnx").write_bytes(content)
            (version.parent / "config.pbtxt").write_text(config(group))
        began = time.time()
        with open(f"{folder}/server.log", "w") as log:
            server = subprocess.Popen([args.pelton, "serve", "--model-repository", folder, "--http-port=0", "--grpc-port=0", "--metrics-port=0",
                                       "--allow-client-shm=true"], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            line = server.stdout.readline().split()
            if not line:
                raise SystemExit(pathlib.Path(f"{folder}/server.log").read_text()[-2000:])
            addresses = dict(zip(line[1::2], line[2::2]))
            report["ready_s"] = time.time() - began
            for name in ("one", "all"):  # warm
                load(args.pelton, addresses["http"], name, 64, 2000 if args.kind == "GPU" else 8)
            per_card = (64, 96, 128, 192) if args.kind == "GPU" else (4,)
            for in_flight in per_card:
                report["load"]["one"].append(load(args.pelton, addresses["http"], "one", in_flight, args.requests))
                report["load"]["all"].append(load(args.pelton, addresses["http"], "all", in_flight * args.gpus, args.requests * args.gpus))
                save()
            report["statistics"] = {name: statistics_of(addresses["http"], name) for name in ("one", "all")}
            # At each p99 that one card reached: the most that all of them did without exceeding it by more than 2 %.
            report["at_the_same_p99"] = []
            for one in report["load"]["one"]:
                fit = [a["per_s"] for a in report["load"]["all"] if a["p99_us"] <= one["p99_us"] * 1.02]
                best = max(o["per_s"] for o in report["load"]["one"] if o["p99_us"] <= one["p99_us"])
                report["at_the_same_p99"].append({"p99_us": one["p99_us"], "one": best, "all": max(fit, default=None), "ratio": max(fit) / best if fit else None})
            save()
            try:
                report["largest_error_against_cpu"] = largest_errors(addresses, args.gpus if args.kind == "GPU" else 0, ("one", "all"))
            except Exception as error:  # noqa: BLE001 - what the load showed is kept
                report["largest_error_against_cpu"] = {"failed": f"{type(error).__name__}: {error}"}
        finally:
            server.terminate()
            server.wait(30)
    save()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
