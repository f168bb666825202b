# SPDX-License-Identifier: Apache-2.0
"""Draws of the operator set ai.onnx.ml: what takes and gives tensors."""
import numpy as np
from onnx import numpy_helper

from .draw import F, I

ML = {"domain": "ai.onnx.ml", "opset": 3, "stored": ()}
POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
listed = lambda x: [float(v) for v in np.asarray(x).ravel()]


def rows(d, width):
    return d.real((d.size(1, 5), width))


def array_feature_extractor(d):
    x = d.real(d.shape(1, 3, 1))
    return [x, d.whole((1, d.size(1, 4)), 0, x.shape[-1] - 1)], ML


def binarizer(d):
    return [d.real(d.shape())], {"threshold": d.pick(0.0, 0.7), **ML}


def feature_vectorizer(d):
    n, widths = d.size(1, 3), [d.size(1, 3) for _ in range(d.size(1, 3))]
    return [d.real((n, w)) for w in widths], {"inputdimensions": widths, **ML}


def imputer(d):
    width = d.size(1, 4)
    x = d.whole((d.size(1, 4), width), 0, 3).astype(F)
    x[x == 0] = np.nan
    return [x], {"imputed_value_floats": listed(d.real(d.pick(1, width))), "replaced_value_float": float("nan"), **ML}


def label_encoder(d):
    if d.flag():
        keys, values = [1, 3, 5], d.pick({"values_floats": [0.5, 1.5, 2.5], "default_float": -1.0}, {"values_int64s": [7, 8, 9], "default_int64": -2},
                                         {"values_strings": ["x", "y", "z"], "default_string": "none"})
        return [d.whole(d.shape(0, 2), 0, 5)], {"keys_int64s": keys, **values, **ML}
    x = d.rng.choice(np.array(["a", "b", "c", "d"], object), d.shape(1, 2, 1))
    return [x], {"keys_strings": ["a", "c"], "values_int64s": [4, 6], "default_int64": d.size(-3, 0), **ML}


def labels(d, classes):
    return {"classlabels_ints": list(range(3, 3 + classes))} if d.flag() else {"classlabels_strings": [f"c{i}" for i in range(classes)]}


def linear_classifier(d):
    classes, width = d.size(2, 4), d.size(1, 4)
    return [rows(d, width)], {"coefficients": listed(d.real((classes, width))), "intercepts": listed(d.real(classes)),
                              "multi_class": 0, "post_transform": d.pick(*POST), **labels(d, classes), "outputs": 2, **ML}


def linear_regressor(d):
    targets, width = d.size(1, 3), d.size(1, 4)
    return [rows(d, width)], {"coefficients": listed(d.real((targets, width))), "intercepts": listed(d.real(targets)), "targets": targets,
                              "post_transform": "NONE", **ML}


def normalizer(d):
    norm = d.pick("MAX", "L1", "L2")
    return [d.real((d.size(1, 4), d.size(1, 4)), 0.1 if norm == "MAX" else -3)], {"norm": norm, **ML}  # MAX: the reference takes |x|


def one_hot_encoder(d):
    if d.flag():
        return [d.whole(d.shape(1, 2, 1), 0, 4)], {"cats_int64s": [0, 1, 2, 3, 4], "zeros": 1, **ML}
    return [d.rng.choice(np.array(["a", "b", "q"], object), d.shape(1, 2, 1))], {"cats_strings": ["a", "b", "c"], "zeros": 1, **ML}


def scaler(d):
    width = d.size(1, 4)
    n = d.pick(1, width)
    return [rows(d, width)], {"offset": listed(d.real(n)), "scale": listed(d.real(n, 0.2, 2)), **ML}


def kernel(d):
    return {"kernel_type": d.pick("LINEAR", "POLY", "RBF", "SIGMOID"), "kernel_params": [0.4, 0.3, 2.0]}


def svm_regressor(d):
    n, width = d.size(1, 4), d.size(1, 3)
    return [rows(d, width)], {"coefficients": listed(d.real(n)), "n_supports": n, "support_vectors": listed(d.real((n, width))),
                              "rho": listed(d.real(1)), "one_class": d.flag(), "post_transform": "NONE", **kernel(d), **ML}


def svm_classifier(d):
    classes, width = d.size(2, 3), d.size(1, 3)
    each = [d.size(1, 2) for _ in range(classes)]
    pairs = classes * (classes - 1) // 2
    attrs = {"prob_a": listed(-d.real(pairs, 0.5, 1)), "prob_b": listed(d.real(pairs, -0.2, 0.2))} if classes == 2 and d.flag() else {}
    return [rows(d, width)], {"coefficients": listed(d.real((classes - 1, sum(each)))), "vectors_per_class": each,
                              "support_vectors": listed(d.real((sum(each), width))), "rho": listed(d.real(pairs)),
                              "post_transform": "NONE", **labels(d, classes), **attrs, **kernel(d), "outputs": 2, **ML}


