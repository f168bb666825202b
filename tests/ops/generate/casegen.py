# SPDX-License-Identifier: Apache-2.0
"""Writes case files of tests/ops (format in tests/ops/README.md)."""

import pathlib

import ml_dtypes
import numpy as np

NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "bool",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0", "float4_e2m1fn": "f4e2m1", "int4": "i4",
    "uint4": "u4", "int2": "i2", "uint2": "u2",
}
bfloat16 = ml_dtypes.bfloat16


def dtype_name(array):
    array = np.asarray(array)
    return "string" if array.dtype.kind in "OUS" else NAMES[array.dtype.name]


def type_of(array):
    return f"{dtype_name(array)}[{','.join(map(str, np.shape(array)))}]"


def _element(kind, value):
    if kind == "string":
        text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{text}"'
    if kind == "bool":
        return "true" if value else "false"
    if kind[0] in "iu":
        return str(int(value))
    if kind == "f32":
        return np.format_float_positional(value, unique=True, trim="-") if 1e-4 < abs(value) < 1e7 else str(value)
    return repr(float(value))


def tensor(array):
    array = np.asarray(array)
    kind = dtype_name(array)
    return f"tensor<{type_of(array)}>{{{', '.join(_element(kind, v) for v in array.reshape(-1))}}}"


class Cases:
    """Collects the cases of one family; write() stores them."""

    def __init__(self, family, seed=1):
        self.path = pathlib.Path(__file__).resolve().parent.parent / "cases" / f"{family}.txt"
        self.rng = np.random.default_rng(seed)
        self.parts = []

    def normal(self, *shape, dtype=np.float32, scale=1.0):
        """Normal numbers of three decimals, so that the stored text stays short."""
        return np.round(self.rng.normal(size=shape) * scale, 3).astype(dtype)

    def uniform(self, low, high, *shape, dtype=np.float32):
        return np.round(self.rng.uniform(low, high, size=shape), 3).astype(dtype)

    def ints(self, low, high, *shape, dtype=np.int64):
        """Integers in [low, high)."""
        return self.rng.integers(low, high, size=shape).astype(dtype)

    def one(self, name, op, inputs, outputs, attrs="", **bounds):
        """A graph of one node. An input of None is absent; `attrs` is the text between the braces."""
        present = [i for i in inputs if i is not None]
        labels, k = [], 0
        for i in inputs:
            labels.append("_" if i is None else f"%{k}")
            k += i is not None
        results = [f"%r{j}" for j in range(len(outputs))]
        body = (f"  {', '.join(results)} = {op}({', '.join(labels)}){' {' + attrs + '}' if attrs else ''} : "
                f"{', '.join(type_of(o) for o in outputs)}\n  return {', '.join(results)}")
        self.graph(name, body, present, outputs, **bounds)

    def graph(self, name, body, inputs, outputs, **bounds):
        """`body`: the lines between the braces of the graph, whose inputs are %0, %1, ..."""
        head = " ".join([f"case {name}"] + [f"{k}={v}" for k, v in bounds.items()])
        values = [f"in {tensor(i)}" for i in inputs] + [f"out {tensor(o)}" for o in outputs]
        self.parts.append("\n".join([head, self._text(body, [type_of(i) for i in inputs]), *values]))

    def refuse(self, name, code, words, body, types, inputs=()):
        """A graph that must fail on parsing or, given `inputs`, on running; `types`: those of %0, %1, ..."""
        head = f"refuse {name} {code} {' | '.join(words)}"
        self.parts.append("\n".join([head, self._text(body, types)] + [f"in {tensor(i)}" for i in inputs]))

    @staticmethod
    def _text(body, types):
        heading = ", ".join(f"%{k}: {t}" for k, t in enumerate(types))
        return f'graph "g"({heading}) {{\n{body}\n}}'

    def write(self):
        names = [p.split()[1] for p in self.parts]
        assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
        self.path.write_text("// Written by the generator of the same name; see README.md.\n\n"
                             + "\n\n".join(self.parts) + "\n")
