#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Pelton against PyTorch on one GPU, in the same run, and writes JSON.

    python3 benchmarks/gpu/run.py PELTON MODELS_DIR -o RESULT.json [--models a,b] [--batch 1,8,128] [--precision fp16]
        [--modes eager,cudagraph,compile] [--seconds 1]

MODELS_DIR holds the ONNX files of benchmarks/models/export.py (or skeletons filled by skeleton.py). Both sides keep inputs
and results in device memory; a call is timed by the wall clock to the end of its work, the figure is the median.
The sides run one after the other, each in a process of its own.
"""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import time

TOKENS = 128
MODELS = {  # ONNX file: how PyTorch builds it, and what goes in
    "bert_base_128": ("bert", "tokens"),
    "gpt2_128": ("gpt2", "tokens"),
    "t5_small_encoder_128": ("t5", "tokens"),
    "resnet50": ("resnet50", "image"),
    "efficientnet_b0": ("efficientnet_b0", "image"),
    "mobilenet_v2": ("mobilenet_v2", "image"),
    "vit_b16": ("vit_base_patch16_224", "image"),
}


# --- PyTorch, in its own process --------------------------------------------------------------------------------
def build(kind):
    import torch

    if kind == "bert":
        from transformers import BertConfig, BertModel

        return BertModel(BertConfig(), add_pooling_layer=False)
    if kind == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(use_cache=False))
    if kind == "t5":
        from transformers import T5Config, T5EncoderModel

        return T5EncoderModel(T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8))
    import torchvision

    if hasattr(torchvision.models, kind):
        return getattr(torchvision.models, kind)(weights=None)
    import timm

    return timm.create_model(kind)


def median_ms(call, seconds):
    import torch

    for _ in range(15):
        call()
    torch.cuda.synchronize()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 20:
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def torch_side(name, batch, precision, modes, seconds):
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    kind, form = MODELS[name]
    model = build(kind).eval().cuda()
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
    if half:
        model = model.to(half)
    if form == "tokens":
        x = torch.randint(0, 1000, (batch, TOKENS)).cuda()
    else:
        model = model.to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, 224, 224).cuda().to(memory_format=torch.channels_last)
        x = x.to(half) if half else x
    out = {"version": torch.__version__}
    for mode in modes:
        try:
            if mode == "eager":
                out[mode] = median_ms(lambda: model(x), seconds)
            elif mode == "cudagraph":
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(3):
                        model(x)
                torch.cuda.current_stream().wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    kept = model(x)
                out[mode] = median_ms(graph.replay, seconds)
                del kept, graph
            else:
                start = time.perf_counter()
                compiled = torch.compile(model, mode="reduce-overhead" if mode == "compile" else mode)
                out[mode] = median_ms(lambda: compiled(x), seconds)
                out[f"{mode}_compile_s"] = time.perf_counter() - start
                torch._dynamo.reset()
        except Exception as error:  # a mode that a model cannot take is left out, with its reason
            out[f"{mode}_error"] = repr(error)[:200]
    out["peak_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps(out))


# --- both sides ---------------------------------------------------------------------------------------------------
def last_json(command, timeout):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {timeout} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": done.stderr[-400:]}


def pelton_side(pelton, path, form, batch, precision, seconds):
    shape = f"input={batch}x{TOKENS}" if form == "tokens" else f"input={batch}x3x224x224"
    report = last_json([pelton, "--json", "bench", str(path), "--device", "cuda", "--precision", precision, "--shape", shape,
                        "--seconds", str(seconds), "--device-buffers"], 120)
    if "latency_ms" not in report:
        return report
    return {"ms": report["latency_ms"]["median"], "compute_ms": report["phases_ms"]["compute"],
            "compile_ms": report["compile_ms"], "load_ms": report["load_ms"], "peak_bytes": report["device_peak_bytes"],
            "product": report["product"], "stable": report["stable"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton")
    parser.add_argument("models_dir", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch", default="1,128")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--modes", default="eager,cudagraph,compile")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)  # NAME BATCH PRECISION: the PyTorch process
    o = parser.parse_args()
    modes = o.modes.split(",")
    if o.side:
        return torch_side(o.side[0], int(o.side[1]), o.side[2], modes, o.seconds)
    result = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cases": []}
    for name in o.models.split(","):
        for batch in map(int, o.batch.split(",")):
            for precision in o.precision.split(","):
                case = {"model": name, "batch": batch, "precision": precision}
                case["pelton"] = pelton_side(o.pelton, o.models_dir / f"{name}.onnx", MODELS[name][1], batch, precision, o.seconds)
                case["torch"] = last_json([sys.executable, __file__, o.pelton, str(o.models_dir), "--modes", o.modes, "--seconds",
                                           str(o.seconds), "--side", name, str(batch), precision], 150)
                best = min((case["torch"][m] for m in modes if m in case["torch"]), default=None)
                if best and "ms" in case["pelton"]:
                    case["torch_best_ms"], case["faster"] = best, best / case["pelton"]["ms"]
                result["cases"].append(case)
                result["gpu"] = case["pelton"].get("product", result.get("gpu"))
                print(json.dumps(case), flush=True)
                if o.output:
                    o.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
