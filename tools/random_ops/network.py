# SPDX-License-Identifier: Apache-2.0
"""Draws of the layers of networks: arithmetic of theirs, contractions, pooling, norms, cells, attention, losses, integers."""
import numpy as np

from .draw import B, F, I


def floats(since, low=-3.0, high=3.0, **options):
    """x, with each option left out or one of its values."""
    def make(d):
        chosen = {k: d.pick(*v) for k, v in options.items() if d.flag()}
        return [d.real(d.shape(), low, high)], {**chosen, "opset": d.opset(since)}
    return make


def bit_shift(d):
    shape, t = d.shape(), d.pick(np.uint8, np.uint32, np.uint64)
    return [d.whole(shape, 0, 200, t), d.whole(d.broadcast(shape), 0, 7, t)], {"direction": d.pick("LEFT", "RIGHT"), "opset": d.opset(11)}


def bitwise_not(d):
    return [d.whole(d.shape(), 0, 100, d.pick(np.uint8, np.int32, I))], {"opset": d.opset(18)}


def not_op(d):
    return [d.truth(d.shape())], {}


def mod(d):
    shape, fmod = d.shape(), d.flag()
    if fmod:
        return [d.real(shape), d.real(d.broadcast(shape), 0.5, 2)], {"fmod": 1, "opset": d.opset(13)}
    divisor = d.whole(d.broadcast(shape), 1, 4) * d.pick(1, -1)
    return [d.whole(shape, -9, 9), divisor], {"opset": d.opset(13), "stored": ()}


def prelu(d):
    shape = d.shape()
    return [d.real(shape), d.real(d.broadcast(shape))], {"opset": d.opset(9)}


def swiglu(d):
    shape = d.shape()
    return [d.real(shape), d.real(shape)], {"alpha": d.pick(1.0, 1.7), "opset": 28}


def cum_prod(d):
    x = d.real(d.shape(1, 4, 1))
    return [x, np.array(d.axis(x.ndim), I)], {"exclusive": d.flag(), "reverse": d.flag(), "opset": 26}


def einsum(d):
    a, b, c, e = (d.size(1, 4) for _ in range(4))
    equation, shapes = d.pick(
        ("ij,jk->ik", ((a, b), (b, c))), ("bij,bjk->bik", ((e, a, b), (e, b, c))), ("ij->ji", ((a, b),)), ("ij->", ((a, b),)),
        ("ii->i", ((a, a),)), ("i,j->ij", ((a,), (b,))), ("bhqd,bhkd->bhqk", ((e, 2, a, c), (e, 2, b, c))),
        ("...ij,...jk->...ik", ((e, a, b), (e, b, c))), ("ij,j", ((a, b), (b,))), ("abc,cd,d->ab", ((a, b, c), (c, e), (e,))))
    return [d.real(s) for s in shapes], {"equation": equation, "opset": d.opset(12)}


def det(d):
    n = d.size(1, 4)
    return [d.real(d.shape(0, 2) + (n, n))], {"opset": d.opset(11)}


def conv_transpose(d):
    groups, spatial = d.pick(1, 1, 2), d.size(1, 2)
    # Of groups the reference fills one channel each and gives all the biases of the first.
    c, o = groups * d.size(1, 2), d.size(1, 2) if groups == 1 else 1
    kernel, strides = [d.size(1, 3) for _ in range(spatial)], [d.size(1, 3) for _ in range(spatial)]
    attrs = {"group": groups, "strides": strides, "dilations": [d.size(1, 2) for _ in kernel], "opset": d.opset(11)}
    if d.flag():
        attrs["pads"] = [d.size(0, 1) for _ in range(2 * spatial)]
    if d.flag():
        attrs["output_padding"] = [d.size(0, s - 1) for s in strides]
    x = d.real((d.size(1, 2), c, *[d.size(2, 5) for _ in kernel]))
    return [x, d.real((c, o, *kernel))] + ([d.real((o,))] if groups == 1 and d.flag() else []), attrs


