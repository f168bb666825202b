# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers, from the equations of the ONNX specification in f64."""
import numpy as np
from casegen import Cases

c = Cases("rnn")
BOUNDS = {"rtol": 2e-6, "atol": 1e-7, "decomposed": 1e-5}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


F = {
    "Relu": lambda x: np.maximum(x, 0), "Tanh": np.tanh, "Sigmoid": sigmoid, "Affine": lambda x: 0.5 * x + 0.1,
    "LeakyRelu": lambda x: np.where(x < 0, 0.3 * x, x), "ThresholdedRelu": lambda x: np.where(x > 0.2, x, 0),
    "ScaledTanh": lambda x: 0.7 * np.tanh(0.9 * x), "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x), "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.logaddexp(0, x),
}


def run(kind, x, w, r, b, lengths, h0, c0, p, reverse, f, clip=0, linear=False, coupled=False):
    """One direction; x [L,N,I], w [G*H,I]."""
    L, N, _ = x.shape
    H = r.shape[1]
    G = w.shape[0] // H
    wb, rb = b[:G * H], b[G * H:]
    y, h, cell = np.zeros((L, N, H)), h0.copy(), c0.copy()

    def act(k, v):
        return F[f[k]](np.clip(v, -clip, clip) if clip else v)

    for n in range(N):
        for k in range(lengths[n]):
            t = lengths[n] - 1 - k if reverse else k
            xs = np.split(w @ x[t, n] + wb, G)
            hs = np.split(r @ h[n] + rb, G)
            old = h[n].copy()
            if kind == "rnn":
                h[n] = act(0, xs[0] + hs[0])
            elif kind == "gru":
                z, rt = act(0, xs[0] + hs[0]), act(0, xs[1] + hs[1])
                inner = rt * hs[2] if linear else r[2 * H:] @ (rt * old) + rb[2 * H:]
                h[n] = (1 - z) * act(1, xs[2] + inner) + z * old
            else:
                i = act(0, xs[0] + hs[0] + p[:H] * cell[n])
                forget = 1 - i if coupled else act(0, xs[2] + hs[2] + p[2 * H:] * cell[n])
                cell[n] = forget * cell[n] + i * act(1, xs[3] + hs[3])
                o = act(0, xs[1] + hs[1] + p[H:2 * H] * cell[n])
                h[n] = o * F[f[2]](cell[n])
            y[t, n] = h[n]
    return y, h, cell


GATES = {"rnn": 1, "gru": 3, "lstm": 4}
DEFAULT = {"rnn": ["Tanh"], "gru": ["Sigmoid", "Tanh"], "lstm": ["Sigmoid", "Tanh", "Tanh"]}


def case(name, kind, L, N, I, H, direction="forward", optional="", activations=None, extra="", results=None, **options):
    D, G = (2 if direction == "bidirectional" else 1), GATES[kind]
    x, w, r = c.normal(L, N, I), c.normal(D, G * H, I, scale=0.5), c.normal(D, G * H, H, scale=0.5)
    b = c.normal(D, 2 * G * H, scale=0.3)
    h0, c0, p = c.normal(D, N, H), c.normal(D, N, H), c.normal(D, 3 * H)
    lengths = c.ints(0, L + 1, N, dtype=np.int32)
    use = {"b": b, "n": lengths, "h": h0, "c": c0, "p": p}
    order = "bnh" + ("cp" if kind == "lstm" else "")
    inputs = [x, w, r] + [use[k] if k in optional else None for k in order]
    while inputs[-1] is None:
        inputs.pop()
    zero = {"b": np.zeros_like(b), "n": np.full(N, L), "h": np.zeros_like(h0), "c": np.zeros_like(c0),
            "p": np.zeros_like(p)}
    v = {k: (use[k] if k in optional else zero[k]) for k in use}
    f = activations or DEFAULT[kind] * D
    each = len(f) // D
    ys, hs, cs = [], [], []
    for d in range(D):
        y, h, cell = run(kind, *(a.astype(np.float64) for a in (x, w[d], r[d], v["b"][d])), v["n"],
                         *(v[k][d].astype(np.float64) for k in "hcp"), d == 1 or direction == "reverse",
                         f[d * each:(d + 1) * each], **options)
        ys.append(y), hs.append(h), cs.append(cell)
    outs = [np.stack(ys, 1), np.stack(hs), np.stack(cs)][:results or (3 if kind == "lstm" else 2)]
    attrs = [f"hidden = {H}"]
    if direction != "forward":
        attrs.append(f'direction = "{direction}"')
    if activations:
        attrs.append("activations = texts[" + ", ".join(f'"{a}"' for a in activations) + "]")
    if extra:
        attrs.append(extra)
    c.one(name, kind, inputs, [o.astype(np.float32) for o in outs], ", ".join(attrs), **BOUNDS)


