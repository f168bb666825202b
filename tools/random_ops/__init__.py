# SPDX-License-Identifier: Apache-2.0
"""Draws of one op each, by name; basic.py says what a draw returns."""
from . import basic, learned, network, other, shapes

OPS = {**basic.OPS, **shapes.OPS, **network.OPS, **other.OPS, **learned.OPS}
