#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws random models of every op and their results by onnx.reference, as backend-test folders.

usage: random_models.py OUTPUT_DIR --seed N [--count 50] [--op NAME ...]
Shapes hold 0 and 1, attributes and operator sets vary. `pelton conform OUTPUT_DIR` compares. A model that the
reference itself refuses is drawn again; --list names the ops of the onnx package that nothing draws.

Not drawn, since onnx.reference has no answer or none that can be compared: random ops (only their laws hold), MaxRoiPool and
GlobalLpPool and Scatter (not in it), ImageDecoder, FlexAttention, maps (CastMap, CategoryMapper, DictVectorizer, ZipMap), Gradient.
Where the reference departs from the specification the draw keeps away, and says why beside it; so it does from what the
specification leaves open. BatchNormalization of operator set 9 to 13 is one: the reference normalises by the statistics of the
batch although only given ones belong to inference.
"""
import argparse
import pathlib
import sys
import warnings
import zlib

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from random_ops import OPS
from random_ops.draw import OPSETS, Draw


def type_of(value):
    if isinstance(value, list):
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(type_code(value[0]), [None] * value[0].ndim))
    return helper.make_tensor_type_proto(type_code(value), value.shape)


def type_code(array):
    return onnx.TensorProto.STRING if array.dtype.kind in "OUT" else helper.np_dtype_to_tensor_dtype(array.dtype)


def proto(value):
    return numpy_helper.from_list(value) if isinstance(value, list) else numpy_helper.from_array(value)


def as_value(value):
    return [np.asarray(v) for v in value] if isinstance(value, list) else np.asarray(value)


def build(op, draw):
    inputs, attrs = OPS[op](draw)
    attrs = dict(attrs)
    opset, outputs, domain = attrs.pop("opset", draw.pick(*OPSETS)), attrs.pop("outputs", 1), attrs.pop("domain", "")
    stored, nodes = attrs.pop("stored", None), attrs.pop("nodes", None)
    wrapped, kind = attrs.pop("wrapped", False), attrs.pop("results", None)
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    given = [(n, x) for n, x in zip(names, inputs) if n]
    if stored is None:  # small integer operands (axes, shapes), as exporters write them
        kept = {n for k, (n, x) in enumerate(zip(names, inputs)) if k > 0 and isinstance(x, np.ndarray) and x.dtype == np.int64
                and x.ndim <= 1 and op not in ("Gather", "Add", "Sub", "Mul")}
    else:
        kept = {names[k] for k in stored}
    results = [f"o{k}" for k in range(outputs)]
    nodes = nodes or [helper.make_node(op, names, results, domain=domain, **attrs)]
    graph = helper.make_graph(nodes, "g", [helper.make_value_info(n, type_of(x)) for n, x in given if n not in kept],
                              [onnx.ValueInfoProto(name=r) for r in results], [numpy_helper.from_array(x, n) for n, x in given if n in kept])
    sets = [helper.make_opsetid(domain, opset)] + ([helper.make_opsetid("", 18)] if domain else [])
    model = helper.make_model(graph, opset_imports=sets, ir_version=max(10, helper.find_min_ir_version_for(sets[:1], True)))
    feeds = {n: x for n, x in given if n not in kept}
    values = [as_value(v[0] if wrapped else v) for v in ReferenceEvaluator(model).run(None, feeds)]
    if kind is not None:  # the reference computes some results in f64
        values = [v.astype(kind) for v in values]
    for slot, value in zip(model.graph.output, values):
        slot.CopyFrom(helper.make_value_info(slot.name, type_of(value)))
    onnx.checker.check_model(model)
    return model, list(feeds.values()), values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path, nargs="?")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--op", nargs="*")
    parser.add_argument("--list", action="store_true", help="the ops that nothing draws")
    args = parser.parse_args()
    if args.list:
        print(*sorted({s.name for s in onnx.defs.get_all_schemas()} - OPS.keys()))
        return
    if args.output is None or args.seed is None:
        parser.error("an output folder and --seed are needed")
    warnings.filterwarnings("ignore")
    np.seterr(all="ignore")
    refused = short = 0
    for op in args.op or sorted(OPS):
        made = tries = 0
        while made < args.count and tries < 20 * args.count:
            tries += 1
            try:
                model, inputs, outputs = build(op, Draw([args.seed, zlib.crc32(op.encode()), tries]))
            except Exception:  # noqa: BLE001 - whatever the reference or the checker does not accept is drawn again
                refused += 1
                continue
            folder = args.output / f"{op}_{made:02}" / "test_data_set_0"
            folder.mkdir(parents=True, exist_ok=True)
            (folder.parent / "model.onnx").write_bytes(model.SerializeToString())
            (folder.parent / "data.json").write_text('{"rtol": 0.001, "atol": 1e-05}')
            for what, values in (("input", inputs), ("output", outputs)):
                for k, value in enumerate(values):
                    (folder / f"{what}_{k}.pb").write_bytes(proto(value).SerializeToString())
            made += 1
        if made < args.count:
            print(f"{op}: only {made} models drawn")
            short += 1
    print(f"{len(args.op or OPS)} ops, {refused} draws refused by the reference")
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
