# SPDX-License-Identifier: Apache-2.0
"""The input pipeline on a machine with a GPU: nvJPEG against torchvision's GPU decoder, the ResNet-50 step fed from JPEG files against the same step on a batch
that lies on the GPU, and training throughput by the number of cores, with turns of pictures on the CPU and in the step.

usage: gpu.py PELTON DATA_BENCH FOLDER_OF_JPEGS [--parts decode,pipeline,resnet,cores] [--cores 2,3,5,8,16] [--seconds 3] [--out FILE.json]

With --try everything that the CPU can run runs on it with tiny networks, to see that all of it runs; such figures mean nothing.
decode: whole files, pixels left in the GPU's memory on both sides. pipeline: random-resized-crop 224, flip, normalise to f32 behind it, on the CPU and on the GPU.
"""
import argparse, datetime, json, os, pathlib, subprocess, sys, tempfile, time

RECIPE = """version = 1
model = {{ {model} }}
step = {{ precision = "{precision}", steps = {steps} }}
optimizer = {{ name = "sgd", lr = 0.001, momentum = 0.9 }}
checkpoint = {{ every = 0 }}
output = {{ folder = "{folder}", html = false, tensorboard = false, every = 10 }}
data = {{ {data}, batch = 128, drop_last = true }}
"""
TRY = 'name = "small_cnn", size = 224, channels = 3, widths = [2], hidden = 4, classes = 1000'
RESNET = 'name = "resnet50", classes = 1000'
SMALL = 'name = "small_cnn", size = 224, channels = 3, widths = [8, 8], hidden = 16, classes = 10'


def stages(images, where, turn, decode="cpu"):
    side = f'device = "{where}"' if where else ""
    parts = [f'op = "decode"\ndevice = "{decode}"', 'op = "random_resized_crop"\nsize = 224']
    if turn:
        parts.append(f'op = "rotate"\nangle = {{ uniform = [-10, 10] }}\n{side}')
    parts += [f'op = "flip"\n{side}', f'op = "normalize"\n{side}']
    return f'version = 1\nsource = {{ kind = "list", path = "{images}", shuffle = true }}\n' + "".join(f"[[stage]]\n{p}\n" for p in parts)


def run(command, cores=None):
    if cores:
        command = ["taskset", "-c", f"0-{min(cores, os.cpu_count()) - 1}", *command]
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return [{"failed": "60 s were not enough"}]
    if done.returncode:
        return [{"failed": (done.stderr or done.stdout)[-500:]}]
    return [json.loads(line) for line in done.stdout.strip().splitlines()]


