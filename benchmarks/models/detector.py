# SPDX-License-Identifier: Apache-2.0
"""A one-stage detector of the usual build (cross-stage blocks, pyramid pooling, a feature pyramid up and down again, boxes as
distributions over 16 bins) in PyTorch, random weights, smallest usual size: 3.0M parameters, 8.6 GFLOP at 640x640."""
import torch
from torch import nn


class Conv(nn.Module):
    def __init__(self, inputs, outputs, kernel=1, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return nn.functional.silu(self.norm(self.conv(x)))


class Cross(nn.Module):
    """Splits the channels; one half passes through `depth` pairs of 3x3 layers, every intermediate result is kept."""

    def __init__(self, inputs, outputs, depth, residual):
        super().__init__()
        half = outputs // 2
        self.enter, self.leave, self.residual = Conv(inputs, outputs), Conv(half * (2 + depth), outputs), residual
        self.pairs = nn.ModuleList(nn.Sequential(Conv(half, half, 3), Conv(half, half, 3)) for _ in range(depth))

    def forward(self, x):
        parts = list(self.enter(x).chunk(2, 1))
        for pair in self.pairs:
            y = pair(parts[-1])
            parts.append(parts[-1] + y if self.residual else y)
        return self.leave(torch.cat(parts, 1))


class Pyramid(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.enter, self.leave = Conv(channels, channels // 2), Conv(channels * 2, channels)

    def forward(self, x):
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(nn.functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.leave(torch.cat(parts, 1))


class Head(nn.Module):
    BINS = 16

    def __init__(self, widths, classes):
        super().__init__()
        boxes, scores = max(16, widths[0] // 4, 4 * self.BINS), max(widths[0], classes)
        tower = lambda i, mid, out: nn.Sequential(Conv(i, mid, 3), Conv(mid, mid, 3), nn.Conv2d(mid, out, 1))
        self.boxes = nn.ModuleList(tower(w, boxes, 4 * self.BINS) for w in widths)
        self.scores = nn.ModuleList(tower(w, scores, classes) for w in widths)

    def forward(self, levels):
        boxes = torch.cat([b(x).flatten(2) for b, x in zip(self.boxes, levels)], 2)
        scores = torch.cat([s(x).flatten(2) for s, x in zip(self.scores, levels)], 2)
        bins = boxes.unflatten(1, (4, self.BINS)).softmax(2)
        sides = (bins * torch.arange(self.BINS, dtype=boxes.dtype, device=boxes.device)[:, None]).sum(2)
        return torch.cat([sides, scores.sigmoid()], 1)


class Detector(nn.Module):
    def __init__(self, classes=80):
        super().__init__()
        self.stem = nn.Sequential(Conv(3, 16, 3, 2), Conv(16, 32, 3, 2), Cross(32, 32, 1, True))
        self.third = nn.Sequential(Conv(32, 64, 3, 2), Cross(64, 64, 2, True))
        self.fourth = nn.Sequential(Conv(64, 128, 3, 2), Cross(128, 128, 2, True))
        self.fifth = nn.Sequential(Conv(128, 256, 3, 2), Cross(256, 256, 1, True), Pyramid(256))
        self.up4, self.up3 = Cross(384, 128, 1, False), Cross(192, 64, 1, False)
        self.down3, self.down4 = Conv(64, 64, 3, 2), Conv(128, 128, 3, 2)
        self.out4, self.out5 = Cross(192, 128, 1, False), Cross(384, 256, 1, False)
        self.head = Head((64, 128, 256), classes)

    def forward(self, x):
        grow = lambda t: nn.functional.interpolate(t, scale_factor=2.0, mode="nearest")
        p3 = self.third(self.stem(x))
        p4 = self.fourth(p3)
        p5 = self.fifth(p4)
        n4 = self.up4(torch.cat([grow(p5), p4], 1))
        n3 = self.up3(torch.cat([grow(n4), p3], 1))
        m4 = self.out4(torch.cat([self.down3(n3), n4], 1))
        m5 = self.out5(torch.cat([self.down4(m4), p5], 1))
        return self.head((n3, m4, m5))
