# SPDX-License-Identifier: Apache-2.0
"""Draws of text, signals, sequences, optionals, control flow and optimizer steps."""
import numpy as np
from onnx import TensorProto, helper

from .draw import B, F, I

WORDS = np.array(["", "a", "Ab", "the Cat", "the", "x,y", ",", "a,,b ", " spaced  out ", "Ünïcode", "cat"], object)
# The reference's normaliser splits at spaces, drops empty texts and takes accents off, of which the specification says nothing.
PLAIN = np.array(["a", "Ab", "The", "the", "x,y", "CAT", "cat"], object)
FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def words(d, shape, of=WORDS):
    return d.rng.choice(of, shape).astype(object).reshape(shape)


def string_concat(d):
    shape = d.shape(0, 3)
    return [words(d, shape), words(d, d.broadcast(shape))], {"opset": d.opset(20)}


def string_split(d):
    attrs = {"delimiter": d.pick(",", " ", "", "a")} if d.flag() else {}
    if d.flag():
        attrs["maxsplit"] = d.size(1, 2)
    return [words(d, d.shape(1, 2, 1))], {**attrs, "outputs": 2, "opset": d.opset(20)}


def string_normalizer(d):
    shape = d.pick((d.size(1),), (1, d.size(1)))
    attrs = {"stopwords": ["a", "the", "cat"]} if d.flag() else {}
    change = d.pick("LOWER", "UPPER", "NONE")
    exact = 1 if change == "NONE" else d.flag()  # words that stay as they are the reference compares as they are
    return [words(d, shape, PLAIN)], {"case_change_action": change, "is_case_sensitive": exact, **attrs,
                               "opset": d.opset(10)}


def regex_full_match(d):
    return [words(d, d.shape(0, 2, 1))], {"pattern": d.pick("[a-z]+", "the.*", "", ".*[A-Z].*", "(a|Ab)", "\\w+ \\w+"), "opset": d.opset(20)}


def tf_idf(d):
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]
    attrs = {"pool_int64s": pool, "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6], "mode": d.pick("TF", "IDF", "TFIDF"),
             "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": d.size(0, 3)}
    if d.flag():
        attrs["min_gram_length"] = 2
    if d.flag():
        attrs["weights"] = [float(w) for w in d.real(7, 0.5, 2)]
    return [d.whole(d.pick((d.size(1, 9),), (d.size(1, 3), d.size(1, 9))), 2, 8)], {**attrs, "opset": d.opset(9), "stored": ()}


def window(d):
    attrs = {"output_datatype": TensorProto.DOUBLE} if d.flag() else {}
    return [np.array(d.size(1, 12), I)], {"periodic": d.flag(), **attrs, "opset": d.opset(17), "stored": ()}


def mel(d):
    return [np.array(d.size(2, 6), I), np.array(d.pick(16, 32, 63), I), np.array(d.pick(8000, 16000), I), np.array(d.real((), 0, 100), F),
            np.array(d.real((), 2000, 4000), F)], {"opset": d.opset(17), "stored": ()}


def dft(d):
    inverse, onesided = d.flag(), d.flag()
    if inverse:
        onesided = 0
    width = 1 if onesided else d.size(1, 2)
    x = d.real((d.size(1, 2), d.size(1, 9), d.size(1, 4), width))
    axis = d.pick(1, 2, -2, -3)
    length = [np.array(d.size(1, 9), I)] if d.flag() else [None]
    return [x, *length, np.array(axis, I)], {"inverse": inverse, "onesided": onesided, "opset": d.opset(20)}


def stft(d):
    frame, count = d.pick(4, 5, 8), d.size(1, 3)
    step = d.size(1, 4)
    x = d.real((d.size(1, 2), frame + step * count + d.size(0, 2), 1))
    return [x, np.array(step, I), d.real((frame,), 0.1, 1)] + ([np.array(frame, I)] if d.flag() else []), {
        "onesided": d.flag(), "opset": d.opset(17)}


