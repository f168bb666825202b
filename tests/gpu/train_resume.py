#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on a GPU under --deterministic: runs and resumed runs end with the same bits.

    python3 tests/gpu/train_resume.py PELTON

Each model is trained whole, twice, then stopped (killed) at three random updates and resumed; the last checkpoints must
be equal byte by byte, and the losses from the stop on. The same without --deterministic is only reported.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from raw_tensors import raw_tensors  # noqa: E402

UPDATES = 24
MODELS = {
    "mobilenet_v2": 'model = { name = "mobilenet_v2", classes = 10, size = 96 }\n'
                    'data = { synthetic = [3, 96, 96], synthetic_count = 200, batch = 16 }\n'
                    'optimizer = { name = "sgd", lr = 0.01, momentum = 0.9, weight_decay = 1e-4 }\n',
    "gpt2": 'model = { name = "gpt2", vocabulary = 512, length = 1024, positions = 1024, width = 256, layers = 2, heads = 4 }\n'
            'data = { tokens = ["tokens.bin"], token_type = "u16", batch = 8 }\n'
            'optimizer = { name = "adamw", lr = 1e-3 }\n',
}


def train(pelton, folder, *args):
    done = subprocess.run([pelton, "train", *args, "--device", "cuda", "--json"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr[-800:]}")
    return [(x["update"], x["loss"]) for x in map(json.loads, done.stdout.splitlines()) if x.get("kind") == "train"]


def checkpoint(folder, update):
    return folder / f"checkpoints/step-{update:09}.safetensors"


def check(pelton, folder, model, flags):
    name = model + "".join(flags)
    (folder / f"{name}.toml").write_text((folder / f"{model}.toml").read_text())
    sets = ["--set", "checkpoint.keep=100", "--set", "checkpoint.steps=1"]
    whole = train(pelton, folder, f"{name}.toml", *flags, *sets, "--set", f"output.folder={name}-whole")
    expected = raw_tensors(checkpoint(folder / f"{name}-whole", UPDATES))
    again = train(pelton, folder, f"{name}.toml", *flags, *sets, "--set", f"output.folder={name}-again")
    same = [again == whole and raw_tensors(checkpoint(folder / f"{name}-again", UPDATES)) == expected]
    for stop in sorted(random.Random(11).sample(range(2, UPDATES), 3)):
        run = folder / f"{name}-{stop}"
        process = subprocess.Popen([pelton, "train", f"{name}.toml", *flags, *sets, "--set", f"output.folder={run.name}",
                                    "--device", "cuda", "-q"], cwd=folder)
        while not checkpoint(run, stop).exists() and process.poll() is None:
            pass
        process.kill()
        process.wait()
        for path in (run / "checkpoints").glob("step-*"):  # as if it had ended right there
            if int(path.name[5:14]) > stop:
                path.unlink()
        losses = train(pelton, folder, run.name, "--resume", *flags)
        same.append(losses == [x for x in whole if x[0] > stop] and raw_tensors(checkpoint(run, UPDATES)) == expected)
    return same


def main():
    pelton = sys.argv[1]
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        draw = random.Random(1)
        (folder / "tokens.bin").write_bytes(b"".join(draw.randrange(512).to_bytes(2, "little") for _ in range(64 * 1024 + 1)))
        for model, text in MODELS.items():
            (folder / f"{model}.toml").write_text(f'version = 1\nseed = 3\n{text}step = {{ steps = {UPDATES}, precision = "bf16" }}\n'
                                                  'output = { tensorboard = false, html = false }\n')
            for flags in (["--deterministic"], []):
                same = check(pelton, folder, model, flags)
                print(f"{model} {' '.join(flags) or 'by timing'}: again and resumed after three stops: "
                      f"{['differs', 'the same bits'][all(same)]} {same}", flush=True)
                failed |= bool(flags) and not all(same)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
