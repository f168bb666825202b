# SPDX-License-Identifier: Apache-2.0
"""The C interface from outside: what the library exports, headers alone, the examples, every call through ctypes."""
import ctypes as c
import os
import pathlib
import subprocess
import threading

import numpy as np
import pytest

from binding import (BUILD, LIBRARY, ROOT, Failure, Info, Managed, Memory, Plan, PlanOptions, RunOptions, Tensor, call, lib, output,
                     tensor)

MODEL = """graph "m"(%x: f32[N,4] @"in/x") {
  symbol N in [0, 100000]
  %w = constant() {value = tensor<f32[4]>{1, 2, 3, 4}} : f32[4]
  %0 = mul(%x, %w) : f32[N,4]
  %1 = exp(%0) : f32[N,4]
  %2 = neg(%1) : f32[N,4]
  return %0 @"scaled", %2 @"y"
}
"""


# Two nodes that never become one, with a value between them.
TWO_STEPS = """graph "two"(%x: f32[N,4]) {
  symbol N in [0, 100000]
  %0 = cumsum(%x) {axis = 0} : f32[N,4]
  %1 = cumsum(%0) {axis = 1} : f32[N,4]
  return %1 @"y"
}
"""


def expected(x):
    scaled = x * np.array([1, 2, 3, 4], np.float32)
    return scaled, -np.exp(scaled)


@pytest.fixture
def model(tmp_path):
    (tmp_path / "m.plt").write_text(MODEL)
    return tmp_path / "m.plt"


@pytest.fixture
def plan(model):
    p = Plan(model)
    yield p
    p.close()


def test_only_the_c_interface_is_exported():
    table = subprocess.run(["nm", "-D", "--defined-only", "--extern-only", str(LIBRARY)], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in table.splitlines()}
    assert "pelton_plan_open" in names
    assert {n for n in names if not n.startswith("pelton_")} == set()
    header = (ROOT / "include/pelton/c/pelton.h").read_text()
    assert {n for n in names if n not in header} == set()


@pytest.mark.parametrize("header, compiler", [("pelton/c/pelton.h", ["gcc", "-std=c99", "-xc"]),
                                              ("pelton/c/pelton.h", ["g++", "-std=c++11", "-xc++"]),
                                              ("pelton/pelton.h", ["g++", "-std=c++17", "-xc++"])])
def test_headers_compile_alone(header, compiler, tmp_path):
    source = tmp_path / "alone.src"
    source.write_text(f'#include "{header}"\n')
    subprocess.run([*compiler, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", f"-I{ROOT}/include", source],
                   check=True)


def test_tensors_have_the_layout_of_dlpack():
    # Offsets of DLTensor and DLManagedTensor on 64-bit machines, as DLPack publishes them.
    assert (Tensor.ndim.offset, Tensor.code.offset, Tensor.shape.offset, Tensor.byte_offset.offset) == (16, 20, 24, 40)
    assert c.sizeof(Tensor) == 48 and c.sizeof(Managed) == 64


def test_versions():
    assert lib.pelton_abi_version() == 1
    assert lib.pelton_version().decode().count(".") == 2


def test_values_are_described(plan):
    assert lib.pelton_plan_input_count(plan.handle) == 1
    info = Info(c.sizeof(Info))
    call("pelton_plan_input", plan.handle, c.c_size_t(0), c.byref(info))
    assert (info.name, info.type, info.ndim) == (b"in/x", b"f32[N,4]", 2)
    assert [info.shape[0], info.shape[1]] == [-1, 4] and (info.code, info.bits) == (2, 32)
    index = c.c_size_t()
    call("pelton_plan_find_output", plan.handle, b"y", c.byref(index))
    assert index.value == 1
    with pytest.raises(Failure, match="no output 'q'.*scaled, y") as e:
        call("pelton_plan_find_output", plan.handle, b"q", c.byref(index))
    assert e.value.code == "bad_name" and e.value.status == 10


@pytest.mark.parametrize("copy", [0, 1])
def test_runs(plan, copy):
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    context = plan.context()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), copy)
    call("pelton_context_run", context, None)
    for i, want in enumerate(expected(x)):
        np.testing.assert_allclose(output(context, i), want, rtol=1e-5)
    before = x.copy()
    x[:] = 0.25  # seen by a bound input only
    call("pelton_context_run", context, None)
    np.testing.assert_allclose(output(context, 1), expected(before if copy else x)[1], rtol=1e-5)
    lib.pelton_context_free(context)


