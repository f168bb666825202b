# SPDX-License-Identifier: Apache-2.0
"""The bytes of the tensors in a safetensors file, for tests that compare checkpoints bit by bit."""
import json
import struct


def raw_tensors(path):
    """{name: bytes}, of a path; the file's metadata is left out."""
    raw = path.read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    return {k: raw[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]
            for k, v in header.items() if k != "__metadata__"}
