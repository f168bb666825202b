#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports the benchmark models to ONNX with random weights (speed does not depend on their values).

    python3 benchmarks/models/export.py OUTPUT_DIR [name ...] [--packaged DIR]

Needs torch, torchvision, timm and transformers; nothing is downloaded. Batch is a symbolic dimension. --packaged takes
the trained models that tools/fetch_demo_files.sh put into DIR (.demo/files).
Beside NAME.onnx stands NAME.reference.npz: the inputs by name and, as OUTPUT, the result of the same model in f64, the
truth that both sides of a comparison are measured against (of packaged models by onnx.reference).
"""
import argparse
import pathlib
import shutil

import numpy
import torch


def tv(name):
    import torchvision

    return getattr(torchvision.models, name)(weights=None)


def timm_model(name):
    import timm

    return timm.create_model(name, pretrained=False)


class First(torch.nn.Module):
    """Only the first tensor of what a model returns, under a fixed set of arguments."""

    def __init__(self, model, key=None, **fixed):
        super().__init__()
        self.model, self.key, self.fixed = model, key, fixed

    def forward(self, ids):
        out = self.model(ids, **self.fixed)
        return getattr(out, self.key) if self.key else out[0]


class Causal(First):
    """With its mask as a constant: the exporter does not know how newer releases compute one."""

    def forward(self, ids):
        n = ids.shape[1]
        mask = torch.full((n, n), float("-inf"), dtype=self.model.dtype).triu(1)[None, None]
        return getattr(self.model(ids, attention_mask=mask, **self.fixed), self.key)


def bert():
    from transformers import BertConfig, BertModel

    return First(BertModel(BertConfig(attn_implementation="eager")), "last_hidden_state")


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return Causal(GPT2LMHeadModel(GPT2Config(attn_implementation="eager")), "logits", use_cache=False)


def t5_encoder():
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8)
    return First(T5EncoderModel(config), "last_hidden_state")


def mlp():
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)]
    return torch.nn.Sequential(*layers)


def detector():
    from detector import Detector

    return Detector()


def plain(depth):
    from plain import convolutions

    return convolutions(depth)


def unet():
    from plain import UNet

    return UNet()


IMAGE = ((3, 224, 224), torch.float32)
MODELS = {
    "resnet50": (lambda: tv("resnet50"), IMAGE),
    "mobilenet_v2": (lambda: tv("mobilenet_v2"), IMAGE),
    "efficientnet_b0": (lambda: tv("efficientnet_b0"), IMAGE),
    "vit_b16": (lambda: timm_model("vit_base_patch16_224"), IMAGE),
    "bert_base_128": (bert, ((128,), torch.int64)),
    "bert_base_384": (bert, ((384,), torch.int64)),
    "gpt2_128": (gpt2, ((128,), torch.int64)),
    "t5_small_encoder_128": (t5_encoder, ((128,), torch.int64)),
    "yolo_class": (detector, ((3, 640, 640), torch.float32)),
    "plain6": (lambda: plain(6), ((3, 128, 128), torch.float32)),
    "plain20": (lambda: plain(20), ((3, 128, 128), torch.float32)),
    "unet": (unet, ((3, 256, 256), torch.float32)),
    "mlp": (mlp, ((256,), torch.float32)),
}
OUTPUT = "OUTPUT"
PACKAGED = {
    "text_detector": {"x": numpy.zeros((1, 3, 416, 640), numpy.float32)},
    "text_recogniser": {"x": numpy.zeros((1, 3, 48, 320), numpy.float32)},
    "voice_detector": {"input": numpy.zeros((1, 576), numpy.float32), "state": numpy.zeros((2, 1, 128), numpy.float32),
                       "sr": numpy.array(16000)},
}


def widened(model):
    """The same model with f64 wherever it had f32."""
    from onnx import AttributeProto, TensorProto, numpy_helper

    def wide(tensor):
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(numpy.float64), tensor.name))

    def widen(graph):
        for tensor in graph.initializer:
            wide(tensor)
        for value in [*graph.input, *graph.output, *graph.value_info]:
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
        for node in graph.node:
            for a in node.attribute:
                if a.type == AttributeProto.TENSOR:
                    wide(a.t)
                elif a.type == AttributeProto.GRAPH:
                    widen(a.g)
                elif node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT:
                    a.i = TensorProto.DOUBLE

    widen(model.graph)
    return model


def truth_of(path, feed):
    """The first output by onnx.reference in f64."""
    import onnx
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    # That of the package takes the statistics of the batch in models of opsets 9 to 13.
    class BatchNormalization(OpRun):
        def _run(self, x, scale, bias, mean, variance, epsilon=1e-5, **_):
            channels = (1, -1) + (1,) * (x.ndim - 2)
            scale = scale / numpy.sqrt(variance + epsilon)
            return (x * scale.reshape(channels) + (bias - mean * scale).reshape(channels),)

    wide = {k: v.astype(numpy.float64) if v.dtype == numpy.float32 else v for k, v in feed.items()}
    return ReferenceEvaluator(widened(onnx.load(path)), new_ops=[BatchNormalization]).run(None, wide)[0]


def packaged(name, source, folder):
    import onnxruntime

    random = numpy.random.default_rng(0)
    feed = {k: random.standard_normal(v.shape, dtype=numpy.float32) if v.dtype == numpy.float32 else v
            for k, v in PACKAGED[name].items()}
    session = onnxruntime.InferenceSession(str(source / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    shutil.copyfile(source / f"{name}.onnx", folder / f"{name}.onnx")
    feed = {i.name: feed[i.name] for i in session.get_inputs()}
    truth = truth_of(source / f"{name}.onnx", feed)
    # Far above rounding, far below what an op read wrongly does.
    numpy.testing.assert_allclose(session.run(None, feed)[0], truth, rtol=1e-2, atol=1e-3)
    numpy.savez(folder / f"{name}.reference.npz", **feed, **{OUTPUT: truth})
    print(f"{name}: as packaged", flush=True)


# 8-bit QDQ forms by ONNX Runtime's own tool, of models exported before, calibrated on noise: the speed does not depend on it.
QUANTISED = {"resnet50_int8": "resnet50", "mobilenet_v2_int8": "mobilenet_v2"}


def quantised(name, folder):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    reference = numpy.load(folder / f"{QUANTISED[name]}.reference.npz")

    class Samples(CalibrationDataReader):
        def __init__(self):
            self.left = [{"input": reference["input"]}]

        def get_next(self):
            return self.left.pop() if self.left else None

    quantize_static(str(folder / f"{QUANTISED[name]}.onnx"), str(folder / f"{name}.onnx"), Samples(), quant_format=QuantFormat.QDQ,
                    per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    numpy.savez(folder / f"{name}.reference.npz", **reference)
    print(f"{name}: quantised", flush=True)


def sample(shape, dtype, batch):
    return torch.randint(0, 1000, (batch, *shape)) if dtype == torch.int64 else torch.randn(batch, *shape)


def to_onnx(model, shape, dtype, path):
    """Of any batch; shape is that of one sample."""
    with torch.no_grad():
        torch.onnx.export(model, (sample(shape, dtype, 2),), str(path), input_names=["input"], output_names=["output"],
                          opset_version=18, dynamo=False, dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}})


def built(name):
    """The module, the shape of a sample and its type. Fresh biases are zeros and fresh norms do nothing: a compiler would drop both."""
    make, (shape, dtype) = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(0.02 * torch.randn_like(p))
    return model, shape, dtype


def export(name, folder):
    model, shape, dtype = built(name)
    path = folder / f"{name}.onnx"
    to_onnx(model, shape, dtype, path)
    truth_input = sample(shape, dtype, 1)
    with torch.no_grad():
        truth = model.double()(truth_input if dtype == torch.int64 else truth_input.double())
    numpy.savez(folder / f"{name}.reference.npz", input=truth_input.numpy(), **{OUTPUT: truth.numpy()})
    print(f"{name}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--packaged", type=pathlib.Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or (*MODELS, *QUANTISED):
        quantised(name, args.folder) if name in QUANTISED else export(name, args.folder)
    for name in PACKAGED if args.packaged else []:
        packaged(name, args.packaged, args.folder)


if __name__ == "__main__":
    main()