for kind in GATES:
    case(f"{kind}_plain", kind, 3, 2, 4, 3)
    case(f"{kind}_bias_state", kind, 4, 2, 3, 2, optional="bhc")
    case(f"{kind}_reverse", kind, 3, 2, 2, 2, direction="reverse", optional="b")
    case(f"{kind}_both_lengths", kind, 4, 3, 2, 2, direction="bidirectional", optional="bnhc")
    case(f"{kind}_reverse_lengths", kind, 4, 3, 2, 2, direction="reverse", optional="bn")
    case(f"{kind}_one", kind, 1, 1, 1, 1, optional="bh")
    case(f"{kind}_no_steps", kind, 0, 2, 3, 2, optional="h")
    case(f"{kind}_no_batch", kind, 2, 0, 3, 2)
    case(f"{kind}_clip", kind, 3, 2, 3, 2, optional="b", extra="clip = 0.4", clip=0.4)
    case(f"{kind}_y_only", kind, 3, 2, 3, 2, results=1)
case("lstm_peepholes", "lstm", 3, 2, 3, 2, optional="bcp")
case("lstm_both_peepholes", "lstm", 3, 2, 3, 2, direction="bidirectional", optional="bhcpn")
case("lstm_coupled", "lstm", 3, 2, 3, 2, optional="bcp", extra="input_forget = true", coupled=True)
case("gru_linear", "gru", 3, 2, 3, 2, optional="bh", extra="linear_before_reset = true", linear=True)
case("gru_linear_both", "gru", 3, 2, 3, 2, direction="bidirectional", optional="bn",
     extra="linear_before_reset = true", linear=True)
for name in F:
    extra = {"Affine": "alpha = reals[0.5], beta = reals[0.1]", "LeakyRelu": "alpha = reals[0.3]",
             "ThresholdedRelu": "alpha = reals[0.2]", "ScaledTanh": "alpha = reals[0.7], beta = reals[0.9]"}.get(name, "")
    case(f"rnn_{name.lower()}", "rnn", 2, 1, 2, 2, activations=[name], optional="b", extra=extra)
case("lstm_activations", "lstm", 2, 2, 2, 2, activations=["HardSigmoid", "ScaledTanh", "LeakyRelu"],
     extra="alpha = reals[0.2, 0.7, 0.3], beta = reals[0.5, 0.9]")

body = "  %r, %h = gru(%0, %1, %2) {hidden = 2} : f32[1], f32[1]\n  return %r"
c.refuse("gru_weight", "bad_shape", ["gru", "C2", "5 is not 6"], body, ["f32[3,1,4]", "f32[1,5,4]", "f32[1,6,2]"])
c.refuse("gru_rank", "bad_shape", ["gru", "C2", "x[L,N,I]"], body, ["f32[3,4]", "f32[1,6,4]", "f32[1,6,2]"])
c.refuse("gru_type", "bad_type", ["gru", "C1", "f32 and f64"], body, ["f32[3,1,4]", "f64[1,6,4]", "f32[1,6,2]"])
lstm = '  %r = lstm(%0, %1, %2) {{{}}} : f32[1]\n  return %r'
types = ["f32[3,1,4]", "f32[1,8,4]", "f32[1,8,2]"]
c.refuse("lstm_direction", "usage", ["lstm", "C3", "'up'"], lstm.format('direction = "up"'), types)
c.refuse("lstm_activations_count", "usage", ["lstm", "C4", "3 activations, not 1"],
         lstm.format('activations = texts["Tanh"]'), types)
c.refuse("lstm_activation", "bad_type", ["lstm", "'Cube'"],
         lstm.format('activations = texts["Tanh", "Cube", "Tanh"]'), types)
c.refuse("lstm_length", "bad_shape", ["lstm", "length 9 in 3 steps"],
         "  %r = lstm(%0, %1, %2, _, %3) : f32[3,1,1,2]\n  return %r", [*types, "i32[1]"],
         [np.zeros((3, 1, 4), np.float32), np.zeros((1, 8, 4), np.float32), np.zeros((1, 8, 2), np.float32),
          np.array([9], np.int32)])
for kind, G, count in [("rnn", 1, 1), ("gru", 3, 2), ("lstm", 4, 3)]:
    body = f"  %r = {kind}(%0, %1, %2) {{{{{{}}}}}} : f32[1]\n  return %r"
    types = ["f32[3,1,4]", f"f32[1,{2 * G},4]", f"f32[1,{2 * G},2]"]
    c.refuse(f"{kind}_c1", "bad_type", [kind, "C1", "f64"], body.format(""), [types[0], "f64" + types[1][3:], types[2]])
    c.refuse(f"{kind}_c2", "bad_shape", [kind, "C2", "is not"], body.format(""),
             ["f32[3,1,5]", *types[1:]])
    c.refuse(f"{kind}_c3", "usage", [kind, "C3", "'up'"], body.format('direction = "up"'), types)
    c.refuse(f"{kind}_c4", "usage", [kind, "C4", f"{count} activations, not 4"],
             body.format('activations = texts["Tanh", "Tanh", "Tanh", "Tanh"]'), types)
c.write()
