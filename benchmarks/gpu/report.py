#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of a result of run.py as Markdown, and whether its bars are met.

    python3 benchmarks/gpu/report.py RESULT.json [--docs docs/gpu.md] [--readme README.md]

The table takes the place of what stands between its marks in --docs; its rows at batches 1 and 128 in fp16 and the means of all in
--readme.
"""
import argparse
import json
import math
import pathlib

from cases import FOUR, table

BEGIN, END = "<!-- gpu inference -->", "<!-- end gpu inference -->"
BARS_MS = {"efficientnet_b0 b1 fp16": 0.30, "resnet50 b1 fp16": 0.40, "bert b1 fp16": 0.55, "gpt2 b1 fp16": 0.60}


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


def figure(value):
    return "-" if value is None else f"{value:.3g}" if value < 10 else f"{value:.1f}"


def rows(result):
    yield "| case | Pelton ms | best of PyTorch ms | faster | eager | graph | compile | floor ms (share) | GPU MiB, PyTorch's | error over PyTorch's |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for case in table():
        entry = result["cases"].get(case.name)
        if not entry:
            continue
        ours, peer = entry["pelton"], entry["torch"][case.peer_precisions[-1]]
        modes = [figure(peer.get(m)) for m in ("eager", "cudagraph", "compile")]
        if "ms" not in ours:
            yield f"| {case.name} | failed | | | {' | '.join(modes)} | | | |"
            continue
        best = f"{figure(entry['best_peer_ms'])} ({entry['best_peer'].split()[-1]})" if "best_peer" in entry else "-"
        faster = f"{entry['faster']:.2f}x" if "faster" in entry else "-"
        peak = f"{ours['peak_bytes'] / 2**20:.0f} / {peer['peak_bytes'] / 2**20:.0f}" if "peak_bytes" in peer else f"{ours['peak_bytes'] / 2**20:.0f}"
        error = f"{entry['error_against_peer']:.2f}" if "error_against_peer" in entry else "-"
        yield (f"| {case.name} | {figure(ours['ms'])} | {best} | {faster} | {' | '.join(modes)} | "
               f"{figure(ours['floor_ms'])} ({100 * ours['share_of_floor']:.0f}%) | {peak} | {error} |")


def short_rows(result):
    yield "| model | Pelton b1 | eager | CUDA graph | torch.compile | Pelton b128 | eager | CUDA graph | torch.compile |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for model in FOUR:
        cells = []
        for batch in (1, 128):
            entry = result["cases"][f"{model} b{batch} fp16"]
            peer = entry["torch"]["fp16"]
            cells += [figure(entry["pelton"].get("ms"))] + [figure(peer.get(m)) for m in ("eager", "cudagraph", "compile")]
        yield f"| {model} | {' | '.join(cells)} |"


def compared(result):
    return {c.name: (c, result["cases"][c.name]) for c in table() if "faster" in result["cases"].get(c.name, {})}


GROUPS = {"f32 and TF32 at batch 1": lambda c: c.precision != "fp16", "batches 3 and 8": lambda c: c.model in FOUR and c.batch in (3, 8),
          "batch 128": lambda c: c.batch == 128, "plain nets": lambda c: c.model.startswith("plain"),
          "other models": lambda c: c.model not in FOUR and not c.model.startswith("plain")}


def means(result):
    done = compared(result)
    ratios = {n: e["faster"] for n, (_, e) in done.items()}
    least = min(ratios, key=ratios.get)
    parts = [f"{text} {mean([ratios[n] for n, (c, _) in done.items() if take(c)]):.2f}x" for text, take in GROUPS.items()]
    return (f"Over PyTorch's best mode, geometric means: {', '.join(parts)}; of {len(ratios)} cases {sum(r < 1 for r in ratios.values()) or 'none'} "
            f"slower (least {ratios[least]:.2f}x, {least}).")


def bars(result):
    """Lines on what the bars of the table ask for."""
    done = compared(result)

    def group(text, wanted, least, take):
        ratios = {n: e["faster"] for n, (c, e) in done.items() if take(c)}
        if not ratios:
            return
        slowest = min(ratios, key=ratios.get)
        yield (f"{text}: geometric mean {mean(ratios.values()):.2f}x (wanted {wanted}), lowest {ratios[slowest]:.2f}x ({slowest}; wanted {least})"
               f", {len(ratios)} cases")

    for name, most in BARS_MS.items():
        if name in done:
            yield f"{name}: {done[name][1]['pelton']['ms']:.3f} ms (wanted {most:.2f})"
    yield from group("batch 128 fp16", "1.2 each", 1.2, GROUPS["batch 128"])
    yield from group("fp32 and TF32", 1.2, 1.0, GROUPS["f32 and TF32 at batch 1"])
    yield from group("b3 (97 tokens) and b8 fp16", 1.2, 1.0, GROUPS["batches 3 and 8"])
    yield from group("fp32, TF32, b3 and b8", 1.2, 1.0, lambda c: c.precision != "fp16" or c.model in FOUR and c.batch in (3, 8))
    yield from group("plain nets", "-", 1.0, GROUPS["plain nets"])
    yield from group("other models", 1.2, 1.0, GROUPS["other models"])
    for n, (c, e) in done.items():
        if c.model == "plain20" and "eager" in e["torch"]["fp32"]:
            yield f"{n}: {e['torch']['fp32']['eager'] / e['pelton']['ms']:.1f}x eager fp32 (wanted 3)"
    ours = {n: e["pelton"] for n, (_, e) in done.items()}
    sizes = {n: p["plan_bytes"] / p["onnx_bytes"] for n, p in ours.items() if n.endswith("fp16")}
    plain = [s for n, s in sizes.items() if n.startswith("plain")]
    yield f"fp16 plan file over f32 ONNX file, plain nets: at most {max(plain):.3f} (wanted 0.52)" if plain else "no fp16 plan of a plain net"
    if sizes:
        yield f"fp16 plan file over f32 ONNX file, all: at most {max(sizes.values()):.3f} ({max(sizes, key=sizes.get)})"
    host = [p["host_us"] for p in ours.values() if p["ms"] < 2 and "host_us" in p]
    if host:
        yield f"host's part of a run: at most {max(host):.1f} us (wanted 10; runs below 2 ms)"
    loads = {n: p["load_ms"] for n, p in ours.items() if n.endswith("b1 fp16")}
    yield f"plan file to first result: at most {max(loads.values()):.0f} ms (wanted 1000)" if loads else "no loads"
    yield f"compilation: at most {max(p['compile_s'] for p in ours.values()):.1f} s (wanted 60)"
    again = [p["second_compile_s"] for p in ours.values() if "second_compile_s" in p]
    yield f"second compilation: at most {max(again):.2f} s (wanted 2)" if again else "no second compilation"
    over = []
    for n, (c, e) in done.items():
        mine, peer = e["pelton"], e["torch"][c.peer_precisions[-1]]
        more = mine["peak_bytes"] - peer.get("peak_bytes", math.inf)
        if more > 0:
            wider = mine.get("result_bytes", 0) - peer.get("result_bytes", 0)
            over.append(f"{n} (+{more / 2**20:.1f} MiB{f', {wider / 2**20:.1f} for results in f32' if wider > 0 else ''})")
    yield f"more GPU memory than PyTorch: {', '.join(over) or 'none'}"
    for n, (c, e) in done.items():
        peer = e["torch"][c.peer_precisions[-1]]
        if "process_s" in e["pelton"] and "process_s" in peer:
            yield f"{n}, a whole process: {e['pelton']['process_s']:.2f} s, PyTorch's {peer['process_s']:.2f} s"
    errors = {n: e["error_against_peer"] for n, (_, e) in done.items() if "error_against_peer" in e}
    yield f"error against f64 over PyTorch's: at most {max(errors.values()):.2f} ({max(errors, key=errors.get)}; wanted 2)" if errors else "no errors"
    alone = result.get("alone", {})
    for n, facts in alone.get("cases", {}).items():
        peer = result["cases"][n]["torch"]["fp16"].get("peak_bytes", 0)
        peak = f", {facts['peak_bytes'] / 2**20:.0f} MiB (PyTorch's {peer / 2**20:.0f})" if "peak_bytes" in facts else ""
        yield f"{n} measured again later, without PyTorch: {figure(facts['ms'])} ms, loaded in {facts['load_ms']:.0f} ms{peak}"
    for n, seconds in alone.get("second_compile_s", {}).items():
        yield f"{n}, second compilation measured again: {seconds:.2f} s"
    for n, us in alone.get("host_us", {}).items():
        yield f"{n}, host's part of a run: {us:.1f} us (wanted 10)"
    failed = [n for n, e in result["cases"].items() if "faster" not in e]
    yield f"not compared: {', '.join(failed) or 'none'}"


def put(path, text):
    before, rest = path.read_text().split(BEGIN)
    path.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path)
    parser.add_argument("--readme", type=pathlib.Path)
    options = parser.parse_args()
    result = json.loads(options.result.read_text())
    text, lines = "\n".join(rows(result)), list(bars(result))
    print(text, *lines, sep="\n")
    if options.docs:
        put(options.docs, text + "\n\n" + "\n".join(f"- {line}" for line in lines))
    if options.readme:
        put(options.readme, "\n".join([*short_rows(result), "", means(result)]))


if __name__ == "__main__":
    main()
