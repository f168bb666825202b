# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
from casegen import Cases

c = Cases("trees")
MODES = ["<=", "<", ">=", ">", "==", "!="]


def lists(t):
    out = []
    for k, v in t.items():
        if k in ("splits", "leaf_weights", "members", "base"):
            out.append(f"{k} = reals[{', '.join('nan' if math.isnan(e) else str(float(e)) for e in v)}]")
        elif isinstance(v, list):
            out.append(f"{k} = [{', '.join(map(str, v))}]")
        elif isinstance(v, str):
            out.append(f'{k} = "{v}"')
        else:
            out.append(f"{k} = {v}")
    return ", ".join(out)


def predict(t, x, targets):
    members = t.get("members", [])
    out = []
    for row in x:
        score, found = np.zeros(targets), np.zeros(targets, bool)
        for root in t["roots"]:
            i = root
            while t["modes"][i] != 7:
                v, s = float(row[t["features"][i]]), t["splits"][i]
                if math.isnan(v):
                    yes = bool((t.get("missing_yes") or [0] * len(t["modes"]))[i])
                elif t["modes"][i] == 6:
                    run = []
                    for m in members[int(s):]:
                        if math.isnan(m):
                            break
                        run.append(m)
                    yes = v in run
                else:
                    yes = {"<=": v <= s, "<": v < s, ">=": v >= s, ">": v > s, "==": v == s, "!=": v != s}[MODES[t["modes"][i]]]
                i = t["yes"][i] if yes else t["no"][i]
            for k in range(t["yes"][i], t["yes"][i] + t["no"][i]):
                tt, w = t["leaf_targets"][k], t["leaf_weights"][k]
                a = t.get("aggregate", "sum")
                if a in ("min", "max"):
                    score[tt] = (min if a == "min" else max)(score[tt], w) if found[tt] else w
                else:
                    score[tt] += w
                found[tt] = True
        if t.get("aggregate") == "average":
            score /= len(t["roots"])
        score += np.array(t.get("base", [0] * targets))
        kind = t.get("transform", "none")
        if kind == "softmax":
            e = np.exp(score - score.max())
            score = e / e.sum()
        elif kind == "softmax_zero":
            e = np.where(np.abs(score) > 1e-7, np.exp(score - score.max()), 0)
            score = e / e.sum() if e.sum() else e
        elif kind == "logistic":
            score = 1 / (1 + np.exp(-score))
        out.append(score)
    return np.array(out).reshape(len(x), targets)


def random_trees(count, depth, features, targets, modes):
    t = {k: [] for k in ["modes", "features", "splits", "yes", "no", "missing_yes", "roots", "leaf_targets", "leaf_weights"]}
    t["members"] = [1.0, 2.0, math.nan, -1.0, 0.0, 3.0, math.nan]

    def node(d):
        i = len(t["modes"])
        for k in ["modes", "features", "splits", "yes", "no", "missing_yes"]:
            t[k].append(0)
        if d == 0 or c.rng.random() < 0.15:
            n = int(c.rng.integers(1, 3))
            t["modes"][i], t["yes"][i], t["no"][i] = 7, len(t["leaf_targets"]), n
            for _ in range(n):
                t["leaf_targets"].append(int(c.rng.integers(targets)))
                t["leaf_weights"].append(round(float(c.rng.normal()), 3))
            return i
        t["modes"][i] = int(c.rng.choice(modes))
        t["features"][i] = int(c.rng.integers(features))
        t["splits"][i] = float(c.rng.choice([0, 3])) if t["modes"][i] == 6 else float(c.rng.integers(-2, 3))
        t["missing_yes"][i] = int(c.rng.integers(2))
        t["yes"][i] = node(d - 1)
        t["no"][i] = node(d - 1)
        return i

    for _ in range(count):
        t["roots"].append(node(depth))
    return t


def case(name, t, x, targets, **bounds):
    t = {**t, "targets": targets}
    c.one(name, "tree_ensemble", [x], [predict(t, x, targets).astype(np.float32)], lists(t), **bounds)


for mode in range(7):
    t = random_trees(2, 3, 3, 2, [mode])
    x = c.ints(-2, 4, 6, 3).astype(np.float32)
    x[0, :] = np.nan
    case(f"mode_{mode}", t, x, 2, atol=1e-6)
t = random_trees(4, 4, 4, 3, range(7))
x = c.ints(-2, 4, 5, 4).astype(np.float32)
for aggregate in ["sum", "average", "min", "max"]:
    case(f"aggregate_{aggregate}", {**t, "aggregate": aggregate, "base": [0.5, -1, 0]}, x, 3, atol=1e-6)
for transform in ["softmax", "logistic", "softmax_zero"]:
    case(f"transform_{transform}", {**t, "transform": transform}, x, 3, rtol=1e-6, atol=1e-6)
leaf = {"modes": [7], "features": [0], "splits": [0], "yes": [0], "no": [2], "roots": [0], "leaf_targets": [0, 1],
        "leaf_weights": [0.25, 0.975]}
# The probit of 0.25 and 0.975 from a table of the normal distribution.
t = {**leaf, "targets": 2, "transform": "probit"}
c.one("transform_probit", "tree_ensemble", [np.zeros((1, 1), np.float32)],
      [np.array([[-0.6744897501960817, 1.959963984540054]], np.float32)], lists(t), rtol=1e-6)
case("one_leaf", leaf, np.zeros((2, 1), np.float32), 2)
case("no_rows", leaf, np.zeros((0, 1), np.float32), 2)
case("integers", random_trees(2, 2, 2, 1, range(6)), c.ints(-3, 3, 4, 2), 1, atol=1e-6)


def refuse(name, code, words, changes, x="f32[2,3]"):
    t = {"modes": [0, 7, 7], "features": [1, 0, 0], "splits": [0, 0, 0], "yes": [1, 0, 0], "no": [2, 1, 1], "roots": [0],
         "leaf_targets": [0], "leaf_weights": [1], **changes}
    c.refuse(name, code, ["tree_ensemble", *words],
             f"  %r = tree_ensemble(%0) {{{lists(t)}}} : f32[2,1]\n  return %r", [x])


refuse("rank", "bad_shape", ["C2"], {}, "f32[3]")
refuse("type", "bad_type", ["C1", "bool"], {}, "bool[2,3]")
refuse("lengths", "usage", ["C3", "3 nodes"], {"splits": [0, 0]})
refuse("column", "usage", ["C3", "column 3 of 3"], {"features": [3, 0, 0]})
refuse("child", "usage", ["C3", "1 and 5 of 3"], {"no": [5, 1, 1]})
refuse("cycle", "usage", ["C3", "cycle through node 0"], {"modes": [0, 0, 7], "yes": [1, 0, 0], "no": [2, 2, 1]})
refuse("leaf", "usage", ["C3", "leaf outside"], {"no": [2, 2, 1]})
refuse("mode", "usage", ["C3", "mode 9"], {"modes": [9, 7, 7]})
refuse("root", "usage", ["C3", "root 3 of 3"], {"roots": [3]})
refuse("set", "usage", ["C3", "set outside"], {"modes": [6, 7, 7]})
refuse("target", "usage", ["C4", "target 1 of 1"], {"leaf_targets": [1]})
refuse("base", "usage", ["C4", "2 base values"], {"base": [1, 2]})
refuse("aggregate", "usage", ["C5", "'median'"], {"aggregate": "median"})
refuse("transform", "usage", ["C5", "'cube'"], {"transform": "cube"})
c.write()
