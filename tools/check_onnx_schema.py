#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the field tables (src/tensor/tensor_pb.def, src/onnx/proto/onnx.def) with the installed onnx package.

Every row must agree in number, kind, repetition and message type, and every field of a listed message must be
listed, so that a new field of the specification is noticed.
"""
import pathlib
import re
import sys

from onnx import onnx_data_pb2, onnx_ml_pb2

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = {1: "f64", 2: "f32", 3: "int64", 4: "uint64", 5: "int32", 9: "string", 11: "message", 12: "bytes", 14: "enumeration"}


def published():
    fields = {}

    def visit(message, prefix):
        name = prefix + message.name
        for f in message.fields:
            target = ""
            if f.message_type:
                target = f.message_type.full_name.removeprefix("onnx.")
                target = target.removeprefix("TensorProto.") if target.endswith(".Segment") else target
            fields[name, f.name] = (f.number, KINDS[f.type], f.is_repeated, target)
        for nested in message.nested_types:
            visit(nested, name + ".")

    for module in (onnx_ml_pb2, onnx_data_pb2):
        for message in module.DESCRIPTOR.message_types_by_name.values():
            visit(message, "")
    return fields


def ours():
    fields = {}
    for path in ("src/tensor/tensor_pb.def", "src/onnx/proto/onnx.def"):
        for macro, row in re.findall(r"^(FIELD|NESTED)\((.*)\)$", (ROOT / path).read_text(), re.M):
            cells = [c.strip() for c in row.split(",")]
            if macro == "NESTED":
                cells[0:2] = [cells[0] + "." + cells[1]]
            message, number, name, kind, repeated, target = cells
            fields[message, name] = (int(number), kind, repeated == "true", target)
    return fields


def main():
    theirs, table = published(), ours()
    messages = {message for message, _ in table}
    problems = [f"{m}.{f}: table {row}, onnx {theirs.get((m, f))}" for (m, f), row in table.items() if theirs.get((m, f)) != row]
    problems += [f"{m}.{f}: not in the table" for (m, f) in theirs if m in messages and (m, f) not in table]
    for line in problems:
        print(line)
    print(f"{len(table)} fields of {len(messages)} messages compared, {len(problems)} differ")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
