# SPDX-License-Identifier: Apache-2.0
"""Valid files that the fuzz targets start from: make_seeds.py FOLDER writes FOLDER/<target>/*."""
import base64
import gzip
import io
import json
import pathlib
import shutil
import struct
import sys
import tarfile
import warnings
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "peers"))
from contrib_cases import CASES, ML_CASES, model_of  # noqa: E402

NPY, NPZ, PB_TENSOR, PB_SEQUENCE, SAFETENSORS, PB_OPTIONAL, PB_MAP, NPY_AS = (bytes([i]) for i in range(8))


def npy_bytes(array: np.ndarray, fortran: bool = False) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asfortranarray(array) if fortran else array)
    return out.getvalue()


def tensor_files():
    for dtype in "f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 ?".split():
        yield f"npy_{dtype.strip('?') or 'bool'}", NPY + npy_bytes(np.ones((2, 3), dtype))
    yield "npy_fortran", NPY + npy_bytes(np.arange(6.0).reshape(2, 3), fortran=True)
    yield "npy_scalar", NPY + npy_bytes(np.float32(1))
    yield "npy_empty", NPY + npy_bytes(np.zeros((0, 3)))
    yield "npy_big_endian", NPY + npy_bytes(np.ones(3, ">f4"))
    for compressed in (False, True):
        out = io.BytesIO()
        (np.savez_compressed if compressed else np.savez)(out, a=np.zeros((2, 2), "f4"), b=np.arange(3))
        yield f"npz_{compressed}", NPZ + out.getvalue()
    for name, dtype in (("s", "S3"), ("u", "U3"), ("u_big", ">U3"), ("object", "O")):
        yield f"npy_text_{name}", NPY + npy_bytes(np.array(["a", "\u00e4\u20ac\U0001f600"[:3] if dtype != "S3" else "xyz"], dtype))
    for i, dtype in enumerate(("u1", "i1", "u1", "u1")):  # as f8e4m3fn, i4, u2 and f4e2m1
        yield f"npy_as_{i}", bytes([7 + 8 * i]) + npy_bytes(np.zeros(3, dtype))
    for kind in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT64, TensorProto.BOOL,
                 TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.FLOAT8E5M2, TensorProto.COMPLEX64,
                 TensorProto.STRING):
        values = [b"x", b"yz"] if kind == TensorProto.STRING else [1, 2]
        name = TensorProto.DataType.Name(kind).lower()
        yield f"pb_{name}", PB_TENSOR + helper.make_tensor("t", kind, [2], values).SerializeToString()
    raw = numpy_helper.from_array(np.arange(4, dtype="f4"), "r")
    yield "pb_raw", PB_TENSOR + raw.SerializeToString()
    sequence = onnx.SequenceProto(name="s", elem_type=onnx.SequenceProto.TENSOR, tensor_values=[raw, raw])
    yield "pb_sequence", PB_SEQUENCE + sequence.SerializeToString()
    for linear in (True, False):
        indices = np.array([1, 2]) if linear else np.array([[0, 1], [1, 0]])
        sparse = helper.make_sparse_tensor(numpy_helper.from_array(np.ones(2, "f4"), "v"), numpy_helper.from_array(indices, "i"), [2, 2])
        yield f"pb_sparse_{linear}", PB_SEQUENCE + onnx.SequenceProto(
            name="s", elem_type=onnx.SequenceProto.SPARSE_TENSOR, sparse_tensor_values=[sparse]).SerializeToString()
    strings = onnx.MapProto(name="m", key_type=TensorProto.STRING, string_keys=[b"a", b"b"], values=sequence)
    numbers = onnx.MapProto(name="m", key_type=TensorProto.INT64, keys=[1, 2], values=sequence)
    for name, made in (("text", strings), ("number", numbers)):
        yield f"pb_map_{name}", PB_MAP + made.SerializeToString()
    kind = onnx.OptionalProto
    for name, made in (("none", kind(name="o")), ("tensor", kind(name="o", elem_type=kind.TENSOR, tensor_value=raw)),
                       ("sparse", kind(name="o", elem_type=kind.SPARSE_TENSOR, sparse_tensor_value=sparse)),
                       ("sequence", kind(name="o", elem_type=kind.SEQUENCE, sequence_value=sequence)),
                       ("map", kind(name="o", elem_type=kind.MAP, map_value=strings)),
                       ("optional", kind(name="o", elem_type=kind.OPTIONAL, optional_value=kind(name="i")))):
        yield f"pb_optional_{name}", PB_OPTIONAL + made.SerializeToString()
    yield "pb_sequence_nested", PB_SEQUENCE + onnx.SequenceProto(
        name="s", elem_type=onnx.SequenceProto.MAP, map_values=[numbers], optional_values=[kind(name="i")],
        sequence_values=[sequence]).SerializeToString()
    for name, entries in (("none", {}), ("two", {"a": ["F32", [2], [0, 8]], "b": ["I64", [], [8, 16]]})):
        header = {n: {"dtype": t, "shape": s, "data_offsets": o} for n, (t, s, o) in entries.items()}
        text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        yield f"safetensors_{name}", SAFETENSORS + len(text).to_bytes(8, "little") + text + bytes(8 * len(entries))


