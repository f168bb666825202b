# SPDX-License-Identifier: Apache-2.0
"""Writes layers.json: outputs of torch layers on weights and inputs by formula (tests/train/expect/formula.py)."""
import json
import pathlib
import sys

import torch
from torch import nn

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "train" / "expect"))
import formula  # noqa: E402


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.inner, self.causal = nn.MultiheadAttention(12, 3, batch_first=True), causal

    def forward(self, x):
        mask = torch.triu(torch.full((5, 5), -torch.inf), 1) if self.causal else None
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]


F = nn.functional
CASES = {
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    "conv2d": (nn.Conv2d(3, 4, (3, 2), padding=(2, 1), dilation=(2, 1)), (2, 3, 7, 6)),
    "conv3d": (nn.Conv3d(2, 3, 2, bias=False), (1, 2, 4, 3, 5)),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 4, 5)),
    "group_norm": (nn.GroupNorm(2, 6), (2, 6, 3, 4)),
    "instance_norm": (nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
    "layer_norm": (nn.LayerNorm(7), (3, 5, 7)),
    "rms_norm": (nn.RMSNorm(7, eps=1e-6), (3, 5, 7)),
    "local_response_norm": (nn.LocalResponseNorm(3, alpha=0.5, beta=0.7, k=1.5), (2, 6, 3, 3)),
    "attention": (Attention(False), (2, 5, 12)),
    "attention_causal": (Attention(True), (2, 5, 12)),
    "max_pool": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 6, 7)),
    "avg_pool": (nn.AvgPool2d(3, 2, 1), (1, 2, 6, 7)),
    "avg_pool_inside": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (1, 2, 6, 7)),
    "upsample_nearest": (nn.Upsample(scale_factor=2), (1, 2, 3, 4)),
    "upsample_linear": (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 4)),
    **{a: (Call(f), (40,)) for a, f in {
        "relu6": lambda x: F.relu6(10 * x), "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu, "leaky_relu": F.leaky_relu, "elu": F.elu, "hard_swish": lambda x: F.hardswish(5 * x)}.items()},
}


def main():
    out = {}
    for name, (module, shape) in CASES.items():
        module.eval()
        shapes = formula.fill(module, lambda n: n.replace("inner.", ""))
        count = 1
        for s in shape:
            count *= s
        with torch.no_grad():
            y = module(torch.from_numpy(formula.uniform("x", count).reshape(shape)))
        out[name] = {"input": list(shape), "names": sorted(shapes), "shape": list(y.shape),
                     "values": [float(f"{v:.8g}") for v in y.flatten().tolist()]}
    (HERE / "layers.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
