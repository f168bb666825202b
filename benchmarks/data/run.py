# SPDX-License-Identifier: Apache-2.0
"""JPEG folder -> random-resized-crop 224 -> flip -> normalise, Pelton against DALI's CPU operators, torchvision and bare decoding; tar shards against webdataset; and what a
run costs between epochs and while its consumer is paused.

usage: run.py DATA_BENCH PHOTOS [--threads 2] [--seconds 8] [--rounds 3] [--batch 64] [--images DIR] [--cases 500x375,1500x1000,shards] [--dtypes f32,f16]
              [--out FILE.json]

Every round runs all sides one after the other in the same conditions; the figures are medians over the rounds. The pictures are made by
make_images.py.
"""
import argparse, datetime, json, os, pathlib, platform, statistics, subprocess, sys, tempfile
from importlib import metadata

HERE = pathlib.Path(__file__).resolve().parent


def one(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def version(*names):
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return None


def tables(report):
    """The rows of docs/data.md: samples/s and ms of CPU a sample, then the ratios."""
    rows = []
    for case in report["cases"]:
        sides = " | ".join(f"{name} {s['samples_per_s']:.0f}, {s['cpu_ms_per_sample']:.2f}" for name, s in case["sides"].items())
        ratios = ", ".join(f"{name.removeprefix('pelton_over_')} {r['samples_per_s']}" for name, r in case["ratios"].items())
        rows.append(f"{case['pictures']}, {case['dtype']} | {sides}\n  times: {ratios}")
    s = report["steady"]
    rows.append(f"restart {max(s['restart_ms']):.0f} ms at most (median step {s['median_step_ms']:.0f}), memory {s['resident_mib_after_epoch'][1]:.0f} to "
                f"{s['resident_mib_after_epoch'][-1]:.0f} MiB, paused {s['paused_cpu_ms']:.2f} ms of CPU in {s['paused_s']:.0f} s")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("photos")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", help="folder that make_images.py has filled")
    parser.add_argument("--cases", default="500x375,1500x1000,shards")
    parser.add_argument("--dtypes", default="f32,f16", help="f16 for 500x375 only")
    parser.add_argument("--out")
    args = parser.parse_args()
    cases = []
    with tempfile.TemporaryDirectory() as made:
        folder = args.images or made
        if not args.images:
            subprocess.run([sys.executable, HERE / "make_images.py", args.photos, folder], check=True)
        ours = lambda d, match, dtype: [args.bench, "pipeline", d, match, dtype, args.batch, args.threads, args.seconds]
        peer = lambda name, d, dtype: [sys.executable, HERE / "peers.py", name, d, dtype, args.batch, args.threads, args.seconds]
        for size in args.cases.split(","):
            d = os.path.join(folder, size)
            for dtype in args.dtypes.split(",") if size == "500x375" else ("f32",):
                sides = {"pelton": ours(d, "none", dtype)}
                if size == "shards":
                    sides["webdataset"] = peer("webdataset", d, dtype)
                else:
                    sides |= {"dali_cpu": peer("dali", d, dtype), "torchvision": peer("torchvision", d, dtype),
                              "decode_only": [args.bench, "decode", d, "-", "-", 0, args.threads, args.seconds]}
                if dtype == "f32" and size != "shards":
                    sides |= {"pelton_match_pillow": ours(d, "pillow", dtype), "pelton_match_torchvision": ours(d, "torchvision", dtype)}
                results = {name: [] for name in sides}
                for _ in range(args.rounds):
                    for name, command in sides.items():
                        results[name].append(one(command))
                summary = {name: {**runs[-1], **{key: statistics.median(r[key] for r in runs) for key in ("samples_per_s", "cpu_ms_per_sample")},
                                  "all_samples_per_s": [r["samples_per_s"] for r in runs]} for name, runs in results.items()}
                speed = lambda name: summary[name]["samples_per_s"]
                cpu = lambda name: summary[name]["cpu_ms_per_sample"]
                ratios = {f"pelton_over_{name}": {"samples_per_s": round(speed("pelton") / speed(name), 2), "cpu": round(cpu(name) / cpu("pelton"), 2)}
                          for name in summary if name != "pelton"}
                cases.append({"pictures": size, "dtype": dtype, "sides": summary, "ratios": ratios})
                print(json.dumps({"pictures": size, "dtype": dtype, "ratios": ratios}), file=sys.stderr)
        # Between epochs, while paused: the restart is what the first batch of an epoch takes, beside the median step.
        steady = one([args.bench, "steady", os.path.join(folder, "500x375"), "none", "f32", args.batch, args.threads, 60])
    report = {"what": "JPEG folder -> random-resized-crop 224 -> flip -> normalise, CHW", "threads": args.threads, "batch": args.batch,
              "date": datetime.date.today().isoformat(), "seconds": args.seconds, "rounds": args.rounds, "cpus": os.cpu_count(), "load_average_at_end": os.getloadavg(),
              "cpu": next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor()),
              "peers": {"dali": {"version": version("nvidia-dali-cuda130", "nvidia-dali-cuda120"), "configuration":
                                 "readers.file, decoders.image_random_crop, resize(antialias), crop_mirror_normalize; num_threads as here, prefetch 3"},
                        "torchvision": {"version": version("torchvision"), "torch": version("torch"), "configuration":
                                        "io.decode_image to uint8 tensors, v2 transforms, DataLoader with as many persistent workers, prefetch 3"},
                        "webdataset": {"version": version("webdataset"), "configuration":
                                       "8 shards split over as many workers, shuffle buffer 200, torchvision decoding and transforms, batched in the workers, WebLoader"}},
              "pictures": "made by make_images.py from shared/real/images (clothing, coco-like): random parts, resized, light noise, quality 85-95, 4:2:0",
              "cases": cases, "steady": steady}
    text = json.dumps(report, indent=1) + "\n"
    pathlib.Path(args.out).write_text(text) if args.out else print(text)
    print(tables(report), file=sys.stderr)


if __name__ == "__main__":
    main()
