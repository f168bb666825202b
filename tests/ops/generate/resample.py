# SPDX-License-Identifier: Apache-2.0
"""Resizing and sampling against onnx.reference, or ONNX Runtime where that is the better witness."""
import numpy as np
import peers
from opcases import Cases, Dims, array

c = Cases("resample")
CLOSE = {"rtol": 2e-5, "atol": 2e-5}
COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]


def resize(name, x, axes, to=None, scales=None, roi=None, bounds=None, **attrs):
    """attrs by the names of the IR op."""
    axes = list(axes)
    names = {"coordinates": "coordinate_transformation_mode", "nearest": "nearest_mode", "cubic": "cubic_coeff_a",
             "extrapolation": "extrapolation_value"}
    onnx = {names.get(k, k): int(v) if isinstance(v, bool) else v for k, v in attrs.items()}
    full = np.ones(x.ndim, np.float32)
    if scales:
        full[axes] = scales
    sizes = np.array(x.shape, np.int64)
    if to:
        sizes[axes] = to
    region = None
    if roi:
        region = np.array([0] * x.ndim + [1] * x.ndim, np.float32)
        for k, a in enumerate(axes):
            region[a], region[x.ndim + a] = roi[k], roi[k + len(axes)]
    y = peers.reference("Resize", [x, region, full if scales else None, None if scales else sizes], onnx)[0].astype(x.dtype)
    inputs = [x] + ([array(roi)] if roi else [])
    if scales:
        attrs["scales"] = [float(np.float32(s)) for s in scales]
    c.case(name, "resample", inputs, y, bounds=CLOSE if bounds is None else bounds, dims=Dims(y.shape), axes=list(axes), **attrs)


for mode in ["nearest", "linear", "cubic"]:
    for how in COORDINATES:
        for to, scales in [((5, 3), None), ((2, 7), None), (None, (0.6, 2.0)), (None, (1.7, 0.6))]:
            x = c.random((1, 2, 3, 5) if to == (5, 3) else (1, 1, 4, 4))
            resize(f"{mode} {how} {to or scales}", x, (2, 3), to, scales, mode=mode, coordinates=how)
for how in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
    for coordinates in ["half_pixel", "asymmetric", "align_corners"]:
        resize(f"nearest {how} {coordinates}", c.random((1, 1, 4, 5)), (2, 3), (7, 2), mode="nearest", nearest=how, coordinates=coordinates)
for mode in ["linear", "cubic"]:
    for outside in (False, True):
        resize(f"{mode} antialias {outside}", c.random((1, 1, 6, 5)), (2, 3), (3, 4), mode=mode, antialias=True, exclude_outside=outside)
        resize(f"{mode} antialias up {outside}", c.random((1, 1, 3, 3)), (2, 3), None, (1.5, 0.6), mode=mode, antialias=True, exclude_outside=outside)
    resize(f"{mode} exclude outside", c.random((1, 1, 4, 4)), (2, 3), (7, 3), mode=mode, exclude_outside=True)
    resize(f"{mode} crop", c.random((1, 1, 4, 4)), (2, 3), (3, 3), roi=[0.4, 0.6, 0.6, 0.8], mode=mode, coordinates="tf_crop_and_resize")
    resize(f"{mode} crop outside", c.random((1, 1, 4, 4)), (2, 3), (3, 3), roi=[0.4, 0.6, 1.2, 1.7], mode=mode,
           coordinates="tf_crop_and_resize", extrapolation=10.0)
resize("cubic coefficient", c.random((1, 1, 4, 4)), (2, 3), (8, 8), mode="cubic", cubic=-0.5)
resize("one axis", c.random((4,)), (0,), (7,), mode="linear")
resize("three axes", c.random((1, 1, 2, 3, 2)), (2, 3, 4), (4, 2, 3), mode="linear")
resize("to one", c.random((1, 1, 3, 3)), (2, 3), (1, 1), mode="linear", coordinates="pytorch_half_pixel")
resize("from one", c.random((1, 1, 1, 1)), (2, 3), (2, 3), mode="linear", coordinates="align_corners")
resize("f16", c.random((1, 1, 3, 3), "f16"), (2, 3), (4, 4), mode="linear", bounds={"rtol": 2e-3, "atol": 2e-3})
resize("u8 nearest", c.random((1, 1, 3, 3), "u8"), (2, 3), (4, 2), mode="nearest")
x = c.random((2, 3))
c.case("tf_half_pixel_for_nn", "resample", [x], x[:, [0, 1, 1, 2]], dims=Dims([2, 4]), axes=[1], coordinates="tf_half_pixel_for_nn",
       nearest="floor")