def parts(d, least=1):
    """Tensors of one sequence: a shape that differs along the first axis."""
    tail = d.shape(0, 2, 1)
    return [d.real((d.size(1), *tail)) for _ in range(d.size(least, 4))]


def sequence_at(d):
    items = parts(d)
    return [items, np.array(d.size(-len(items), len(items) - 1), I)], {"opset": d.opset(11), "stored": ()}


def sequence_construct(d):
    return parts(d), {"opset": d.opset(11)}


def sequence_empty(d):
    nodes = [helper.make_node("SequenceEmpty", [], ["s"], dtype=FLOAT), helper.make_node("SequenceInsert", ["s", "i0"], ["o0"])]
    return [d.real(d.shape())], {"nodes": nodes, "opset": d.opset(11)}


def sequence_erase(d):
    items = parts(d)
    at = [np.array(d.size(-len(items), len(items) - 1), I)] if d.flag() else []
    return [items, *at], {"opset": d.opset(11), "stored": ()}


def sequence_insert(d):
    items = parts(d)
    at = [np.array(d.size(-len(items), len(items) - 1), I)] if d.flag() else []  # at the end the reference wraps to the start
    return [items, d.real(items[0].shape), *at], {"opset": d.opset(11), "stored": ()}


def sequence_length(d):
    return [parts(d)], {"opset": d.opset(11)}


def concat_from_sequence(d):
    shape, new = d.shape(1, 3, 1), d.flag()
    axis = d.size(-len(shape), len(shape) - 1)
    items = []
    for _ in range(d.size(1, 4)):
        own = list(shape)
        if not new:
            own[axis] = d.size(1)
        items.append(d.real(own))
    return [items], {"axis": axis, "new_axis": new, "opset": d.opset(11)}


def split_to_sequence(d):
    x = d.real(d.shape(1, 3, 1))
    axis = d.axis(x.ndim)
    if d.flag():
        return [x], {"axis": axis, "keepdims": d.flag(), "opset": d.opset(11)}
    if d.flag():
        return [x, np.array(d.size(1, 3), I)], {"axis": axis, "opset": d.opset(11)}
    first = d.size(0, x.shape[axis])
    return [x, np.array([first, x.shape[axis] - first], I)], {"axis": axis, "opset": d.opset(11)}


