# SPDX-License-Identifier: Apache-2.0
"""Random models of every op that onnx.reference answers, as tools/random_models.py draws them: compiled, on the reference path,
with sizes as symbols, and after export."""
import subprocess
import sys

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    drawn = subprocess.run([sys.executable, "tools/random_models.py", folder, "--seed", "2024", "--count", "2"], cwd=ROOT,
                           capture_output=True, text=True)
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr
    return folder


@pytest.mark.parametrize("way", [[], ["--path", "reference"], ["--symbolic"], ["--round-trip"]], ids=lambda w: " ".join(w) or "compiled")
def test_every_op(pelton, cases, way):
    result = pelton("conform", cases, *way)
    last = result.out.splitlines()[-1]
    assert result.code == 0, result.out
    assert int(last.split()[0]) >= 400 and " 0 failed, 0 skipped" in last


def test_what_is_not_drawn_has_no_comparable_answer():
    listed = subprocess.run([sys.executable, "tools/random_models.py", "--list"], cwd=ROOT, capture_output=True, text=True).stdout
    assert listed.split() == ["Bernoulli", "CastMap", "CategoryMapper", "DictVectorizer", "FlexAttention", "GlobalLpPool", "Gradient",
                              "ImageDecoder", "MaxRoiPool", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                              "RandomUniformLike", "Scatter", "ZipMap"]
