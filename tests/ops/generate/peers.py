# SPDX-License-Identifier: Apache-2.0
"""Second opinions while cases are written: the same ONNX node run by onnx.reference or ONNX Runtime."""
import numpy as np
import onnx
from onnx import helper


def model(op, inputs, attrs, outputs, opset=21):
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attrs)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for n, x in zip(names, inputs) if n]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=r) for r in results])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), names


def runtime(op, inputs, attrs, outputs=1, opset=21):
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    m, names = model(op, inputs, attrs, outputs, opset)
    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {n: x for n, x in zip(names, inputs) if n})


def reference(op, inputs, attrs, outputs=1, opset=21):
    from onnx.reference import ReferenceEvaluator

    m, names = model(op, inputs, attrs, outputs, opset)
    return ReferenceEvaluator(m).run(None, {n: x for n, x in zip(names, inputs) if n})


def agree(ours, theirs, what, tolerance=2e-5):
    for a, b in zip(ours if isinstance(ours, list) else [ours], theirs):
        assert a.shape == np.asarray(b).shape, (what, a.shape, np.asarray(b).shape)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), tolerance, tolerance, err_msg=what)
