# SPDX-License-Identifier: Apache-2.0
"""Plans for GPUs on a machine without one, and what is said of devices that are not there."""
import os
import re
import subprocess

import numpy as np

from conftest import INPUTS, assert_error


def has_cuda(pelton):
    """Whether this build has the CUDA back end: then its libraries are reported."""
    return "libraries" in pelton("--json", "doctor").json()["gpu"]


def test_a_device_that_is_not_there_is_never_replaced(pelton, chain):
    for command in (["run", "chain.plt", *INPUTS], ["bench", "chain.plt"], ["compile", "chain.plt"], ["inspect", "--support", "chain.plt"]):
        result = pelton(*command, "--device", "cuda:97")
        assert_error(result, 1, "device 'cuda:97' cannot be used", "--device cpu")
    assert_error(pelton("run", "chain.plt", *INPUTS, "--device", "cuda:x"), 1, "'x' is no number of a GPU")
    assert_error(pelton("compile", "chain.plt", "--target", "sm_9x"), 1, "'sm_9x'", "sm_90")


def test_a_plan_for_a_gpu_is_made_without_one_and_runs_on_the_cpu(pelton, chain, tmp_path):
    result = pelton("--json", "compile", "chain.plt", "-o", "gpu.pelton", "--target", "sm_90")
    if not has_cuda(pelton):
        assert_error(result, 1, "compiles nothing for sm_90")
        return
    report = result.json()
    assert report["target"] == "sm_90"
    assert set(report["implementations"]) == {"cuda.generated"}
    # Kernels are compiled here if the compiler is; what takes timing waits for a GPU.
    usable = bool(pelton("--json", "doctor").json()["gpu"]["libraries"]["NVRTC"])
    kernels = report["implementations"]["cuda.generated"] if usable else 0
    assert report["artifacts"] == {"kernels": kernels, "most_kernels": 64, "choices": 0, "timed": False, "left_out": 0}
    assert (b"__global__" in (tmp_path / "gpu.pelton").read_bytes()) == usable
    support = pelton("--json", "inspect", "--support", "gpu.pelton").json()
    assert any("compiled for sm_90" in note for note in support["notes"])
    assert pelton("run", "gpu.pelton", *INPUTS, "--output-dir", "out").code == 0
    x, b = np.load(tmp_path / "x.npy"), np.load(tmp_path / "b.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y_0.npy"), -(x + b) * np.array([1, 2, 3, 4], np.float32))
    assert_error(pelton("bench", "chain.plt", "--device-buffers"), 2, "--device-buffers", "--device cuda")


def test_half_of_the_channels_needs_no_other_layout(pelton, tmp_path):
    """As in detectors: a convolution, one half of its channels through another, and both halves joined with that."""
    if not has_cuda(pelton):
        return
    (tmp_path / "halves.plt").write_text("""graph "g"(%x: f32[1,16,32,32], %v: f32[32,16,3,3], %w: f32[16,16,3,3]) {
  %0 = conv(%x, %v) {low = dims[1,1], high = dims[1,1]} : f32[1,32,32,32]
  %1 = slice(%0) {axes = [1], starts = dims[0], sizes = dims[16], steps = [1]} : f32[1,16,32,32]
  %2 = slice(%0) {axes = [1], starts = dims[16], sizes = dims[16], steps = [1]} : f32[1,16,32,32]
  %3 = conv(%2, %w) {low = dims[1,1], high = dims[1,1]} : f32[1,16,32,32]
  %4 = concat(%1, %2, %3) {axis = 1} : f32[1,48,32,32]
  %5 = relu(%4) : f32[1,48,32,32]
  return %5
}
""")
    assert pelton("compile", "halves.plt", "-o", "halves.pelton", "--target", "sm_90", "--precision", "fp16").code == 0
    graph = pelton("inspect", "halves.pelton", "--graph").out
    assert graph.count("slice(") == 1  # the other half is read where it lies
    assert len(re.findall(r"layout\(.*to = \"plain\"", graph)) == 1  # for the result


def test_a_driver_that_is_too_old_is_named(pelton, chain, tmp_path):
    if not has_cuda(pelton):
        return
    (tmp_path / "driver.c").write_text("int cuDriverGetVersion(int* v) { *v = 11040; return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    old = {"LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    words = ("device 'cuda' cannot be used", "the NVIDIA driver serves CUDA 11.4, this build needs ", "--device cpu")
    assert_error(pelton("run", "chain.plt", *INPUTS, "--device", "cuda", env=old), 1, *words)
    assert "serves CUDA 11.4" in pelton("doctor", env=old).out
    assert pelton("run", "chain.plt", *INPUTS, "--device", "auto", env=old).code == 0


def test_int8_is_calibrated_on_the_cpu_where_the_gpu_is_absent(pelton, tmp_path):
    if not has_cuda(pelton):
        return
    (tmp_path / "net.plt").write_text("""graph "g"(%x: f32[8,16]) {
  %w = constant() {value = tensor<f32[16,4]>{WEIGHTS}} : f32[16,4]
  %y = matmul(%x, %w) : f32[8,4]
  return %y
}
""".replace("WEIGHTS", ", ".join(str((i * 37 % 64 - 32) / 32) for i in range(64))))
    (tmp_path / "samples").mkdir()
    for i in range(3):
        np.save(tmp_path / "samples" / f"{i}.npy", np.random.default_rng(i).standard_normal((8, 16)).astype(np.float32))
    report = pelton("--json", "compile", "net.plt", "--target", "sm_90", "--precision", "int8", "--calibrate", "samples",
                    "-o", "net.pelton").json()
    assert report["implementations"]["cuda.integer"] == 1
    assert set(report["implementations"]) <= {"cuda.integer", "cuda.generated"}
