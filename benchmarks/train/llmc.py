#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of GPT-2 (124M, bf16, AdamW, the norm of all gradients limited to 1) on one GPU, Pelton against llm.c, in alternating rounds.

    python3 benchmarks/train/llmc.py PELTON TRAIN_GPT2CU -o RESULT.json [--batch 32] [--rounds 3]

TRAIN_GPT2CU is llm.c's program, built with cuDNN's attention. It takes its fastest of three settings of what it fuses around GELU (-ge),
without recomputation (-r 0). Its figure is the median of the milliseconds that it prints for a step, Pelton's that of
`train --dry-run` with the batch on the GPU. --tiny: a small model of both sides' options on the CPU, to try this script; with any
program that prints such lines.
"""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

import numpy as np

FUSIONS = ("0", "1", "2")
WARM = 5  # steps that do not count
RECIPE = """version = 1
model = {{ name = "gpt2", dropout = 0.0{model} }}
data = {{ tokens = ["tokens.bin"], token_type = "u16", batch = {batch} }}
step = {{ steps = 1, precision = "{precision}", clip_norm = 1.0 }}
optimizer = {{ name = "adamw", lr = 1e-4, weight_decay = 0.01 }}
"""


def write_tokens(folder, batch, length, vocabulary, count):
    tokens = np.random.default_rng(1).integers(0, vocabulary, batch * length * count + 1, dtype=np.uint16)
    tokens[: batch * length + 1].tofile(folder / "tokens.bin")
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(tokens)
    for name in ("train", "val"):
        (folder / f"llmc_{name}.bin").write_bytes(header.tobytes() + tokens.tobytes())


def llmc_round(program, folder, batch, length, steps, fusion):
    call = [program, "-i", folder / "llmc_train.bin", "-j", folder / "llmc_val.bin", "-e", "d12", "-b", str(batch), "-t", str(length),
            "-d", str(batch * length), "-x", str(steps), "-l", "1e-4", "-c", "0.01", "-r", "0", "-w", "1", "-ge", fusion,
            "-v", "100000", "-m", "1", "-s", "0", "-h", "0"]
    done = subprocess.run([str(c) for c in call], capture_output=True, text=True, timeout=180)
    times = [float(x) for x in re.findall(r"\| *([0-9.]+) ms \|", done.stdout)][WARM:]
    if not times:
        return {"error": (done.stdout + done.stderr)[-400:]}
    peak = re.findall(r"device memory usage: (\d+) MiB", done.stdout)
    return {"ms": times, "mib": int(peak[-1]) if peak else None}


def pelton_round(binary, path, device):
    done = subprocess.run([binary, "train", path, "--dry-run", "--json", "--device", device], capture_output=True, text=True, timeout=180)
    if done.returncode:
        return {"error": (done.stdout + done.stderr)[-400:]}
    report = json.loads(done.stdout.splitlines()[-1])
    return {"ms": (report["resident_seconds"] or report["step_seconds"]) * 1e3, "bytes": report["memory_bytes"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton")
    parser.add_argument("llmc")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    length, vocabulary, model, precision, device = 1024, 50257, "", "bf16", "cuda"
    if args.tiny:
        length, vocabulary, precision, device = 32, 256, "fp32", "cpu"
        model = ", layers = 1, width = 64, heads = 4, vocabulary = 256, length = 32, positions = 32"
        args.batch = min(args.batch, 4)
    product = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                             text=True).stdout.strip() if device == "cuda" else "CPU"
    report = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "hardware": product, "batch": args.batch, "length": length,
              "precision": precision, "llmc": {f: {"ms": []} for f in FUSIONS}, "pelton": {"ms": []}}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_tokens(folder, args.batch, length, vocabulary, args.steps + 2)
        recipe = folder / "gpt2.toml"
        recipe.write_text(RECIPE.format(model=model, batch=args.batch, precision=precision))
        for _ in range(args.rounds):
            for fusion in FUSIONS:
                answer = llmc_round(args.llmc, folder, args.batch, length, args.steps, fusion)
                entry = report["llmc"][fusion]
                entry["ms"] += answer.pop("ms", [])
                entry.update(answer)
            answer = pelton_round(args.pelton, recipe, device)
            if "ms" in answer:
                report["pelton"]["ms"].append(answer.pop("ms"))
            report["pelton"].update(answer)
    sides = [*report["llmc"].values(), report["pelton"]]
    for side in sides:
        side["ms"] = round(statistics.median(side["ms"]), 3) if side["ms"] else None
    best = min((s["ms"] for s in report["llmc"].values() if s["ms"]), default=None)
    if best and report["pelton"]["ms"]:
        report["llmc_best_ms"] = best
        report["speedup"] = round(best / report["pelton"]["ms"], 3)
        report["pelton_tokens_per_s"] = round(args.batch * length / report["pelton"]["ms"] * 1e3)
    print(json.dumps(report), flush=True)
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
