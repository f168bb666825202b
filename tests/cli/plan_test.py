# SPDX-License-Identifier: Apache-2.0
"""Plans through the command line: compile, run, inspect, verify, trace; damaged files."""
import json
import os
import signal
import subprocess

import numpy as np
import pytest

from conftest import BINARY, INPUTS, assert_error
from waiting import cpu_seconds, until


def compile_chain(pelton):
    result = pelton("compile", "chain.plt", "-o", "m.pelton", "--json")
    assert result.code == 0, result.err
    return result.json()


def test_compile_and_run(pelton, chain, tmp_path):
    report = compile_chain(pelton)
    assert report["plan"] == "m.pelton" and report["bytes"] == (tmp_path / "m.pelton").stat().st_size
    assert pelton("run", "m.pelton", *INPUTS, "--output-dir", "out").code == 0
    for name, expected in chain.items():
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{name}.npy"), expected, rtol=1e-6)
    first = (tmp_path / "m.pelton").read_bytes()
    compile_chain(pelton)
    assert (tmp_path / "m.pelton").read_bytes() == first
    info = pelton("inspect", "m.pelton", "--json").json()
    assert info["format"] == "pelton" and info["source"] == "chain.plt"
    assert [o["name"] for o in info["outputs"]] == ["y:0", "z"]


def test_plan_that_cannot_be_written(pelton, chain):
    assert_error(pelton("compile", "chain.plt", "-o", "absent/m.pelton"), 1, "absent/m.pelton")
    assert_error(pelton("compile", "chain.plt", "--target", "z80"), 1, "z80", "cpu-avx2")


