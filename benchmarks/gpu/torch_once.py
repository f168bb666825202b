# SPDX-License-Identifier: Apache-2.0
"""A process that loads what torch_side.py has saved, runs it once on the GPU and stores the result; run.py takes its time."""
import pathlib
import sys

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))


def main(model, x, output):
    with torch.no_grad():
        model = torch.load(model, weights_only=False, map_location="cuda")  # written by the same run
        x = torch.from_numpy(numpy.load(x)).cuda()
        if x.is_floating_point():
            x = x.to(next(model.parameters()).dtype).to(memory_format=torch.channels_last)
        out = model(x)
        out = out if torch.is_tensor(out) else out[0]
        numpy.save(output, out.cpu().numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
