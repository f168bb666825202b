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
    assert report["artifacts"] == {"kernels": kernels, "most_kernels": 64, "library_plans": 0, "choices": 0, "timed": False, "left_out": 0}
    assert (b"__global__" in (tmp_path / "gpu.pelton").read_bytes()) == usable
    support = pelton("--json", "inspect", "--support", "gpu.pelton").json()
    assert any("compiled for sm_90" in note for note in support["notes"])
    assert pelton("run", "gpu.pelton", *INPUTS, "--output-dir", "out").code == 0
    x, b = np.load(tmp_path / "x.npy"), np.load(tmp_path / "b.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y_0.npy"), -(x + b) * np.array([1, 2, 3, 4], np.float32))
    assert_error(pelton("bench", "chain.plt", "--device-buffers"), 2, "--device-buffers", "--device cuda")


def cudnn_version(pelton):
    return pelton("--json", "doctor").json()["gpu"]["libraries"]["cuDNN"] or ""


def test_plans_of_cudnn_are_made_without_a_gpu(pelton, tmp_path):
    if not has_cuda(pelton) or not cudnn_version(pelton):
        return
    (tmp_path / "conv.plt").write_text("""graph "g"(%x: f32[8,64,28,28], %v: f32[64,64,3,3], %w: f32[64,64,3,3]) {
  %0 = conv(%x, %v) {low = dims[1,1], high = dims[1,1]} : f32[8,64,28,28]
  %1 = conv(%0, %w) {low = dims[1,1], high = dims[1,1]} : f32[8,64,28,28]
  return %1
}
""")
    compile_it = ["--json", "compile", "conv.plt", "-o", "conv.pelton", "--precision", "fp16", "--target"]
    report = pelton(*compile_it, "sm_90").json()
    assert report["implementations"]["cuda.conv"] == 2
    assert report["artifacts"]["library_plans"] >= 4
    # Once for two convolutions of one kind, and the same each time.
    plan = (tmp_path / "conv.pelton").read_bytes()
    assert plan.count(b'"operationGraph"') == report["artifacts"]["library_plans"]
    pelton(*compile_it, "sm_90")
    assert (tmp_path / "conv.pelton").read_bytes() == plan
    assert pelton(*compile_it, "sm_100").json()["artifacts"]["library_plans"] == 0


# What cuDNN asks of a driver to compile a kernel and load it, but for what has a body.
DRIVER = """cuLaunchKernel cuLaunchCooperativeKernel cuLinkDestroy cuLinkComplete cuLaunchKernelEx cuGetErrorString cuGetErrorName cuDeviceGet
cuCtxPushCurrent cuCtxPopCurrent cuCtxGetLimit cuStreamGetCtx cuOccupancyMaxPotentialClusterSize cuLinkCreate cuLinkAddData cuLibraryUnload
cuLibraryLoadFromFile cuKernelSetAttribute cuKernelGetAttribute cuDeviceGetCount cuCtxGetCurrent cuTensorMapEncodeTiled cuStreamSynchronize
cuOccupancyMaxActiveBlocksPerMultiprocessor cuModuleUnload cuModuleLoadFatBinary cuModuleLoadDataEx cuModuleLoadData cuModuleGetGlobal_v2
cuModuleGetFunction cuMemcpyDtoH_v2 cuLinkCreate_v2 cuLinkAddFile_v2 cuLinkAddData_v2 cuFuncSetAttribute cuFuncGetAttribute
cuDevicePrimaryCtxRetain cuDevicePrimaryCtxReset cuDevicePrimaryCtxRelease cuDeviceGetAttribute cuCtxGetDevice"""
DRIVER_BODIES = """
static int thing;
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
int cuInit(unsigned flags) { return 100; }
int cuGetProcAddress_v2(const char* name, void** p, int version, unsigned long flags, int* found) { *p = 0; return 500; }
int cuLibraryLoadData(void** library, const void* data) { *library = &thing; return 0; }
int cuLibraryGetKernel(void** kernel, void* library, const char* name) { *kernel = &thing; return 0; }
"""

ATTENTION = """graph "g"(%q: f16[64,12,128,64], %k: f16[64,12,128,64], %v: f16[64,12,128,64]MASK) {
  RESULTS = attention(%q, %k, %vGIVEN) {scale = 0.125, causal = CAUSAL} : f16[64,12,128,64]TYPES
  return RESULTS
}
"""


def test_cudnn_takes_attention_of_inference_as_that_of_training(pelton, tmp_path):
    """cuDNN compiles its attention for an H200 that is not here. It knows the graph by the sums of the softmax, whether they are wanted
    or not."""
    if not has_cuda(pelton) or not cudnn_version(pelton).startswith("9.19"):
        return
    (tmp_path / "driver.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in DRIVER.split()) + DRIVER_BODIES)
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    driver = {"LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    def plans(sums, mask, causal):
        text = ATTENTION.replace("RESULTS", "%y, %s" if sums else "%y").replace("TYPES", ", f32[64,12,128]" if sums else "")
        text = text.replace("MASK", ", %m: f16[64,1,1,128]" if mask else "").replace("GIVEN", ", %m" if mask else "")
        (tmp_path / "a.plt").write_text(text.replace("CAUSAL", "true" if causal else "false"))
        report = pelton("--json", "compile", "a.plt", "-o", "a.pelton", "--target", "sm_90", env=driver).json()
        assert report["implementations"] == {"cuda.attention": 1}
        return report["artifacts"]["library_plans"]

    for mask, causal in ((False, False), (True, False), (False, True)):
        assert plans(False, mask, causal) == plans(True, mask, causal) == 4


def test_a_plan_needs_few_kernels(pelton, tmp_path):
    """80 groups of other sizes and other numbers each, and one text for all of a kind."""
    if not has_cuda(pelton) or not pelton("--json", "doctor").json()["gpu"]["libraries"]["NVRTC"]:
        return
    inputs = ", ".join(f"%x{i}: f32[{i + 1},{2 * i + 3}]" for i in range(80))
    nodes = "".join(f"""  %s{i} = constant() {{value = tensor<f32[]>{{{i + 2}}}}} : f32[]
  %m{i} = mul(%x{i}, %s{i}) : f32[{i + 1},{2 * i + 3}]
  %y{i} = exp(%m{i}) : f32[{i + 1},{2 * i + 3}]
""" for i in range(80))
    results = ", ".join(f"%y{i}" for i in range(80))
    (tmp_path / "many.plt").write_text(f'graph "g"({inputs}) {{\n{nodes}  return {results}\n}}\n')
    report = pelton("--json", "compile", "many.plt", "-o", "many.pelton", "--target", "sm_90").json()
    assert report["implementations"] == {"cuda.generated": 80}
    assert 1 <= report["artifacts"]["kernels"] <= 8
    again = pelton("--json", "compile", "many.plt", "-o", "again.pelton", "--target", "sm_90").json()
    assert again["artifacts"] == report["artifacts"]
    assert (tmp_path / "again.pelton").read_bytes() == (tmp_path / "many.pelton").read_bytes()


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
