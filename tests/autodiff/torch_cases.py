# SPDX-License-Identifier: Apache-2.0
"""Gradients of composites as PyTorch computes them in f64, on random cases: writes cases/torch.txt in the format of
tests/ops/README.md. The last graph input is the gradient of result 0; the outputs are the gradients of the other
float inputs, in order. Needs torch, which the tests themselves do not.

    python tests/autodiff/torch_cases.py
"""

import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "ops" / "generate"))
from casegen import Cases, type_of  # noqa: E402

c = Cases("torch", seed=5)
c.path = pathlib.Path(__file__).resolve().parent / "cases" / "torch.txt"


def case(name, op, inputs, forward, attrs="", outputs=1, diff=None):
    """`inputs`: f64 or integer arrays, None where absent; forward(*tensors) is the first result in PyTorch."""
    tensors = [None if i is None else torch.from_numpy(np.array(i)) for i in inputs]
    for k, t in enumerate(tensors):
        if t is not None and t.is_floating_point() and (diff is None or k in diff):
            t.requires_grad_(True)
    y = forward(*tensors)
    present = [i for i in inputs if i is not None]
    g = np.asarray(c.normal(*y.shape, dtype=np.float64))
    y.backward(torch.from_numpy(g))
    grads = [t.grad.numpy() for t in tensors if t is not None and t.requires_grad]
    labels, k = [], 0
    for i in inputs:
        labels.append("_" if i is None else f"%{k}")
        k += i is not None
    results = [f"%r{j}" for j in range(outputs)]
    types = [type_of(y.detach().numpy())]
    if op == "batch_norm_train":
        types += [type_of(inputs[3]), type_of(inputs[4])]
    if op == "sort":
        types += [types[0].replace("f64", "i64")]
    body = (f"  {', '.join(results)} = {op}({', '.join(labels)}){' {' + attrs + '}' if attrs else ''} : "
            f"{', '.join(types)}\n  return %r0")
    c.graph(name, body, present + [g], grads)


def d(*shape, scale=1.0):
    return c.normal(*shape, dtype=np.float64, scale=scale)


def selu(x):
    """With ONNX's constants, which are those of PyTorch rounded to f32."""
    return 1.05070102214813232421875 * torch.where(x > 0, x, 1.67326319217681884765625 * torch.expm1(x))


# Activations.
for op, f, attrs in [("gelu", F.gelu, ""), ("gelu", lambda x: F.gelu(x, approximate="tanh"), "tanh = true"),
                     ("silu", F.silu, ""), ("mish", F.mish, ""), ("elu", lambda x: F.elu(x, 0.7), "alpha = 0.7"),
                     ("selu", selu, ""), ("hard_swish", F.hardswish, ""), ("softsign", F.softsign, ""),
                     ("leaky_relu", lambda x: F.leaky_relu(x, 0.1), "alpha = 0.1")]:
    case(f"{op}_{attrs.split(' ')[0]}", op, [d(3, 5, scale=2)], f, attrs)
case("prelu", "prelu", [d(2, 3, 4), d(3, 1)], lambda x, s: torch.where(x >= 0, x, x * s))

# Softmax and norms.
for axis in [0, 1, 2]:
    case(f"softmax_{axis}", "softmax", [d(2, 3, 4)], lambda x: F.softmax(x, axis), f"axis = {axis}")
    case(f"log_softmax_{axis}", "log_softmax", [d(2, 3, 4)], lambda x: F.log_softmax(x, axis), f"axis = {axis}")
for shape, axis in [((3, 8), 1), ((2, 3, 4), 1), ((2, 2, 3, 2), 3)]:
    tail = shape[axis:]
    case(f"layer_norm_{len(shape)}_{axis}", "layer_norm", [d(*shape), d(*tail), d(*tail)],
         lambda x, s, b: F.layer_norm(x, tail, s, b, 1e-5), f"axis = {axis}, eps = 0.00001")
    case(f"rms_norm_{len(shape)}_{axis}", "rms_norm", [d(*shape), d(*tail)],
         lambda x, s: F.rms_norm(x, tail, s, 1e-5), f"axis = {axis}, eps = 0.00001")
for shape in [(6, 3), (2, 3, 5), (2, 4, 3, 2)]:
    n = shape[1]
    case(f"batch_norm_train_{len(shape)}", "batch_norm_train", [d(*shape), d(n), d(n), d(n), np.abs(d(n)) + 0.5],
         lambda x, s, b, m, v: F.batch_norm(x, m.detach().clone(), v.detach().clone(), s, b, True, 0.1, 1e-5),
         "eps = 0.00001", outputs=3, diff={0, 1, 2})
    case(f"batch_norm_{len(shape)}", "batch_norm", [d(*shape), d(n), d(n), d(n), np.abs(d(n)) + 0.5],
         lambda x, s, b, m, v: F.batch_norm(x, m.detach(), v.detach(), s, b, False, 0.1, 1e-5), "eps = 0.00001",
         diff={0, 1, 2})
