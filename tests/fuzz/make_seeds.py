# SPDX-License-Identifier: Apache-2.0
"""Valid files that the fuzz targets start from: make_seeds.py FOLDER writes FOLDER/<target>/*."""
import io
import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NPY, NPZ, PB_TENSOR, PB_SEQUENCE = (bytes([i]) for i in range(4))


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
    for kind in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.STRING):
        values = [b"x", b"yz"] if kind == TensorProto.STRING else [1, 2]
        name = TensorProto.DataType.Name(kind).lower()
        yield f"pb_{name}", PB_TENSOR + helper.make_tensor("t", kind, [2], values).SerializeToString()
    raw = numpy_helper.from_array(np.arange(4, dtype="f4"), "r")
    yield "pb_raw", PB_TENSOR + raw.SerializeToString()
    sequence = onnx.SequenceProto(name="s", elem_type=onnx.SequenceProto.TENSOR, tensor_values=[raw, raw])
    yield "pb_sequence", PB_SEQUENCE + sequence.SerializeToString()


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


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    stored = pathlib.Path(__file__).resolve().parent / "seeds"
    for target, seeds in (("tensor_file", tensor_files()), ("onnx_model", onnx_models())):
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, content in seeds:
            (folder / target / name).write_bytes(content)
    for target in stored.iterdir():
        shutil.copytree(target, folder / target.name, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
