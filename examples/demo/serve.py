#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make demo-serve`: the compiled models behind HTTP and gRPC, asked by the public client library.

Builds a model repository from the plans of `make demo-engine` (or from the ONNX files), starts `pelton serve`,
compares the answers with ONNX Runtime's on the same input, then measures with `pelton loadtest`.
"""
import argparse
import pathlib
import shutil
import signal
import subprocess
import sys

import inputs
import numpy as np
import onnxruntime
import tritonclient.grpc as grpc
import tritonclient.http as http

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES, WORK = ROOT / ".demo" / "files", ROOT / ".demo" / "work"
RTOL, ATOL = 1e-3, 1e-4
TYPES = {np.dtype("float32"): "FP32", np.dtype("int64"): "INT64"}


def make_repository(folder: pathlib.Path, names: list[str]) -> None:
    """No config.pbtxt: a plan or a model in a numbered folder is enough."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in names:
        version = folder / name / "1"
        version.mkdir(parents=True)
        plan = WORK / f"{name}.pelton"
        source = plan if plan.exists() else FILES / f"{name}.onnx"
        shutil.copy(source, version / f"model{source.suffix}")


def ask(client, module, name: str, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    tensors = []
    for key, value in feed.items():
        t = module.InferInput(key, list(value.shape), TYPES[value.dtype])
        t.set_data_from_numpy(value)
        tensors.append(t)
    answer = client.infer(name, tensors)
    meta = client.get_model_metadata(name)
    outputs = [o["name"] for o in meta["outputs"]] if module is http else [o.name for o in meta.outputs]
    return {o: answer.as_numpy(o) for o in outputs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1, help="of one measuring window")
    args = parser.parse_args()
    image = inputs.captioned_photo(FILES / "china.jpg")
    feeds = {"text_recogniser": {"x": inputs.recogniser_input(image, inputs.CAPTION_BOX)},
             "voice_detector": {"input": inputs.speech_chunks()[5], "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000)}}
    repository = WORK / "repository"
    make_repository(repository, list(feeds))
    command = [str(args.binary), "serve", "--model-repository", str(repository), "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    print("$ pelton", *command[1:], flush=True)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline().strip()
        print(line)
        words = line.split()
        if words[:1] != ["ready:"]:
            raise SystemExit("demo: the server did not start")
        address = dict(zip(words[1::2], words[2::2]))
        for module in (http, grpc):
            protocol = "http" if module is http else "grpc"
            client = module.InferenceServerClient(address[protocol])
            for name, feed in feeds.items():
                expected = onnxruntime.InferenceSession(str(FILES / f"{name}.onnx"), providers=["CPUExecutionProvider"]).run(None, feed)
                answers = ask(client, module, name, feed)
                worst = max(float(np.max(np.abs(a - e))) for a, e in zip(answers.values(), expected))
                if not all(np.allclose(a, e, RTOL, ATOL) for a, e in zip(answers.values(), expected)):
                    raise SystemExit(f"demo: {name} over {protocol} differs from ONNX Runtime by {worst}")
                print(f"{protocol}: {name} answers as ONNX Runtime does, largest difference {worst:.1e}")
        for scheme in ("http", "grpc"):
            shapes = [w for k, v in feeds["voice_detector"].items() for w in ("--shape", f"{k}={'x'.join(map(str, v.shape))}") if v.ndim]
            load = [str(args.binary), "loadtest", f"{scheme}://{address[scheme]}", "--model", "voice_detector", "--concurrency", "1,4",
                    "--window", str(args.seconds), *shapes, "--zeros"]
            print("\n$ pelton", *load[1:], flush=True)
            subprocess.run(load, check=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


if __name__ == "__main__":
    sys.exit(main())
