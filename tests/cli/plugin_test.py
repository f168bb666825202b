# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: loaded only by --plugin, kept in plans by name, refused by name when they do not fit."""
import subprocess

import numpy as np
import pytest

from conftest import BINARY, ROOT, assert_error

PLUGIN = BINARY.parent / "example_clip_norm.so"

MODEL = """graph "m"(%x: f32[N,3]) {
  symbol N in [1, 100]
  %0 = custom(%x) {attributes = "{\\"limit\\": 2}", domain = "example", name = "clip_norm"} : f32[N,3]
  %1 = neg(%0) : f32[N,3]
  return %1 @"y"
}
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "m.plt").write_text(MODEL)
    x = np.array([[3, 4, 0], [0.5, 0, 0]], np.float32)
    np.save(tmp_path / "x.npy", x)
    return -np.array([[1.2, 1.6, 0], [0.5, 0, 0]], np.float32)


def test_custom_op_runs_from_model_and_plan(pelton, model, tmp_path):
    run = ("--input", "x=x.npy", "--output-dir", "out", "--plugin", PLUGIN)
    assert pelton("compile", "m.plt", "-o", "m.pelton", "--plugin", PLUGIN).code == 0
    for file in ("m.plt", "m.pelton"):
        result = pelton("run", file, *run)
        assert result.code == 0, result.err
        np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), model, rtol=1e-6)
    support = pelton("inspect", "m.pelton", "--support", "--json", "--plugin", PLUGIN).json()["support"]
    assert [s["implementation"] for s in support if s["op"] == "custom"] == ["plugin"]


def test_a_plan_names_its_op_but_never_loads_it(pelton, model):
    assert pelton("compile", "m.plt", "-o", "m.pelton", "--plugin", PLUGIN).code == 0
    for file in ("m.plt", "m.pelton"):
        assert_error(pelton("run", file, "--input", "x=x.npy"), 1, "example::clip_norm version 1", "--plugin")


def build(tmp_path, old, new):
    source = (ROOT / "examples/custom_op/clip_norm.c").read_text()
    assert old in source
    (tmp_path / "p.c").write_text(source.replace(old, new))
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{ROOT}/include", "p.c", "-lm", "-o", "p.so"], cwd=tmp_path, check=True)
    return tmp_path / "p.so"


def test_plugins_that_do_not_fit(pelton, model, tmp_path):
    doctor = lambda file: pelton("doctor", "--plugin", file)
    assert_error(doctor("absent.so"), 1, "absent.so", "cannot be loaded")
    (tmp_path / "text.so").write_text("no library")
    assert_error(doctor("text.so"), 1, "text.so", "cannot be loaded")
    assert_error(doctor(build(tmp_path, "pelton_plugin_table(void)", "another_table(void)")), 1, "no pelton_plugin_table")
    assert_error(doctor(build(tmp_path, "PELTON_PLUGIN_ABI, ", "7, ")), 1, "'clip_norm'", "ABI 7", "host has 1")
    assert_error(doctor(build(tmp_path, "1, 0, infer", "1, 4, infer")), 1, "example::clip_norm", "flags")
    assert doctor(PLUGIN).code == 0


def test_a_plugin_says_why_it_refuses(pelton, model, tmp_path):
    (tmp_path / "i.plt").write_text(MODEL.replace("f32", "i32"))
    report = pelton("inspect", "i.plt", "--support", "--json", "--plugin", PLUGIN).json()["support"]
    refusals = [r for s in report if s["op"] == "custom" for r in s["refusals"]]
    assert refusals == [{"implementation": "plugin", "reason": "needs f32"}]
    (tmp_path / "s.plt").write_text(MODEL.replace("[N,3]", "[]"))
    assert_error(pelton("inspect", "s.plt", "--plugin", PLUGIN), 1, "clip_norm", "rank 1 or more")
