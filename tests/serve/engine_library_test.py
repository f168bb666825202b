# SPDX-License-Identifier: Apache-2.0
"""Engines of users: the example is built with the system's compiler and served."""
import pathlib
import subprocess

import pytest
from conftest import add_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
backend: "scale" max_batch_size: 4 dynamic_batching { }
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "X_SCALED" data_type: TYPE_FP32 dims: [ 2 ] }
"""
FACTOR = 'parameters { key: "factor" value { string_value: "%s" } }'


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    out = tmp_path_factory.mktemp("engine") / "libscale.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "include"),
                    str(ROOT / "examples/engine/scale.c"), "-o", str(out)], check=True)
    return out


def test_the_example(serve, library):
    add_model(serve.repository, "three", CONFIG + FACTOR % "3")
    add_model(serve.repository, "none", CONFIG)
    add_model(serve.repository, "ints", CONFIG.replace("TYPE_FP32", "TYPE_INT32") + FACTOR % "2")
    server = serve(f"--engine=scale={library}", "--exit-on-error=false")

    def ask(model, values, kind="FP32"):
        return server.json(f"/v2/models/{model}/infer", {"inputs": [{"name": "X", "datatype": kind, "shape": [len(values) // 2, 2], "data": values}]})

    assert ask("three", [1, 2, 3, 4])[1]["outputs"] == [{"name": "X_SCALED", "datatype": "FP32", "shape": [2, 2], "data": [3, 6, 9, 12]}]
    status, answer = ask("none", [1, 2])
    assert status == 404 and "the parameter 'factor' is missing or 0" in answer["error"]
    status, answer = ask("ints", [1, 2], "INT32")
    assert status == 500 and "only FP32 can be scaled" in answer["error"]


@pytest.mark.parametrize("flag, words", [
    ("--engine=scale", "NAME=FILE"), ("--engine=x=/nowhere.so", "cannot open the engine"), ("--engine=x=libm.so.6", "has no function pelton_engine"),
])
def test_libraries_that_are_no_engine(serve, flag, words):
    server = serve(flag, expect_ready=False)
    assert server.process.wait(20) in (1, 2)
    assert words in server.process.stderr.read()