def trees(d, width):
    """Nodes of one to three trees of depth up to two, whose leaves are returned as (tree, node)."""
    columns = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")}
    leaves = []
    for tree in range(d.size(1, 3)):
        deep = d.flag()
        inner = [0, 1] if deep else [0]
        last = 4 if deep else 2
        children = {0: (1, 2), 1: (3, 4)} if deep else {0: (1, 2)}
        for node in range(last + 1):
            branch = node in inner
            mode = d.pick("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ") if branch else "LEAF"
            yes, no = children.get(node, (0, 0))
            row = (tree, node, d.size(0, width - 1) if branch else 0, mode, float(d.size(-2, 2)) if branch else 0.0, yes, no, d.flag() if branch else 0)
            for column, value in zip(columns.values(), row):
                column.append(value)
            if not branch:
                leaves.append((tree, node))
    return {f"nodes_{k}": v for k, v in columns.items()}, leaves


def samples(d, width, missing=True):
    x = d.whole((d.size(1, 5), width), -3, 3).astype(F)
    if missing and d.flag():
        x[0, 0] = np.nan
    return x


def tree_regressor(d):
    # The reference leaves MIN and MAX of no leaves at the largest numbers, so that every target has leaves there.
    width, aggregate = d.size(1, 3), d.pick("SUM", "AVERAGE", "MIN", "MAX")
    targets = 1 if aggregate in ("MIN", "MAX") else d.size(1, 2)
    nodes, leaves = trees(d, width)
    attrs = {"base_values": listed(d.real(targets))} if d.flag() else {}
    return [samples(d, width)], {**nodes, "target_treeids": [t for t, _ in leaves], "target_nodeids": [n for _, n in leaves],
                                 "target_ids": [d.size(0, targets - 1) for _ in leaves], "target_weights": listed(d.real(len(leaves))),
                                 "n_targets": targets, "aggregate_function": aggregate, **attrs, **ML}


def tree_classifier(d):
    width, classes = d.size(1, 3), d.size(2, 3)
    nodes, leaves = trees(d, width)
    names = {"classlabels_int64s": list(range(classes))} if d.flag() else {"classlabels_strings": [f"c{i}" for i in range(classes)]}
    return [samples(d, width)], {**nodes, "class_treeids": [t for t, _ in leaves], "class_nodeids": [n for _, n in leaves],
                                 "class_ids": [i % classes for i in range(len(leaves))], "class_weights": listed(d.real(len(leaves))),
                                 "post_transform": d.pick(*POST), **names, "outputs": 2, **ML}


def tree_ensemble(d):
    width, aggregate = d.size(1, 3), d.size(0, 3)
    targets = 1 if aggregate > 1 else d.size(1, 2)
    array = lambda x, t: numpy_helper.from_array(np.array(x, t))
    leaves = d.size(2, 3)
    inner = leaves - 1
    attrs = {"nodes_featureids": [d.size(0, width - 1) for _ in range(inner)], "nodes_modes": array([d.size(0, 5) for _ in range(inner)], np.uint8),
             "nodes_splits": array(d.whole(inner, -2, 2), F), "nodes_trueleafs": [1] * inner, "nodes_truenodeids": list(range(inner)),
             "nodes_falseleafs": [0] * (inner - 1) + [1], "nodes_falsenodeids": list(range(1, inner)) + [inner],
             "leaf_targetids": [d.size(0, targets - 1) for _ in range(leaves)], "leaf_weights": array(d.real(leaves), F),
             "tree_roots": [0], "n_targets": targets, "aggregate_function": aggregate, "post_transform": 0}
    # Of this op the reference compares missing values where the specification sends them to the false branch.
    return [samples(d, width, False)], {**attrs, **ML, "opset": 5}


OPS = {
    "ArrayFeatureExtractor": array_feature_extractor, "Binarizer": binarizer, "FeatureVectorizer": feature_vectorizer, "Imputer": imputer,
    "LabelEncoder": label_encoder, "LinearClassifier": linear_classifier, "LinearRegressor": linear_regressor, "Normalizer": normalizer,
    "OneHotEncoder": one_hot_encoder, "Scaler": scaler, "SVMRegressor": svm_regressor, "SVMClassifier": svm_classifier,
    "TreeEnsembleRegressor": tree_regressor, "TreeEnsembleClassifier": tree_classifier, "TreeEnsemble": tree_ensemble,
}
