#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes every node and simple case that the installed onnx package generates as backend-test folders.

usage: conform_cases.py OUTPUT_DIR
Each case becomes OUTPUT_DIR/KIND/NAME/{model.onnx, test_data_set_N/{input,output}_M.pb, data.json}; data.json
holds the case's own tolerances.
"""
import json
import pathlib
import sys
import warnings

import onnx
from onnx import numpy_helper


def write_value(path, value, value_type, name):
    kind = value_type.WhichOneof("value")
    if isinstance(value, (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto)):
        proto = value
    elif kind == "map_type":
        proto = numpy_helper.from_dict(value, name)
    elif kind == "sequence_type":
        proto = numpy_helper.from_list(value, name)
    elif kind == "optional_type":
        proto = numpy_helper.from_optional(value, name)
    else:
        proto = numpy_helper.from_array(value, name)
    path.write_bytes(proto.SerializeToString())


def write_case(case, root):
    folder = root / case.kind / case.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{i}"
        data.mkdir(exist_ok=True)
        for what, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
            for j, (value, info) in enumerate(zip(values, infos)):
                write_value(data / f"{what}_{j}.pb", value, info.type, info.name)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    warnings.filterwarnings("ignore")
    from onnx.backend.test.case import model, node
    cases = list(node.collect_testcases(None)) + [c for c in model.collect_testcases() if c.kind == "simple"]
    root = pathlib.Path(sys.argv[1])
    for case in cases:
        write_case(case, root)
    print(f"{len(cases)} cases of onnx {onnx.__version__} written to {root}")


if __name__ == "__main__":
    main()