def onnx_models():
    def model(name, nodes, inputs, outputs, initializers=(), functions=(), opset=17):
        graph = helper.make_graph(nodes, name, inputs, outputs, initializers)
        return name, helper.make_model(graph, functions=functions,
                                       opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
                                       ).SerializeToString()

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.ones((4, 3), "f4"), "w")
    yield model("mlp", [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])], [x], [y],
                [weight])
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    kernel = numpy_helper.from_array(np.ones((2, 3, 3, 3), "f4"), "k")
    yield model("conv", [helper.make_node("Conv", ["x", "k"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2])], [image], [y],
                [kernel])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    branches = {f"{b}_branch": helper.make_graph([helper.make_node(op, ["x"], ["r"])], b, [],
                                                 [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)])
                for b, op in (("then", "Neg"), ("else", "Exp"))}
    yield model("if", [helper.make_node("If", ["c"], ["y"], **branches)], [x, condition], [y])
    function = helper.make_function("local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
                                    [helper.make_opsetid("", 17)])
    yield model("function", [helper.make_node("Twice", ["x"], ["y"], domain="local")], [x], [y], functions=[function])
    constant = helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.array([2, -1]), "v"))
    yield model("reshape", [constant, helper.make_node("Reshape", ["x", "s"], ["y"])], [x], [y], opset=13)
    yield "fields", every_field().SerializeToString()
    for i, case in enumerate(CASES + ML_CASES):
        made, values = model_of(*case)
        made.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in values.items())
        yield f"contrib_{i:02}_{case[0]}", made.SerializeToString()
    yield from node_cases()


def node_cases(most_bytes=2048):
    """The models that the installed onnx package generates for its node tests: every op, most of its attributes."""
    from onnx.backend.test.case import node
    warnings.filterwarnings("ignore")
    for case in node.collect_testcases(None):
        # Shapes, axes and scales as constants, as exporters write them.
        for value, info in zip(case.data_sets[0][0] if case.data_sets else [], case.model.graph.input):
            if isinstance(value, np.ndarray) and value.ndim <= 1 and value.size <= 8 and value.dtype.kind in "if":
                case.model.graph.initializer.append(numpy_helper.from_array(value, info.name))
        content = case.model.SerializeToString()
        # Expanded functions are many and alike.
        if len(content) <= most_bytes and "_expanded" not in case.name:
            yield f"node_{case.name}", content


