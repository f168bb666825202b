# SPDX-License-Identifier: Apache-2.0
"""Plans through the command line: compile, run, inspect, verify, trace; damaged files."""
import json

import numpy as np

from conftest import INPUTS, assert_error


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
