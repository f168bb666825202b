# SPDX-License-Identifier: Apache-2.0
"""Plans for GPUs on a machine without one, and what is said of devices that are not there."""
import re

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
    assert report["artifacts"] == {"kernels": kernels, "choices": 0, "timed": False, "left_out": 0}
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
