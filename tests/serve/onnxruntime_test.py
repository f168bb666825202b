# SPDX-License-Identifier: Apache-2.0
"""The real ONNX Runtime as an engine, on request."""
import pathlib

import numpy as np
import pytest
from conftest import add_model
from onnx import TensorProto, helper, numpy_helper

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
LIBRARY = next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))


def tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=()) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


LINEAR = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", ["N", 3])], [tensor("y", ["N", 2])],
               [numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")])


def ask(server, name, *tensors):
    return server.json(f"/v2/models/{name}/infer", {"inputs": [dict(zip(("name", "datatype", "shape", "data"), t)) for t in tensors]})


def test_models_run_there(serve):
    add_model(serve.repository, "bare", None, files={"1/model.onnx": LINEAR})
    add_model(serve.repository, "batched", 'backend: "onnxruntime" max_batch_size: 8 dynamic_batching { } instance_group { count: 2 } '
              'parameters { key: "intra_op_thread_count" value { string_value: "1" } }', files={"1/model.onnx": LINEAR})
    add_model(serve.repository, "text", None, files={"1/model.onnx": model(
        [helper.make_node("Gather", ["s", "order"], ["t"])], [tensor("s", [3], TensorProto.STRING)],
        [tensor("t", [3], TensorProto.STRING)], [numpy_helper.from_array(np.array([2, 1, 0]), "order")])})
    add_model(serve.repository, "many", None, files={"1/model.onnx": model(
        [helper.make_node("TopK", ["x", "k"], ["v", "i"])], [tensor("x", ["N"]), tensor("k", [1], TensorProto.INT64)],
        [tensor("v", ["K"]), tensor("i", ["K"], TensorProto.INT64)])})
    add_model(serve.repository, "ours", 'backend: "pelton" default_model_filename: "model.onnx"', files={"1/model.onnx": LINEAR})
    server = serve("--device=cpu", f"--onnxruntime-library={LIBRARY}")
    assert server.json("/v2/models/bare")[1]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    for name in ("bare", "ours", "batched"):
        status, answer = ask(server, name, ("x", "FP32", [2, 3], [1, 0, 0, 0, 1, 1]))
        assert status == 200 and answer["outputs"][0]["shape"] == [2, 2] and answer["outputs"][0]["data"] == [0, 1, 6, 8], answer
    assert ask(server, "text", ("s", "BYTES", [3], ["a", "", "bé"]))[1]["outputs"][0]["data"] == ["bé", "", "a"]
    v, i = ask(server, "many", ("x", "FP32", [4], [3, 9, 1, 7]), ("k", "INT64", [1], [2]))[1]["outputs"]
    assert v["data"] == [9, 7] and i["data"] == [1, 3] and i["datatype"] == "INT64"
    status, answer = ask(server, "many", ("x", "FP32", [4], [3, 9, 1, 7]), ("k", "INT64", [1], [5]))
    assert status == 500 and "ONNX Runtime: " in answer["error"]
    assert ask(server, "bare", ("x", "FP32", [2, 3], [1, 0, 0, 0, 1, 1]))[0] == 200


def test_the_level_of_optimization(serve):
    for level in (-1, 1, 2, 3):
        add_model(serve.repository, f"level{level}", f'backend: "onnxruntime" optimization {{ graph {{ level: {level} }} }}', files={"1/model.onnx": LINEAR})
    add_model(serve.repository, "ours", 'backend: "pelton" default_model_filename: "model.onnx" optimization { graph { level: 1 } }', files={"1/model.onnx": LINEAR})
    server = serve("--device=cpu", f"--onnxruntime-library={LIBRARY}", "--model-control-mode=explicit")
    for level in (-1, 1, 2):
        assert server.json(f"/v2/repository/models/level{level}/load", b"", "POST")[0] == 200
        assert ask(server, f"level{level}", ("x", "FP32", [1, 3], [1, 0, 0]))[1]["outputs"][0]["data"] == [0, 1]
    assert "level 3 is none of -1, 0, 1 and 2" in server.json("/v2/repository/models/level3/load", b"", "POST")[1]["error"]
    assert "'optimization.graph' is not supported by backend 'pelton'" in server.json("/v2/repository/models/ours/load", b"", "POST")[1]["error"]


def test_what_does_not_fit_is_said(serve, tmp_path):
    bad = {"file": (None, b"no model", "ONNX Runtime: "),
           "type": ('backend: "onnxruntime" input { name: "x" data_type: TYPE_INT32 dims: [ -1, 3 ] } output { name: "y" data_type: TYPE_FP32 dims: [ -1, 2 ] }',
                    LINEAR, "input 'x' is FP32 in the model, INT32 in the configuration"),
           "name": ('backend: "onnxruntime" input { name: "z" data_type: TYPE_FP32 dims: [ -1, 3 ] } output { name: "y" data_type: TYPE_FP32 dims: [ -1, 2 ] }',
                    LINEAR, "the model has no input 'z'"),
           "threads": ('backend: "onnxruntime" parameters { key: "intra_op_thread_count" value { string_value: "many" } }', LINEAR, "is 'many', not a number")}
    for name, (config, content, _) in bad.items():
        add_model(serve.repository, name, config, files={"1/model.onnx": content})
    server = serve("--device=cpu", f"--onnxruntime-library={LIBRARY}", "--exit-on-error=false")
    for name, (_, _, words) in bad.items():
        status, answer = ask(server, name, ("x", "FP32", [1, 3], [1, 2, 3]))
        assert status == 404 and words in answer["error"], answer
    other = serve("--onnxruntime-library=libm.so.6", expect_ready=False)
    assert other.process.wait(20) == 1 and "has no function OrtGetApiBase" in other.process.stderr.read()
