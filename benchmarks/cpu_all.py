#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every CPU figure of the README in one run, on a machine that does nothing else.

    python3 benchmarks/cpu_all.py BUILD_DIR MODELS_DIR [--packaged .demo/files] [--only models,load,train,groups] [--rounds 3]

Exports what MODELS_DIR lacks, then runs models/compare.py (f32 at batch 1 and 8, one and two threads; bf16 of models that are mostly
products), load.py, train/compare.py and bench_cpu_groups, and writes benchmarks/results/*.json. Ends with the tables as Markdown.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results"
LOADED = ["resnet50", "mobilenet_v2", "efficientnet_b0", "bert_base_128", "t5_small_encoder_128", "mlp"]
WIDE = ["bert_base_128", "vit_b16", "t5_small_encoder_128"]


def run(*command, **environment):
    print("+", *command, flush=True)
    return subprocess.run([str(c) for c in command], env={**os.environ, **environment}).returncode == 0


def models_table(report):
    cases = [c for c in report["cases"] if "pelton" in c and c["precision"] == "fp32"]
    columns = sorted({(c["batch"], c["threads"]) for c in cases})
    lines = ["| model | " + " | ".join(f"b{b}, {t} thread{'s' * (t > 1)}" for b, t in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in dict.fromkeys(c["model"] for c in cases):
        cells = []
        for b, t in columns:
            case = next((c for c in cases if (c["model"], c["batch"], c["threads"]) == (name, b, t)), None)
            ratio = lambda peer: f"{case[peer]['median_ms'] / case['pelton']['median_ms']:.2f}" if peer in case else "-"
            cells.append(f"{ratio('onnxruntime')} / {ratio('openvino')}" if case else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--packaged", type=pathlib.Path)
    parser.add_argument("--only", default="models,load,train,groups")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    parts, python = args.only.split(","), sys.executable
    library = {"PELTON_LIBRARY": str(args.build.resolve() / "libpelton.so")}
    sys.path.insert(0, str(HERE / "models"))
    from export import MODELS
    missing = [m for m in MODELS if not (args.models / f"{m}.reference.npz").exists()]
    if missing or args.packaged:
        run(python, HERE / "models/export.py", args.models, *(missing or ["mlp"]), *(["--packaged", args.packaged] if args.packaged else []))
    compare = [python, HERE / "models/compare.py", args.models, "--rounds", args.rounds, "--seconds", 0.4]
    if "models" in parts:
        run(*compare, "--batch", "1,8", "-o", RESULTS / "models_cpu.json", **library)
        run(*compare, "--batch", "1", "--models", ",".join(WIDE), "--precision", "bf16", "-o", RESULTS / "models_cpu_bf16.json", **library)
    if "load" in parts:
        run(python, HERE / "load.py", args.build / "pelton", *(args.models / f"{m}.onnx" for m in LOADED), "--output", RESULTS / "load.json")
    if "train" in parts:
        run(python, HERE / "train/compare.py", args.build / "pelton", "--threads", 2, "--output", RESULTS / "train_cpu.json")
    if "groups" in parts:
        groups = subprocess.run([str(args.build / "bench_cpu_groups")], capture_output=True, text=True)
        if groups.returncode == 0:
            (RESULTS / "groups_cpu.json").write_text(groups.stdout)

    def stored(name):
        path = RESULTS / name
        return json.loads(path.read_text()) if path.exists() else None
    print("\nONNX Runtime's / OpenVINO's time over Pelton's")
    if report := stored("models_cpu.json"):
        print("\n".join(models_table(report)))
        print("geometric means:", {k: round(v, 3) for k, v in report["geometric_mean_ratio"].items()})
        wide = stored("models_cpu_bf16.json")
        for case in wide["cases"] if wide else []:
            f32 = next(c for c in report["cases"] if all(c[k] == case[k] for k in ("model", "batch", "threads")))
            print(f"bf16 {case['model']} {case['threads']} threads: {f32['pelton']['median_ms'] / case['pelton']['median_ms']:.2f}x our f32")
    if report := stored("load.json"):
        for name, row in report["models"].items():
            print(f"load {name}: {row['load_ms']} ms, .onnx {row['onnx_load_ms']}, .ort {row['ort_load_ms']}, ratio {row['load_ratio']}; "
                  f"peak {row['peak_bytes'] / 2**20:.0f} MiB, ONNX Runtime {row['onnx_peak_bytes'] / 2**20:.0f}, "
                  f"with Python {row['onnx_process_peak_bytes'] / 2**20:.0f}")
    if report := stored("train_cpu.json"):
        print("train:", {r["model"]: round(r["speedup"], 2) for r in report["rows"]}, "mean", round(report["geometric_mean"], 2))
    if report := stored("groups_cpu.json"):
        print("groups:", {g["group"]: (g["of_copy"], g["l1_ratio"]) for g in report["groups"]})


if __name__ == "__main__":
    main()
