#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make demo-engine`: three real models through the command line, timed against ONNX Runtime.

For each model: inspect, compile, verify, run (compared with ONNX Runtime's outputs on the same input), bench.
Then the models do their job: find the caption in a photograph, read it, and find speech in a recording. Every
command is printed before it runs. Both engines are timed in turn, twice, with the same number of threads.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import inputs
import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES, WORK = ROOT / ".demo" / "files", ROOT / ".demo" / "work"
RTOL, ATOL = 1e-3, 1e-4


class Pelton:
    def __init__(self, binary: pathlib.Path, threads: int):
        self.binary, self.threads = binary, threads

    def __call__(self, *words, quiet: bool = False) -> str:
        command = [str(self.binary), *map(str, words), "--threads", str(self.threads)]
        if not quiet:
            shown = " ".join(command).replace(str(self.binary), "pelton").replace(f"{WORK}/", "").replace(f"{FILES}/", "")
            print(f"\n$ {shown}", flush=True)
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if result.returncode:
            print(result.stdout)
            raise SystemExit(f"demo: `pelton {words[0]}` ended with status {result.returncode}")
        return result.stdout


def peer_session(model: pathlib.Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def peer_median_ms(session, feed: dict, seconds: float) -> float:
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        session.run(None, feed)
        times.append((time.perf_counter() - start) * 1e3)
    return float(np.median(times[len(times) // 5 :]))  # the first fifth warms up


def shape_text(array: np.ndarray) -> str:
    return "x".join(map(str, array.shape))


def through_the_tool(pelton: Pelton, name: str, feed: dict[str, np.ndarray], seconds: float) -> dict:
    """All commands on one model; returns its row of the table."""
    model, plan = FILES / f"{name}.onnx", WORK / f"{name}.pelton"
    folder = WORK / name
    (folder / "expected").mkdir(parents=True, exist_ok=True)
    session = peer_session(model, pelton.threads)
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(None, feed)))
    words = []
    for key, value in feed.items():
        np.save(folder / f"{key}.npy", value)
        words += ["--input", f"{key}={folder / f'{key}.npy'}"]
    shapes = [w for key, value in feed.items() if value.ndim for w in ("--shape", f"{key}={shape_text(value)}")]
    for key, value in expected.items():
        np.save(folder / "expected" / f"{key}.npy", value)

    print(pelton("inspect", model))
    print(pelton("compile", model, "-o", plan, *shapes))
    print(pelton("verify", plan, *words))
    print(pelton("run", plan, *words, "--output-dir", folder, "--compare", folder / "expected", "--rtol", RTOL,
                 "--atol", ATOL))
    error = max(float(np.max(np.abs(np.load(folder / f"{key}.npy") - value))) for key, value in expected.items())
    ours, peers = [], []
    for turn in range(2):
        report = json.loads(pelton("bench", plan, *words, "--seconds", seconds, "--json", quiet=turn > 0))
        ours.append(report["latency_ms"]["median"])
        peers.append(peer_median_ms(session, feed, seconds))
    return {"model": name, "input": " ".join(shape_text(v) for v in feed.values() if v.ndim),
            "pelton_ms": float(np.median(ours)), "onnxruntime_ms": float(np.median(peers)), "max_error": error}


def run_plan(pelton: Pelton, name: str, feed: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
    folder = WORK / name
    words = []
    for key, value in feed.items():
        np.save(folder / f"{key}.npy", value)
        words += ["--input", f"{key}={folder / f'{key}.npy'}"]
    pelton("run", WORK / f"{name}.pelton", *words, "--output-dir", folder, quiet=True)
    return [np.load(folder / f"{key}.npy") for key in outputs]


def do_the_job(pelton: Pelton, image, detector_out: str, recogniser_out: str, characters: str) -> None:
    print("\n== What the models say, run by Pelton")
    score, = run_plan(pelton, "text_detector", {"x": inputs.detector_input(image)}, [detector_out])
    box = inputs.found_box(score, image)
    if box is None:
        raise SystemExit("demo: no text found in the photograph")
    print(f"text found at {box}, the caption was drawn at {inputs.CAPTION_BOX}")
    crop = inputs.recogniser_input(image, box)
    probabilities, = run_plan(pelton, "text_recogniser", {"x": crop}, [recogniser_out])
    text = inputs.decode_text(probabilities, characters)
    print(f'it reads "{text}", drawn was "{inputs.CAPTION}"')
    state, probability = np.zeros((2, 1, 128), np.float32), []
    for chunk in inputs.speech_chunks():
        p, state = run_plan(pelton, "voice_detector", {"input": chunk, "state": state, "sr": np.array(16000)},
                            ["output", "stateN"])
        probability.append(float(p[0, 0]))
    print("speech at", ", ".join(f"{a:.2f} to {b:.2f} s" for a, b in inputs.speech_segments(probability)))


def print_table(rows: list[dict], threads: int) -> None:
    print(f"\n== Pelton against ONNX Runtime {onnxruntime.__version__}, f32, CPU, {threads} threads, median ms of a run")
    print(f"{'model':18}{'input':24}{'Pelton':>9}{'ONNX Runtime':>14}{'ratio':>8}{'largest error':>15}")
    for r in rows:
        print(f"{r['model']:18}{r['input']:24}{r['pelton_ms']:9.2f}{r['onnxruntime_ms']:14.2f}"
              f"{r['onnxruntime_ms'] / r['pelton_ms']:7.2f}x{r['max_error']:15.1e}")
    mean = float(np.exp(np.mean([np.log(r["onnxruntime_ms"] / r["pelton_ms"]) for r in rows])))
    print(f"{'geometric mean':18}{'':24}{'':23}{mean:7.2f}x   (above 1: Pelton is faster)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=3, help="of timing, for each engine, model and turn")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    pelton = Pelton(args.binary.resolve(), args.threads)
    image = inputs.captioned_photo(FILES / "china.jpg")
    feeds = {
        "text_detector": {"x": inputs.detector_input(image)},
        "text_recogniser": {"x": inputs.recogniser_input(image, inputs.CAPTION_BOX)},
        "voice_detector": {"input": inputs.speech_chunks()[5], "state": np.zeros((2, 1, 128), np.float32),
                           "sr": np.array(16000)},
    }
    rows = [through_the_tool(pelton, name, feed, args.seconds) for name, feed in feeds.items()]
    reader = peer_session(FILES / "text_recogniser.onnx", 1)
    do_the_job(pelton, image, peer_session(FILES / "text_detector.onnx", 1).get_outputs()[0].name,
               reader.get_outputs()[0].name, reader.get_modelmeta().custom_metadata_map["character"])
    print_table(rows, args.threads)
    (WORK / "engine.json").write_text(json.dumps({"threads": args.threads, "peer": f"onnxruntime {onnxruntime.__version__}",
                                                  "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