def test_bound_outputs_and_shapes(plan):
    x, y = np.ones((5, 4), np.float32), np.zeros((5, 4), np.float32)
    context = plan.context()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), 0)
    shape, ndim = (c.c_int64 * 4)(), c.c_int32()
    call("pelton_context_output_shape", context, c.c_size_t(1), shape, 4, c.byref(ndim))
    assert list(shape[:ndim.value]) == [5, 4]
    call("pelton_context_set_output", context, c.c_size_t(1), c.byref(tensor(y)))
    call("pelton_context_run", context, None)
    np.testing.assert_allclose(y, expected(x)[1], rtol=1e-5)
    np.testing.assert_array_equal(output(context, 1), y)
    with pytest.raises(Failure, match="no result.*has not run"):
        output(plan.context(), 0)
    small = np.zeros((4, 4), np.float32)
    call("pelton_context_set_output", context, c.c_size_t(1), c.byref(tensor(small)))
    with pytest.raises(Failure, match="64 bytes.*needs 80.*output 'y'"):
        call("pelton_context_run", context, None)
    lib.pelton_context_free(context)


def test_wrong_tensors_are_refused(plan):
    context = plan.context()
    set_input = lambda t: call("pelton_context_set_input", context, c.c_size_t(0), c.byref(t), 0)
    with pytest.raises(Failure, match=r"expected f32\[N,4\], got f64\[3,4\].*in/x"):
        set_input(tensor(np.zeros((3, 4))))
    t = tensor(np.zeros((3, 4), np.float32))
    t.strides = (c.c_int64 * 2)(1, 3)
    with pytest.raises(Failure, match="not dense.*expected 4"):
        set_input(t)
    t = tensor(np.zeros((3, 4), np.float32))
    t.device_type = 2
    with pytest.raises(Failure, match="lies on a GPU, the plan runs on the CPU.*in/x"):
        set_input(t)
    with pytest.raises(Failure, match="lies on a GPU, the plan runs on the CPU.*output 'y'"):
        call("pelton_context_set_output", context, c.c_size_t(1), c.byref(t))
    t.device_type = 7
    with pytest.raises(Failure, match="device of type 7"):
        set_input(t)
    t.device_type = 3  # pinned memory is memory of the host
    t.strides = None
    set_input(t)
    with pytest.raises(Failure, match="a stream was given, the plan runs on the CPU"):
        call("pelton_context_run", context, c.byref(RunOptions(c.sizeof(RunOptions), 0, 0, 0, 1)))
    with pytest.raises(Failure, match="1 inputs, got index 3"):
        call("pelton_context_set_input", context, c.c_size_t(3), c.byref(t), 0)
    with pytest.raises(Failure, match="context is NULL"):
        call("pelton_context_run", None, None)
    lib.pelton_context_free(context)


def test_open_fails_with_all_parts(tmp_path):
    with pytest.raises(Failure, match="absent.pelton") as e:
        Plan(tmp_path / "absent.pelton")
    assert e.value.code == "not_found"
    assert lib.pelton_plan_open(b"absent", None, c.byref(c.c_void_p()), None) == 2  # without an error handle