def every_field():
    """One node of no domain with every kind of attribute, tensor and type, and all that a model may carry besides."""
    kinds = {TensorProto.FLOAT: [1.0], TensorProto.DOUBLE: [1.0], TensorProto.INT32: [1], TensorProto.INT64: [1],
             TensorProto.UINT64: [1], TensorProto.BOOL: [1], TensorProto.STRING: [b"s"], TensorProto.COMPLEX64: [1j],
             TensorProto.FLOAT16: [1], TensorProto.BFLOAT16: [1], TensorProto.INT4: [1], TensorProto.FLOAT8E4M3FN: [1]}
    tensors = [helper.make_tensor(f"t{kind}", kind, [1], values) for kind, values in kinds.items()]
    outside = TensorProto(name="outside", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="data.bin")
    sparse = helper.make_sparse_tensor(helper.make_tensor("values", TensorProto.FLOAT, [1], [1.0]),
                                       helper.make_tensor("indices", TensorProto.INT64, [1], [2]), [4])
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, "N", None])
    types = [number, helper.make_sequence_type_proto(number), helper.make_optional_type_proto(number),
             helper.make_map_type_proto(TensorProto.INT64, number), helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [4])]
    leaf = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "leaf", [],
                             [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)])
    node = helper.make_node("Identity", ["x"], ["y"], name="n", doc_string="text", i=1, f=1.0, s="s", t=tensors[0], g=leaf,
                            ints=[1, 2], floats=[1.0, 2.0], strings=["a", "b"], tensors=tensors, graphs=[leaf, leaf],
                            sparse_tensor=sparse, tp=types[1], type_protos=types)
    graph = helper.make_graph([node], "g", [helper.make_value_info(f"in{i}", t) for i, t in enumerate(types)]
                              + [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], tensors + [outside], "text",
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], [sparse])
    graph.quantization_annotation.add(tensor_name="y").quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    function = helper.make_function("local", "F", ["a"], ["b"], [helper.make_node("Elu", ["a"], ["b"])],
                                    [helper.make_opsetid("", 17)], ["alpha"], [helper.make_attribute("beta", 2.0)])
    made = helper.make_model(graph, functions=[function], producer_name="p", producer_version="1", domain="d",
                             model_version=1, doc_string="text",
                             opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("local", 1)])
    helper.set_model_props(made, {"key": "value"})
    return made


# A 16x16 ramp, coded as baseline and as progressive JPEG.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H///"
    "/6/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj/wAARCAAQ"
    "ABADASIAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhBy"
    "JxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKT"
    "lJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAA"
    "AAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRom"
    "JygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExc"
    "bHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEAPwCjFFVyKKiKKrsUVAH/2Q==")
JPEG_PROGRESSIVE = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H///"
    "/6/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj/wgARCAAQ"
    "ABADASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAwD/xAAUAQEAAAAAAAAAAAAAAAAAAAAA/9oADAMBAAIQAxAAAAEGmP/EABUQAQEAAA"
    "AAAAAAAAAAAAAAAAEA/9oACAEBAAEFAggggv/EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQMBAT8Bf//EABQRAQAAAAAAAAAAAAAAAAAAAAD/"
    "2gAIAQIBAT8Bf//EABQQAQAAAAAAAAAAAAAAAAAAACD/2gAIAQEABj8CH//EABQQAQAAAAAAAAAAAAAAAAAAACD/2gAIAQEAAT8hAB//2gAMAw"
    "EAAgADAAAAEBP/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oACAEDAQE/EH//xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oACAECAQE/EH//xAAUEAEA"
    "AAAAAAAAAAAAAAAAAAAg/9oACAEBAAE/EB//AP/Z")


def image_files():
    yield "jpeg", JPEG
    yield "jpeg_progressive", JPEG_PROGRESSIVE
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    for colour, channels in ((0, 1), (2, 3), (6, 4)):
        header = struct.pack(">IIBBBBB", 4, 3, 8, colour, 0, 0, 0)
        rows = b"".join(b"\0" + bytes(range(4 * channels)) for _ in range(3))
        yield f"png_{colour}", (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
                               + chunk(b"IEND", b""))
    for kind, body in (("P1", b"1 0 1 0"), ("P2", b"255\n1 2 3 4"), ("P4", b"\xa0\x40"), ("P5", b"255\nabcd"),
                       ("P6", b"255\nabcdefghijkl")):
        yield f"pnm_{kind}", kind.encode() + b"\n2 2\n" + body
    for bits, size in ((24, 16), (8, 8), (1, 8)):
        palette = b"\0\1\2\0" * (1 << bits) if bits <= 8 else b""
        start = 54 + len(palette)
        yield f"bmp_{bits}", (b"BM" + struct.pack("<IHHI", start + size, 0, 0, start)
                             + struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, bits, 0, size, 0, 0, 0, 0) + palette + bytes(size))


