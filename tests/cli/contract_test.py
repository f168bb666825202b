# SPDX-License-Identifier: Apache-2.0
"""The contract of the command line: exit statuses, one-line errors, what goes where."""
import json
import os
import signal
import subprocess

import numpy as np
import pytest

from conftest import BINARY, INPUTS, assert_error
from waiting import until_caught


def test_version_and_help(pelton):
    assert pelton("--version").out.startswith("pelton 0.")
    for flags in (("--version", "--json"), ("--json", "--version")):
        assert pelton(*flags).json()["version"] == pelton("doctor", "--json").json()["version"]
    assert pelton("bench", "--help", "--json").json()["help"] == pelton("bench", "--help").out
    top = pelton("--help")
    assert top.code == 0
    for command in ("doctor", "inspect", "compile", "run", "bench", "verify", "conform", "data"):
        assert command in top.out
        assert pelton(command, "--help").code == 0
    for reserved in ("generate", "logwatch", "zoo", "quantize", "refit", "tune", "profile"):
        assert reserved not in [line.split()[0] for line in top.out.splitlines() if line.startswith("  ")]
        assert_error(pelton(reserved), 2, reserved, "reserved")


def test_wrong_usage_is_status_2(pelton):
    assert_error(pelton("nonsense"), 2, "there is no command 'nonsense'", "--help")
    assert_error(pelton("run"), 2, "model is required")
    assert_error(pelton("bench", "m.plt", "--bogus"), 2, "there is no flag '--bogus' (pelton bench)", "see pelton bench --help")
    assert_error(pelton("run", "m.plt", "--inptu", "x=x.npy"), 2, "there is no flag '--inptu'", "did you mean --input?")
    assert_error(pelton("run", "m.plt", "--treads=2"), 2, "there is no flag '--treads'", "did you mean --threads?")
    assert_error(pelton("inspct", "m.plt"), 2, "there is no command 'inspct'", "did you mean inspect?")
    assert pelton().code == 2


def test_flags_without_effect_are_refused(pelton):
    for flags, needed in ((("run", "m.plt", "--rtol", "1"), "--compare"), (("data", "p.toml", "--count", "3"), "--html"),
                          (("data", "p.toml", "--seconds", "3"), "--bench"), (("data", "p.toml", "--shard-mib", "3"), "--convert"),
                          (("train", "r.toml", "--graph"), "--dry-run"), (("train", "r.toml", "--target", "sm_90"), "--dry-run")):
        assert_error(pelton(*flags), 2, f"{flags[2]} requires {needed}")
    for first, second in (("--bench", "--verify"), ("--html=x.html", "--convert=x")):
        assert_error(pelton("data", "p.toml", first, second), 2, " excludes ")


def test_output_is_looked_at_before_the_work(pelton, chain, tmp_path):
    result = pelton("compile", "chain.plt", "-o", "absent/m.pelton", "--print-after", "import")
    assert_error(result, 1, "absent/m.pelton")
    assert "after import" not in result.err
    before = (tmp_path / "chain.plt").read_bytes()
    assert_error(pelton("compile", "chain.plt", "-o", "./chain.plt"), 2, "'./chain.plt' is the file that is read", "another name")
    assert (tmp_path / "chain.plt").read_bytes() == before
    assert pelton("export", "chain.plt", "-o", "m.onnx").code == 0
    assert_error(pelton("export", "m.onnx", "-o", "m.onnx"), 2, "is the file that is read")
    assert_error(pelton("export", "chain.plt", "-o", "m.pt"), 2, "'m.pt' has the ending of no file that is written", ".onnx", ".safetensors")
    assert_error(pelton("export", "zoo:mlp", "-o", "w.npz"), 2, "weights alone are not written of a built-in model")
    assert pelton("compile", "chain.plt", "-o", "m.pelton").code == 0
    assert_error(pelton("export", "m.pelton", "-o", "w.npz"), 2, "weights alone are not written of a plan")


def test_errors_as_json(pelton):
    result = pelton("inspect", "absent.onnx", "--json")
    assert_error(result, 1, "absent.onnx")
    error = result.json()["error"]
    assert set(error) == {"code", "what", "where", "fix"}
    assert error["code"] == "not_found"
    assert json.loads(pelton("--json", "nonsense").out)["error"]["code"] == "usage"


