# SPDX-License-Identifier: Apache-2.0
"""The single-GPU ladder of MobileNetV2 on pictures of 32x32 enlarged to 224, rung by rung, in Pelton and in PyTorch: f32 at batch 32, mixed precision, batch 128,
less work and fewer bytes on the way to the GPU, parallel loading, pinned memory. Samples/s of whole training steps fed by the loader.

usage: ladder.py PELTON [--rungs base,amp,b128,device,parallel,pinned] [--seconds 2] [--threads 16] [--sides pelton,torch] [--out FILE.json]

PyTorch (its fastest eager form for the model: channels-last, cuDNN's search, fused SGD, bf16 autocast; true f32 in `base`): a Dataset with torchvision transforms; from `device` on it
hands out bytes and the GPU enlarges and normalises; `parallel` gives the DataLoader one worker a thread; `pinned` adds pin_memory and copies that do not block.
With --try tiny models run a few steps on the CPU, to see that all of it runs; such figures mean nothing.
Pelton: `cifar` source, enlarged and normalised on the CPU; from `device` on by the step, so that the stored bytes travel; threads 1, from `parallel` on all.
Its batches lie in pinned memory in every rung, so `pinned` is `parallel` again.
"""
import argparse, datetime, json, os, pathlib, subprocess, sys, tempfile, time

RUNGS = ["base", "amp", "b128", "device", "parallel", "pinned"]
COUNT = 20480  # pictures

RECIPE = """version = 1
model = {{ {model} }}
step = {{ precision = "{precision}", steps = {steps} }}
optimizer = {{ name = "sgd", lr = 0.001, momentum = 0.9 }}
checkpoint = {{ every = 0 }}
output = {{ folder = "{folder}", html = false, tensorboard = false, every = 10 }}
data = {{ train = "p.toml", batch = {batch}, drop_last = true }}
"""
MOBILENET = 'name = "mobilenet_v2", classes = 10, dropout = 0.0'
TINY = 'name = "small_cnn", size = 224, channels = 3, widths = [4], hidden = 8, classes = 10'
PIPELINE = """version = 1
source = {{ kind = "cifar", files = ["pictures.bin"], shuffle = true }}
[[stage]]
op = "decode"
[[stage]]
op = "resize"
size = 224
{enlarge}
[[stage]]
op = "normalize"
{where}
"""


def batch_of(rung):
    return 32 if rung in ("base", "amp") else 128


def pelton(binary, rung, folder, threads, steps, tiny):
    where, enlarge = ('device = "cpu"', "") if rung in ("base", "amp", "b128") else ("", "" if tiny else 'device = "gpu"')
    used = threads if rung in ("parallel", "pinned") else 1
    (folder / "p.toml").write_text(PIPELINE.format(where=where, enlarge=enlarge))
    (folder / "r.toml").write_text(RECIPE.format(model=TINY if tiny else MOBILENET, precision="fp32" if rung == "base" else "bf16", steps=steps,
                                                 folder=folder / f"run{time.monotonic_ns()}", batch=batch_of(rung)))
    command = [binary, "train", folder / "r.toml", "--device", "cpu" if tiny else "cuda", "--threads", str(used), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        return {"failed": "90 s were not enough"}
    if done.returncode:
        return {"failed": (done.stderr or done.stdout)[-300:]}
    rates = [x["samples_per_s"] for x in map(json.loads, done.stdout.strip().splitlines()) if x.get("kind") == "train"]
    return round(rates[-1], 1) if rates else {"failed": "no rate was told"}


def torch_rung(rung, folder, threads, seconds, tiny):
    import numpy as np, torch, torchvision
    import torch.nn.functional as F
    from torchvision.transforms import v2
    torch.backends.cudnn.benchmark = True
    # `base` is f32 on both sides: convolutions too, which PyTorch runs in TF32 unless told otherwise.
    torch.set_float32_matmul_precision("highest" if rung == "base" else "high")
    torch.backends.cudnn.allow_tf32 = rung != "base"
    raw = np.fromfile(folder / "pictures.bin", dtype=np.uint8).reshape(-1, 3073)
    labels, pictures = torch.from_numpy(raw[:, 0].astype(np.int64)), torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).copy())
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    on_device = rung in ("device", "parallel", "pinned")
    finish = v2.Compose([v2.Resize(224, antialias=True), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return len(labels)

        def __getitem__(self, i):
            return pictures[i] if on_device else finish(pictures[i]), labels[i]

    workers = threads if rung in ("parallel", "pinned") else 0
    more = {"num_workers": workers, "persistent_workers": True, "prefetch_factor": 4} if workers else {}
    loader = torch.utils.data.DataLoader(Pictures(), batch_size=batch_of(rung), shuffle=True, drop_last=True, pin_memory=rung == "pinned", **more)
    torch.set_num_threads(1 if not on_device else threads)
    place, wait = ("cpu", lambda: None) if tiny else ("cuda", torch.cuda.synchronize)
    if tiny:
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 10))
    else:
        model = torchvision.models.mobilenet_v2(num_classes=10)
        model.classifier[0] = torch.nn.Identity()
    model = model.to(place).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, fused=not tiny)
    apart = rung == "pinned"
    first = 2 if tiny else 12  # steps before the clock starts
    done, start, steps = 0, None, 0
    while True:
        for x, y in loader:
            x, y = x.to(place, non_blocking=apart), y.to(place, non_blocking=apart)
            if on_device:
                x = finish(x)
            x = x.to(memory_format=torch.channels_last)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(place, dtype=torch.bfloat16, enabled=rung != "base"):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            steps += 1
            if start is None:
                if steps == first:
                    wait()
                    start = time.perf_counter()
                continue
            done += len(y)
            if steps % 4 == 0:
                wait()
                if time.perf_counter() - start > seconds:
                    rate = round(done / (time.perf_counter() - start), 1)
                    device = "cpu" if tiny else torch.cuda.get_device_name()
                    print(json.dumps({"samples_per_s": rate, "torch": torch.__version__, "device": device}), flush=True)
                    os._exit(0)  # the loader's workers are left to the system


