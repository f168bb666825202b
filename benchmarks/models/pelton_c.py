# SPDX-License-Identifier: Apache-2.0
"""The C interface of Pelton through ctypes, as far as the benchmarks need it."""
import ctypes
import os

import numpy

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", DType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class PlanOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("threads", ctypes.c_int32),
                ("max_contexts", ctypes.c_int32), ("wait_ns", ctypes.c_int64), ("memory_budget_bytes", ctypes.c_int64),
                ("precision", ctypes.c_char_p), ("shapes", ctypes.POINTER(ctypes.c_char_p)), ("shape_count", ctypes.c_size_t)]


class ValueInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("dtype", DType),
                ("ndim", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64))]


def _describe(address, dims, dtype, device):
    return Tensor(address, device, len(dims), dtype, (ctypes.c_int64 * len(dims))(*dims), None, 0)


def _dtype(numpy_dtype):
    return DType(_CODES[numpy_dtype.kind], numpy_dtype.itemsize * 8, 1)


def _tensor(array):
    return _describe(array.ctypes.data, array.shape, _dtype(array.dtype), Device(1, 0))


def device_tensor(address, dims, dtype):
    return _describe(address, dims, _dtype(dtype), Device(2, 0))


class Plan:
    """A plan with one context; inputs and outputs are bound NumPy arrays."""

    def __init__(self, path, threads=0, precision="fp32", library=None, device=None):
        self._lib = ctypes.CDLL(library or os.environ["PELTON_LIBRARY"])
        for name in ("what", "where", "fix"):
            getattr(self._lib, f"pelton_error_{name}").restype = ctypes.c_char_p
        if threads:
            self._check(lambda e: self._lib.pelton_set_threads(ctypes.c_int32(threads), e))
        options = PlanOptions()
        self._lib.pelton_plan_options_init(ctypes.byref(options))
        options.precision = precision.encode()
        options.device = device.encode() if device else None
        self._plan = ctypes.c_void_p()
        self._check(lambda e: self._lib.pelton_plan_open(path.encode(), ctypes.byref(options), ctypes.byref(self._plan), e))
        self._context = ctypes.c_void_p()
        self._check(lambda e: self._lib.pelton_context_new(self._plan, ctypes.byref(self._context), e))
        self._kept = {}

    def _check(self, call):
        error = ctypes.c_void_p()
        if call(ctypes.byref(error)) != 0:
            text = [getattr(self._lib, f"pelton_error_{n}")(error) for n in ("what", "where", "fix")]
            raise RuntimeError("pelton: " + "; ".join(t.decode() for t in text if t))

    def save(self, path):
        self._check(lambda e: self._lib.pelton_plan_save(self._plan, path.encode(), e))

    def bind_input(self, index, array):
        tensor = _tensor(array)
        self._kept["in", index] = (array, tensor)
        self._check(lambda e: self._lib.pelton_context_set_input(self._context, ctypes.c_size_t(index), ctypes.byref(tensor), 0, e))

    def bind_output(self, index, dtype=numpy.float32):
        array = numpy.empty(self.output_shape(index), dtype)
        self._set_output(index, _tensor(array), array)
        return array

    # Memory of the plan's GPU, by its address (device_tensor).
    def set_input(self, index, tensor):
        self._kept["in", index] = (None, tensor)
        self._check(lambda e: self._lib.pelton_context_set_input(self._context, ctypes.c_size_t(index), ctypes.byref(tensor), 0, e))

    def bind_device_output(self, index, address):
        self._set_output(index, _describe(address, self.output_shape(index), self.output_info(index).dtype, Device(2, 0)), None)

    def _set_output(self, index, tensor, array):
        self._kept["out", index] = (array, tensor)
        self._check(lambda e: self._lib.pelton_context_set_output(self._context, ctypes.c_size_t(index), ctypes.byref(tensor), e))

    def output_shape(self, index):
        shape, ndim = (ctypes.c_int64 * 8)(), ctypes.c_int32()
        self._check(lambda e: self._lib.pelton_context_output_shape(self._context, ctypes.c_size_t(index), shape, 8, ctypes.byref(ndim), e))
        return list(shape[: ndim.value])

    def output_info(self, index):
        info = ValueInfo(ctypes.sizeof(ValueInfo))
        self._check(lambda e: self._lib.pelton_plan_output(self._plan, ctypes.c_size_t(index), ctypes.byref(info), e))
        return info

    def output_bytes(self, index):
        bits = self.output_info(index).dtype.bits
        return int(numpy.prod(self.output_shape(index), dtype=numpy.int64)) * bits // 8

    def output_count(self):
        self._lib.pelton_plan_output_count.restype = ctypes.c_size_t
        return self._lib.pelton_plan_output_count(self._plan)

    def close(self):
        self._lib.pelton_context_free(self._context)
        self._lib.pelton_plan_free(self._plan)

    def run(self):
        if self._lib.pelton_context_run(self._context, None, None) != 0:
            self._check(lambda e: self._lib.pelton_context_run(self._context, None, e))
