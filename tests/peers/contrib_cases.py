# SPDX-License-Identifier: Apache-2.0
"""One-op models of com.microsoft and of ai.onnx.ml, as compared with ONNX Runtime and as seeds of the fuzzer."""
import numpy as np
import onnx
from onnx import helper

rng = np.random.default_rng(5)
F = np.float32


def real(*shape):
    return rng.standard_normal(shape).astype(F)


def u8(*shape):
    return rng.integers(0, 255, shape).astype(np.uint8)


def s(v):
    return np.array(v, F)


def z(v, t=np.uint8):
    return np.array(v, t)


def angles(n, d):
    t = np.arange(n)[:, None] / 10.0 ** (np.arange(d)[None] / d)
    return np.cos(t).astype(F), np.sin(t).astype(F)


COS, SIN = angles(16, 4)
COS8, SIN8 = angles(16, 8)

# op, inputs (None: absent), attributes, number of outputs (and of those that are defined and so compared), absolute tolerance
CASES = [
    ("Gelu", [real(2, 5)], {}, 1, 1e-5),
    ("FastGelu", [real(2, 5), real(5)], {}, 1, 1e-5),
    ("BiasGelu", [real(2, 5), real(5)], {}, 1, 1e-5),
    ("QuickGelu", [real(2, 5)], {"alpha": 1.5}, 1, 1e-5),
    ("SkipLayerNormalization", [real(2, 3, 8), real(2, 3, 8), real(8), real(8), real(8)], {"epsilon": 1e-5}, 1, 1e-4),
    ("SkipSimplifiedLayerNormalization", [real(2, 3, 8), real(2, 3, 8), real(8), real(8)], {"epsilon": 1e-5}, 1, 1e-4),
    ("EmbedLayerNormalization", [rng.integers(0, 9, (2, 4)).astype(np.int32), rng.integers(0, 2, (2, 4)).astype(np.int32), real(9, 8),
                                 real(6, 8), real(2, 8), real(8), real(8), np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)], {"epsilon": 1e-5}, 2, 1e-4),
    ("Attention", [real(2, 4, 8), real(8, 24), real(24), np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)], {"num_heads": 2}, 1, 1e-4),
    ("Attention", [real(1, 4, 8), real(8, 24), real(24)], {"num_heads": 2, "unidirectional": 1}, 1, 1e-4),
    # Weights small enough that pairs of products fit ONNX Runtime's 16 bits before VNNI.
    *[("QAttention", [u8(2, 4, 8), rng.integers(-60, 60, (8, 24)).astype(np.int8), real(24), s(0.02), s(0.01) if one else np.full(24, 0.01, F),
                      np.array([4, 3], np.int32), z(120), z(0, np.int8) if one else np.arange(24, dtype=np.int8)], {"num_heads": 2}, 1, 1e-4)
      for one in (True, False)],
    ("QAttention", [u8(1, 1, 8), rng.integers(-60, 60, (8, 24)).astype(np.int8), real(24), s(0.02), s(0.01), None, z(120), z(3, np.int8),
                    real(2, 1, 2, 3, 4)], {"num_heads": 2, "unidirectional": 1}, 2, 1e-4),
    ("Trilu", [real(2, 4, 4)], {"upper": 0}, 1, 0),
    ("GatherND", [real(3, 4, 4), np.array([[0, 1], [2, 3]])], {}, 1, 0),
    ("Unique", [np.array([2, 1, 1, 3, 2], F)], {}, 3, 0),
    ("TransposeMatMul", [real(2, 4, 3), real(2, 4, 5)], {"transA": 1}, 1, 1e-4),
    ("MultiHeadAttention", [real(2, 4, 8), real(2, 6, 8), real(2, 6, 8)], {"num_heads": 2}, 1, 1e-4),
    ("MultiHeadAttention", [real(2, 4, 8), real(2, 6, 8), real(2, 6, 8), real(24)], {"num_heads": 2}, 1, 1e-4),
    ("GroupQueryAttention", [real(1, 5, 64), real(1, 5, 32), real(1, 5, 32), np.zeros((1, 2, 0, 16), F), np.zeros((1, 2, 0, 16), F),
                             np.array([4], np.int32), np.array(5, np.int32)], {"num_heads": 4, "kv_num_heads": 2}, 3, 1e-4),
    ("GroupQueryAttention", [real(1, 5, 64), real(1, 5, 32), real(1, 5, 32), np.zeros((1, 2, 0, 16), F), np.zeros((1, 2, 0, 16), F),
                             np.array([4], np.int32), np.array(5, np.int32), COS8, SIN8],
     {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, 3, 1e-4),
    ("GroupQueryAttention", [real(1, 1, 64), real(1, 1, 32), real(1, 1, 32), real(1, 2, 3, 16), real(1, 2, 3, 16),
                             np.array([3], np.int32), np.array(4, np.int32), COS8, SIN8],
     {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 3}, 3, 1e-4),
    # A buffer with room, sequences of unlike length in it, a share of each softmax for no key.
    ("GroupQueryAttention", [real(2, 1, 64), real(2, 1, 32), real(2, 1, 32), real(2, 2, 6, 16), real(2, 2, 6, 16),
                             np.array([5, 5], np.int32), np.array(6, np.int32), COS8, SIN8],
     {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, 3, 1e-4),
    ("GroupQueryAttention", [real(2, 1, 64), real(2, 1, 32), real(2, 1, 32), real(2, 2, 9, 16), real(2, 2, 9, 16),
                             np.array([5, 3], np.int32), np.array(6, np.int32), COS8, SIN8],
     {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 4}, (3, 1), 1e-4),
    ("GroupQueryAttention", [real(1, 3, 64), real(1, 3, 32), real(1, 3, 32), real(1, 2, 4, 16), real(1, 2, 4, 16),
                             np.array([6], np.int32), np.array(7, np.int32)],
     {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": 1}, 3, 1e-4),
    ("GroupQueryAttention", [real(1, 3, 64), real(1, 3, 32), real(1, 3, 32), real(1, 2, 4, 16), real(1, 2, 4, 16),
                             np.array([6], np.int32), np.array(7, np.int32), None, None, None, None, real(4)],
     {"num_heads": 4, "kv_num_heads": 2}, 3, 1e-4),
    ("Attention", [real(2, 4, 8), real(8, 24), real(24), np.array([4, 3, 0, 1], np.int32)], {"num_heads": 2}, 1, 1e-4),
    ("MultiHeadAttention", [real(1, 1, 8), real(1, 1, 8), real(1, 1, 8), None, None, None, real(1, 2, 5, 4), real(1, 2, 5, 4)],
     {"num_heads": 2}, 3, 1e-4),
    ("Attention", [real(1, 1, 8), real(8, 24), real(24), None, real(2, 1, 2, 3, 4)], {"num_heads": 2, "unidirectional": 1}, 2, 1e-4),
    ("RotaryEmbedding", [real(2, 3, 16), np.array([[0, 1, 2], [3, 4, 5]], np.int64), COS, SIN], {}, 1, 1e-5),
    ("RotaryEmbedding", [real(2, 3, 16), np.array([2], np.int64), COS, SIN], {"interleaved": 1}, 1, 1e-5),
    ("MatMulNBits", [real(3, 32), u8(5, 2, 8), np.abs(real(10)) + 0.1], {"K": 32, "N": 5, "bits": 4, "block_size": 16}, 1, 1e-3),
    ("MatMulNBits", [real(3, 32), u8(5, 2, 8), np.abs(real(10)) + 0.1, u8(5)], {"K": 32, "N": 5, "bits": 4, "block_size": 16}, 1, 1e-3),
    ("DynamicQuantizeMatMul", [real(3, 8), u8(8, 4), s(0.02), z(128)], {}, 1, 1e-3),
    ("MatMulIntegerToFloat", [u8(3, 8), u8(8, 4), s(0.02), s(0.03), z(120), z(130)], {}, 1, 1e-4),
    ("QGemm", [u8(3, 8), s(0.02), z(120), u8(8, 4), s(0.03), z(130), rng.integers(-99, 99, (4,)).astype(np.int32), s(0.1), z(128)], {}, 1, 1.01),
    ("QLinearAdd", [u8(2, 5), s(0.02), z(120), u8(2, 5), s(0.03), z(130), s(0.05), z(128)], {}, 1, 1.01),
    ("QLinearMul", [u8(2, 5), s(0.02), z(120), u8(2, 5), s(0.03), z(130), s(0.05), z(128)], {}, 1, 1.01),
    ("QLinearSigmoid", [u8(2, 5), s(0.02), z(120), s(0.004), z(0)], {}, 1, 1.01),
    ("QLinearLeakyRelu", [u8(2, 5), s(0.02), z(120), s(0.03), z(50)], {"alpha": 0.1}, 1, 1.01),
    ("QLinearGlobalAveragePool", [u8(1, 3, 4, 4), s(0.02), z(120), s(0.03), z(50)], {}, 1, 1.01),
    ("QLinearConcat", [s(0.05), z(128), u8(2, 3), s(0.02), z(120), u8(2, 4), s(0.03), z(130)], {"axis": 1}, 1, 1.01),
    ("FusedConv", [real(1, 2, 5, 5), real(3, 2, 3, 3), real(3)], {"activation": "Relu"}, 1, 1e-4),
    ("FusedGemm", [real(3, 4), real(4, 5), real(5)], {"activation": "Relu"}, 1, 1e-4),
    ("FusedMatMul", [real(2, 4, 3), real(2, 4, 5)], {"transA": 1, "alpha": 0.5}, 1, 1e-4),
    *[("FusedMatMul", [real(4, 2, 3, 5) if a == 0 else real(5, 2, 3, 4), real(2, 3, 5, 6)], {"transBatchA": 1, "transA": a}, 1, 1e-4) for a in (0, 1)],
    ("FusedMatMul", [real(2, 3, 4, 5), real(5, 2, 3, 6)], {"transBatchB": 1, "alpha": 0.5}, 1, 1e-4),
    ("QLinearAveragePool", [u8(1, 3, 5, 5), s(0.02), z(120), s(0.03), z(50)],
     {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}, 1, 1.01),
    ("QLinearAveragePool", [u8(2, 5, 4, 3), s(0.02), z(120), s(0.03), z(50)], {"kernel_shape": [2, 3], "channels_last": 1}, 1, 1.01),
    ("QLinearConv", [u8(1, 6, 5, 2), s(0.02), z(120), u8(4, 2, 3, 3), s(0.01), z(128), s(0.2), z(110), rng.integers(-9, 9, 4).astype(np.int32)],
     {"pads": [1, 0, 1, 0], "channels_last": 1}, 1, 1.01),
    ("NhwcMaxPool", [u8(2, 6, 5, 3)], {"kernel_shape": [3, 2], "strides": [2, 1]}, 1, 0),
    ("DynamicQuantizeLSTM", [real(3, 2, 4), u8(2, 4, 12), u8(2, 3, 12), real(2, 24), None, None, None, None,
                             np.full(2, 0.01, F), np.full(2, 128, np.uint8), np.full(2, 0.01, F), np.full(2, 128, np.uint8)],
     {"hidden_size": 3, "direction": "bidirectional"}, 3, 0.02),
]

FOREST = {"nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2], "nodes_featureids": [1, 0, 0, 2, 0, 0],
          "nodes_values": [0.1, 0.0, 0.0, -0.2, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
          "nodes_truenodeids": [1, 0, 0, 1, 0, 0], "nodes_falsenodeids": [2, 0, 0, 2, 0, 0]}


def votes(kind, ids, weights):
    return {f"{kind}_treeids": [0, 0, 1, 1], f"{kind}_nodeids": [1, 2, 1, 2], f"{kind}_ids": ids, f"{kind}_weights": weights}


ML = "ai.onnx.ml"
ML_CASES = [
    ("TreeEnsembleRegressor", [real(6, 3)], {**FOREST, **votes("target", [0, 0, 0, 0], [1.5, -2.0, 0.25, 4.0]), "n_targets": 1}, 1, 1e-5, ML),
    ("TreeEnsembleRegressor", [real(6, 3)], {**FOREST, "target_treeids": [0] * 4 + [1] * 4, "target_nodeids": [1, 1, 2, 2] * 2, "target_ids": [0, 1] * 4,
                                             "target_weights": [1.5, -2.0, 0.25, 4.0, 1.0, 2.0, -3.0, 0.5], "n_targets": 2, "base_values": [0.5, -0.5]}, 1, 1e-5, ML),
    ("TreeEnsembleClassifier", [real(6, 3)], {**FOREST, **votes("class", [0, 1, 2, 0], [0.5, 0.25, 0.75, 0.1]), "classlabels_int64s": [7, 8, 9],
                                              "post_transform": "SOFTMAX"}, 2, 1e-5, ML),
    ("TreeEnsembleClassifier", [real(6, 3)], {**FOREST, **votes("class", [0, 0, 0, 0], [0.5, -0.25, 0.75, -0.1]), "classlabels_int64s": [0, 1],
                                              "post_transform": "LOGISTIC"}, 2, 1e-5, ML),
    ("TreeEnsembleClassifier", [real(6, 3)], {**FOREST, **votes("class", [0, 0, 0, 0], [0.3, 0.25, 0.4, 0.1]), "classlabels_int64s": [0, 1]}, 2, 1e-5, ML),
    ("LinearRegressor", [real(4, 3)], {"coefficients": [1.0, -2.0, 0.5, 0.1, 0.2, 0.3], "intercepts": [0.5, -1.0], "targets": 2}, 1, 1e-5, ML),
    ("LinearClassifier", [real(4, 3)], {"coefficients": [1.0, -2.0, 0.5, 0.1, 0.2, 0.3, -1.0, 0.4, 2.0], "intercepts": [0.5, -1.0, 0.0],
                                        "classlabels_ints": [4, 5, 6], "post_transform": "SOFTMAX"}, 2, 1e-5, ML),
    ("Scaler", [real(4, 3)], {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 0.5, 1.0]}, 1, 1e-5, ML),
    ("Normalizer", [real(4, 3)], {"norm": "L2"}, 1, 1e-5, ML),
    ("Normalizer", [real(4, 3)], {"norm": "L1"}, 1, 1e-5, ML),
    ("Imputer", [np.array([[1, np.nan, 3], [np.nan, 5, 6]], F)], {"imputed_value_floats": [9.0, 8.0, 7.0], "replaced_value_float": float("nan")}, 1, 1e-6, ML),
    ("OneHotEncoder", [np.array([[1], [3], [7]], np.int64)], {"cats_int64s": [1, 2, 3]}, 1, 1e-6, ML),
    *[("SVMRegressor", [real(4, 3)], {"coefficients": [0.5, -1.0], "support_vectors": [1.0, 0.0, 2.0, -1.0, 0.5, 0.25], "rho": [0.3],
                                      "n_supports": 2, "kernel_type": k, "kernel_params": [0.4, 0.1, 3.0]}, 1, 1e-4, ML)
      for k in ("LINEAR", "POLY", "RBF", "SIGMOID")],
    ("FeatureVectorizer", [real(3, 2), real(3, 1)], {"inputdimensions": [2, 1]}, 1, 1e-6, ML),
]


def model_of(op, inputs, attrs, count, atol, domain="com.microsoft"):
    """The model of a case, and its inputs by name; its results are o0, o1, ... of no type yet."""
    made, compared = count if isinstance(count, tuple) else (count, count)
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{k}" for k in range(made)], domain=domain, **attrs)
    feeds = {n: x for n, x in zip(names, inputs) if n}
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    graph = helper.make_graph([node], op, info, [onnx.ValueInfoProto(name=o) for o in node.output[:compared]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 3 if domain == ML else 1)],
                             ir_version=9), feeds
