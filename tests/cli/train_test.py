# SPDX-License-Identifier: Apache-2.0
"""pelton train on made-up arrays: runs, resumes, interrupts, bad input, what becomes of a run."""
import json
import os
import random
import re
import signal
import struct
import subprocess
import time

import numpy as np
import pytest

from conftest import BINARY, assert_error
from raw_tensors import raw_tensors

RECIPE = """version = 1
seed = 5
model = { name = "mlp", features = 8, hidden = [16], classes = 3, dropout = 0.1, activation = "gelu" }
step = { epochs = 6 }
optimizer = { name = "adamw", lr = 0.02 }
schedule = { name = "cosine", warmup = 4 }
[data]
batch = 16
train = { kind = "npy", path = "train.npz", shuffle = true }
eval = { kind = "npy", path = "eval.npz" }
"""


def write_data(folder, **changes):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8))
    for name, count in (("train", 100), ("eval", 40)):  # 100 = 6 batches of 16 and a short one
        label = rng.integers(0, 3, count)
        x = (centres[label] + 0.5 * rng.normal(size=(count, 8))).astype(np.float32)
        np.savez(folder / f"{name}.npz", **{"features": x, "label": label, **changes})
    (folder / "r.toml").write_text(RECIPE)


@pytest.fixture
def arrays(tmp_path):
    write_data(tmp_path)
    return tmp_path


def lines(result):
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def losses(out):
    return [(x["update"], x["loss"]) for x in out if x.get("kind") == "train"]


def newest(run):
    return sorted((run / "checkpoints").glob("step-*"))[-1]


def test_learns_and_writes_a_run(pelton, arrays):
    out = lines(pelton("train", "r.toml", "--json"))
    assert out[-1]["final"] and out[-1]["stopped"] == "done" and out[-1]["updates"] == 42
    evals = [x for x in out if x.get("kind") == "eval"]
    assert len(evals) == 6 and evals[-1]["accuracy"] > 0.9 and 0 < evals[-1]["f1"] <= 1
    run = arrays / "runs/r"
    assert {p.name for p in run.iterdir()} >= {"recipe.toml", "run.json", "metrics.jsonl", "report.html", "checkpoints"}
    assert list(run.glob("events.out.tfevents.*"))
    stored = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    assert losses(stored) == losses(out)
    page = (run / "report.html").read_text()
    assert page.count("<svg") >= 3 and "accuracy" in page and not re.search(r"https?://|<script", page)
    names = raw_tensors(newest(run))
    assert {"0.weight", "updates", "optimizer.exp_avg.0.weight"} <= set(names)


def test_event_files_hold_the_losses(pelton, arrays):
    out = lines(pelton("train", "r.toml", "--json"))
    raw = next((arrays / "runs/r").glob("events.*")).read_bytes()
    found, at = [], 0
    while at < len(raw):
        size, = struct.unpack_from("<Q", raw, at)
        body = raw[at + 12:at + 12 + size]
        if (i := body.find(b"train/loss\x15")) >= 0:
            found.append(struct.unpack_from("<f", body, i + 11)[0])
        at += size + 16
    assert np.allclose(found, [v for _, v in losses(out)], rtol=1e-6)


def test_the_same_recipe_gives_the_same_bits(pelton, arrays):
    for name in "ab":
        pelton("train", "r.toml", "-q", "--set", f"output.folder={name}")
    assert raw_tensors(newest(arrays / "a")) == raw_tensors(newest(arrays / "b"))


