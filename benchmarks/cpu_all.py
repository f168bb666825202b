#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every CPU figure of the README in one run, on a machine that does nothing else.

    python3 benchmarks/cpu_all.py BUILD_DIR MODELS_DIR [--packaged .demo/files] [--only models,load,train,groups] [--rounds 3]
        [--names mlp,resnet50] [--readme README.md]

Exports what MODELS_DIR lacks, then runs models/compare.py (f32 at batch 1 and 8 on one and two threads; bf16 and 8-bit models at
batch 1), load.py, train/compare.py and bench_cpu_groups, and writes benchmarks/results/*.json. --readme puts the figures stored there
between the marks <!-- cpu --> and <!-- cpu training --> of a page; with --only none it does nothing else.
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


def stored(name):
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else None


def ratio(case, peer):
    return f"{case[peer]['median_ms'] / case['pelton']['median_ms']:.2f}" if peer in case and "pelton" in case else "-"


def models_text():
    report, wide, bytes_ = stored("models_cpu.json"), stored("models_cpu_bf16.json"), stored("models_cpu_int8.json")
    if not report:
        return ""
    cases, mean = report["cases"], report["geometric_mean_ratio"]
    columns = sorted({(c["batch"], c["threads"]) for c in cases})
    lines = [f"Whole models in f32 against ONNX Runtime {report['versions']['onnxruntime']} and OpenVINO {report['versions']['openvino'].split('-')[0]} in the "
             f"same run, their time over Pelton's, so that above 1\nPelton is faster (`benchmarks/cpu_all.py`, {report['cores']} cores of an "
             f"{report['cpu']} that did nothing else, {report['rounds']} rounds, {report['date']}; figures and errors against f64 in\n`benchmarks/results/models_cpu.json`; "
             f"geometric means {mean['onnxruntime']:.2f}x and {mean.get('openvino', 0):.2f}x; - where OpenVINO does not convert the model):", "",
             "| model, ONNX Runtime / OpenVINO | " + " | ".join(f"b{b}, {t} thread{'s' * (t > 1)}" for b, t in columns) + " |",
             "|---" * (len(columns) + 1) + "|"]
    for name in dict.fromkeys(c["model"] for c in cases):
        row = {(c["batch"], c["threads"]): c for c in cases if c["model"] == name}
        cells = [f"{ratio(row[k], 'onnxruntime')} / {ratio(row[k], 'openvino')}" if k in row else "" for k in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("")
    if wide:
        gains = []
        for case in wide["cases"]:
            f32 = next((c for c in cases if all(c[k] == case[k] for k in ("model", "batch", "threads"))), None)
            if f32 and case["threads"] == 1 and "pelton" in case:
                gains.append(f"{case['model']} {f32['pelton']['median_ms'] / case['pelton']['median_ms']:.2f}x")
        lines.append("bf16 against our own f32 of another run, one thread: " + ", ".join(gains) + ".")
    if bytes_:
        lines.append("8-bit models in QDQ form, one thread, ONNX Runtime / OpenVINO: " + ", ".join(
            f"{c['model']} {ratio(c, 'onnxruntime')} / {ratio(c, 'openvino')}" for c in bytes_["cases"] if c["threads"] == 1) + ".")
    if load := stored("load.json"):
        rows = load["models"].items()
        lines.append(f"From a plan file (`compile --embed-packed`) to the first result, in a fresh process that opens the library and nothing else, {load['threads']} "
                     "threads, over the same of ONNX Runtime\nfrom .onnx / from its .ort: " +
                     ", ".join(f"{k} {v['load_over_onnx']:.2f} / {v['load_over_ort']:.2f}" for k, v in rows) +
                     "; peak memory of those processes after ten runs in MiB, Pelton / ONNX Runtime\nfrom .onnx / from .ort: " +
                     ", ".join(f"{k} " + " / ".join(f"{v[side]['peak_bytes'] / 2**20:.0f}" for side in ("pelton", "onnx", "ort"))
                               for k, v in rows) + ".")
    if groups := stored("groups_cpu.json"):
        rates = [g["of_copy"] for g in groups["groups"]]
        times = [g["l1_ratio"] for g in groups["groups"]]
        lines.append(f"Twelve generated groups (`bench_cpu_groups {groups['threads']}`): beyond the caches {min(rates):.2f} to {max(rates):.2f} of the STREAM-copy rate, "
                     f"in L1 {min(times):.2f} to {max(times):.2f} times a hand-written loop's time.")
    return "\n".join(lines)


def train_text():
    report = stored("train_cpu.json")
    if not report:
        return ""
    return (f"A step against PyTorch {report['torch'].split('+')[0]}'s (f32, {report['threads']} threads, {report['machine']}; PyTorch's time over Pelton's, plain "
            "or channels last, whichever is\nfaster; `benchmarks/train/compare.py`, `benchmarks/results/train_cpu.json`): "
            + ", ".join(f"{r['model']} {r['speedup']:.2f}x" for r in report["rows"]) + f", geometric mean {report['geometric_mean']:.2f}x.")


def put(page, mark, text):
    content = page.read_text()
    begin, end = f"<!-- {mark} -->\n", f"\n<!-- end {mark} -->"
    first, last = content.index(begin) + len(begin), content.index(end)
    page.write_text(content[:first] + text + content[last:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--packaged", type=pathlib.Path)
    parser.add_argument("--only", default="models,load,train,groups")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--names", help="only these models")
    parser.add_argument("--readme", type=pathlib.Path)
    args = parser.parse_args()
    parts, python = args.only.split(","), sys.executable
    library = {"PELTON_LIBRARY": str(args.build.resolve() / "libpelton.so")}
    sys.path.insert(0, str(HERE / "models"))
    from export import MODELS, QUANTISED
    wanted = args.names.split(",") if args.names else [*MODELS, *QUANTISED]
    missing = [m for m in wanted if m in (*MODELS, *QUANTISED) and not (args.models / f"{m}.reference.npz").exists()]
    if "models" in parts and (missing or args.packaged):
        run(python, HERE / "models/export.py", args.models, *(missing or ["mlp"]), *(["--packaged", args.packaged] if args.packaged else []))
    compare = [python, HERE / "models/compare.py", args.models, "--rounds", args.rounds, "--seconds", 0.4]
    if "models" in parts:
        have = sorted(p.name.split(".")[0] for p in args.models.glob("*.reference.npz"))
        have = [m for m in have if not args.names or m in wanted]
        run(*compare, "--batch", "1,8", "--models", ",".join(m for m in have if m not in QUANTISED), "-o", RESULTS / "models_cpu.json", **library)
        if set(WIDE) & set(have):
            run(*compare, "--batch", "1", "--models", ",".join(m for m in WIDE if m in have), "--precision", "bf16", "-o", RESULTS / "models_cpu_bf16.json", **library)
        if set(QUANTISED) & set(have):
            run(*compare, "--batch", "1", "--models", ",".join(m for m in have if m in QUANTISED), "-o", RESULTS / "models_cpu_int8.json", **library)
    if "load" in parts:
        run(python, HERE / "load.py", args.build, *(args.models / f"{m}.onnx" for m in LOADED if m in wanted), "--output", RESULTS / "load.json")
    if "train" in parts:
        run(python, HERE / "train/compare.py", args.build / "pelton", "--threads", 2, "--output", RESULTS / "train_cpu.json")
    if "groups" in parts:
        groups = subprocess.run([str(args.build / "bench_cpu_groups")], capture_output=True, text=True)
        if groups.returncode == 0:
            (RESULTS / "groups_cpu.json").write_text(groups.stdout)

    models, train = models_text(), train_text()
    print(models, train, sep="\n\n")
    if args.readme and models:
        put(args.readme, "cpu", models)
    if args.readme and train:
        put(args.readme, "cpu training", train)


if __name__ == "__main__":
    main()
