# SPDX-License-Identifier: Apache-2.0
"""The C interface through ctypes, as far as the tests and benchmarks/cpu/pool.py call it. PELTON_BINARY_DIR names the build."""
import ctypes as c
import os
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PELTON_BINARY_DIR", ROOT / "build/cpu-release"))
LIBRARY = BUILD / "libpelton.so"


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Managed(c.Structure):
    pass


Managed._fields_ = [("tensor", Tensor), ("context", c.c_void_p), ("deleter", c.CFUNCTYPE(None, c.POINTER(Managed)))]


class Info(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("type", c.c_char_p), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("ndim", c.c_int32), ("shape", c.POINTER(c.c_int64))]


class Memory(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [(n, c.c_int64) for n in ("weights", "packed", "arena", "scratch", "contexts")]


class RunOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("seed", c.c_uint64), ("step", c.c_uint64), ("timeout_ns", c.c_int64),
                ("stream", c.c_void_p)]


class PlanOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("device", c.c_char_p), ("threads", c.c_int32), ("max_contexts", c.c_int32),
                ("wait_ns", c.c_int64), ("budget", c.c_int64), ("precision", c.c_char_p),
                ("shapes", c.POINTER(c.c_char_p)), ("shape_count", c.c_size_t)]


class Failure(Exception):
    def __init__(self, status, code, what, where, fix):
        super().__init__(f"{what} ({where}): {fix}")
        self.status, self.code = status, code


lib = c.CDLL(str(LIBRARY))
lib.pelton_version.restype = c.c_char_p
for part in ("code", "what", "where", "fix"):
    getattr(lib, f"pelton_error_{part}").restype = c.c_char_p
lib.pelton_plan_input_count.restype = c.c_size_t


def call(name, *args):
    error = c.c_void_p()
    status = getattr(lib, name)(*args, c.byref(error))
    if status:
        texts = [getattr(lib, f"pelton_error_{p}")(error).decode() for p in ("code", "what", "where", "fix")]
        assert lib.pelton_error_status(error) == status
        lib.pelton_error_free(error)
        raise Failure(status, *texts)
    assert not error


def tensor(array):
    shape = (c.c_int64 * max(1, array.ndim))(*array.shape)
    code = {"i": 0, "u": 1, "f": 2, "b": 6}[array.dtype.kind]
    t = Tensor(array.ctypes.data, 1, 0, array.ndim, code, array.dtype.itemsize * 8, 1, shape, None, 0)
    t.keep = array, shape
    return t


class Plan:
    def __init__(self, path, options=None):
        self.handle = c.c_void_p()
        call("pelton_plan_open", str(path).encode(), c.byref(options) if options else None, c.byref(self.handle))

    def context(self):
        handle = c.c_void_p()
        call("pelton_context_new", self.handle, c.byref(handle))
        return handle

    def memory(self, shape=None):
        m = Memory(c.sizeof(Memory))
        dims = (c.c_int64 * len(shape))(*shape) if shape else None
        shapes = (c.POINTER(c.c_int64) * 1)(dims) if shape else None
        ndims = (c.c_int32 * 1)(len(shape)) if shape else None
        call("pelton_plan_memory", self.handle, shapes, ndims, c.byref(m))
        return m

    def close(self):
        lib.pelton_plan_free(self.handle)


def output(context, index):
    managed = c.POINTER(Managed)()
    call("pelton_context_get_output", context, c.c_size_t(index), c.byref(managed))
    t = managed.contents.tensor
    shape = [t.shape[i] for i in range(t.ndim)]
    data = np.ctypeslib.as_array(c.cast(t.data, c.POINTER(c.c_float)), shape=shape).copy()
    managed.contents.deleter(managed)
    return data
