# SPDX-License-Identifier: Apache-2.0
"""A plan that keeps every thread of the pool at work: convolutions of oneDNN and generated groups between them."""

LAYERS = 6
INPUT = (1, 32, 56, 56)


def write_model(path):
    lines = ['graph "busy"(%x: f32[1,32,56,56]) {', "  %k = constant() {value = tensor<f32[]>{0.003}} : f32[]",
             "  %w = broadcast_to(%k) {dims = dims[32, 32, 3, 3]} : f32[32,32,3,3]"]
    value = "%x"
    for i in range(LAYERS):
        lines += [f"  %c{i} = conv({value}, %w) {{low = dims[1, 1], high = dims[1, 1]}} : f32[1,32,56,56]",
                  f"  %t{i} = tanh(%c{i}) : f32[1,32,56,56]", f"  %s{i} = add(%t{i}, {value}) : f32[1,32,56,56]"]
        value = f"%s{i}"
    path.write_text("\n".join([*lines, f'  return {value} @"y"', "}", ""]))
