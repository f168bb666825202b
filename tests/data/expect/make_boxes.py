# SPDX-License-Identifier: Apache-2.0
"""Writes boxes.json: what DALI's CPU box encoder makes of some boxes, with the anchors of SSD300 and with four of its own."""
import json
import pathlib

import numpy as np
from nvidia.dali import fn, pipeline_def, types


def encoded(anchors, boxes, labels, **options):
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipe():
        b = fn.constant(fdata=list(np.float32(boxes).ravel()), shape=list(boxes.shape))
        l = fn.constant(idata=[int(v) for v in labels], shape=[len(labels)], dtype=types.INT32)
        return tuple(fn.box_encoder(b, l, anchors=[float(v) for v in anchors.ravel()], criteria=0.5, **options))

    p = pipe()
    p.build()
    out = p.run()
    return [np.asarray(o.as_array()[0]) for o in out]


def ssd300():
    out = []
    for side, own, following, largest in zip((38, 19, 10, 5, 3, 1), (21, 45, 99, 153, 207, 261), (45, 99, 153, 207, 261, 315),
                                             (2, 3, 3, 3, 2, 2)):
        sizes = [(own, own), ((own * following) ** 0.5,) * 2]
        for r in range(2, largest + 1):
            sizes += [(own * r**0.5, own / r**0.5), (own / r**0.5, own * r**0.5)]
        for y in range(side):
            for x in range(side):
                out += [((x + 0.5) / side, (y + 0.5) / side, w / 300, h / 300) for w, h in sizes]
    c = np.clip(np.array(out), 0, 1)
    return np.float32(np.stack([c[:, 0] - c[:, 2] / 2, c[:, 1] - c[:, 3] / 2, c[:, 0] + c[:, 2] / 2, c[:, 1] + c[:, 3] / 2], 1))


def main():
    boxes = np.float32([[0.1, 0.1, 0.4, 0.5], [0.35, 0.3, 0.9, 0.95], [0.6, 0.05, 0.66, 0.11]])
    labels = [3, 8, 1]
    anchors = ssd300()
    places, classes = encoded(anchors, boxes, labels, offset=True, stds=[0.1, 0.1, 0.2, 0.2])
    hits = np.flatnonzero(classes)
    few = np.float32([[0, 0, 0.5, 0.5], [0.3, 0.3, 0.9, 0.9], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1]])
    places_few, few_classes = encoded(few, boxes, labels)
    out = {"boxes": boxes.tolist(), "labels": labels, "anchors": len(anchors), "hits": hits.tolist(), "classes": classes[hits].tolist(),
           "offsets": [[round(float(v), 5) for v in places[i]] for i in hits], "few": few.ravel().tolist(),
           "few_classes": few_classes.tolist(), "few_places": [[round(float(v), 5) for v in row] for row in places_few]}
    pathlib.Path(__file__).with_name("boxes.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
