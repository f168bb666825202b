#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test accuracy and loss of one recipe on MNIST images, Pelton against PyTorch: the same network, data, optimizer and schedule,
each side with its own random numbers, or (--paired) with the same initial weights and the same images in every batch; mean over
seeds. The loss tells differences apart that are below one image of the test. Takes the folder with t10k-images-idx3-ubyte.gz and
its labels; every fifth of its 10,000 images is for the test."""
import argparse
import datetime
import gzip
import json
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np

EPOCHS, BATCH, LR = 4, 64, 2e-3
RECIPE = """version = 1
seed = {seed}
model = {{ name = "small_cnn", widths = [16, 32], hidden = 64{weights} }}
step = {{ epochs = {epochs} }}
optimizer = {{ name = "adamw", lr = {lr}, weight_decay = 0.01 }}
schedule = {{ name = "cosine" }}
eval = {{ every = 0 }}
checkpoint = {{ every = 0 }}
[data]
batch = {batch}
eval_batch = 500
train = {{ kind = "npy", path = "{train}.npz", shuffle = {shuffle} }}
eval = {{ kind = "npy", path = "test.npz" }}
"""


def load(folder):
    image = np.frombuffer(gzip.open(folder / "t10k-images-idx3-ubyte.gz").read(), np.uint8, offset=16)
    label = np.frombuffer(gzip.open(folder / "t10k-labels-idx1-ubyte.gz").read(), np.uint8, offset=8).astype(np.int64)
    return (image.reshape(-1, 1, 28, 28) / np.float32(255)).astype(np.float32), label


def pelton(binary, folder, seed, device, paired):
    path = folder / f"seed{seed}.toml"
    # All epochs in the order that PyTorch takes, as one.
    own = {"train": f"train{seed}", "shuffle": "false", "epochs": 1, "weights": f', weights = "init{seed}.npz"'}
    path.write_text(RECIPE.format(seed=seed, batch=BATCH, lr=LR,
                                  **(own if paired else {"train": "train", "shuffle": "true", "epochs": EPOCHS, "weights": ""})))
    out = subprocess.run([binary, "train", path, "--json", "--device", device, "--set", f"output.folder={folder / f'run{seed}'}"],
                         check=True, capture_output=True, text=True).stdout
    last = json.loads(out.splitlines()[-1])["last"]
    return {"accuracy": last["accuracy"], "loss": last["loss"]}


# Of PyTorch's Sequential below, in Pelton's names.
LAYERS = {"0": "features.0.conv", "1": "features.0.bn", "4": "features.1.conv", "5": "features.1.bn", "9": "head.fc1",
          "11": "head.fc2"}


def pytorch(train, test, seed, device, paired_in):
    import torch
    torch.backends.cudnn.allow_tf32 = False  # f32 on both sides
    torch.manual_seed(seed)
    block = lambda i, o: [torch.nn.Conv2d(i, o, 3, padding=1, bias=False), torch.nn.BatchNorm2d(o), torch.nn.ReLU(),
                          torch.nn.MaxPool2d(2)]
    model = torch.nn.Sequential(*block(1, 16), *block(16, 32), torch.nn.Flatten(), torch.nn.Linear(32 * 49, 64),
                                torch.nn.ReLU(), torch.nn.Linear(64, 10))
    orders = [torch.randperm(len(train[1])) for _ in range(EPOCHS)]
    if paired_in:
        np.savez(paired_in / f"init{seed}.npz",
                 **{f"{LAYERS[k.split('.')[0]]}.{k.split('.')[1]}": v.numpy() for k, v in model.state_dict().items()
                    if not k.endswith("num_batches_tracked")})
        every = torch.cat(orders).numpy()
        np.savez(paired_in / f"train{seed}.npz", image=train[0][every], label=train[1][every])
    model.to(device)
    x, y = (torch.from_numpy(a).to(device) for a in train)
    updates = EPOCHS * -(-len(y) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), LR, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for order in orders:
        for rows in order.to(device).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(test[0]).to(device)).cpu()
    label = torch.from_numpy(test[1])
    return {"accuracy": (logits.argmax(1) == label).float().mean().item(),
            "loss": torch.nn.functional.cross_entropy(logits, label).item()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("mnist", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--paired", action="store_true")
    args = parser.parse_args()
    image, label = load(args.mnist)
    held = np.arange(len(label)) % 5 == 4
    train, test = (image[~held], label[~held]), (image[held], label[held])
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        np.savez(folder / "train.npz", image=train[0], label=train[1])
        np.savez(folder / "test.npz", image=test[0], label=test[1])
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            peer = pytorch(train, test, seed, args.device, folder if args.paired else None)
            rows.append({"seed": seed, "pelton": pelton(args.binary, folder, seed, args.device, args.paired), "torch": peer})
            print(rows[-1], flush=True)
    report = {"device": args.device, "paired": args.paired, "epochs": EPOCHS, "batch": BATCH, "train_images": int(len(train[1])),
              "test_images": int(len(test[1])), "rows": rows}
    for what in ("accuracy", "loss"):
        differences = [r["pelton"][what] - r["torch"][what] for r in rows]
        report[what] = {"pelton": statistics.mean(r["pelton"][what] for r in rows),
                        "torch": statistics.mean(r["torch"][what] for r in rows), "difference": statistics.mean(differences),
                        "standard_error": statistics.stdev(differences) / len(rows) ** 0.5 if len(rows) > 1 else None}
        print(what, report[what], flush=True)
    if args.output:
        import torch
        product = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
        args.output.write_text(json.dumps({"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                                           "hardware": product, "torch": torch.__version__, **report}, indent=1) + "\n")


if __name__ == "__main__":
    main()