def data_files():
    """Whole files for sources; the first byte says which kind opens them."""
    yield "idx", b"\0" + struct.pack(">IIII", 0x803, 2, 2, 3) + bytes(range(12))
    yield "idx_labels", b"\0" + struct.pack(">II", 0x801, 3) + b"\1\2\3"
    yield "cifar", b"\1" + b"\3" + bytes(3072)
    yield "csv", b'\2a,b,label\n1,"x, ""y""",0\n2.5,,1\n'
    array = io.BytesIO()
    np.save(array, np.arange(6, dtype=np.float32).reshape(3, 2))
    yield "npy", b"\3" + array.getvalue()
    archive = io.BytesIO()
    np.savez(archive, x=np.arange(4, dtype=np.int16), y=np.ones((4, 2), np.float32))
    yield "npz", b"\3" + archive.getvalue()
    yield "coco", b"\4" + json.dumps({
        "images": [{"id": 7, "file_name": "a.jpg", "width": 20, "height": 10}], "categories": [{"id": 3, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 5, 6], "area": 30, "iscrowd": 0,
                         "segmentation": [[1, 2, 6, 2, 6, 8]], "keypoints": [2, 3, 1], "num_keypoints": 1},
                        {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 3, 3], "area": 9, "iscrowd": 1,
                         "segmentation": {"size": [10, 20], "counts": [5, 10, 185]}}]}).encode()


def data_containers():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in (("0.jpg", JPEG), ("0.cls", b"3"), ("d/" + "k" * 120 + ".txt", b"x")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    yield "tar", b"\0" + out.getvalue()

    def masked(content: bytes) -> bytes:
        crc = 0xFFFFFFFF
        for byte in content:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        crc ^= 0xFFFFFFFF
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", 5)
    yield "tfrecord", b"\1" + (length + masked(length) + b"hello" + masked(b"hello")) * 2
    yield "toml", b"""\2version = 1
seed = 12
match = "pillow"
source = { kind = "mix", weights = [1, 2], count = 3, sources = [{ kind = "folder", path = "a" }] }
[[stage]]
op = "rotate"
angle = { uniform = [-10, 10] }
"""
    record = struct.pack("<IfQQ", 0, 3.0, 7, 0) + JPEG
    yield "recordio", b"\4" + struct.pack("<II", 0xCED7230A, len(record)) + record + bytes(-len(record) % 4)
    yield "image_record", b"\5" + record
    yield "datum", b"\5\x08\3\x10\1\x18\2\x22\6BbGgRr\x28\11"
    lmdb = pathlib.Path(__file__).resolve().parents[1] / "data/expect/records.mdb.gz"
    yield "lmdb", b"\6" + gzip.decompress(lmdb.read_bytes())
    yield "state", b"\3" + b"1 3 14 0123456789abcdef-01234567"


def plan_files():
    """Each stored plan whole, and its graph and manifest as the target takes them alone; graphs in their text form."""
    for path in sorted((pathlib.Path(__file__).resolve().parent / "seeds/ir_text").iterdir()):
        yield f"text_{path.stem}", b"\x05" + path.read_bytes()
    for path in sorted((pathlib.Path(__file__).resolve().parents[1] / "data/plans").glob("*.pelton")):
        content = path.read_bytes()
        yield f"{path.stem}_file", b"\x00" + content
        yield f"{path.stem}_sound", b"\x04" + content
        for i in range(int.from_bytes(content[12:16], "little")):
            entry = content[64 + 64 * i:128 + 64 * i]
            name = entry[:16].rstrip(b"\0").decode()
            offset, size = (int.from_bytes(entry[at:at + 8], "little") for at in (24, 32))
            if name == "manifest":
                manifest = json.loads(content[offset:offset + size])
                one = [{"implementation": "cpu.x", "refusals": [["cpu.y", "needs f32"]], "seconds": 0.5}]
                manifest |= {"choices": one, "unguarded": one, "options": {"a": "b"}, "optimum": {"N": 3},
                             "passes": [{"name": "fold", "changes": 1, "notes": ["n"]}]}
                yield f"{path.stem}_one_choice", b"\x02" + json.dumps(manifest).encode()
                yield f"{path.stem}_preprocess", b"\x03" + json.dumps(
                    {"version": 1, "name": "p", "input": "x", "pipeline": "version = 1", "choices": one}).encode()
            if name in ("graph", "manifest"):
                yield f"{path.stem}_{name}", bytes([1 if name == "graph" else 2]) + content[offset:offset + size]


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    stored = pathlib.Path(__file__).resolve().parent / "seeds"
    for target, seeds in (("tensor_file", tensor_files()), ("onnx_model", onnx_models()),
                          ("image_file", image_files()), ("data_container", data_containers()), ("data_file", data_files()),
                          ("plan_file", plan_files())):
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, content in seeds:
            (folder / target / name).write_bytes(content)
    for target in stored.iterdir():
        shutil.copytree(target, folder / target.name, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