c.case("bool", "resample", [array([1, 0], "bool")], array([1, 1, 0, 0], "bool"), dims=Dims([4]), axes=[0])
c.case("nothing", "resample", [array(np.zeros((0, 2)))], array(np.zeros((0, 4))), dims=Dims([0, 4]), axes=[1], mode="linear")
t = ["f32[2,3]"]
c.refused("C1", "usage", ["no mode 'area'"], "resample", t, dims=Dims([2, 4]), axes=[1], mode="area")
c.refused("C2", "bad_type", ["bool"], "resample", ["bool[2,3]"], dims=Dims([2, 4]), axes=[1], mode="linear")
c.refused("C3", "bad_shape", ["3 is not 2"], "resample", t, dims=Dims([3, 4]), axes=[1])
c.refused("C3", "bad_shape", ["2 result sizes"], "resample", t, dims=Dims([4]), axes=[1])
c.refused("C4", "usage", ["2 scales"], "resample", t, dims=Dims([2, 4]), axes=[1], scales=[1.5, 2.0])
c.refused("C4", "usage", ["scale -1"], "resample", t, dims=Dims([2, 4]), axes=[1], scales=[-1.0])
c.refused("C5", "usage", ["region"], "resample", t, dims=Dims([2, 4]), axes=[1], coordinates="tf_crop_and_resize")
c.fails("bad_shape", ["nothing to sample"], "resample", [array(np.zeros((2, 0)))], "f32[2,4]", dims=Dims([2, 4]), axes=[1])

for mode, named in [("linear", "linear"), ("nearest", "nearest"), ("cubic", "cubic")]:
    for padding in ["zeros", "border", "reflection"]:
        for corners in (False, True):
            x, grid = c.random((2, 2, 3, 4)), c.uniform(-1.4, 1.4, 2, 2, 3, 2)
            y = peers.runtime("GridSample", [x, grid], dict(mode=named, padding_mode=padding, align_corners=int(corners)), opset=20)[0]
            c.case(f"{mode} {padding} {corners}", "grid_sample", [x, grid], y, bounds=CLOSE, mode=mode, padding=padding, align_corners=corners)
            if mode != "cubic":
                x, grid = c.random((1, 1, 2, 3, 2)), c.uniform(-1.4, 1.4, 1, 1, 2, 2, 3)
                y = peers.runtime("GridSample", [x, grid], dict(mode=named, padding_mode=padding, align_corners=int(corners)), opset=20)[0]
                c.case(f"volume {mode} {padding} {corners}", "grid_sample", [x, grid], y, bounds=CLOSE, mode=mode, padding=padding,
                       align_corners=corners)
c.case("NaN and far away", "grid_sample", [array([[[[1, 2]]]]), array([[[[np.nan, 0], [1e30, 0], [-1e30, 0]]]])], array([[[[0, 0, 0]]]]))
t = ["f32[1,1,3,3]", "f32[1,2,2,2]"]
c.refused("C1", "usage", ["no padding 'wrap'"], "grid_sample", t, padding="wrap")
c.refused("C2", "bad_type", ["i32"], "grid_sample", ["i32[1,1,3,3]", t[1]])
c.refused("C3", "bad_shape", ["one rank"], "grid_sample", [t[0], "f32[1,2,2]"])
c.refused("C3", "bad_shape", ["3 is not 2"], "grid_sample", [t[0], "f32[1,2,2,3]"])

for dims in [(2, 1, 3, 4), (1, 3, 1, 2), (1, 1, 2, 3, 2)]:
    for corners in (False, True):
        if corners and 1 in dims[2:]:
            continue
        r = len(dims) - 2
        theta = c.random((dims[0], r, r + 1))
        y = peers.reference("AffineGrid", [theta, np.array(dims, np.int64)], dict(align_corners=int(corners)))[0]
        c.case(f"{dims} {corners}", "affine_grid", [theta], y.astype(np.float32), bounds=CLOSE, dims=Dims(dims), align_corners=corners)
c.case("one position", "affine_grid", [array([[[2, 0, 1], [0, 2, 3]]])], array([[[[1, 3]]]]), dims=Dims([1, 1, 1, 1]), align_corners=True)
c.refused("C1", "bad_type", ["i32"], "affine_grid", ["i32[1,2,3]"], dims=Dims([1, 1, 2, 2]))
c.refused("C2", "bad_shape", ["[N,R,R+1]"], "affine_grid", ["f32[1,2,3]"], dims=Dims([1, 1, 2]))
c.refused("C2", "bad_shape", ["2 is not 3"], "affine_grid", ["f32[1,2,3]"], dims=Dims([1, 1, 2, 2, 2]))
c.write()
