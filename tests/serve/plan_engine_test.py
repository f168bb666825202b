# SPDX-License-Identifier: Apache-2.0
"""Plans and ONNX models behind the server: answers against NumPy, batching, files that change while they serve."""
import subprocess
import threading

import numpy as np
import onnx
import pytest
from conftest import add_model, binary
from onnx import TensorProto, helper, numpy_helper

WEIGHT = (np.arange(12, dtype=np.float32).reshape(4, 3) - 5) / 4
BATCHED = """
backend: "onnxruntime"
max_batch_size: 16
dynamic_batching { max_queue_delay_microseconds: 3000 }
"""


def model(nodes, inputs, outputs, initializers=()) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def mlp() -> bytes:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    return model(nodes, [tensor("x", ["N", 4])], [tensor("y", ["N", 3])], [numpy_helper.from_array(WEIGHT, "w")])


def expected(x):
    return np.maximum(x @ WEIGHT, 0)


def ask(server, name, x, dtype="FP32", key="x"):
    status, answer = server.json(f"/v2/models/{name}/infer", {"inputs": [
        {"name": key, "datatype": dtype, "shape": list(x.shape), "data": x.ravel().tolist()}]})
    assert status == 200, answer
    return [np.array(o["data"], np.float32).reshape(o["shape"]) for o in answer["outputs"]]


def compile_plan(folder, content: bytes):
    source, plan = folder / "m.onnx", folder / "m.pelton"
    source.write_bytes(content)
    subprocess.run([binary(), "compile", str(source), "-o", str(plan)], check=True, capture_output=True)
    return plan.read_bytes()


def test_a_bare_onnx_file_just_works(serve):
    add_model(serve.repository, "mlp", None, versions=(), files={"model.onnx": mlp()})
    server = serve()
    meta = server.json("/v2/models/mlp")[1]
    assert meta["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert meta["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    for rows in (1, 7, 300):
        x = np.random.default_rng(rows).standard_normal((rows, 4), dtype=np.float32)
        np.testing.assert_allclose(ask(server, "mlp", x)[0], expected(x), rtol=1e-5, atol=1e-6)


def test_plans_serve_and_changes_of_their_file_disturb_nobody(serve, tmp_path):
    folder = add_model(serve.repository, "plan", None, files={"1/model.pelton": compile_plan(tmp_path, mlp())})
    server = serve("--model-control-mode=explicit", "--load-model=plan")
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(ask(server, "plan", x)[0], expected(x), rtol=1e-5)
    file = folder / "1" / "model.pelton"
    with open(file, "r+b") as f:
        f.truncate(64)
    np.testing.assert_allclose(ask(server, "plan", x)[0], expected(x), rtol=1e-5)
    status, answer = server.json("/v2/repository/models/plan/load", b"", "POST")
    assert status == 400 and "model.pelton" in answer["error"]
    file.unlink()
    np.testing.assert_allclose(ask(server, "plan", x)[0], expected(x), rtol=1e-5)


def test_dynamic_batches_give_everyone_their_own_rows(serve):
    add_model(serve.repository, "mlp", BATCHED, files={"1/model.onnx": mlp()})
    server = serve()
    assert server.json("/v2/models/mlp/config")[1]["input"][0]["dims"] == [4]
    wrong = []

    def client(seed):
        random = np.random.default_rng(seed)
        for _ in range(25):
            x = random.standard_normal((random.integers(1, 5), 4), dtype=np.float32)
            if not np.allclose(ask(server, "mlp", x)[0], expected(x), rtol=1e-5, atol=1e-6):
                wrong.append(x)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stats = server.json("/v2/models/mlp/stats")[1]["model_stats"][0]
    assert not wrong and stats["inference_stats"]["success"]["count"] == 150
    assert stats["execution_count"] < 150, "nothing was batched"


def test_an_ensemble_of_models(serve):
    scale = model([helper.make_node("Mul", ["raw", "k"], ["x"])], [tensor("raw", ["N", 4])], [tensor("x", ["N", 4])],
                  [numpy_helper.from_array(np.float32(0.5), "k")])
    add_model(serve.repository, "scale", None, files={"1/model.onnx": scale})
    add_model(serve.repository, "mlp", None, files={"1/model.onnx": mlp()})
    add_model(serve.repository, "both", """
        platform: "ensemble"
        input { name: "raw" data_type: TYPE_FP32 dims: [-1, 4] }
        output { name: "y" data_type: TYPE_FP32 dims: [-1, 3] }
        ensemble_scheduling {
          step { model_name: "scale" input_map { key: "raw" value: "raw" } output_map { key: "x" value: "scaled" } }
          step { model_name: "mlp" input_map { key: "x" value: "scaled" } output_map { key: "y" value: "y" } }
        }""")
    server = serve()
    x = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)
    np.testing.assert_allclose(ask(server, "both", x, key="raw")[0], expected(x * 0.5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config, words", [
    ('backend: "onnxruntime" input { name: "z" data_type: TYPE_FP32 dims: [-1, 4] } output { name: "y" data_type: TYPE_FP32 dims: [-1, 3] }', "no input 'z': its inputs are: x"),
    ('backend: "onnxruntime" input { name: "x" data_type: TYPE_FP16 dims: [-1, 4] } output { name: "y" data_type: TYPE_FP32 dims: [-1, 3] }', "FP32 in the model, FP16"),
    ('backend: "onnxruntime" input { name: "x" data_type: TYPE_FP32 dims: [-1, 5] } output { name: "y" data_type: TYPE_FP32 dims: [-1, 3] }', "[-1,4] in the model, [-1,5]"),
    ('backend: "onnxruntime" default_model_filename: "../../x.onnx"', "leaves the model's folder"),
    ('backend: "onnxruntime" default_model_filename: "none.onnx"', "none.onnx"),
])
def test_configurations_that_do_not_fit_are_refused(serve, config, words):
    add_model(serve.repository, "m", config, files={"1/model.onnx": mlp()})
    server = serve(expect_ready=False)
    assert server.process.wait(30) == 1
    assert words in server.process.stderr.read()


