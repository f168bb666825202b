# SPDX-License-Identifier: Apache-2.0
"""Regions, box selection, deformable convolution and columns against ONNX Runtime and onnx.reference."""
import numpy as np
import peers
from opcases import Cases, Dims, array, rounded, wide

c = Cases("region")
CLOSE = {"rtol": 2e-5, "atol": 2e-5}

for sampling in (0, 2):
    for mode in ("avg", "max"):
        for half in (False, True):
            x, rois = c.random((2, 2, 6, 7)), array([[0, 0, 8, 6], [2, 1, 9, 11], [3, 3, 3.2, 3.1], [-4, -4, 1, 1]])
            batch = array([0, 1, 0, 1], "i64")
            onnx = dict(output_height=2, output_width=3, sampling_ratio=sampling, spatial_scale=0.5, mode=mode,
                        coordinate_transformation_mode="half_pixel" if half else "output_half_pixel")
            y = peers.runtime("RoiAlign", [x, rois, batch], onnx, opset=16)[0]
            c.case(f"{sampling} {mode} {half}", "roi_align", [x, rois, batch], y, bounds=CLOSE, height=2, width=3, sampling=sampling,
                   scale=0.5, mode=mode, half_pixel=half)
t = ["f32[1,1,4,4]", "f32[2,4]", "i64[2]"]
size = dict(height=2, width=2)
c.refused("C1", "bad_type", ["one float type"], "roi_align", [t[0], "f64[2,4]", t[2]], **size)
c.refused("C2", "bad_shape", ["5 is not 4"], "roi_align", [t[0], "f32[2,5]", t[2]], **size)
c.refused("C3", "bad_shape", ["3 is not 2"], "roi_align", [*t[:2], "i64[3]"], **size)
c.refused("C4", "usage", ["no mode 'sum'"], "roi_align", t, mode="sum", **size)
c.refused("C4", "usage", ["0 by 2"], "roi_align", t, height=0, width=2)
c.refused("C4", "usage", ["2147483648 samples", "0 to 1024"], "roi_align", t, sampling=2**31, **size)
c.fails("bad_shape", ["batch index 5"], "roi_align", [c.random((1, 1, 4, 4)), c.random((1, 4)), array([5], "i64")], "f32[1,1,2,2]", **size)

x, rois = c.random((2, 2, 6, 7)), array([[0, 0, 0, 8, 6], [1, 2, 1, 9, 11], [0, 20, 20, 30, 30], [1, 4, 4, 2, 2]])
y = peers.runtime("MaxRoiPool", [x, rois], dict(pooled_shape=[2, 3], spatial_scale=0.5))[0]
c.case("scaled", "max_roi_pool", [x, rois], y, height=2, width=3, scale=0.5)
c.refused("C1", "bad_type", ["one float type"], "max_roi_pool", [t[0], "f64[2,5]"], **size)
c.refused("C2", "bad_shape", ["4 is not 5"], "max_roi_pool", t[:2], **size)
c.refused("C3", "usage", ["2 by 0"], "max_roi_pool", [t[0], "f32[2,5]"], height=2, width=0)

for center in (False, True):
    for limit, iou, score in [(3, 0.5, 0.0), (2, 0.2, 0.4), (0, 0.5, 0.0), (9, 0.0, -1.0)]:
        corners = np.sort(np.round(c.rng.uniform(0, 4, (2, 6, 2, 2)), 2).astype(np.float32), axis=2).reshape(2, 6, 4)
        boxes, scores = corners, np.round(c.rng.uniform(0, 1, (2, 2, 6)), 3).astype(np.float32)
        limits = [array(limit, "i64"), array(iou), array(score)]
        y = peers.runtime("NonMaxSuppression", [boxes, scores, *(v.reshape(1) for v in limits)], dict(center_point_box=int(center)))[0]
        c.case(f"{limit} {iou} {score} {center}", "nms", [boxes, scores, *limits], y, center_box=center)
t = ["f32[1,5,4]", "f32[1,2,5]", "i64[]", "f32[]", "f32[]"]
c.refused("C1", "bad_type", ["one float type"], "nms", [t[0], "f64[1,2,5]", *t[2:]])
c.refused("C2", "bad_shape", ["5 is not 6"], "nms", [t[0], "f32[1,2,6]", *t[2:]])
c.refused("C3", "bad_type", ["integer"], "nms", [*t[:2], "f32[]", *t[3:]])
c.refused("C3", "bad_shape", ["single limits"], "nms", [*t[:3], "f32[2]", t[4]])