def train(a, folder, model, steps, where="gpu", turn=False, decode="cpu", cores=None):
    """Samples a second of the last seconds of a run."""
    # Epochs of many steps, however few the files are: the queue of steps is emptied between epochs.
    files = sorted(pathlib.Path(a.images).resolve().rglob("*.jpg"))
    (folder / "list.txt").write_text("".join(f"{f} {i % 10}\n" for i, f in enumerate(files * (40000 // len(files)))))
    (folder / "p.toml").write_text(stages(folder / "list.txt", "" if a.tiny and where == "gpu" else where, turn, decode))
    return rate(a, folder, model, steps, 'train = "p.toml"', cores)


def rate(a, folder, model, steps, data, cores=None, *more):
    if a.tiny:
        model, steps = TRY, 20
    (folder / "r.toml").write_text(RECIPE.format(model=model, precision="fp32" if a.tiny else "bf16", steps=steps, folder=folder / f"run{time.monotonic_ns()}", data=data))
    lines = run([a.pelton, "train", folder / "r.toml", "--device", "cpu" if a.tiny else "cuda", "--json", *more], cores)
    if more:
        return lines[-1]
    rates = [x["samples_per_s"] for x in lines if x.get("kind") == "train"]
    return round(rates[-1], 1) if rates else lines[-1]


SYNTHETIC = "synthetic = [3, 224, 224]"
STEPS = 360  # the last seconds hold the end of an epoch of 312


def torchvision(folder, seconds):
    """Lists of files in host memory at once; the pixels stay on the GPU. The better of two list lengths."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    files = [torch.frombuffer(bytearray(p.read_bytes()), dtype=torch.uint8) for p in sorted(pathlib.Path(folder).rglob("*.jpg"))]
    rates = {}
    for size in (32, 128):
        lists = [files[k:k + size] for k in range(0, len(files) - size + 1, size)]
        decode_jpeg(lists[0], mode=ImageReadMode.RGB, device="cuda")
        torch.cuda.synchronize()
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            decode_jpeg(lists[done // size % len(lists)], mode=ImageReadMode.RGB, device="cuda")
            done += size
        torch.cuda.synchronize()
        rates[size] = round(done / (time.perf_counter() - start), 1)
    return rates


def main():
    p = argparse.ArgumentParser()
    for name in ("pelton", "bench", "images"):
        p.add_argument(name)
    p.add_argument("--parts", default="decode,pipeline,resnet,cores")
    p.add_argument("--cores", default="2,3,5,8,16")
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--out")
    p.add_argument("--try", dest="tiny", action="store_true")
    p.add_argument("--torchvision", action="store_true", help="only this side of the decoding, in a process of its own")
    a = p.parse_args()
    if a.torchvision:
        return print(json.dumps(torchvision(a.images, a.seconds)))
    report = {"what": __doc__.split("\n")[0], "date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "batch": 128}
    folder_of_files = sorted({f.parent for f in pathlib.Path(a.images).rglob("*.jpg")})[0]

    def tell(name, value):
        report[name] = value
        print(json.dumps({name: value}), flush=True)
        if a.out:
            pathlib.Path(a.out).write_text(json.dumps(report, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        if "decode" in a.parts:
            for lanes, batch in ((1, 128), (2, 128), (3, 128)):
                tell(f"pelton_nvjpeg_{lanes}_decoders_lists_of_{batch}", run([a.bench, "nvjpeg", folder_of_files, "-", "-", batch, lanes, a.seconds])[-1])
            tell("libjpeg_turbo_16_threads", run([a.bench, "decode", folder_of_files, "-", "-", 0, 16, a.seconds])[-1])
            env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
            other = subprocess.run([sys.executable, __file__, a.pelton, a.bench, a.images, "--torchvision", "--seconds", str(a.seconds)], env=env, capture_output=True, text=True)
            tell("torchvision_gpu_by_list_length", json.loads(other.stdout.strip().splitlines()[-1]) if other.returncode == 0 else {"failed": other.stderr[-500:]})
        if "pipeline" in a.parts:
            for cores, shares in ((2, ("0",)), (16, ("0", "0.25", "0.35"))):
                tell(f"pipeline_on_cpu_{cores}_cores", run([a.bench, "pipeline", folder_of_files, "none", "f32", 128, cores, a.seconds], cores)[-1])
                for share in shares:
                    tell(f"pipeline_decoded_on_gpu_cpu_share_{share}_{cores}_cores", run([a.bench, "gpu", folder_of_files, share, "f32", 128, cores, a.seconds], cores)[-1])
        if "resnet" in a.parts:
            dry = rate(a, folder, RESNET, 10, SYNTHETIC, None, "--dry-run")
            tell("resnet50_resident", {k: dry[k] for k in dry if "seconds" in k and "node" not in k} or dry)
            # In turns, so that both sides see the same clocks.
            sides = {"synthetic": [], "pipeline": [], "pipeline_decoded_on_gpu": []}
            for _ in range(2):
                sides["synthetic"].append(rate(a, folder, RESNET, STEPS, SYNTHETIC))
                sides["pipeline"].append(train(a, folder, RESNET, STEPS))
                sides["pipeline_decoded_on_gpu"].append(train(a, folder, RESNET, STEPS, decode="cpu" if a.tiny else "gpu"))
            tell("resnet50_samples_per_s", sides)
            for name in ("pipeline", "pipeline_decoded_on_gpu"):
                if dry.get("resident_seconds") and all(isinstance(v, float) for v in sides[name]):
                    tell(f"resnet50_{name}_of_resident", round(sum(sides[name]) / len(sides[name]) * dry["resident_seconds"] / 128, 3))
                if all(isinstance(v, float) for v in sides[name] + sides["synthetic"]):
                    tell(f"resnet50_{name}_of_synthetic", round(sum(sides[name]) / sum(sides["synthetic"]), 3))
        if "cores" in a.parts:
            for cores in map(int, a.cores.split(",")):
                steps = int(a.seconds * cores * 10)
                for name, where, turn in (("rotate_on_cpu", "cpu", True), ("rotate_in_step", "gpu", True)):
                    tell(f"cores_{cores}_{name}", train(a, folder, SMALL, steps, where, turn, cores=cores))
            tell("cores_16_decode_gpu", train(a, folder, SMALL, int(a.seconds * 160), "gpu", False, "cpu" if a.tiny else "gpu", 16))


if __name__ == "__main__":
    main()
