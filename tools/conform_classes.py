#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Classes of conformance cases, decided from the model file alone.

usage: conform_classes.py DIR... [--log FILE] [--json FILE]

numeric   every value is a number of 8 bits or more, or bool
storage   a value has a storage-only type (8-bit and smaller floats, 4-bit and 2-bit integers)
random    the result is drawn, so that only shape, type and distribution can be checked
training  optimizer steps, gradients, or an op in training mode
string    a value holds text
other     maps, images, opaque values

With --log, a file of `FAILED name: reason` lines (the output of `pelton conform`), the pass rate of each class is
printed; --json writes class, result and reason of every case.
"""
import argparse
import collections
import json
import pathlib
import re

import onnx
from onnx import TensorProto

RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
STRING_OPS = {"StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch"}
STORAGE = {n for n in TensorProto.DataType.values()
           if re.match(r"FLOAT[468]|U?INT[24]$", TensorProto.DataType.Name(n))}


def types_of(type_proto):
    kind = type_proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield getattr(type_proto, kind).elem_type
    elif kind in ("sequence_type", "optional_type"):
        yield from types_of(getattr(type_proto, kind).elem_type)
    elif kind in ("map_type", "opaque_type"):
        yield kind


def graphs_of(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                yield from graphs_of(inner)


def constant(graphs, name):
    for graph in graphs:
        for tensor in graph.initializer:
            if tensor.name == name:
                return onnx.numpy_helper.to_array(tensor)
        for node in graph.node:
            if node.op_type == "Constant" and name in node.output:
                return onnx.numpy_helper.to_array(node.attribute[0].t)
    return None


def trains(node, graphs):
    if node.domain == "ai.onnx.preview.training":
        return True
    if any(a.name == "training_mode" and a.i for a in node.attribute):
        return True
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        value = constant(graphs, node.input[2])
        return value is None or bool(value)
    return False


def classify(path):
    model = onnx.load(path, load_external_data=False)
    graphs = list(graphs_of(model.graph))
    nodes = [n for g in graphs for n in g.node] + [n for f in model.functions for n in f.node]
    types, ops = set(), {n.op_type for n in nodes}
    for graph in graphs:
        for info in list(graph.input) + list(graph.output) + list(graph.value_info):
            types.update(types_of(info.type))
        types.update(t.data_type for t in graph.initializer)
    for node in nodes:
        types.update(a.t.data_type for a in node.attribute if a.HasField("t"))
        types.update(a.i for a in node.attribute if a.name in ("to", "dtype", "output_dtype") and node.domain == "")
    if any(trains(n, graphs) for n in nodes):
        return "training"
    if ops & RANDOM:
        return "random"
    if "ImageDecoder" in ops or types & {"map_type", "opaque_type"}:
        return "other"
    if TensorProto.STRING in types or ops & STRING_OPS:
        return "string"
    if types & STORAGE:
        return "storage"
    return "numeric"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dirs", nargs="+", type=pathlib.Path)
    parser.add_argument("--log", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    classes = {}
    for root in args.dirs:
        for path in sorted(root.rglob("model.onnx")):
            classes[path.parent.name] = classify(path)
    failed = {}
    if args.log:
        for line in args.log.read_text().splitlines():
            if match := re.match(r"FAILED ([^:]+): (.*)", line):
                failed[match[1]] = match[2]
    totals = collections.Counter(classes.values())
    for name, total in sorted(totals.items()):
        if args.log:
            lost = sum(classes.get(n) == name for n in failed)
            print(f"{name:9} {total - lost:5} of {total:5} pass, {100 * (total - lost) / total:6.2f}%")
        else:
            print(f"{name:9} {total:5}")
    if args.json:
        rows = [{"case": n, "class": c, "passed": n not in failed, "reason": failed.get(n, "")} for n, c in sorted(classes.items())]
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