def deform_conv(d):
    groups, offsets = d.pick(1, 2), d.pick(1, 2)
    c, o, kernel, stride = 2 * d.size(1, 2), groups * d.size(1, 2), (d.size(1, 3), d.size(1, 3)), d.size(1, 2)
    x = d.real((d.size(1, 2), c, d.size(4, 6), d.size(4, 6)))
    out = [(x.shape[2 + i] - kernel[i]) // stride + 1 for i in (0, 1)]
    inputs = [x, d.real((o, c // groups, *kernel)), d.real((x.shape[0], offsets * kernel[0] * kernel[1] * 2, *out), -1.5, 1.5)]
    bias, mask = d.flag(), d.flag()
    if bias or mask:
        inputs.append(d.real((o,)) if bias else None)
    if mask:
        inputs.append(d.real((x.shape[0], offsets * kernel[0] * kernel[1], *out), 0, 1))
    return inputs, {"group": groups, "offset_group": offsets, "strides": [stride] * 2, "kernel_shape": list(kernel),
                    "opset": d.opset(19)}


def picture(d, least=1):
    return d.real((d.size(1, 3), d.size(1, 4), *[d.size(least, 6) for _ in range(d.size(1, 3))]))


def global_pool(d):
    return [picture(d)], {}


def global_max_pool(d):  # of four dimensions: of others the reference reduces the wrong ones
    return [d.real((d.size(1, 3), d.size(1, 4), d.size(1, 6), d.size(1, 6)))], {}


def lp_pool(d):
    x = picture(d, 3)
    kernel = [d.size(1, 3) for _ in x.shape[2:]]
    attrs = {"pads": [d.size(0, k - 1) for k in kernel] * 2} if d.flag() else {}
    return [x], {"kernel_shape": kernel, "strides": [d.size(1, 2) for _ in kernel], "p": d.pick(1, 2, 3), **attrs, "opset": d.opset(18)}


def max_unpool(d):
    n, c, h, w = d.size(1, 2), d.size(1, 2), d.size(1, 3), d.size(1, 3)
    step = d.size(2, 3)
    plane = h * step * w * step
    indices = np.stack([np.sort(d.rng.permutation(plane)[: h * w]).reshape(h, w) + p * plane for p in range(n * c)])
    return [d.real((n, c, h, w)), indices.reshape(n, c, h, w).astype(I)], {"kernel_shape": [step] * 2, "strides": [step] * 2,
                                                                          "opset": d.opset(11), "stored": ()}


def roi_align(d):
    x = d.real((d.size(1, 2), d.size(1, 3), d.size(4, 8), d.size(4, 8)))
    n = d.size(1, 3)
    corner = d.real((n, 2), 0, 4)
    rois = np.concatenate([corner, corner + d.real((n, 2), 0.5, 6)], 1).astype(F)
    return [x, rois, d.whole(n, 0, len(x) - 1)], {
        "output_height": d.size(1, 3), "output_width": d.size(1, 3), "sampling_ratio": d.size(0, 2), "mode": d.pick("avg", "max"),
        "spatial_scale": d.pick(1.0, 0.5), "coordinate_transformation_mode": d.pick("half_pixel", "output_half_pixel"),
        "opset": d.opset(16), "stored": ()}


def grid_sample(d):
    x = d.real((d.size(1, 2), d.size(1, 3), d.size(2, 5), d.size(2, 5)))
    grid = d.real((len(x), d.size(1, 4), d.size(1, 4), 2), -1.3, 1.3)
    mode = d.pick("linear", "nearest", "cubic")
    # Of cubic and border the reference clips the point, not the pixels around it.
    padding = d.pick("zeros", "reflection") if mode == "cubic" else d.pick("zeros", "border", "reflection")
    return [x, grid], {"mode": mode, "padding_mode": padding,
                       "align_corners": d.flag(), "opset": d.opset(20)}


def affine_grid(d):
    n, flat = d.size(1, 2), d.flag()
    theta = d.real((n, 2, 3) if flat else (n, 3, 4))
    size = [n, d.size(1, 3)] + [d.size(2, 4) for _ in range(2 if flat else 3)]
    return [theta, np.array(size, I)], {"align_corners": d.flag(), "opset": d.opset(20)}


def group_norm(d):
    groups, each = d.size(1, 3), d.size(1, 3)
    x = d.real((d.size(1, 2), groups * each, *[d.size(1, 4) for _ in range(d.size(1, 2))]))
    return [x, d.real((groups * each,)), d.real((groups * each,))], {"num_groups": groups, "opset": d.opset(21)}


def instance_norm(d):
    x = picture(d, 2)
    return [x, d.real((x.shape[1],)), d.real((x.shape[1],))], {"epsilon": d.pick(1e-5, 1e-2)}


def lrn(d):
    channels = d.size(1, 7)  # as many pictures: the reference sums as many channels as there are pictures
    return [d.real((channels, channels, d.size(1, 4), d.size(1, 4)))], {"size": d.pick(1, 3, 5), "alpha": 0.3, "beta": d.pick(0.75, 0.5),
                                                                             "bias": d.pick(1.0, 2.0)}


def lp_norm(d):
    p = d.pick(1, 2)
    x = d.real(d.shape(1, 4, 1), 0.1 if p == 1 else -3)  # the reference takes no absolute values
    return [x], {"axis": d.axis(x.ndim), "p": p}


def mean_variance_norm(d):
    x = d.real((d.size(1, 3), d.size(1, 3), d.size(2, 4), d.size(2, 4)))
    return [x], {"axes": d.pick([0, 2, 3], [1], [0, 1, 2, 3]), "opset": d.opset(13)}


def rms_norm(d):
    x = d.real(d.shape(1, 3, 1))
    axis = d.axis(x.ndim)
    return [x, d.real(x.shape[axis:])], {"axis": axis, "epsilon": d.pick(1e-5, 1e-3), "opset": d.opset(23)}


def recurrent(gates, states):
    def make(d):
        steps, batch, width, hidden = d.size(1, 4), d.size(1, 3), d.size(1, 4), d.size(1, 3)
        direction = d.pick("forward", "reverse", "bidirectional") if states == 1 else "forward"
        ways = 2 if direction == "bidirectional" else 1
        inputs = [d.real((steps, batch, width)), d.real((ways, gates * hidden, width)), d.real((ways, gates * hidden, hidden))]
        bias, initial = d.flag(), d.flag()
        if bias or initial:
            inputs.append(d.real((ways, 2 * gates * hidden)) if bias else None)
        if initial:
            inputs += [None] + [d.real((ways, batch, hidden)) for _ in range(states)]
        attrs = {"hidden_size": hidden, "direction": direction, "outputs": 1 + states, "opset": d.opset(14), "stored": ()}
        if gates == 3:
            attrs["linear_before_reset"] = d.flag()
        return inputs, attrs
    return make


def attention(d):
    batch, groups, each, queries, keys, width, out = (d.size(1, 3) for _ in range(7))
    heads = groups * each
    inputs = [d.real((batch, heads, queries, width)), d.real((batch, groups, keys, width)), d.real((batch, groups, keys, out))]
    attrs = {"opset": d.opset(23), "stored": ()}
    if d.flag():
        attrs["is_causal"] = 1
    elif d.flag():
        inputs.append(d.pick(d.real((queries, keys)), d.real((batch, heads, queries, keys)), np.tri(queries, keys, dtype=B)))
    if d.flag():
        attrs["softcap"] = 2.0
    if d.flag():
        attrs["scale"] = 0.7
    return inputs, attrs


def rotary(d):
    batch, heads, length, width = d.size(1, 2), d.size(1, 3), d.size(1, 4), 2 * d.size(2, 4)
    turned = d.pick(0, 2, 4)
    half = (turned or width) // 2
    angle = d.real((9, half))
    x = d.real((batch, heads, length, width))
    attrs = {"interleaved": d.flag(), "rotary_embedding_dim": turned, "opset": d.opset(23), "stored": ()}
    if d.flag():
        return [x, np.cos(angle), np.sin(angle), d.whole((batch, length), 0, 8)], attrs
    angle = d.real((batch, length, half))
    return [x, np.cos(angle), np.sin(angle)], attrs


def linear_attention(d):
    batch, heads, length, width, out = d.size(1, 2), d.size(1, 2), d.size(1, 5), d.size(1, 4), d.size(1, 4)
    rule = d.pick("linear", "gated", "delta", "gated_delta")
    inputs = [d.real((batch, length, heads * w), -1, 1) for w in (width, width, out)]
    inputs.append(d.real((batch, heads, width, out), -1, 1) if d.flag() else None)
    inputs.append(d.real((batch, length, heads), -1, 0) if "gated" in rule else None)
    inputs.append(d.real((batch, length, heads), 0, 1) if "delta" in rule else None)
    while inputs[-1] is None:
        inputs.pop()
    return inputs, {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": rule, "outputs": 2, "opset": d.opset(27)}


def causal_conv(d):
    batch, channels, length, window = d.size(1, 2), d.size(1, 3), d.size(1, 5), d.size(1, 4)
    inputs = [d.real((batch, channels, length)), d.real((channels, 1, window))]
    bias, past = d.flag(), d.flag()
    if bias or past:
        inputs.append(d.real((channels,)) if bias else None)
    if past:
        inputs.append(d.real((batch, channels, window - 1)))
    return inputs, {"activation": d.pick("none", "silu"), "outputs": 2, "opset": d.opset(27)}


def dropout(d):
    return [d.real(d.shape()), np.array(0.4, F)], {"outputs": d.size(1, 2), "opset": d.opset(13), "stored": (1,)}


def loss(op):
    def make(d):
        classes, batch = d.size(1, 5), d.size(1, 4)
        tail = d.shape(0, 2, 1)
        scores = d.real((batch, classes, *tail), -3, 0)
        inputs = [scores, d.whole((batch, *tail), 0, classes - 1)] + ([d.real((classes,), 0.1, 2)] if d.flag() else [])
        attrs = {"reduction": d.pick("none", "sum", "mean"), "opset": d.opset(13), "stored": ()}
        if d.flag():
            attrs["ignore_index"] = 0
        if op == "SoftmaxCrossEntropyLoss":
            attrs["outputs"] = d.size(1, 2)
        return inputs, attrs
    return make


def non_max_suppression(d):
    batch, classes, boxes = d.size(1, 2), d.size(1, 2), d.size(1, 6)
    corner = d.real((batch, boxes, 2), 0, 3)
    center = d.flag()
    rest = d.real((batch, boxes, 2), 0.5, 3)
    box = np.concatenate([corner, rest if center else corner + rest], -1).astype(F)
    scores = d.rng.permutation(batch * classes * boxes).reshape(batch, classes, boxes).astype(F) / 10
    return [box, scores, np.array([d.size(1, 4)], I), np.array([d.pick(0.1, 0.4, 0.7)], F), np.array([d.pick(0.0, 0.3)], F)], {
        "center_point_box": center, "opset": d.opset(11), "stored": (2, 3, 4)}


def matmul_integer(d):
    m, k, n = d.size(1), d.size(1), d.size(1)
    ta, tb = d.pick(np.uint8, np.int8), d.pick(np.uint8, np.int8)
    inputs = [d.whole((m, k), 0, 100, ta), d.whole((k, n), 0, 100, tb)]
    return inputs + ([np.array(7, ta), np.array(3, tb)] if d.flag() else []), {"opset": d.opset(10)}


def conv_integer(d):
    c, o, k = d.size(1, 3), d.size(1, 3), d.size(1, 3)
    x, w = d.whole((d.size(1, 2), c, d.size(3, 6), d.size(3, 6)), 0, 200, np.uint8), d.whole((o, c, k, k), 0, 200, np.uint8)
    return [x, w] + ([np.array(d.size(0, 9), np.uint8)] if d.flag() else []), {"strides": [d.size(1, 2)] * 2, "pads": [d.size(0, k - 1)] * 4,
                                                                                "opset": d.opset(10)}


def scale_of(d, shape=()):
    return d.real(shape, 0.02, 0.1)


def qlinear_matmul(d):
    m, k, n, t = d.size(1), d.size(1), d.size(1), d.pick(np.uint8, np.int8)
    point = lambda: np.array(d.size(0, 9), t)
    return [d.whole((m, k), 0, 100, t), scale_of(d), point(), d.whole((k, n), 0, 100, t), scale_of(d), point(),
            np.array(0.7, F), point()], {"opset": d.opset(10)}


def qlinear_conv(d):
    c, o, k, t = d.size(1, 3), d.size(1, 3), d.size(1, 3), np.uint8
    w = d.whole((o, c, k, k), 0, 200, t)
    each = (o,) if d.flag() else ()
    inputs = [d.whole((1, c, d.size(3, 6), d.size(3, 6)), 0, 200, t), scale_of(d), np.array(d.size(0, 9), t), w, scale_of(d, each),
              d.whole(each, 0, 9, t), np.array(0.9, F), np.array(d.size(0, 9), t)]
    return inputs + ([d.whole(o, -50, 50, np.int32)] if d.flag() else []), {"strides": [d.size(1, 2)] * 2, "pads": [d.size(0, k - 1)] * 4,
                                                                             "opset": d.opset(10)}


def dynamic_quantize(d):
    return [d.real(d.shape(1, 3, 1))], {"outputs": 3, "opset": d.opset(11)}


OPS = {
    "BitShift": bit_shift, "BitwiseNot": bitwise_not, "Not": not_op, "Mod": mod, "PRelu": prelu, "SwiGLU": swiglu, "CumProd": cum_prod,
    "Mish": floats(18), "Gelu": floats(20, approximate=("none", "tanh")), "Swish": floats(24, alpha=(1.0, 0.5)),
    "Shrink": floats(9, bias=(0.5, 0.1), lambd=(0.5, 1.0)),
    "Einsum": einsum, "Det": det, "ConvTranspose": conv_transpose, "DeformConv": deform_conv,
    "GlobalAveragePool": global_pool, "GlobalMaxPool": global_max_pool, "LpPool": lp_pool, "MaxUnpool": max_unpool, "RoiAlign": roi_align,
    "GridSample": grid_sample, "AffineGrid": affine_grid, "GroupNormalization": group_norm, "InstanceNormalization": instance_norm,
    "LRN": lrn, "LpNormalization": lp_norm, "MeanVarianceNormalization": mean_variance_norm, "RMSNormalization": rms_norm,
    "RNN": recurrent(1, 1), "GRU": recurrent(3, 1), "LSTM": recurrent(4, 2), "Attention": attention, "RotaryEmbedding": rotary,
    "LinearAttention": linear_attention, "CausalConvWithState": causal_conv, "Dropout": dropout,
    "NegativeLogLikelihoodLoss": loss("NegativeLogLikelihoodLoss"), "SoftmaxCrossEntropyLoss": loss("SoftmaxCrossEntropyLoss"),
    "NonMaxSuppression": non_max_suppression, "MatMulInteger": matmul_integer, "ConvInteger": conv_integer,
    "QLinearMatMul": qlinear_matmul, "QLinearConv": qlinear_conv, "DynamicQuantizeLinear": dynamic_quantize,
}
