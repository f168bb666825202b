# SPDX-License-Identifier: Apache-2.0
"""Networks of plain layers in PyTorch, random weights: convolutions with ReLU and two dense layers, and a 2-D U-Net."""
import torch
from torch import nn


def convolutions(depth):
    """`depth` 3x3 convolutions with ReLU in four stages of 32 to 256 channels, each stage at half the size, then two dense layers."""
    layers, channels = [], 3
    stages = [depth // 4 + (stage < depth % 4) for stage in range(4)]
    for stage, count in enumerate(stages):
        for i in range(count):
            width = 32 << stage
            layers += [nn.Conv2d(channels, width, 3, 2 if i == 0 else 1, 1), nn.ReLU()]
            channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, 10))


def pair(inputs, outputs):
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Four levels down and up again, 64 to 1024 channels, transposed convolutions on the way up: 31M parameters."""

    def __init__(self, inputs=3, classes=2):
        super().__init__()
        widths = [64, 128, 256, 512, 1024]
        self.down = nn.ModuleList(pair(i, o) for i, o in zip([inputs, *widths], widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, 2) for w in reversed(widths[1:]))
        self.up = nn.ModuleList(pair(w, w // 2) for w in reversed(widths[1:]))
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat([kept.pop(), grow(x)], 1))
        return self.last(x)
