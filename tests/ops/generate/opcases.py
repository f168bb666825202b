# SPDX-License-Identifier: Apache-2.0
"""Case writing for families whose nodes are given as Python values: attributes as keywords, arrays by type name."""

import re

import casegen
import ml_dtypes
import numpy as np

DTYPES = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8,
    "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8, "bool": np.bool_,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn, "i4": ml_dtypes.int4, "u4": ml_dtypes.uint4,
}
FLOATS = ["f64", "f32", "f16", "bf16"]
INTS = ["i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"]
NUMBERS = FLOATS + INTS
name_of = casegen.dtype_name


class Dims(list):
    """An attribute of kind dims."""


class DType(str):
    """An attribute of kind dtype."""


def array(values, dtype="f32"):
    return np.asarray(values).astype(DTYPES[dtype])


def wide(x):
    """The array as f64, or unchanged if its elements are not floats."""
    return x.astype(np.float64) if name_of(x)[0] in "fb" and name_of(x) != "bool" else x


def rounded(x, dtype):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x).astype(DTYPES[dtype])


def attr_text(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, DType):
        return str(v)
    if isinstance(v, str):
        return f'"{v}"'
    if isinstance(v, Dims):
        return f"dims[{', '.join(map(str, v))}]"
    if isinstance(v, (list, tuple)):
        reals = any(isinstance(e, float) for e in v)
        return f"reals[{', '.join(map(repr, v))}]" if reals else f"[{', '.join(str(int(e)) for e in v)}]"
    return repr(v)


def attrs_text(attrs):
    return ", ".join(f"{k} = {attr_text(v)}" for k, v in attrs.items())


class Cases(casegen.Cases):
    def __init__(self, family):
        super().__init__(family)
        self.used = {}

    def random(self, dims, dtype="f32", low=-4, high=5):
        """Small values: sums of products of the integers and of the floats' two decimals stay exact enough."""
        if dtype == "bool":
            return self.rng.integers(0, 2, dims).astype(np.bool_)
        if dtype[0] == "u":
            return self.rng.integers(0, max(high, 8), dims).astype(DTYPES[dtype])
        if dtype in INTS or dtype == "i4":
            return self.rng.integers(low, high, dims).astype(DTYPES[dtype])
        return np.asarray(np.round(self.rng.standard_normal(dims) * 2, 2)).astype(DTYPES[dtype])

    def _unique(self, text):
        name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")
        self.used[name] = self.used.get(name, 0) + 1
        return name if self.used[name] == 1 else f"{name}_{self.used[name]}"

    def case(self, name, op, inputs, outputs, bounds=None, **attrs):
        outputs = outputs if isinstance(outputs, list) else [outputs]
        self.one(self._unique(f"{op}_{name}"), op, inputs, outputs, attrs_text(attrs), **(bounds or {}))

    def _node(self, op, present, types, attrs):
        labels, k = [], 0
        for there in present:
            labels.append(f"%{k}" if there else "_")
            k += there
        results = ", ".join(f"%r{i}" for i in range(len(types)))
        text = attrs_text(attrs)
        return (f"  {results} = {op}({', '.join(labels)}){' {' + text + '}' if text else ''} : "
                f"{', '.join(types)}\n  return {results}")

    def refused(self, tag, code, words, op, inputs, types=("f32[1]",), **attrs):
        """A node that inference refuses, citing constraint `tag`; `inputs`: types, None for an absent one."""
        body = self._node(op, [t is not None for t in inputs], list(types), attrs)
        self.refuse(self._unique(f"{op}_{tag}"), code, [op, tag, *words], body, [t for t in inputs if t])

    def fails(self, code, words, op, inputs, types, **attrs):
        """A node that only a run can refuse."""
        body = self._node(op, [x is not None for x in inputs], types if isinstance(types, list) else [types], attrs)
        present = [x for x in inputs if x is not None]
        self.refuse(self._unique(f"{op}_run"), code, [op, *words], body, [casegen.type_of(x) for x in present], present)