def test_async_cancel_deadline(plan):
    x = np.zeros((100000, 4), np.float32)
    context = plan.context()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), 0)
    future = c.c_void_p()
    call("pelton_context_run_async", context, None, c.byref(future))
    call("pelton_future_wait", future, c.c_int64(-1))
    with pytest.raises(Failure, match="waited for already"):
        call("pelton_future_wait", future, c.c_int64(-1))
    lib.pelton_future_free(future)
    np.testing.assert_array_equal(output(context, 1), np.full((100000, 4), -1, np.float32))
    with pytest.raises(Failure, match="deadline") as e:
        call("pelton_context_run", context, c.byref(RunOptions(c.sizeof(RunOptions), 0, 0, 1)))
    assert e.value.code == "deadline"
    stop = threading.Event()

    def cancel():
        while not stop.is_set():
            lib.pelton_context_cancel(context)
    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        with pytest.raises(Failure) as e:
            for _ in range(1000):
                call("pelton_context_run", context, None)
        assert e.value.code == "cancelled"
    finally:
        stop.set()
        thread.join()
    call("pelton_context_run", context, None)  # a cancelled context runs again
    lib.pelton_context_free(context)


def test_memory_and_contexts(tmp_path):
    model = tmp_path / "two.plt"
    model.write_text(TWO_STEPS)
    options = PlanOptions()
    lib.pelton_plan_options_init(c.byref(options))
    assert options.size == c.sizeof(PlanOptions)
    options.max_contexts, options.wait_ns = 1, 0
    plan = Plan(model, options)
    memory = plan.memory([1000, 4])
    assert memory.weights == 0 and memory.arena >= 16000 and memory.contexts == 0
    context = plan.context()
    with pytest.raises(Failure, match="all 1 contexts") as e:
        plan.context()
    assert e.value.code == "busy"
    lib.pelton_context_free(context)
    lib.pelton_context_free(plan.context())
    plan.close()
    options.budget = 1000
    plan = Plan(model, options)
    context = plan.context()
    x = np.zeros((1000, 4), np.float32)
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), 0)
    with pytest.raises(Failure, match="memory budget is 1000"):
        call("pelton_context_run", context, None)
    lib.pelton_context_free(context)
    plan.close()


def test_refit(plan):
    x = np.ones((2, 4), np.float32)
    names = (c.c_char_p * 1)(b"w")
    old = plan.context()
    refit = lambda array: call("pelton_plan_refit", plan.handle, names, c.byref(tensor(array)), c.c_size_t(1))
    refit(np.array([5, 6, 7, 8], np.float32))
    new = plan.context()
    for context, want in ((old, [1, 2, 3, 4]), (new, [5, 6, 7, 8])):
        call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), 0)
        call("pelton_context_run", context, None)
        np.testing.assert_array_equal(output(context, 0), np.array([want, want], np.float32))
        lib.pelton_context_free(context)
    with pytest.raises(Failure, match=r"expected f32\[4\], got f32\[3\].*'w'"):
        refit(np.zeros(3, np.float32))
    away = tensor(np.zeros(4, np.float32))
    away.device_type = 2
    with pytest.raises(Failure, match="device of type 2, not in host memory.*weight 'w'"):
        call("pelton_plan_refit", plan.handle, names, c.byref(away), c.c_size_t(1))
    names[0] = b"v"
    with pytest.raises(Failure, match="no weight 'v'.*folded"):
        refit(np.zeros(4, np.float32))


def test_refit_of_weights_that_a_plan_has_packed_alone(tmp_path):
    random = np.random.default_rng(4)
    x, w, v = (random.standard_normal(s, dtype=np.float32) for s in ((8, 256), (256, 384), (256, 384)))
    values = ", ".join(repr(float(f)) for f in w.ravel())
    (tmp_path / "p.plt").write_text(f"""graph "p"(%x: f32[8,256]) {{
  %w = constant() {{value = tensor<f32[256,384]>{{{values}}}}} : f32[256,384]
  %y = matmul(%x, %w) : f32[8,384]
  return %y @"y"
}}
""")
    subprocess.run([LIBRARY.parent / "pelton", "compile", tmp_path / "p.plt", "-o", tmp_path / "p.pelton", "--embed-packed"], check=True,
                   capture_output=True)
    plan = Plan(tmp_path / "p.pelton")
    names = (c.c_char_p * 1)(b"w")
    call("pelton_plan_refit", plan.handle, names, c.byref(tensor(v)), c.c_size_t(1))
    context = plan.context()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), 0)
    call("pelton_context_run", context, None)
    np.testing.assert_allclose(output(context, 0), x @ v, rtol=1e-4, atol=1e-3)
    lib.pelton_context_free(context)
    plan.close()


