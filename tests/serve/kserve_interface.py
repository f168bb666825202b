# SPDX-License-Identifier: Apache-2.0
"""The messages of the gRPC interface as the Python package kserve publishes them. Its dependencies are many, so the tests use
kserve_interface.json, which this makes: kserve_interface.py FOLDER, where a wheel was unpacked."""
import ast
import json
import pathlib
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROWS = pathlib.Path(__file__).parent / "kserve_interface.json"


def rows_of(folder):
    """[message, field, number, type, name of its message, repeated, of a map's entry] of each field."""
    source = (pathlib.Path(folder) / "kserve/protocol/grpc/grpc_predict_v2_pb2.py").read_text()
    raw, = (n.args[0].value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "AddSerializedFile")
    out = []

    def add(message, prefix):
        name = f"{prefix}.{message.name}"
        for f in message.field:
            out.append([name, f.name, f.number, f.type, f.type_name, f.label == f.LABEL_REPEATED, message.options.map_entry])
        for nested in message.nested_type:
            add(nested, name)

    file = descriptor_pb2.FileDescriptorProto.FromString(raw)
    for message in file.message_type:
        add(message, file.package)
    return out


def messages():
    """Their classes by name, apart from those of every other package."""
    file = descriptor_pb2.FileDescriptorProto(name="kserve.proto", package="inference", syntax="proto3")
    made = {}

    def message(path):
        if path not in made:
            *outer, name = path
            made[path] = (message(tuple(outer)).nested_type if outer else file.message_type).add(name=name)
        return made[path]

    for name, field, number, kind, of, repeated, entry in json.loads(ROWS.read_text()):
        m = message(tuple(name.split(".")[1:]))
        m.options.map_entry = entry
        m.field.add(name=field, number=number, type=kind, type_name=of or None, label=3 if repeated else 1)
    for name in ("ServerLiveRequest", "ServerReadyRequest", "ServerMetadataRequest"):      # without fields
        message((name,))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(d) for name, d in found.items()}


if __name__ == "__main__":
    ROWS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows_of(sys.argv[1])) + "\n]\n")