def main():
    import numpy as np
    p = argparse.ArgumentParser()
    p.add_argument("pelton")
    p.add_argument("--rungs", default=",".join(RUNGS))
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--sides", default="pelton,torch")
    p.add_argument("--out")
    p.add_argument("--try", dest="tiny", action="store_true")
    p.add_argument("--torch-worker", nargs=2, metavar=("RUNG", "FOLDER"))
    a = p.parse_args()
    if a.torch_worker:
        return torch_rung(a.torch_worker[0], pathlib.Path(a.torch_worker[1]), a.threads, a.seconds, a.tiny)
    report = {"what": __doc__.split("\n\n")[0], "sides": __doc__.split("\n\n")[2], "date": datetime.date.today().isoformat(), "threads": a.threads, "samples_per_s": {}}
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        rng = np.random.default_rng(1)
        raw = rng.integers(0, 256, (COUNT // 16 if a.tiny else COUNT, 3073), dtype=np.uint8)
        raw[:, 0] %= 10
        raw.tofile(folder / "pictures.bin")
        for rung in a.rungs.split(","):
            row = report["samples_per_s"].setdefault(rung, {})
            if "pelton" in a.sides:
                slow = rung in ("base", "amp", "b128")
                steps = 20 if a.tiny else int(a.seconds * (30 if slow else 70)) // 10 * 10 * (4 if batch_of(rung) == 32 else 1)
                row["pelton"] = pelton(a.pelton, rung, folder, a.threads, steps, a.tiny)
            if "torch" in a.sides:
                command = [sys.executable, __file__, a.pelton, "--torch-worker", rung, made, "--threads", str(a.threads), "--seconds", str(a.seconds)]
                try:
                    done = subprocess.run(command + ["--try"] * a.tiny, env=env, capture_output=True, text=True, timeout=120)
                    answer = json.loads(done.stdout.strip().splitlines()[-1])
                    row["torch"] = answer.pop("samples_per_s")
                    report.update(answer)
                except (IndexError, ValueError):
                    row["torch"] = {"failed": done.stderr[-300:]}
                except subprocess.TimeoutExpired:
                    row["torch"] = {"failed": "120 s were not enough"}
            if isinstance(row.get("pelton"), float) and isinstance(row.get("torch"), float):
                row["ratio"] = round(row["pelton"] / row["torch"], 2)
            print(json.dumps({rung: row}), flush=True)
            if a.out:
                pathlib.Path(a.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
