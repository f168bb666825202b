#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ONNX models without their large weights, for machines that cannot take them, and back.

    python3 benchmarks/gpu/skeleton.py strip MODEL.onnx SKELETON.onnx
    python3 benchmarks/gpu/skeleton.py fill SKELETON.onnx MODEL.onnx

`fill` draws the weights that `strip` left out from a normal distribution with the standard deviation they had (seed 0), so that
activations keep their range. Speed does not depend on weights; comparisons of results run on the filled model.
"""
import sys

import numpy
import onnx
from onnx import numpy_helper

LARGE = 4096  # elements


def tensors(graph):
    yield from ((i.name, i) for i in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield node.output[0], attribute.t


def strip(source, target):
    model = onnx.load(source)
    for name, t in tensors(model.graph):
        values = numpy_helper.to_array(t)
        if values.size > LARGE and values.dtype == numpy.float32:
            spread = float(values.std()) or 1.0
            t.ClearField("raw_data")
            t.ClearField("float_data")
            t.doc_string = f"drawn {spread:.6g} {float(values.mean()):.6g}"
    onnx.save(model, target)


def fill(source, target):
    model = onnx.load(source)
    draw = numpy.random.default_rng(0)
    for name, t in tensors(model.graph):
        if t.doc_string.startswith("drawn "):
            spread, mean = map(float, t.doc_string.split()[1:])
            values = draw.standard_normal(tuple(t.dims), dtype=numpy.float32) * numpy.float32(spread) + numpy.float32(mean)
            t.raw_data = values.tobytes()
            t.doc_string = ""
    onnx.save(model, target)


if __name__ == "__main__":
    {"strip": strip, "fill": fill}[sys.argv[1]](*sys.argv[2:4])