@pytest.mark.parametrize("precision, rtol", [("fp32", 1e-5), ("bf16", 2e-2)])
def test_refit_of_a_tied_embedding_by_either_name(tmp_path, precision, rtol):
    random = np.random.default_rng(5)
    table, new = (random.standard_normal((24, 8), dtype=np.float32) for _ in range(2))
    text = lambda a: ", ".join(repr(float(f)) for f in a.ravel())
    (tmp_path / "t.plt").write_text(f"""graph "t"(%i: i64[3], %x: f32[2,8]) {{
  %table = constant() {{value = tensor<f32[24,8]>{{{text(table)}}}}} : f32[24,8]
  %head = constant() {{value = tensor<f32[8,24]>{{{text(table.T)}}}}} : f32[8,24]
  %e = gather(%table, %i) {{axis = 0}} : f32[3,8]
  %y = matmul(%x, %head) : f32[2,24]
  return %e @"e", %y @"y"
}}
""")
    subprocess.run([LIBRARY.parent / "pelton", "compile", tmp_path / "t.plt", "-o", tmp_path / "t.pelton", "--precision", precision], check=True,
                   capture_output=True)
    i, x = np.array([2, 0, 23]), random.standard_normal((2, 8), dtype=np.float32)
    for name, value in (("table", new), ("head", np.ascontiguousarray(new.T))):
        plan = Plan(tmp_path / "t.pelton")
        call("pelton_plan_refit", plan.handle, (c.c_char_p * 1)(name.encode()), c.byref(tensor(value)), c.c_size_t(1))
        context = plan.context()
        call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(i)), 0)
        call("pelton_context_set_input", context, c.c_size_t(1), c.byref(tensor(x)), 0)
        call("pelton_context_run", context, None)
        np.testing.assert_allclose(output(context, 0), new[i], rtol=rtol)
        np.testing.assert_allclose(output(context, 1), x @ new.T, rtol=rtol, atol=10 * rtol)
        lib.pelton_context_free(context)
        plan.close()


def test_refit_of_a_frozen_plan_is_refused(model, tmp_path):
    subprocess.run([LIBRARY.parent / "pelton", "compile", model, "-o", tmp_path / "f.pelton", "--frozen"], check=True, capture_output=True)
    frozen = Plan(tmp_path / "f.pelton")
    names = (c.c_char_p * 1)(b"w")
    with pytest.raises(Failure, match="frozen weights.*'w'.*without --frozen"):
        call("pelton_plan_refit", frozen.handle, names, c.byref(tensor(np.zeros(4, np.float32))), c.c_size_t(1))
    frozen.close()


def test_saved_plan_runs_from_many_threads(plan, tmp_path):
    call("pelton_plan_save", plan.handle, str(tmp_path / "m.pelton").encode())
    shared = Plan(tmp_path / "m.pelton")
    x = np.linspace(0, 1, 40, dtype=np.float32).reshape(10, 4)
    want, wrong = expected(x)[1], []

    def work():
        context = shared.context()
        call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), 0)
        for _ in range(30):
            call("pelton_context_run", context, None)
            if not np.allclose(output(context, 1), want, rtol=1e-5):
                wrong.append(1)
        lib.pelton_context_free(context)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    shared.close()


