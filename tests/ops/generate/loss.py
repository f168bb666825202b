# SPDX-License-Identifier: Apache-2.0
import numpy as np
from casegen import Cases

c = Cases("loss")
B = {"rtol": 2e-6, "atol": 1e-6}


def lse(x):
    top = x.max(1, keepdims=True)
    return np.log(np.exp(x - top).sum(1)) + top[:, 0]


def nll(log_p, labels, weights, reduction, ignore):
    kept = labels != ignore if ignore is not None else np.ones(labels.shape, bool)
    safe = np.where(kept, labels, 0)
    w = np.where(kept, weights[safe] if weights is not None else 1.0, 0.0).astype(np.float64)
    loss = -np.take_along_axis(log_p, safe[:, None], 1)[:, 0] * w
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / w.sum() if w.size else np.nan}[reduction]


for shape in [(4, 5), (2, 3, 4), (1, 2, 2, 3), (3, 1)]:
    for reduction in ["none", "sum", "mean"]:
        for weighted in [False, True]:
            for ignore in [None, 0]:
                x, labels = c.normal(*shape, scale=2), c.ints(0, shape[1], shape[0], *shape[2:])
                if ignore is not None and shape[1] > 1:
                    labels.reshape(-1)[0] = 0
                    labels.reshape(-1)[-1] = 1
                elif ignore is not None:
                    continue
                weights = c.uniform(0.2, 2, shape[1]) if weighted else None
                x64 = x.astype(np.float64)
                ins = [x, labels] + ([weights] if weighted else [])
                attrs = f'reduction = "{reduction}"' + ("" if ignore is None else f", ignore = {ignore}")
                name = f"{'x'.join(map(str, shape))}_{reduction}_{int(weighted)}_{ignore}"
                total = lse(x64)
                y = nll(x64 - total[:, None], labels, weights, reduction, ignore)
                c.one(f"cross_entropy_{name}", "cross_entropy", ins,
                      [np.asarray(y, np.float32), total.astype(np.float32)], attrs, **B)
                y = nll(x64, labels, weights, reduction, ignore)
                c.one(f"nll_loss_{name}", "nll_loss", ins, [np.asarray(y, np.float32)], attrs, **B)
x = np.array([[1e4, 0], [-np.inf, 0]], np.float32)
c.one("cross_entropy_large", "cross_entropy", [x, np.array([1, 1], np.int32)], [np.array([1e4, 0], np.float32)],
      'reduction = "none"')
# An ignored place does not count even where its probability is zero.
c.one("nll_loss_ignored_infinity", "nll_loss",
      [np.array([[-np.inf, -1], [-2, -3]], np.float32), np.array([0, 1])], [np.float32(3)], "ignore = 0")
body = "  %r = {}(%0, %1{}) {{{}}} : f32[]\n  return %r"
for op in ["cross_entropy", "nll_loss"]:
    c.refuse(f"{op}_labels", "bad_shape", [op, "C2", "labels of shape [4]"], body.format(op, "", ""), ["f32[4,3]", "i64[4,3]"])
    c.refuse(f"{op}_batch", "bad_shape", [op, "C2", "4 is not 5"], body.format(op, "", ""), ["f32[4,3]", "i64[5]"])
    c.refuse(f"{op}_label_type", "bad_type", [op, "C1", "f32"], body.format(op, "", ""), ["f32[4,3]", "f32[4]"])
    c.refuse(f"{op}_weights", "bad_shape", [op, "C2", "2 is not 3"], body.format(op, ", %2", ""),
             ["f32[4,3]", "i64[4]", "f32[2]"])
    c.refuse(f"{op}_reduction", "usage", [op, "C3", "'max'"], body.format(op, "", 'reduction = "max"'),
             ["f32[4,3]", "i64[4]"])
    c.refuse(f"{op}_label", "bad_shape", [op, "label 3 among 3"], body.format(op, "", ""), ["f32[1,3]", "i64[1]"],
             [np.zeros((1, 3), np.float32), np.array([3])])
c.write()
