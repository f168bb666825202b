# SPDX-License-Identifier: Apache-2.0
"""Random choices for one model."""
import numpy as np

OPSETS = (13, 15, 17, 18, 19, 20, 21, 22)
NEWEST = 28
F, I, B = np.float32, np.int64, np.bool_


class Draw:
    """Random choices for one model."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, *items):
        return items[self.rng.integers(len(items))]

    def flag(self):
        return int(self.rng.integers(2))

    def size(self, low=0, high=5):
        return int(self.rng.integers(low, high + 1))

    def shape(self, low=0, high=4, least=0):
        return tuple(self.size(least) if self.rng.random() < 0.2 else self.size(1) for _ in range(self.size(low, high)))

    def real(self, shape, low=-3.0, high=3.0, dtype=F):
        return self.rng.uniform(low, high, shape).astype(dtype)

    def whole(self, shape, low=-5, high=5, dtype=I):
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def broadcast(self, shape):
        """A shape that broadcasts to `shape`."""
        kept = shape[self.size(0, len(shape)):] if shape else ()
        return tuple(1 if self.rng.random() < 0.3 else d for d in kept)

    def axis(self, rank):
        return int(self.rng.integers(-rank, rank))

    def truth(self, shape):
        return self.whole(shape, 0, 1).astype(B)

    def opset(self, since):
        """An operator set that has the op, since which it is there; old and new ones as often."""
        return self.pick(since, NEWEST, self.size(since, NEWEST), *[o for o in OPSETS if o >= since])