@pytest.mark.parametrize("flag", [["--output-dir=out"], ["--output-dir", "out"]])
def test_flags_in_both_forms(pelton, chain, flag):
    assert pelton("run", "chain.plt", *INPUTS, *flag).code == 0


def test_run_writes_outputs(pelton, chain, tmp_path):
    result = pelton("run", "chain.plt", *INPUTS, "--output-dir", "out", "--json").json()
    assert [o["name"] for o in result["outputs"]] == ["y:0", "z"]
    for name, expected in chain.items():
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.npy"), expected)


def test_run_compares(pelton, chain, tmp_path):
    os.mkdir(tmp_path / "good")
    for name, value in chain.items():
        np.save(tmp_path / "good" / f"{name}.npy", value)
    assert pelton("run", "chain.plt", *INPUTS, "--compare", "good").code == 0
    np.save(tmp_path / "good" / "z.npy", chain["z"] + 0.5)
    result = pelton("run", "chain.plt", *INPUTS, "--compare", "good", "--json")
    assert result.code == 1
    y, z = result.json()["outputs"]
    assert y["matches"] and not z["matches"]
    assert "elements differ" in z["reason"]
    assert abs(z["max_abs_error"] - 0.5) < 1e-6
    assert pelton("run", "chain.plt", *INPUTS, "--compare", "good", "--atol", "0.6").code == 0


def test_bad_inputs(pelton, chain, tmp_path):
    assert_error(pelton("run", "chain.plt", "--input", "x=x.npy"), 1, "input 'b'", "--input b=")
    assert_error(pelton("run", "chain.plt", *INPUTS, "--input", "q=x.npy"), 1, "no input 'q'", "x, b")
    assert_error(pelton("run", "chain.plt", *INPUTS, "--input", "x=x.npy"), 2, "'x' twice")
    assert_error(pelton("run", "chain.plt", "--input", "x"), 2, "'x' has no name")
    np.save(tmp_path / "x.npy", np.zeros((3, 5), np.float32))
    assert_error(pelton("run", "chain.plt", *INPUTS), 1, "input 'x'", "expected size 4", "[3,5]")
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float64))
    assert_error(pelton("run", "chain.plt", *INPUTS), 1, "'x'", "f32")
    (tmp_path / "x.npy").write_bytes(b"no array")
    assert_error(pelton("run", "chain.plt", *INPUTS), 1, "x.npy")


def test_devices_and_threads(pelton, chain):
    assert_error(pelton("run", "chain.plt", *INPUTS, "--device", "cuda"), 1, "cuda", "--device cpu")
    assert_error(pelton("run", "chain.plt", *INPUTS, "--device", "tpu"), 1, "tpu")
    assert_error(pelton("doctor", "--threads", "-1"), 1, "--threads is -1")
    assert_error(pelton("doctor", "--threads", "5000"), 1, "5000")
    assert_error(pelton("doctor", "--threads", "two"), 2, "two")
    auto = pelton("run", "chain.plt", *INPUTS, "--device", "auto")
    assert auto.code == 0 and "CPU" in auto.err and len(auto.err.splitlines()) == 1
    assert pelton("run", "chain.plt", *INPUTS).err == ""