for shape, kernel, strides, dilations, pads, groups, shared, extras in [
        ((1, 2, 4, 5), (3, 2, 2, 2), [1, 1], [1, 1], [0, 0, 0, 0], 1, 1, False), ((2, 4, 5, 4), (4, 2, 3, 2), [2, 1], [1, 2], [1, 0, 1, 2], 2, 2, True)]:
    x, w = c.random(shape), c.random(kernel)
    out = [(s + pads[i] + pads[i + 2] - (k - 1) * d - 1) // t + 1 for i, (s, k, t, d) in enumerate(zip(shape[2:], kernel[2:], strides, dilations))]
    taps = shared * kernel[2] * kernel[3]
    offset = c.random((shape[0], 2 * taps, *out))
    bias, mask = (c.random((kernel[0],)), c.random((shape[0], taps, *out))) if extras else (None, None)
    y = peers.reference("DeformConv", [x, w, offset, bias, mask],
                        dict(strides=strides, dilations=dilations, pads=pads, group=groups, offset_group=shared))[0]
    c.case(f"{shape} {kernel}", "deform_conv", [x, w, offset, bias, mask], y.astype(np.float32), bounds={"rtol": 5e-5, "atol": 5e-5},
           strides=strides, dilations=dilations, low=Dims(pads[:2]), high=Dims(pads[2:]), groups=groups, offset_groups=shared)
t = ["f32[1,2,4,4]", "f32[2,2,2,2]", "f32[1,8,3,3]"]
c.refused("C1", "bad_type", ["one float type"], "deform_conv", [t[0], "f16[2,2,2,2]", t[2]])
c.refused("C2", "bad_shape", ["rank 4"], "deform_conv", ["f32[1,2,4]", "f32[2,2,2]", "f32[1,4,3]"])
c.refused("C3", "bad_shape", ["offset groups"], "deform_conv", t, offset_groups=3)
c.refused("C4", "bad_shape", ["3 is not 2"], "deform_conv", ["f32[1,3,4,4]", *t[1:]])
c.refused("C5", "bad_shape", ["9 is not 8"], "deform_conv", [*t[:2], "f32[1,9,3,3]"])
c.refused("C6", "bad_shape", ["3 is not 2"], "deform_conv", [*t, "f32[3]"])
c.refused("W1", "usage", ["spatial axes"], "deform_conv", t, strides=[1])
c.refused("W2", "usage", ["positive"], "deform_conv", t, strides=[1, 0])
c.refused("W3", "bad_shape", ["spatial axis 0"], "deform_conv", t, low=Dims([-4, 0]))


def columns(x, kernel, strides, dilations, low, high):
    padded = np.pad(x, [(0, 0), (0, 0), *zip(low, high)])
    out = [(s - (k - 1) * d - 1) // t + 1 for s, k, t, d in zip(padded.shape[2:], kernel, strides, dilations)]
    rows = []
    for tap in np.ndindex(*kernel):
        at = tuple(slice(k * d, k * d + (o - 1) * t + 1, t) for k, d, o, t in zip(tap, dilations, out, strides))
        rows.append(padded[(slice(None), slice(None), *at)].reshape(*x.shape[:2], -1))
    return np.stack(rows, 2).reshape(x.shape[0], -1, int(np.prod(out)))


for dims, kernel, strides, dilations, low, high in [((1, 2, 4, 5), [2, 3], [1, 2], [1, 1], [0, 1], [1, 0]), ((2, 1, 5), [2], [1], [2], [0], [0]),
                                                    ((1, 1, 3, 3, 2), [2, 1, 2], [1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 1])]:
    window = dict(strides=strides, dilations=dilations, low=Dims(low), high=Dims(high))
    x = c.random(dims)
    y = columns(x, kernel, strides, dilations, low, high)
    c.case(f"{dims} {kernel}", "im2col", [x], y, kernel=kernel, **window)
    g = c.random(y.shape)
    back = peers.reference("Col2Im", [g, np.array(dims[2:], np.int64), np.array(kernel, np.int64)],
                           dict(strides=strides, dilations=dilations, pads=low + high))[0]
    c.case(f"{dims} {kernel}", "col2im", [g, np.array(dims[2:], np.int64), np.array(kernel, np.int64)], rounded(wide(back), "f32"),
           bounds=CLOSE, **window)
c.case("i8", "im2col", [array([[[1, 2, 3]]], "i8")], array([[[1, 2], [2, 3]]], "i8"), kernel=[2])
c.case("i8 wraps", "col2im", [array([[[100, 100], [100, 100]]], "i8"), np.array([3]), np.array([2])], array([[[100, -56, 100]]], "i8"))
c.refused("C1", "bad_shape", ["rank 3"], "im2col", ["f32[2,3]"], kernel=[2])
x = ["f32[1,2,3,3]"]
c.refused("W1", "usage", ["spatial axes"], "im2col", x, kernel=[2, 2], strides=[1])
c.refused("W2", "usage", ["positive"], "im2col", x, kernel=[2, 2], strides=[1, 0])
c.refused("W3", "bad_shape", ["spatial axis 0"], "im2col", x, kernel=[2, 2], low=Dims([-4, 0]))
t = ["f32[1,4,4]", "i64[2]", "i64[2]"]
c.refused("C1", "bad_type", ["bool"], "col2im", ["bool[1,4,4]", *t[1:]])
c.refused("C2", "bad_shape", ["columns"], "col2im", ["f32[1,4]", *t[1:]])
c.refused("C3", "bad_type", ["fixed length"], "col2im", [t[0], "i64[N]", t[2]])
head = "  %i = constant() {value = tensor<i64[2]>{IMAGE}} : i64[2]\n  %b = constant() {value = tensor<i64[2]>{2, 2}} : i64[2]\n"
for tag, code, image, attrs, words in [("C4", "bad_shape", "3, 4", "", ["6 is not 4"]), ("W1", "usage", "3, 3", " {strides = [1]}", ["spatial axes"]),
                                       ("W2", "usage", "3, 3", " {strides = [0, 1]}", ["positive"]), ("W3", "bad_shape", "1, 9", "", ["spatial axis 0"])]:
    c.refuse(f"col2im_{tag}", code, ["col2im", tag, *words],
             head.replace("IMAGE", image) + f"  %r = col2im(%0, %i, %b){attrs} : f32[1,1,1,1]\n  return %r", [t[0]])
c.write()
