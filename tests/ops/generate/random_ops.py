# SPDX-License-Identifier: Apache-2.0
"""Random ops, from an independent Philox-4x32-10."""
import math

import numpy as np
from casegen import Cases

c = Cases("random_ops")
M = 0xFFFFFFFF


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(p1 >> 32) ^ counter[1] ^ key[0], p1 & M, (p0 >> 32) ^ counter[3] ^ key[1], p0 & M]
        key = [(key[0] + 0x9E3779B9) & M, (key[1] + 0xBB67AE85) & M]
    return counter


def words(count, node, seed=0, step=0):
    key = (seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    out = []
    for block in range((count + 3) // 4):
        out += philox([block & M, block >> 32, node & M, step & M], [key & M, key >> 32])
    return np.array(out[:(count + 3) // 4 * 4], np.uint64)


def uniform(count, node, seed=0):
    return ((words(count, node, seed) >> np.uint64(8)).astype(np.float32) * np.float32(2**-24))[:count]


def normal(count, node, seed=0):
    out = []
    for a, b in words(count, node, seed).reshape(-1, 2).astype(np.float64):
        r, t = math.sqrt(-2 * math.log((a + 1) / 2**32)), 2 * math.pi * b / 2**32
        out += [r * math.cos(t), r * math.sin(t)]
    return np.array(out[:count])


# Stable ids count from 1 in the order nodes are added.
u = uniform(6, 1)
c.one("uniform", "random_uniform", [], [u.reshape(2, 3)], "dims = dims[2, 3], dtype = f32", rtol=0)
c.one("uniform_range_seed", "random_uniform", [],
      [uniform(5, 1, 7) * np.float32(4) + np.float32(-1)], "dims = dims[5], dtype = f32, low = -1.0, high = 3.0, seed = 7",
      rtol=0)
c.one("uniform_f64", "random_uniform", [], [uniform(3, 1).astype(np.float64)], "dims = dims[3], dtype = f64", rtol=0)
c.one("normal", "random_normal", [], [normal(7, 1).astype(np.float32)], "dims = dims[7], dtype = f32", rtol=1e-6)
c.one("normal_scaled", "random_normal", [], [(normal(4, 1, 3) * 2 + 5).astype(np.float32)],
      "dims = dims[4], dtype = f32, mean = 5.0, scale = 2.0, seed = 3", rtol=1e-6)
c.one("normal_empty", "random_normal", [], [np.zeros((0, 2), np.float32)], "dims = dims[0, 2], dtype = f32")
p = np.array([0, 0.2, 0.5, 0.8, 1, 0.5], np.float32)
c.one("bernoulli", "bernoulli", [p], [u < p], "dtype = bool")
c.one("bernoulli_f32", "bernoulli", [p], [(uniform(6, 1, 5) < p).astype(np.float32)], "dtype = f32, seed = 5")
logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-30]], np.float32))
draws = uniform(8, 1).reshape(2, 4).astype(np.float64)
w = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
expected = np.stack([np.searchsorted(np.cumsum(w[r]), draws[r] * w[r].sum(), side="right") for r in range(2)])
c.one("multinomial", "multinomial", [logits], [expected.astype(np.int64)], "samples = 4, dtype = i64")
x = c.normal(6)
keep = u >= np.float32(0.4)
c.one("dropout", "dropout", [x, np.float32(0.4)],
      [np.where(keep, x.astype(np.float64) / (1 - np.float64(np.float32(0.4))), 0).astype(np.float32), keep])
c.one("dropout_none", "dropout", [x, np.float32(0)], [x])
c.one("dropout_all", "dropout", [x, np.float32(1)], [np.zeros(6, np.float32)])
# The second node draws other numbers than the first.
c.graph("two_nodes", "  %a = random_uniform() {dims = dims[4], dtype = f32} : f32[4]\n"
        "  %b = random_uniform() {dims = dims[4], dtype = f32} : f32[4]\n  return %a, %b", [],
        [uniform(4, 1), uniform(4, 2)], rtol=0)
c.refuse("uniform_type", "bad_type", ["random_uniform", "C1", "i32"],
         "  %r = random_uniform() {dims = dims[2], dtype = i32} : i32[2]\n  return %r", [])
c.refuse("bernoulli_type", "bad_type", ["bernoulli", "C1", "string"],
         "  %r = bernoulli(%0) {dtype = string} : string[2]\n  return %r", ["f32[2]"])
c.refuse("multinomial_rank", "bad_shape", ["multinomial", "C2", "[2]"],
         "  %r = multinomial(%0) {samples = 1, dtype = i64} : i64[2]\n  return %r", ["f32[2]"])
c.refuse("multinomial_dtype", "bad_type", ["multinomial", "C1", "f32"],
         "  %r = multinomial(%0) {samples = 1, dtype = f32} : f32[2,1]\n  return %r", ["f32[2,2]"])
c.refuse("dropout_ratio", "usage", ["dropout", "ratio 1.5"], "  %r = dropout(%0, %1) : f32[6]\n  return %r",
         ["f32[6]", "f32[]"], [x, np.float32(1.5)])
c.refuse("dropout_ratios", "bad_shape", ["dropout", "C2"], "  %r = dropout(%0, %1) : f32[2]\n  return %r",
         ["f32[2]", "f32[2]"])
c.refuse("normal_type", "bad_type", ["random_normal", "C1", "bool"],
         "  %r = random_normal() {dims = dims[2], dtype = bool} : bool[2]\n  return %r", [])
c.refuse("dropout_type", "bad_type", ["dropout", "C1", "i32"], "  %r = dropout(%0, %1) : i32[2]\n  return %r",
         ["i32[2]", "f32[]"])
c.write()
