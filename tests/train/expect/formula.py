# SPDX-License-Identifier: Apache-2.0
"""Weights and inputs as a formula of name and index, so that expectations need no stored weights.
tests/train/formula.h is the same in C++."""
import hashlib
import zlib

import numpy as np


def uniform(name, count):
    """[-1, 1), multiples of 2^-23."""
    i = np.arange(count, dtype=np.uint64)
    h = (i * np.uint64(2654435761) + np.uint64(zlib.crc32(name.encode()))) & np.uint64(0xFFFFFFFF)
    h = (h ^ (h >> np.uint64(16))) * np.uint64(0x45D9F3B) & np.uint64(0xFFFFFFFF)
    h = (h ^ (h >> np.uint64(16))) * np.uint64(0x45D9F3B) & np.uint64(0xFFFFFFFF)
    h = h ^ (h >> np.uint64(16))
    return ((h >> np.uint64(8)).astype(np.float64) * 2.0**-23 - 1.0).astype(np.float32)


def parameter(name, shape):
    """Matrices and filters keep the variance of what passes; scales lie around 1, offsets around 0."""
    u = uniform(name, int(np.prod(shape))).reshape(shape)
    if name.endswith("running_var"):
        return 1 + 0.25 * (u + 1)
    if len(shape) >= 2:
        return u * np.float32(np.sqrt(3.0 / np.prod(shape[1:])))
    if name.endswith("weight"):
        return 1 + 0.1 * u
    return 0.1 * u


def tokens(name, shape, count):
    u = uniform(name, int(np.prod(shape))).reshape(shape)
    return np.minimum(((u.astype(np.float64) + 1) / 2 * count).astype(np.int64), count - 1)


def names_digest(shapes):
    """Of "name AxBxC" lines in order of name."""
    lines = "".join(f"{n} {'x'.join(map(str, s))}\n" for n, s in sorted(shapes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def fill(module, rename=lambda n: n):
    """Sets every parameter and buffer of a torch module; returns {name: shape} of the distinct ones."""
    import torch
    shapes, seen = {}, set()
    for name, t in list(module.named_parameters()) + list(module.named_buffers()):
        new = rename(name)
        if new is None or not t.dtype.is_floating_point or id(t) in seen:
            continue
        seen.add(id(t))
        shapes[new] = tuple(t.shape)
        with torch.no_grad():
            t.copy_(torch.from_numpy(parameter(new, tuple(t.shape))))
    return shapes