def test_broken_files_are_refused(serve):
    add_model(serve.repository, "garbage", None, files={"1/model.onnx": b"\x08\x01garbage"})
    add_model(serve.repository, "empty", None, files={"1/model.pelton": b""})
    add_model(serve.repository, "good", None, files={"1/model.onnx": mlp()})
    server = serve("--exit-on-error=false")
    states = {e["name"]: e["state"] for e in server.json("/v2/repository/index", b"", "POST")[1]}
    assert states == {"garbage": "UNAVAILABLE", "empty": "UNAVAILABLE", "good": "READY"}
    x = np.ones((1, 4), np.float32)
    np.testing.assert_allclose(ask(server, "good", x)[0], expected(x), rtol=1e-5)


def test_a_bad_request_costs_its_neighbours_nothing(serve):
    """An index outside the table fails its own request, whatever batch it ran in."""
    table = numpy_helper.from_array(np.arange(10, dtype=np.float32).reshape(5, 2), "t")
    gather = model([helper.make_node("Gather", ["t", "x"], ["y"])], [tensor("x", ["N", 1], TensorProto.INT64)],
                   [tensor("y", ["N", 1, 2])], [table])
    add_model(serve.repository, "table", '''
        backend: "onnxruntime"
        max_batch_size: 16
        dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 10000000 }''', files={"1/model.onnx": gather})
    server = serve()
    answers = {}

    def one(i):
        index = 77 if i == 5 else i % 5
        answers[i] = server.json("/v2/models/table/infer", {"inputs": [
            {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [index]}]})

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, (status, answer) in answers.items():
        if i == 5:
            assert status == 400 and "77" in answer["error"], answer
        else:
            assert status == 200 and answer["outputs"][0]["data"] == [2 * (i % 5), 2 * (i % 5) + 1]
    batches = server.json("/v2/models/table/stats")[1]["model_stats"][0]["batch_stats"]
    assert [b["batch_size"] for b in batches] == [8]