def test_examples(model):
    ran = subprocess.run([BUILD / "example_c_run", model, "in/x=2x4"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0].startswith("scaled f32[")
    assert " 1 2 3 4" in ran.stdout
    ran = subprocess.run([BUILD / "example_cpp_run", model, "4"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "40 runs, every sum" in ran.stdout
    ran = subprocess.run([BUILD / "example_c_run", "absent"], capture_output=True, text=True)
    assert ran.returncode == 1 and "not_found" in ran.stderr


# A result that is the input, one that is the input seen in another shape, and one that is computed.
SAME = """graph "same"(%x: f32[N,4]) {
  symbol N in [0, 100000]
  %0 = reshape(%x) {dims = dims[4*N]} : f32[4*N]
  %1 = neg(%x) : f32[N,4]
  return %x @"same", %0 @"flat", %1 @"neg"
}
"""


@pytest.fixture
def same(tmp_path):
    (tmp_path / "same.plt").write_text(SAME)
    p = Plan(tmp_path / "same.plt")
    yield p
    p.close()


@pytest.mark.parametrize("copy", [0, 1])
def test_results_own_their_bytes(same, copy):
    context = same.context()
    x = np.arange(4096 * 4, dtype=np.float32).reshape(4096, 4)
    want = x.copy()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), copy)
    call("pelton_context_run", context, None)
    x[:] = -1  # the run is over
    if copy:  # the library's copy goes
        call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(np.full_like(x, -2))), 1)
    np.testing.assert_array_equal(output(context, 0), want)
    np.testing.assert_array_equal(output(context, 1), want.ravel())
    np.testing.assert_array_equal(output(context, 2), -want)
    lib.pelton_context_free(context)


def test_outputs_bound_after_a_run_are_for_the_next_one(plan):
    context = plan.context()
    x, late = np.ones((5, 4), np.float32), np.zeros((5, 4), np.float32)
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(x)), 0)
    call("pelton_context_run", context, None)
    call("pelton_context_set_output", context, c.c_size_t(1), c.byref(tensor(late)))
    np.testing.assert_allclose(output(context, 1), expected(x)[1], rtol=1e-5)
    assert not late.any()
    call("pelton_context_run", context, None)
    np.testing.assert_allclose(late, expected(x)[1], rtol=1e-5)
    call("pelton_context_set_output", context, c.c_size_t(1), c.byref(Tensor()))
    np.testing.assert_allclose(output(context, 1), expected(x)[1], rtol=1e-5)
    lib.pelton_context_free(context)


def test_missing_arrays_are_errors(plan, model):
    context, ndim = plan.context(), c.c_int32()
    call("pelton_context_set_input", context, c.c_size_t(0), c.byref(tensor(np.ones((5, 4), np.float32))), 1)
    with pytest.raises(Failure, match="shape is NULL"):
        call("pelton_context_output_shape", context, c.c_size_t(1), None, 4, c.byref(ndim))
    options = PlanOptions()
    lib.pelton_plan_options_init(c.byref(options))
    options.shape_count = 1
    with pytest.raises(Failure, match="shapes is NULL"):
        Plan(model, options)
    memory = Memory(c.sizeof(Memory))
    dims = (c.c_int64 * 2)(5, 4)
    for shapes, ndims, words in (((dims,), (-1,), "a rank of -1"), ((None,), (2,), "a shape is NULL"),
                                 ((dims,), (2**30,), "a rank of 1073741824, expected 0 to 64")):
        shapes = (c.POINTER(c.c_int64) * 1)(*(c.cast(s, c.POINTER(c.c_int64)) if s else None for s in shapes))
        with pytest.raises(Failure, match=words):
            call("pelton_plan_memory", plan.handle, shapes, (c.c_int32 * 1)(*ndims), c.byref(memory))
    for names, values in ((None, None), ((c.c_char_p * 1)(b"w"), None)):
        with pytest.raises(Failure, match="is NULL"):
            call("pelton_plan_refit", plan.handle, names, values, c.c_size_t(1))
    t = tensor(np.zeros((3, 4), np.float32))
    with pytest.raises(Failure, match="a name is NULL"):
        call("pelton_plan_refit", plan.handle, (c.c_char_p * 1)(None), c.byref(t), c.c_size_t(1))
    for ndim, words in ((2**30, "a rank of 1073741824, expected 0 to 64"), (-1, "a rank of -1")):
        t.ndim = ndim
        with pytest.raises(Failure, match=words):
            call("pelton_context_set_input", context, c.c_size_t(0), c.byref(t), 1)
    lib.pelton_context_free(context)