def test_resumes_bit_for_bit_after_three_stops(pelton, arrays):
    whole = lines(pelton("train", "r.toml", "--json", "--set", "output.folder=whole"))
    for stop in sorted(random.Random(7).sample(range(2, 40), 3)):
        run = f"stopped{stop}"
        # All are kept: the run may be well past `stop` when it is killed.
        sets = ("--set", f"output.folder={run}", "--set", f"checkpoint.steps={stop}", "--set", "checkpoint.keep=100")
        process = subprocess.Popen([BINARY, "train", "r.toml", "--json", *sets], cwd=arrays, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        while not (arrays / run / f"checkpoints/step-{stop:09}.safetensors").exists() and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.wait()
        for path in (arrays / run / "checkpoints").glob("step-*"):  # as if it had ended right there
            if int(path.name[5:14]) > stop:
                path.unlink()
        out = lines(pelton("train", run, "--resume", "--json"))
        assert losses(out) == [x for x in losses(whole) if x[0] > stop]
        assert raw_tensors(newest(arrays / run)) == raw_tensors(newest(arrays / "whole"))
        stored = [json.loads(x) for x in (arrays / run / "metrics.jsonl").read_text().splitlines()]
        assert [u for u, _ in losses(stored)] == list(range(1, 43))


@pytest.mark.parametrize("number,status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_save_first(pelton, arrays, number, status):
    process = subprocess.Popen([BINARY, "train", "r.toml", "--json", "--set", "step.epochs=100000"], cwd=arrays,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = [process.stdout.readline() for _ in range(20)]
    process.send_signal(number)
    rest, err = process.communicate(timeout=60)
    assert process.returncode == status
    *told, ended = [json.loads(x) for x in first + rest.splitlines()]
    assert ended["error"]["code"] == "cancelled" and "the checkpoint is written" in ended["error"]["what"]
    last = max(line["update"] for line in told)
    saved = int(newest(arrays / "runs/r").name[5:14])
    assert saved >= last
    again = lines(pelton("train", "runs/r", "--resume", "--json", "--set", f"step.epochs={saved // 7 + 2}"))
    assert losses(again)[0][0] == saved + 1


def test_a_killed_run_resumes(pelton, arrays):
    for delay in (0.3, 0.5, 0.8):
        process = subprocess.Popen([BINARY, "train", "r.toml", "-q", "--set", "step.epochs=100000", "--set",
                                    "checkpoint.steps=1", "--set", f"output.folder=k{delay}"], cwd=arrays)
        while not list((arrays / f"k{delay}").glob("checkpoints/step-*")):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(delay)
        process.kill()
        process.wait()
        done = int(newest(arrays / f"k{delay}").name[5:14])
        out = lines(pelton("train", f"k{delay}", "--resume", "--json", "--set", f"step.epochs={done // 7 + 1}"))
        assert out[-1]["final"]


def test_a_run_compiles_runs_and_exports(pelton, arrays):
    final = lines(pelton("train", "r.toml", "--json"))[-1]
    assert pelton("compile", "runs/r", "-o", "r.pelton").code == 0
    data = np.load(arrays / "eval.npz")
    np.save(arrays / "x.npy", data["features"])
    pelton("run", "r.pelton", "--input", "features=x.npy", "--output-dir", "out")
    logits = np.load(arrays / "out/logits.npy")
    assert abs((logits.argmax(1) == data["label"]).mean() - final["best"]["accuracy"]) < 1e-9
    assert pelton("export", "runs/r", "-o", "r.onnx").code == 0
    pelton("run", "r.onnx", "--input", "features=x.npy", "--output-dir", "out2")
    assert np.allclose(np.load(arrays / "out2/logits.npy"), logits, atol=1e-5)


def test_weights_leave_a_run_as_files_and_start_another(pelton, arrays):
    final = lines(pelton("train", "r.toml", "--json"))[-1]
    assert pelton("export", "runs/r", "-o", "w.npz").code == 0
    assert pelton("export", "runs/r", "-o", "w.safetensors").code == 0
    arrays_of, tensors = np.load(arrays / "w.npz"), raw_tensors(arrays / "w.safetensors")
    assert sorted(arrays_of.files) == sorted(tensors) and "0.weight" in tensors and "updates" not in tensors
    assert all(arrays_of[n].tobytes() == tensors[n] for n in tensors)
    for weights in ("w.npz", "w.safetensors"):
        (arrays / "again.toml").write_text(RECIPE.replace("classes = 3,", f'classes = 3, weights = "{weights}",'))
        out = lines(pelton("train", "again.toml", "--json", "--set", "optimizer.lr=0", "--set", f"output.folder=runs/{weights}",
                           "--set", "step.average=0"))
        assert out[-1]["best"]["accuracy"] == final["best"]["accuracy"]
    assert_error(pelton("export", "r.toml", "-o", "x.npz"), 1, "is not known by its name", ".safetensors, .npz, .onnx or a run folder")


def test_an_onnx_model_is_trained_further(pelton, arrays):
    first = lines(pelton("train", "r.toml", "--json"))[-1]
    assert pelton("export", "runs/r", "-o", "r.onnx").code == 0
    (arrays / "more.toml").write_text(RECIPE.replace(re.search(r"model = .*", RECIPE)[0], 'model = { onnx = "r.onnx" }'))
    out = lines(pelton("train", "more.toml", "--json", "--set", "optimizer.lr=0.001"))
    assert losses(out)[0][1] < 0.6 and out[-1]["best"]["accuracy"] >= first["best"]["accuracy"] - 0.05


def test_weights_and_frozen_groups(pelton, arrays):
    lines(pelton("train", "r.toml", "--json"))
    text = RECIPE.replace("classes = 3,", 'classes = 5, weights = "runs/r", fresh = ["3.*"],')
    (arrays / "t.toml").write_text(text + '[[group]]\nmatch = ["0.*"]\nfrozen = true\n')
    lines(pelton("train", "t.toml", "--json"))
    a, b = raw_tensors(newest(arrays / "runs/t")), raw_tensors(arrays / "runs/r/checkpoints/best.safetensors")
    newest_of_r = raw_tensors(newest(arrays / "runs/r"))
    assert a["0.weight"] in (b["0.weight"], newest_of_r["0.weight"]) and len(a["3.weight"]) == 5 * 16 * 4
    assert "optimizer.exp_avg.0.weight" not in a
    (arrays / "t.toml").write_text(text.replace(', fresh = ["3.*"]', ""))
    assert_error(pelton("train", "t.toml", "--set", "output.folder=x"), 1, "2 weights do not fit", "3.bias (f32[3] for f32[5])", "model.fresh")


def test_early_stop(pelton, arrays):
    out = lines(pelton("train", "r.toml", "--json", "--set", "eval.patience=2", "--set", "optimizer.lr=0.0"))
    assert out[-1]["stopped"] == "early" and out[-1]["updates"] == 21


def test_dry_run_schema_and_models(pelton, arrays):
    out = pelton("train", "r.toml", "--dry-run", "--json").json()
    assert out["parameters"] == 8 * 16 + 16 + 16 * 3 + 3 and out["updates"] == 42 and out["step_seconds"] > 0
    assert not (arrays / "runs").exists()
    assert "return" in pelton("train", "r.toml", "--dry-run", "--graph").out
    assert json.loads(pelton("train", "--schema").out)["properties"]["optimizer"]
    assert {"gpt2", "resnet18"} <= {m["name"] for m in pelton("train", "--models", "--json").json()["models"]}


def test_a_memory_budget_is_kept_by_computing_again(pelton, arrays):
    wide = ("--set", "model.hidden=[64, 64, 64, 64, 64, 64]", "--set", "data.batch=100", "--set", "step.epochs=2")
    whole = pelton("train", "r.toml", "--dry-run", "--json", *wide).json()
    tight = pelton("train", "r.toml", "--dry-run", "--json", *wide, "--memory-budget", "200KiB").json()
    assert tight["arena_bytes"] < 0.8 * whole["arena_bytes"]
    out = pelton("train", "r.toml", "--json", "--log-level", "info", *wide, "--memory-budget", "200KiB")
    assert re.search(r"memory budget: [1-9][0-9]* results are computed again", out.err)
    plain = lines(pelton("train", "r.toml", "--json", *wide, "--set", "output.folder=plain"))
    assert losses(lines(out)) == losses(plain)


def test_what_is_likely_a_mistake_is_told(pelton, arrays):
    slow = pelton("train", "r.toml", "--dry-run", "--set", "step.precision=fp16")
    assert slow.code == 0 and "products in fp16 have no fast kernels on cpu" in slow.err
    for name in ("rose", "tulip"):
        (arrays / "pictures" / name).mkdir(parents=True)
        for i in range(4):
            (arrays / "pictures" / name / f"{i}.ppm").write_bytes(b"P6 8 8 255\n" + bytes(range(i, i + 192)))
    (arrays / "p.toml").write_text("""version = 1
model = { name = "small_cnn", channels = 3, size = 8, classes = 10 }
data = { batch = 4, train = { kind = "folder", path = "pictures", stages = [{ op = "decode" }, { op = "normalize" }] } }
optimizer = { name = "sgd", lr = 0.1 }
step = { epochs = 1 }
""")
    assert "the data has 2 classes, the model 10" in pelton("train", "p.toml", "--dry-run").err
    fits = pelton("train", "p.toml", "--dry-run", "--set", "model.classes=2")
    assert fits.code == 0 and fits.err == ""


def test_bad_input_is_one_clear_error(pelton, arrays):
    assert_error(pelton("train", "none.toml"), 1, "none.toml")
    assert_error(pelton("train", "r.toml", "--set", "optimizer.name=sdg"), 1, "'sdg'", "did you mean 'sgd'?")
    assert_error(pelton("train", "r.toml", "--set", "optimizer.lr=much"), 1, "'lr' = \"much\"", "r.toml line 5, with --set optimizer.lr=much")
    assert_error(pelton("train", "."), 1, "the folder holds no training run", "name a recipe")
    assert_error(pelton("train", "r.toml", "--set", "model.features=9"), 1, "features", "[8]", "[9]")
    assert_error(pelton("train", "r.toml", "--set", "model.classes=2"), 1, "label 2 is outside 0 .. 1", "number of classes")
    assert_error(pelton("train", "r.toml", "--resume"), 1, "no run to resume")
    write_data(arrays, label=np.zeros(7, np.int64))
    assert_error(pelton("train", "r.toml"), 1, "same number of rows")


def test_nan_is_named_and_leaves_the_checkpoint(pelton, arrays):
    out = pelton("train", "r.toml", "--set", "optimizer.name=sgd", "--set", "optimizer.lr=1e30", "--set", "checkpoint.steps=1")
    assert_error(out, 1, "the loss of update", "first not finite", "learning rate")
    data = dict(np.load(arrays / "train.npz"))
    data["features"][5, 0] = 1e6  # infinite in fp16, where the first layer multiplies
    np.savez(arrays / "train.npz", **data)
    def in_fp16(full, *more):
        return pelton("train", "r.toml", "--set", f"output.folder=f{len(full)}", "--set", "step.precision=fp16", "--set",
                      f"step.full_precision={full}", *more)
    assert_error(in_fp16("['none']"), 1, "first not finite: ", "'0'", "learning rate")
    assert_error(in_fp16("['0']"), 1, "first not finite: ", "'3'")
    lines(in_fp16("['0', '3']", "--json"))
    data["features"][0, 0] = np.nan
    np.savez(arrays / "train.npz", **data)
    assert_error(pelton("train", "r.toml", "--set", "output.folder=n"), 1, "the loss of update", "NaN")


def test_nan_in_the_evaluation_stops_the_run(pelton, arrays):
    data = dict(np.load(arrays / "eval.npz"))
    data["features"][17, 0] = np.nan  # in the second batch
    np.savez(arrays / "eval.npz", **data)
    out = pelton("train", "r.toml", "--set", "checkpoint.steps=5")
    assert_error(out, 1, "the loss of the evaluation after update 7", "first not finite", "'0'", "data of the evaluation")
    good = newest(arrays / "runs/r")
    assert good.name == "step-000000005.safetensors" and raw_tensors(good)


def test_deterministic_runs_resume_bit_for_bit(pelton, arrays):
    lines(pelton("train", "r.toml", "--json", "--deterministic", "--set", "output.folder=a"))
    sets = ("--set", "output.folder=b", "--set", "checkpoint.keep=9")
    lines(pelton("train", "r.toml", "--json", "--deterministic", *sets))
    for path in (arrays / "b/checkpoints").glob("step-*"):
        if int(path.name[5:14]) > 14:
            path.unlink()
    lines(pelton("train", "b", "--json", "--deterministic", "--resume"))
    assert raw_tensors(newest(arrays / "a")) == raw_tensors(newest(arrays / "b"))


def test_a_run_is_not_overwritten_and_belongs_to_its_model(pelton, arrays):
    lines(pelton("train", "r.toml", "--json", "--set", "step.epochs=1"))
    assert_error(pelton("train", "r.toml"), 1, "holds a run already", "--resume")
    assert_error(pelton("train", "r.toml", "--resume", "--set", "model.hidden=[4]"), 1, "0.bias", "in the checkpoint")
    assert_error(pelton("compile", "."), 1, "holds no training run")


def test_a_full_disk_keeps_the_last_checkpoint(arrays):
    """A limit on file size stands for the full disk: the writes fail in the same place."""
    run = "import resource,signal,os,sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " \
          "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); os.execv(sys.argv[2], sys.argv[2:])"
    import sys
    call = [sys.executable, "-c", run, "20000", str(BINARY), "train", "r.toml", "--set", "output.tensorboard=false"]
    process = subprocess.run(call, cwd=arrays, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    good = newest(arrays / "runs/r").read_bytes()
    call[3] = "2500"
    process = subprocess.run([*call[:6], "runs/r", "--resume", "--set", "step.epochs=9", "--set", "output.tensorboard=false"],
                             cwd=arrays, capture_output=True, text=True, timeout=120)
    assert process.returncode == 1 and process.stderr.count("pelton: error:") == 1
    assert newest(arrays / "runs/r").read_bytes() == good
    assert not [p for p in (arrays / "runs/r/checkpoints").iterdir() if not p.name.endswith(".safetensors")]


def test_groups_join_later_and_resume_does_not_notice(pelton, arrays):
    (arrays / "g.toml").write_text(RECIPE + '[[group]]\nmatch = ["0.*"]\nfrom_epoch = 3\n')
    keep = ("--set", "checkpoint.keep=9", "--set", "step.average=0.9")
    whole = lines(pelton("train", "g.toml", "--json", *keep))
    at = {int(p.name[5:14]): raw_tensors(p) for p in (arrays / "runs/g/checkpoints").glob("step-*")}
    assert at[7]["0.weight"] == at[21]["0.weight"] != at[28]["0.weight"]
    assert at[7]["3.weight"] != at[14]["3.weight"]
    for stop in (14, 21, 28):
        for path in (arrays / "runs/g/checkpoints").glob("step-*"):
            if int(path.name[5:14]) > stop:
                path.unlink()
        out = lines(pelton("train", "runs/g", "--resume", "--json", *keep))
        assert losses(out) == [x for x in losses(whole) if x[0] > stop]
        assert raw_tensors(newest(arrays / "runs/g")) == at[42]


def test_options_work_together(pelton, arrays):
    (arrays / "o.toml").write_text(RECIPE.replace('eval = { kind = "npy", path = "eval.npz" }', "holdout = 0.2"))
    sets = [x for s in ("step.accumulate=2", "step.mixup=0.3", "step.average=0.9", "step.label_smoothing=0.1", "step.clip_norm=1",
                        "data.mean=[0.5]", "data.std=[2.0]", "data.drop_last=true") for x in ("--set", s)]
    assert_error(pelton("train", "o.toml", *sets), 1, "data.mean has 1 numbers", "[8]")
    del sets[10:14]  # mean and std
    out = lines(pelton("train", "o.toml", "--json", *sets))
    assert out[-1]["best"]["accuracy"] > 0.8 and out[-1]["updates"] == 30
    assert all("grad_norm" in x for x in out if x.get("kind") == "train")
    assert "average.0.weight" in raw_tensors(newest(arrays / "runs/o"))
    assert pelton("compile", "runs/o", "-o", "o.pelton").code == 0


def idx(array):
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("kind", ["csv", "mnist", "cifar"])
def test_kinds_of_data(pelton, tmp_path, kind):
    """Two classes that a glance tells apart, as a table and as pictures."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 64).astype(np.uint8)
    if kind == "csv":
        (tmp_path / "t.csv").write_text("a,b,class\n" + "".join(f"{k + 0.1 * rng.normal()},{1 - k},{k}\n" for k in label))
        model, data = 'name = "mlp", features = 2, hidden = [8], classes = 2', 'kind = "csv", path = "t.csv", label = "class"'
    else:
        size, channels = (28, 1) if kind == "mnist" else (32, 3)
        x = (rng.integers(0, 80, (64, channels, size, size)) + 120 * label[:, None, None, None]).astype(np.uint8)
        if kind == "mnist":
            (tmp_path / "x").write_bytes(idx(x[:, 0]))
            (tmp_path / "y").write_bytes(idx(label))
            data = 'kind = "mnist", images = "x", labels = "y"'
        else:
            (tmp_path / "c.bin").write_bytes(b"".join(bytes([k]) + p.tobytes() for k, p in zip(label, x)))
            data = 'kind = "cifar", files = ["c.bin"]'
        model = f'name = "small_cnn", size = {size}, channels = {channels}, widths = [4], hidden = 8, classes = 10'
    (tmp_path / "r.toml").write_text(f"""version = 1
model = {{ {model} }}
step = {{ epochs = 12 }}
optimizer = {{ name = "adam", lr = 0.02 }}
data = {{ batch = 16, train = {{ {data}, shuffle = true }}, eval = {{ {data} }} }}
""")
    assert lines(pelton("train", "r.toml", "--json"))[-1]["best"]["accuracy"] > 0.95


def test_lines_of_tokens(pelton, tmp_path):
    (tmp_path / "text.bin").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 60)
    (tmp_path / "t.toml").write_text("""version = 1
model = { name = "gpt2", vocabulary = 128, length = 16, positions = 16, width = 32, layers = 2, heads = 2 }
data = { tokens = ["text.bin"], eval_tokens = ["text.bin"], token_type = "text", batch = 8 }
step = { epochs = 4 }
optimizer = { name = "muon", lr = 0.01 }
""")
    out = lines(pelton("train", "t.toml", "--json"))
    evals = [x for x in out if x.get("kind") == "eval"]
    assert evals[-1]["perplexity"] < 0.7 * evals[0]["perplexity"]
    assert_error(pelton("train", "t.toml", "--set", "model.vocabulary=100", "--set", "output.folder=x"), 1, "label 1", "outside 0 .. 99")
