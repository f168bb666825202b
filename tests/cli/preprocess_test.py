# SPDX-License-Identifier: Apache-2.0
"""compile --preprocess, run --image: what is refused, what inspect shows, files that are damaged."""
import numpy as np
from conftest import assert_error
from data_test import png

MODEL = """graph "m"(%x: f32[N,3,8,8], %b: f32[8]) {
  symbol N in [0, 1000]
  %0 = add(%x, %b) : f32[N,3,8,8]
  return %0 @"y"
}
"""
PIPELINE = """version = 1
source = { kind = "folder", path = "images" }
[[stage]]
op = "decode"
[[stage]]
op = "resize"
size = 8
[[stage]]
op = "rotate"
angle = { uniform = [-5, 5] }
[[stage]]
op = "normalize"
mean = 0
std = 1
[[stage]]
op = "one_hot"
classes = 10
"""


def prepare(tmp_path, pipeline=PIPELINE):
    (tmp_path / "m.plt").write_text(MODEL)
    (tmp_path / "p.toml").write_text(pipeline)
    (tmp_path / "a.png").write_bytes(png(16, 12, 100))
    np.save(tmp_path / "b.npy", np.zeros(8, np.float32))


def test_pictures_run_and_inspect_shows_how(pelton, tmp_path):
    prepare(tmp_path)
    report = pelton("compile", "m.plt", "--preprocess", "x=p.toml", "-o", "m.pelton", "--json").json()
    assert report["preprocess"] == {"name": "p.toml", "input": "x"}
    first = (tmp_path / "m.pelton").read_bytes()
    pelton("compile", "m.plt", "--preprocess", "p.toml", "-o", "m.pelton")
    assert (tmp_path / "m.pelton").read_bytes() == first
    info = pelton("inspect", "m.pelton", "--json").json()["preprocess"]
    assert info["makes"] == "f32[N,3,8,8]" and "resize" in info["pipeline"]
    assert "rotate" not in info["pipeline"] and "one_hot" not in info["pipeline"]
    text = pelton("inspect", "m.pelton").out
    assert "pictures  make 'x' by p.toml" in text and 'op = "resize"' in text
    assert "picture_resample" in pelton("inspect", "m.pelton", "--graph").out
    result = pelton("run", "m.pelton", "--image", "a.png", "--input", "b=b.npy", "--output-dir", "out")
    assert result.code == 0, result.err
    y = np.load(tmp_path / "out" / "y.npy")
    np.testing.assert_allclose(y[0, :2, 0, 0], [100 / 255, 155 / 255], atol=1e-6)
    np.save(tmp_path / "x.npy", y)  # the finished tensor is taken too
    assert pelton("run", "m.pelton", "--input", "x=x.npy", "--input", "b=b.npy").code == 0


def test_what_is_refused(pelton, tmp_path):
    prepare(tmp_path)
    compiled = ("compile", "m.plt", "-o", "m.pelton")
    assert_error(pelton(*compiled, "--preprocess", "q=p.toml"), 1, "no input 'q'", "x f32[N,3,8,8]")
    assert pelton(*compiled).code == 0
    for model in ("m.pelton", "m.plt"):
        assert_error(pelton("run", model, "--image", "a.png", "--input", "b=b.npy"), 1, "--preprocess PIPELINE.toml")
    prepare(tmp_path, PIPELINE.replace("size = 8", "size = 9"))
    assert_error(pelton(*compiled, "--preprocess", "p.toml"), 1, "f32[N,3,9,9]", "f32[N,3,8,8]", "resize or crop")
    prepare(tmp_path, PIPELINE.replace("uniform = [-5, 5]", "").replace("{  }", "5"))
    assert_error(pelton(*compiled, "--preprocess", "p.toml"), 1, "'rotate'", "line 8", 'when = "train"')
    prepare(tmp_path)
    assert pelton(*compiled, "--preprocess", "p.toml").code == 0
    bad = pelton("run", "m.pelton", "--image", "p.toml", "--input", "b=b.npy")
    assert_error(bad, 1, "picture 0", "input 'x'")
    np.save(tmp_path / "x.npy", np.zeros((4, 4, 2), np.uint8))
    assert_error(pelton("run", "m.pelton", "--input", "x=x.npy", "--input", "b=b.npy"), 1, "[H, W, 3]", "u8[4,4,2]")
    both = ("--image", "a.png", "--input", "x=x.npy", "--input", "b=b.npy")
    assert_error(pelton("run", "m.pelton", *both), 1, "two values")