def test_damaged_plans(pelton, chain, tmp_path):
    compile_chain(pelton)
    good = (tmp_path / "m.pelton").read_bytes()
    (tmp_path / "short.pelton").write_bytes(good[:len(good) // 2])
    assert_error(pelton("run", "short.pelton", *INPUTS), 1, "short.pelton", "header says", "damaged")
    at = good.index(b'"choices"')
    (tmp_path / "bad.pelton").write_bytes(good[:at] + b"!" + good[at + 1:])
    assert_error(pelton("run", "bad.pelton", *INPUTS), 1, "bad.pelton", "section 'manifest'", "checksum")
    (tmp_path / "new.pelton").write_bytes(good[:8] + b"\x63" + good[9:])
    result = pelton("run", "new.pelton", *INPUTS, "--json")
    assert_error(result, 1, "version 99")
    assert result.json()["error"]["code"] == "unsupported_version"


def test_what_ran_is_what_inspect_says(pelton, chain, tmp_path):
    compile_chain(pelton)
    support = pelton("inspect", "m.pelton", "--support", "--json").json()["support"]
    expected = [(s["node"], s["implementation"]) for s in support if s["implementation"] != "none"]
    result = pelton("run", "m.pelton", *INPUTS, "--trace", "trace.json", "--json").json()
    assert [(r["node"], r["implementation"]) for r in result["ran"]] == expected
    spans = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert [(s["name"], s["args"]["implementation"]) for s in spans] == expected


def test_verify_compares_and_changes_nothing(pelton, chain, tmp_path):
    compile_chain(pelton)
    before = (tmp_path / "m.pelton").read_bytes()
    for model in ("chain.plt", "m.pelton"):
        result = pelton("verify", model, *INPUTS, "--json")
        assert result.code == 0, result.out
        report = result.json()
        assert report["matches"] and {"y:0", "z"} <= {v["value"] for v in report["cumulative"]}
    assert (tmp_path / "m.pelton").read_bytes() == before
    assert ", 0 differ" in pelton("verify", "m.pelton").out


def test_verify_knows_sizes_that_no_operand_shows(pelton, tmp_path):
    (tmp_path / "hidden.plt").write_text("""graph "g"(%x: f32[N,M]) {
  symbol N in [1, 64]
  symbol M in [1, 64]
  %a = reduce_sum(%x) {axes = [1]} : f32[N]
  %b = reshape(%a) {dims = dims[N, 1]} : f32[N,1]
  %y = broadcast_to(%b) {dims = dims[N, M]} : f32[N,M]
  return %y
}
""")
    result = pelton("verify", "hidden.plt", "--shape", "x=3x5")
    assert result.code == 0 and ", 0 differ" in result.out, result.err


def test_embedded_packed_weights(pelton, tmp_path):
    """The larger plan gives the same bits; damage to it is refused."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((48, 32, 3, 3)).astype(np.float32),
               "m": random.standard_normal((48, 40)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("GlobalAveragePool", ["c"], ["p"]),
             helper.make_node("Flatten", ["p"], ["f"]), helper.make_node("MatMul", ["f", "m"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 32, 12, 12])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 40])],
                              [numpy_helper.from_array(v, k) for k, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", random.standard_normal((2, 32, 12, 12)).astype(np.float32))
    sizes = {}
    for name, flags in (("plain", []), ("packed", ["--embed-packed"])):
        assert pelton("compile", "m.onnx", "-o", f"{name}.pelton", *flags).code == 0
        assert pelton("run", f"{name}.pelton", "--input", "x=x.npy", "--output-dir", name).code == 0
        sizes[name] = (tmp_path / f"{name}.pelton").stat().st_size
    assert sizes["packed"] > sizes["plain"] + weights["w"].nbytes
    np.testing.assert_array_equal(np.load(tmp_path / "plain/y.npy"), np.load(tmp_path / "packed/y.npy"))
    good = (tmp_path / "packed.pelton").read_bytes()
    (tmp_path / "bad.pelton").write_bytes(good[:-100] + bytes([good[-100] ^ 1]) + good[-99:])
    assert_error(pelton("run", "bad.pelton", "--input", "x=x.npy"), 1, "bad.pelton", "section 'packed'", "checksum")
    assert_error(pelton("compile", "m.onnx", "--embed-packed", "--target", "cpu-avx2"), 2, "--embed-packed", "--target")


def test_an_interrupt_ends_the_timing_and_gives_the_best_plan_so_far(tmp_path):
    out = tmp_path / "m.pelton"
    command = [BINARY, "--json", "compile", "zoo:mobilenet_v2", "--precision", "best", "--time-budget", "60s", "-o", out]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PELTON_CACHE_DIR": str(tmp_path)})
    until(lambda: cpu_seconds(process) > 0.7)                       # of the minute that it may take
    process.send_signal(signal.SIGINT)
    report = json.loads(process.communicate(timeout=120)[0])
    assert process.returncode == 130
    assert report["interrupted"] is True
    assert any("interrupted" in note for p in report["passes"] for note in p["notes"])
    assert subprocess.run([BINARY, "inspect", out], capture_output=True).returncode == 0


def test_a_damaged_file_of_timings_costs_a_plan_only_where_it_was_named(pelton, chain, tmp_path):
    cached = tmp_path / "cache/tactics/timings.txt"
    cached.parent.mkdir(parents=True, mode=0o700)
    cached.write_text("of another age\n")
    command = ("compile", "chain.plt", "-o", "m.pelton", "--time-budget", "1s", "--print-after", "import")
    result = pelton(*command, env={"PELTON_CACHE_DIR": str(tmp_path / "cache")})
    assert result.code == 0 and "timings are not kept" in result.err and str(cached) in result.err, result.err
    assert (tmp_path / "m.pelton").exists()
    assert_error(pelton(*command, "--tactics", cached), 1, str(cached), "line 1")
    absent = pelton(*command, "--tactics", "absent/t.txt")
    assert_error(absent, 1, "absent/t.txt")
    assert "after import" not in absent.err


def test_strict_plans_round_as_unfused(pelton, tmp_path):
    (tmp_path / "m.plt").write_text("""graph "m"(%x: f32[64]) {
  %e = constant() {value = tensor<bf16[]>{0.00390625}} : bf16[]
  %h = cast(%x) {to = bf16} : bf16[64]
  %a = add(%h, %e) : bf16[64]
  %b = sub(%a, %h) : bf16[64]
  %y = cast(%b) {to = f32} : f32[64]
  return %y
}""")
    np.save(tmp_path / "x.npy", np.ones(64, np.float32))

    def result(*flags):
        compiled = pelton("compile", "m.plt", "-o", "m.pelton", *flags)
        assert compiled.code == 0, compiled.err
        ran = pelton("run", "m.pelton", "--input", "x=x.npy", "--output-dir", "out")
        assert ran.code == 0, ran.err
        return np.load(tmp_path / "out" / "y.npy")

    # 1 + 2^-8 is no bf16.
    assert (result() == 2.0 ** -8).all()
    assert (result("--strict") == 0).all()
    assert (result("--disable-pass", "fusion") == 0).all()


def test_deterministic_and_frozen_are_kept_in_the_plan(pelton, chain, tmp_path):
    assert pelton("compile", "chain.plt", "-o", "m.pelton", "--deterministic", "--frozen").code == 0
    manifest = (tmp_path / "m.pelton").read_bytes()
    assert b'"options":{"deterministic":"true","frozen":"true"}' in manifest
    assert_error(pelton("compile", "chain.plt", "--deterministic", "--time-budget", "1s"), 1, "--time-budget",
                 "leaves nothing to a timing")
    assert_error(pelton("compile", "chain.plt", "--deterministic", "--precision", "best"), 1, "--precision best",
                 "name one precision")


def test_shapes_asked_of_a_plan(pelton, chain):
    """A plan has its shapes: others are refused by name, and a run's values must have those asked for."""
    (result,) = [pelton("compile", "chain.plt", "-o", "m.pelton", "--shape", "x=2:3:4x4")]
    assert result.code == 0, result.err
    assert pelton("run", "m.pelton", *INPUTS, "--shape", "x=3x4").code == 0
    assert_error(pelton("run", "m.pelton", *INPUTS, "--shape", "x=2x4"), 1, "input 'x' is 3x4, not 2x4")
    assert_error(pelton("run", "m.pelton", *INPUTS, "--shape", "x=9x4"), 1, "compiled for", "not for 9x4",
                 "compile the model")
    assert_error(pelton("run", "m.pelton", *INPUTS, "--shape", "q=9x4"), 1, "no input 'q'", "x, b")
    assert_error(pelton("bench", "m.pelton", "--shape", "x=1:3:9x4"), 1, "not for 1:3:9x4")


def test_negative_seeds_are_refused(pelton, chain):
    for command in ("run", "bench", "verify"):
        assert_error(pelton(command, "chain.plt", "--seed", "-1"), 2, "--seed")


def test_a_plan_of_another_instruction_set(pelton, chain, tmp_path):
    """It runs, says that its implementations are chosen anew, and is timed once: later loads know the timings."""
    avx2 = {"PELTON_CPU_ISA": "avx2"}
    here = {"PELTON_CACHE_DIR": str(tmp_path / "cache"), "PELTON_CPU_ISA": "scalar"}
    os.mkdir(tmp_path / "cache", 0o700)
    assert pelton("compile", "chain.plt", "-o", "m.pelton", env=avx2).code == 0
    result = pelton("-v", "run", "m.pelton", *INPUTS, "--output-dir", "out", env=here)
    assert result.code == 0, result.err
    if "compiled for cpu-avx2 and runs on cpu-scalar" not in result.err:  # a machine without AVX2 compiled it
        assert "avx2" not in pelton("inspect", "m.pelton", "--json", env=avx2).out
    for name, expected in chain.items():
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{name}.npy"), expected, rtol=1e-6)
    assert pelton("bench", "m.pelton", "--seconds", "0.05", "--warm-up", "0", env=here).code == 0


def test_packed_weights_replace_the_models_own(pelton, tmp_path):
    """The file holds a weight once; runs, exports and other machines have the same bits."""
    random = np.random.default_rng(3)
    x, w = (random.standard_normal(s, dtype=np.float32) for s in ((2, 64, 9, 9), (96, 64, 3, 3)))
    np.save(tmp_path / "x.npy", x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    values = ", ".join(repr(float(v)) for v in w.ravel())
    # What the library packs on every CPU with AVX2.
    (tmp_path / "layer.plt").write_text(f"""graph "layer"(%x: f32[2,64,9,9]) {{
  %w = constant() {{value = tensor<f32[96,64,3,3]>{{{values}}}}} : f32[96,64,3,3]
  %y = conv(%x, %w) {{strides = [2, 2]}} : f32[2,96,4,4]
  return %y @"y"
}}
""")
    assert pelton("compile", "layer.plt", "-o", "plain.pelton").code == 0
    assert pelton("compile", "layer.plt", "-o", "packed.pelton", "--embed-packed").code == 0
    plain, packed = (tmp_path / n for n in ("plain.pelton", "packed.pelton"))
    if pelton("doctor", "--json").json()["cpu"]["isa"] == "scalar":
        pytest.skip("the CPU has no lower instruction set")
    assert b"packed.index" in packed.read_bytes()
    assert packed.stat().st_size < 1.05 * plain.stat().st_size + 8192
    assert w.tobytes() in plain.read_bytes() and w.tobytes() not in packed.read_bytes()
    results = {}
    for plan, env in (("plain", {}), ("packed", {}), ("packed", {"PELTON_CPU_ISA": "scalar"})):
        result = pelton("run", f"{plan}.pelton", "--input", "x=x.npy", "--output-dir", "out", env=env)
        assert result.code == 0, result.err
        results[plan, bool(env)] = np.load(tmp_path / "out" / "y.npy")
    np.testing.assert_array_equal(results["plain", False], results["packed", False])
    np.testing.assert_allclose(results["packed", True], np.einsum("nchwij,ocij->nohw", windows, w), rtol=1e-4, atol=1e-3)
    for plan in ("plain", "packed"):
        assert pelton("export", f"{plan}.pelton", "-o", f"{plan}.onnx").code == 0
        assert pelton("verify", f"{plan}.pelton").code == 0
    assert (tmp_path / "plain.onnx").read_bytes() == (tmp_path / "packed.onnx").read_bytes()
    assert pelton("run", "plain.onnx", "--input", "x=x.npy", "--output-dir", "again").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "again" / "y.npy"), results["plain", False])