for groups in [1, 2, 4]:
    case(f"group_norm_{groups}", "group_norm", [d(2, 4, 3, 2), d(4), d(4)],
         lambda x, s, b: F.group_norm(x, groups, s, b, 1e-5), f"groups = {groups}, eps = 0.00001")

# Losses.
for shape in [(5, 4), (2, 3, 4)]:
    labels = c.ints(0, shape[1], shape[0], *shape[2:])
    for reduction in ["none", "sum", "mean"]:
        for weighted in [False, True]:
            w = c.uniform(0.3, 2, shape[1], dtype=np.float64) if weighted else None
            case(f"cross_entropy_{len(shape)}_{reduction}_{int(weighted)}", "cross_entropy", [d(*shape), labels, w],
                 lambda x, t, *u: F.cross_entropy(x, t, u[0] if u else None, ignore_index=1, reduction=reduction),
                 f'reduction = "{reduction}", ignore = 1', diff={0})

# Attention.
for causal in [False, True]:
    for groups in [2, 4]:
        case(f"attention_{int(causal)}_{groups}", "attention", [d(1, 4, 3, 4), d(1, groups, 3, 4), d(1, groups, 3, 4)],
             lambda q, k, v: F.scaled_dot_product_attention(
                 q, k.repeat_interleave(4 // groups, 1), v.repeat_interleave(4 // groups, 1), is_causal=causal),
             f"causal = {'true' if causal else 'false'}")
case("attention_mask", "attention", [d(2, 2, 3, 4), d(2, 2, 5, 4), d(2, 2, 5, 4), d(3, 5)],
     lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m))

# Convolution and pooling.
for name, f, x, w, attrs, kw in [
    ("1d", F.conv1d, (2, 3, 7), (4, 3, 3), "", {}),
    ("2d", F.conv2d, (1, 2, 6, 5), (3, 2, 3, 2), "strides = [2, 1], low = dims[1, 0], high = dims[1, 0]",
     {"stride": (2, 1), "padding": (1, 0)}),
    ("groups", F.conv2d, (1, 4, 5, 5), (4, 2, 2, 2), "groups = 2, dilations = [2, 2]", {"groups": 2, "dilation": 2}),
    ("depthwise", F.conv2d, (1, 3, 5, 5), (3, 1, 3, 3), "groups = 3, low = dims[1, 1], high = dims[1, 1]",
     {"groups": 3, "padding": 1}),
    ("3d", F.conv3d, (1, 2, 4, 3, 3), (2, 2, 2, 2, 2), "", {}),
]:
    case(f"conv_{name}", "conv", [d(*x), d(*w), d(w[0])], lambda a, b, e: f(a, b, e, **kw), attrs)
for name, x, w, attrs, kw in [
    ("plain", (1, 2, 4, 3), (2, 3, 2, 2), "", {}),
    ("strided", (1, 4, 3, 3), (4, 1, 3, 3),
     "groups = 2, strides = [2, 2], low = dims[1, 1], high = dims[1, 1], output_padding = [1, 1]",
     {"groups": 2, "stride": 2, "padding": 1, "output_padding": 1}),
]:
    case(f"conv_transpose_{name}", "conv_transpose", [d(*x), d(*w)], lambda a, b: F.conv_transpose2d(a, b, **kw), attrs)
pool = "kernel = [3, 2], strides = [2, 1], low = dims[1, 1], high = dims[1, 1]"
case("max_pool", "max_pool", [d(1, 2, 6, 5)], lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 1)), pool)
for count in ["true", "false"]:
    case(f"avg_pool_{count}", "avg_pool", [d(1, 2, 6, 5)],
         lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), count_include_pad=count == "true"),
         f"{pool}, count_padding = {count}")
for mode, theirs in [("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic")]:
    extra = ', coordinates = "asymmetric", nearest = "floor"' if mode == "nearest" else ""
    case(f"resample_{mode}", "resample", [d(1, 2, 4, 5)],
         lambda x: F.interpolate(x, (7, 3), mode=theirs, **({} if mode == "nearest" else {"align_corners": False})),
         f'dims = dims[1, 2, 7, 3], axes = [2, 3], mode = "{mode}"{extra}')

# Embedding and sorting.
case("gather", "gather", [d(6, 3), c.ints(0, 6, 2, 4)], lambda t, i: F.embedding(i, t), "axis = 0")
case("sort", "sort", [d(3, 5)], lambda x: torch.sort(x, 1).values, "axis = 1", outputs=2)
c.write()