def info(name, kind=FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def sequence_map(d):
    body = helper.make_graph([helper.make_node(d.pick("Neg", "Exp", "Relu"), ["e"], ["r0"]), helper.make_node("Add", ["r0", "k"], ["r"])],
                             "body", [info("e"), info("k")], [info("r")])
    items = parts(d)
    return [items, d.real(d.pick((), (1,)))], {"body": body, "opset": d.opset(17)}


def optional(then):
    def make(d):
        sequence = d.flag()
        value = parts(d) if sequence else d.real(d.shape())
        nodes = [helper.make_node("Optional", ["i0"], ["p"]), helper.make_node(then, ["p"], ["o0"])]
        # The reference keeps what an optional holds in a list.
        return [value], {"nodes": nodes, "wrapped": then == "OptionalGetElement", "opset": d.opset(18)}
    return make


def branch(d, op):
    return helper.make_graph([helper.make_node(op, ["i1", "i2"], ["b"])], op, [], [info("b")])


def if_op(d):
    shape = d.shape()
    node = helper.make_node("If", ["i0"], ["o0"], then_branch=branch(d, d.pick("Add", "Mul")), else_branch=branch(d, d.pick("Sub", "Max")))
    used = helper.make_node("Sum", ["i1", "i2"], ["o1"])
    return [np.array(d.flag(), B), d.real(shape), d.real(shape)], {"nodes": [node, used], "outputs": 2, "opset": d.opset(13)}


def loop(d):
    nodes = [helper.make_node("Add", ["v", "c"], ["v1"]), helper.make_node("ReduceSum", ["v1"], ["s"], keepdims=0),
             helper.make_node("Less", ["s", "limit"], ["k1"]), helper.make_node("Cast", ["n"], ["nf"], to=FLOAT),
             helper.make_node("Mul", ["v1", "nf"], ["scan"])]
    shape = d.shape(1, 1, 1)  # the reference stacks what a trip yields only of one dimension
    body = helper.make_graph(nodes, "body", [info("n", INT64, []), info("k", BOOL, []), info("v", FLOAT, shape)],
                             [info("k1", BOOL, []), info("v1", FLOAT, shape), info("scan", FLOAT, shape)])
    outer = [helper.make_node("Identity", ["i2"], ["c"]), helper.make_node("Identity", ["i3"], ["limit"]),
             helper.make_node("Loop", ["i0", "i4", "i1"], ["o0", "o1"], body=body)]
    return [np.array(d.size(0, 4), I), d.real(shape), d.real(shape), np.array(d.real((), 0, 9), F), np.array(True)], {
        "nodes": outer, "outputs": 2, "opset": d.opset(13), "stored": ()}


def scan(d):
    steps, width = d.size(1, 4), d.size(1, 4)
    nodes = [helper.make_node(d.pick("Add", "Mul", "Max"), ["s", "x"], ["s1"]), helper.make_node("Neg", ["s1"], ["y"])]
    body = helper.make_graph(nodes, "body", [info("s", FLOAT, [width]), info("x", FLOAT, [width])],
                             [info("s1", FLOAT, [width]), info("y", FLOAT, [width])])
    return [d.real((width,)), d.real((steps, width))], {
        "num_scan_inputs": 1, "body": body, "outputs": 2, "scan_input_directions": [d.flag()], "scan_output_directions": [d.flag()],
        "opset": d.opset(11)}


def optimizer(op, states):
    def make(d):
        shape = d.shape(1, 3, 1)
        inputs = [np.array(d.real((), 0.01, 0.3), F), np.array(d.size(0, 3), I), d.real(shape), d.real(shape)]
        inputs += [d.real(shape, 0.1, 2) for _ in range(states)]
        attrs = {"Adagrad": {"decay_factor": 0.1, "epsilon": 1e-3, "norm_coefficient": d.pick(0.0, 0.01)},
                 "Adam": {"alpha": 0.9, "beta": 0.99, "epsilon": 1e-3, "norm_coefficient": d.pick(0.0, 0.01)},
                 "Momentum": {"alpha": 0.9, "beta": d.pick(1.0, 0.5), "norm_coefficient": d.pick(0.0, 0.01),
                              "mode": d.pick("standard", "nesterov")}}[op]
        return inputs, {**attrs, "domain": "ai.onnx.preview.training", "outputs": 1 + states, "opset": 1, "stored": (), "results": F}
    return make


OPS = {
    "StringConcat": string_concat, "StringSplit": string_split, "StringNormalizer": string_normalizer, "RegexFullMatch": regex_full_match,
    "TfIdfVectorizer": tf_idf, **{f"{w}Window": window for w in ("Hann", "Hamming", "Blackman")}, "MelWeightMatrix": mel, "DFT": dft,
    "STFT": stft, "SequenceAt": sequence_at, "SequenceConstruct": sequence_construct, "SequenceEmpty": sequence_empty,
    "SequenceErase": sequence_erase, "SequenceInsert": sequence_insert, "SequenceLength": sequence_length, "SequenceMap": sequence_map,
    "ConcatFromSequence": concat_from_sequence, "SplitToSequence": split_to_sequence,
    "OptionalGetElement": optional("OptionalGetElement"), "OptionalHasElement": optional("OptionalHasElement"), "If": if_op,
    "Optional": optional("OptionalGetElement"), "Loop": loop, "Scan": scan,
    "Adagrad": optimizer("Adagrad", 1), "Adam": optimizer("Adam", 2), "Momentum": optimizer("Momentum", 1),
}