def test_files_that_are_no_models(pelton, tmp_path):
    (tmp_path / "lfs.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert_error(pelton("inspect", "lfs.onnx"), 1, "Git LFS pointer", "git lfs pull")
    (tmp_path / "empty.onnx").write_text("")
    assert_error(pelton("inspect", "empty.onnx"), 1, "empty", "empty.onnx")
    (tmp_path / "bad.plt").write_text('graph "g"(%x: f32[2]) {\n  %0 = ad(%x) : f32[2]\n  return %0\n}')
    assert_error(pelton("inspect", "bad.plt"), 1, "nearest name is 'add'", "bad.plt")
    assert_error(pelton("inspect", tmp_path), 1, str(tmp_path))


def test_doctor(pelton):
    report = pelton("doctor", "--json").json()
    assert report["cpu"]["isa"] in ("scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16")
    assert report["cpu"]["threads"] >= 1
    assert report["gpu"]["usable"] is False and report["gpu"]["reason"]
    libraries = report["libraries"]
    assert libraries["oneTBB"]
    # Those that a build may lack are listed all the same, and the table says what is off without them.
    optional = {"oneDNN", "Highway", "Boost", "gRPC", "libjpeg", "libpng", "libwebp", "libtiff", "libsndfile", "libcurl", "zstd"}
    assert optional <= set(libraries)
    table = {line.split()[0]: line for line in pelton("doctor").out.splitlines()}
    for name in optional:
        assert (libraries[name] or "off: not found when this was built") in table[name]
    assert pelton("doctor", "--json", env={"PELTON_CPU_ISA": "scalar"}).json()["cpu"]["isa"] == "scalar"
    assert_error(pelton("doctor", env={"PELTON_CPU_ISA": "sse9"}), 1, "sse9", "PELTON_CPU_ISA")
    assert pelton("doctor", "--json", env={"PELTON_CPU_ISA": ""}).json()["cpu"] == report["cpu"]


def test_the_environment_of_the_server_is_nothing_to_other_commands(pelton, tmp_path):
    wrong = {"PELTON_SERVE_HTTP_PORT": "many"}
    assert pelton("doctor", env=wrong).code == 0
    assert_error(pelton("serve", "--model-repository", tmp_path, env=wrong), 2, "http-port", "many")


def test_json_of_names_that_are_no_utf8(chain, pelton, tmp_path):
    plan = os.fsdecode(b"\xff.pelton")
    assert pelton("compile", "chain.plt", "-o", plan, "--json").json()["plan"].endswith(".pelton")
    odd = (tmp_path / "chain.plt").read_bytes().replace(b"layer/neg", b"layer/\xff")
    (tmp_path / "odd.plt").write_bytes(odd)
    layers = pelton("bench", "odd.plt", "--layers", "--seconds", "0.01", "--json").json()["layers"]
    assert layers and pelton("export", "odd.plt", "-o", os.fsdecode(b"\xff.onnx"), "--json").json()["nodes"]
    assert pelton("run", plan, *INPUTS, "--output-dir", os.fsdecode(b"\xff"), "--json").json()["outputs"]
    assert pelton("inspect", os.fsdecode(b"\xff.absent"), "--json").json()["error"]["code"] == "not_found"
    recipe = tmp_path / os.fsdecode(b"\xff.toml")
    recipe.write_text('version = 1\nmodel = { name = "mlp", classes = 10 }\ndata = { synthetic = [1, 28, 28], batch = 4 }\n'
                      'step = { epochs = 1, loss = "cross_entropy" }\noptimizer = { name = "sgd", lr = 0.1 }\n')
    assert pelton("train", recipe, "--json").json()["error"]["code"] == "bad_name"


def test_inspect(pelton, chain):
    report = pelton("inspect", "chain.plt", "--json").json()
    assert report["inputs"][0] == {"name": "x", "type": "f32[N,4]", "dtype": "f32", "shape": ["N", 4]}
    assert [o["name"] for o in report["outputs"]] == ["y:0", "z"]
    assert report["ops"] == {"add": 1, "neg": 1, "mul": 1}
    assert report["parameters"] == 4 and report["parameter_bytes"] == 16
    assert pelton("inspect", "chain.plt", "--graph").out.startswith('graph "chain"')


def test_inspect_counts_a_node_once(pelton, chain):
    """Three pointwise nodes of 4 elements a row: as much in a model as in a plan, where they are one fused node."""
    assert pelton("compile", "chain.plt", "-o", "m.pelton").code == 0
    model, plan = (pelton("inspect", name, "--json").json() for name in ("chain.plt", "m.pelton"))
    assert plan["ops"]["fused"] == 1 and plan["ops"]["mul"] == 1
    assert model["flops"] == plan["flops"] == 12 and model["counted_at"]["N"] == plan["counted_at"]["N"] == 1
    assert model["activation_bytes"] == 3 * 16 and plan["activation_bytes"] == 2 * 16  # the sum stays within the node
    for name in ("chain.plt", "m.pelton"):
        assert pelton("inspect", name, "--shape", "x=8x4", "--json").json()["flops"] == 96
    assert "at N=1" in pelton("inspect", "m.pelton").out


def test_bench_keys(pelton, chain):
    report = pelton("bench", "chain.plt", "--seconds", "0.05", "--warm-up", "0.01", "--shape", "x=5x4", "--seed", "3",
                    "--threads", "1", "--json").json()
    for key in ("latency_ms throughput_per_s host_peak_bytes device_peak_bytes load_ms compile_ms device threads "
                "precision shapes seed warm_up iterations stable").split():
        assert key in report, key
    latency = report["latency_ms"]
    assert 0 < latency["min"] <= latency["median"] <= latency["p90"] <= latency["p95"] <= latency["p99"]
    assert report["shapes"] == {"x": [5, 4], "b": [4]}
    assert report["seed"] == 3 and report["threads"] == 1 and report["iterations"] >= 10
    assert report["host_peak_bytes"] > 1 << 20
    assert_error(pelton("bench", "chain.plt", "--batch", "3"), 1, "--batch 3", "input 'b'")
    assert_error(pelton("bench", "chain.plt", "--shape", "x=5x"), 2, "'5x' is not a shape", "--shape x")
    assert_error(pelton("bench", "chain.plt", "--shape", "x=5x5"), 1, "axis 1", "'x'")
    given = pelton("bench", "chain.plt", *INPUTS, "--iterations", "10", "--json").json()
    assert given["shapes"] == {"x": [3, 4], "b": [4]}
    few = pelton("bench", "chain.plt", "--iterations", "3", "--json")
    assert few.json()["stable"] is False and "only 3 runs" in few.err


def test_bench_layers(pelton, chain):
    report = pelton("bench", "chain.plt", "--iterations", "20", "--layers", "--json").json()
    assert report["layers"]
    for layer in report["layers"]:
        assert layer["ms"] >= 0 and layer["implementation"] and layer["calls"] == 1


@pytest.mark.parametrize("command", [["bench", "chain.plt", "--seconds", "60"], ["bench", "chain.plt", "--seconds", "60", "--json"],
                                     ["export", "zoo:resnet50", "-o", "m.onnx"]])
def test_interrupt_ends_cleanly(tmp_path, chain, command):
    process = subprocess.Popen([str(BINARY), *command], cwd=tmp_path,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until_caught(process, signal.SIGINT)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert json.loads(out)["error"]["code"] == "cancelled" if "--json" in command else out == ""


def test_help_names_the_flags_of_every_command_and_none_is_without_effect(pelton, chain):
    assert "--json, -v, -q" in pelton("run", "--help").out
    assert_error(pelton("inspect", "chain.plt", "--precision", "bf16"), 2, "--precision requires --support")


def test_results_are_told_by_their_sizes(pelton, chain):
    assert pelton("run", "chain.plt", *INPUTS).out.splitlines()[0] == "y:0  f32[3,4]"


def test_an_interrupt_ends_a_compilation_between_its_passes(tmp_path):
    """It comes while the process waits for the reader of what the first pass printed."""
    command = [BINARY, "compile", "zoo:resnet50", "--device", "cpu", "-o", "m.pelton", "--print-after", "import"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert process.stderr.read(13) == b"after import:"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and out == b"", out
    assert err.endswith(b"pelton: interrupted; m.pelton is not written\n"), err[-300:]
    assert not list(tmp_path.iterdir())


def test_output_that_cannot_be_written(chain, pelton):
    with open("/dev/full", "w") as full:
        process = subprocess.run([str(BINARY), "doctor"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 1 and "standard output cannot be written" in process.stderr
    assert_error(pelton("run", "chain.plt", *INPUTS, "--output-dir", "/proc/none"), 1, "/proc/none")


def test_built_in_models(pelton, tmp_path):
    report = pelton("inspect", "zoo:mlp", "--json").json()
    assert report["format"] == "zoo" and report["inputs"][0]["shape"] == ["N", 784]
    assert report["parameters"] == 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10
    small = "zoo:recurrent,length=4,features=3,hidden=5,cell=gru"
    assert pelton("inspect", small, "--json").json()["inputs"][0]["shape"] == ["N", 4, 3]
    for command in (["compile", small, "-o", "z.pelton"], ["bench", small, "--batch", "2", "--iterations", "3"],
                    ["verify", small, "--shape", "series=2x4x3"], ["export", small, "-o", "z.onnx"]):
        result = pelton(*command)
        assert result.code == 0, result.err
    np.save(tmp_path / "x.npy", np.ones((2, 4, 3), np.float32))
    results = []
    for i, model in enumerate((small, "z.pelton", "z.onnx")):  # the weights are the same each time
        assert pelton("run", model, "--input", "series=x.npy", "--output-dir", f"o{i}").code == 0
        results.append(np.load(tmp_path / f"o{i}" / "logits.npy"))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], results[2], rtol=1e-5, atol=1e-6)
    assert np.abs(results[0]).max() > 0
    assert_error(pelton("inspect", "zoo:resnet5"), 1, "no model 'resnet5'", "resnet50")
    assert_error(pelton("inspect", "zoo:mlp,feature=3"), 1, "no option 'feature'", "'features'")
    assert_error(pelton("inspect", "zoo:mlp,features=many"), 1, "option features", "'many'", "--models")
    assert_error(pelton("inspect", "zoo:mlp,features"), 1, "'features' is no OPTION=VALUE")


def test_precisions_that_are_not_built(pelton, chain):
    for precision, words in (("fp8", "fp8 is not built yet"), ("int4", "unknown precision 'int4'"),
                             ("tf32", "a mode of GPUs")):
        assert_error(pelton("compile", "chain.plt", "--precision", precision, "--device", "cpu"), 1, words, "use fp32, bf16, fp16 or int8")
    assert_error(pelton("compile", "chain.plt", "--precision", "fp32,int4"), 1, "unknown precision 'int4' in 'fp32,int4'", "choose from")


def test_numbers_that_mean_nothing_are_refused(pelton, chain):
    for flags, words in ((("--seconds", "nan"), ("--seconds is nan",)), (("--seconds", "inf"), ("--seconds is inf",)),
                         (("--warm-up", "nan"), ("--warm-up is nan",)), (("--iterations", "0"), ("--iterations is 0",)),
                         (("--batch", "0"), ("--batch is 0",))):
        assert_error(pelton("bench", "chain.plt", *flags), 2, *words)
    for drop in ("-5", "nan", "101"):
        assert_error(pelton("compile", "chain.plt", "--precision", "bf16", "--max-drop", drop), 2, "--max-drop is")
    assert_error(pelton("compile", "chain.plt", "--max-drop", "5"), 2, "--max-drop is for precisions below f32", "int8")
    assert_error(pelton("compile", "chain.plt", "--calibrate", "."), 2, "--calibrate is for precisions below f32")
    assert_error(pelton("compile", "absent.onnx", "--precision", "int8"), 2, "int8 needs samples", "--calibrate")


def test_a_precision_without_fast_products_is_told(pelton, chain):
    for precision, target, told in (("fp16", "cpu-avx512_bf16", True), ("bf16", "cpu-avx2", True), ("bf16", "cpu-avx512", False), ("fp32", "cpu", False)):
        out = pelton("compile", "chain.plt", "--precision", precision, "--target", target).out
        assert (f"products in {precision} have no fast kernels on {target}" in out) == told, out


def test_a_plan_keeps_its_precision(pelton, chain):
    assert pelton("compile", "chain.plt", "--precision", "bf16", "-o", "low.pelton").code == 0
    for command in ("bench", "verify"):
        assert_error(pelton(command, "low.pelton", "--precision", "fp16"), 1, "low.pelton", "compiled in bf16, not in fp16")
    assert pelton("bench", "low.pelton", "--precision", "bf16", "--iterations", "2").code == 0


def test_amounts_are_finite(pelton, chain):
    for command in (("run", "chain.plt", "--rtol", "nan", "--compare", "."), ("run", "chain.plt", "--atol", "-1", "--compare", "."),
                    ("verify", "chain.plt", "--rtol-alone", "inf"), ("conform", ".", "--rtol", "nan")):
        assert_error(pelton(*command), 2, f"{command[2]} is {command[3]}", "finite and not negative")
    exact = pelton("verify", "chain.plt", "--rtol", "0", "--rtol-alone", "0", "--json").json()
    assert exact["tolerance"] == {"alone": 0, "cumulative": 0, "behind_quantisation": 0}
