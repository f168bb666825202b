# SPDX-License-Identifier: Apache-2.0
"""Pelton's side of run.py: one process that loads plans through the C interface, binds inputs and results in device memory, and
measures a plan when a line on its standard input asks for it, with the same loop and clock as torch_side.py."""
import ctypes
import itertools
import json
import pathlib
import statistics
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
import pelton_c  # noqa: E402
from cases import ROTATED  # noqa: E402

WARM_UP = 5


class Memory:
    """Device memory by the CUDA runtime."""

    def __init__(self):
        self.runtime = ctypes.CDLL("libcudart.so.13")

    def check(self, status):
        if status != 0:
            raise RuntimeError(f"CUDA runtime: status {status}")

    def new(self, size):
        pointer = ctypes.c_void_p()
        self.check(self.runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(size, 1))))
        return pointer.value

    def put(self, array):
        pointer = self.new(array.nbytes)
        self.check(self.runtime.cudaMemcpy(ctypes.c_void_p(pointer), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), 1))
        return pointer

    def free(self, pointer):
        self.check(self.runtime.cudaFree(ctypes.c_void_p(pointer)))


class Case:
    def __init__(self, memory, path, shape, dtype):
        generator = numpy.random.default_rng(shape[0])
        self.memory, self.plan, self.buffers, self.result_bytes = memory, pelton_c.Plan(path, device="cuda"), [], 0
        for _ in range(ROTATED):
            x = generator.integers(0, 1000, shape) if dtype == "int64" else generator.standard_normal(shape, numpy.float32)
            self.buffers.append(memory.put(x.astype(dtype)))
        self.inputs = itertools.cycle([pelton_c.device_tensor(b, shape, numpy.dtype(dtype)) for b in self.buffers])
        self.plan.set_input(0, next(self.inputs))
        for index in range(self.plan.output_count()):
            size = self.plan.output_bytes(index)
            self.result_bytes += size
            self.buffers.append(memory.new(size))
            self.plan.bind_device_output(index, self.buffers[-1])
        self.warm_up()

    def call(self):
        self.plan.set_input(0, next(self.inputs))
        self.plan.run()

    def warm_up(self):
        for _ in range(WARM_UP * ROTATED):
            self.call()

    def measure(self, seconds):
        self.warm_up()
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 10:
            start = time.perf_counter()
            self.call()
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)

    def drop(self):
        self.plan.close()
        for pointer in self.buffers:
            self.memory.free(pointer)


def main():
    memory, cases = Memory(), {}
    for line in sys.stdin:
        what = json.loads(line)
        try:
            if "load" in what:
                cases[what["load"]] = Case(memory, what["path"], what["shape"], what["dtype"])
                answer = {"result_bytes": cases[what["load"]].result_bytes}
            elif "drop" in what:
                cases.pop(what["drop"]).drop()
                answer = {"dropped": True}
            else:
                answer = {"ms": cases[what["name"]].measure(what["seconds"])}
        except RuntimeError as error:
            answer = {"failed": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
