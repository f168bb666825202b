# SPDX-License-Identifier: Apache-2.0
"""Plans that take pictures: the pipeline, `run --image`, pixels and requests of every kind see identical tensors."""
import base64
import json
import struct
import subprocess
import zlib

import numpy as np
import pytest
from conftest import add_model, binary

MODEL = """graph "seen"(%x: f32[N,3,24,24]) {
  symbol N in [0, 1000]
  %two = constant() {value = tensor<f32[]>{2}} : f32[]
  %0 = mul(%x, %two) : f32[N,3,24,24]
  return %0 @"twice"
}
"""
PIPELINE = """version = 1
seed = 9
match = "MATCH"
source = { kind = "list", path = "list.txt" }
[[stage]]
op = "decode"
[[stage]]
op = "random_resized_crop"
size = 24
filter = "linear"
[[stage]]
op = "flip"
[[stage]]
op = "contrast"
factor = { uniform = [0.6, 1.4] }
[[stage]]
op = "normalize"
"""
# 61x45, with chroma at half resolution, by Pillow.
JPEG = base64.b64decode("""
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAYEBQYFBAYGBQYHBwYIChAKCgkJChQODwwQFxQYGBcUFhYaHSUfGhsjHBYWICwgIyYnKSopGR8tMC0oMCUoKSj/2wBDAQcHBwoIChMKChMoGhYaKCgoKC
goKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCj/wAARCAAtAD0DASIAAhEBAxEB/8QAGgABAQADAQEAAAAAAAAAAAAABgUCAwQBB//EACIQAAEEAwADAQADAAAAAAAA
AAEAAgMRBAUSBhMhMRQiQf/EABgBAAMBAQAAAAAAAAAAAAAAAAQGBwMF/8QAIBEAAQQDAAMBAQAAAAAAAAAAAwABAgUEERITIUExUf/aAAwDAQACEQMRAD8AbszGxRUSink2yDmOAK5tztfSHDpCtl
tjM4jpTunwHeTTRtbkR48LqFv5HSyupcWrgcZhYVT0HIddWqev1vLgaVMxTRGPlHvVuJ/Mk3jMIDW2E7xMcOjHxDtMz1FoTnVHtoQ5Zv1tci1v4yG4Gda3YtH4FsZbBStfxwWXSj5tRy0ujhk79JDh
TTKVy/1fFvKs8iR9FEYsl0k37/qq7txnkdX1TMPFIlBpKdZCIxMqHj4Exm7+Jbo4PZzaX42AOQaR3x9vPNp7row9gW5DPGSY7KyFDFce/a4oMYscPiTaj+tWsI8GxdLeGegWihFYjaUTMIpcvr5tXj
O0Q/qJ7fLAyf1e522ETCOkP2W17nvpMtVhyd9qnV8BOBmf9QCGP3m1Qg19UaWjSDrm0sxoWlgU7iZxvpk6HEMeH3r3pcuuiMbgnOhHXNo7BA0OCU6RgaW0iZk6iodZWJZ5fj362lmNADFai754hY6l
ajlLYfiH+VZD+Houqg8yszpsxK8cweT6gnkG1LHuAcjRz3SOJtYeQSuMzvqnYv1h+qv12PGAmdY485jI8fi//9k=
""")


def png(pixels):
    """u8 [h, w, 3] as a file."""
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    h, w, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


PIXELS = np.random.default_rng(2).integers(0, 256, (31, 40, 3), np.uint8)


def run(*args, cwd, code=0):
    p = subprocess.run([binary(), *map(str, args)], cwd=cwd, capture_output=True, text=True)
    assert p.returncode == code, p.stderr
    return p


def prepare(folder, match="none"):
    """A model that doubles what it sees, a pipeline, two pictures, and the plan of both."""
    folder.mkdir(exist_ok=True)
    (folder / "seen.plt").write_text(MODEL)
    (folder / "p.toml").write_text(PIPELINE.replace("MATCH", match))
    (folder / "a.jpg").write_bytes(JPEG)
    (folder / "b.png").write_bytes(png(PIXELS))
    (folder / "list.txt").write_text("a.jpg 0\nb.png 1\n")
    run("compile", "seen.plt", "--preprocess", "p.toml", "-o", "seen.pelton", cwd=folder)
    return folder


def from_pipeline(folder, count=2):
    run("data", "p.toml", "--eval", f"--batch={count}", "--save", "batch", cwd=folder)
    return np.load(folder / "batch" / "image.npy")


def seen(array):
    return array / np.float32(2)  # exact


def run_images(folder, *files):
    run("run", "seen.pelton", *[w for f in files for w in ("--image", f)], "--output-dir", "out", cwd=folder)
    return seen(np.load(folder / "out" / "twice.npy"))


def answered(server, tensor, *blobs):
    """The first output of a request with binary data, as an array."""
    head = {"inputs": [{**tensor, "parameters": {"binary_data_size": sum(map(len, blobs))}}],
            "outputs": [{"name": "twice", "parameters": {"binary_data": True}}]}
    text, length = json.dumps(head).encode(), "Inference-Header-Content-Length"
    status, headers, body = server.request("/v2/models/seen/infer", text + b"".join(blobs), headers={length: str(len(text))})
    assert status == 200, body
    cut = int({k.lower(): v for k, v in headers.items()}[length.lower()])
    answer = json.loads(body[:cut])
    return seen(np.frombuffer(body[cut:], np.float32).reshape(answer["outputs"][0]["shape"]))


def element(data):
    return struct.pack("<I", len(data)) + data


@pytest.mark.parametrize("match", ["none", "pillow", "torchvision"])
def test_pipeline_run_and_server_see_identical_tensors(serve, tmp_path, match):
    folder = prepare(tmp_path / "work", match)
    expected = from_pipeline(folder)
    assert expected.shape == (2, 3, 24, 24) and expected.std() > 0.1
    np.testing.assert_array_equal(run_images(folder, "a.jpg", "b.png"), expected)

    plan = (folder / "seen.pelton").read_bytes()
    add_model(serve.repository, "seen", 'backend: "pelton" max_batch_size: 8', files={"1/model.pelton": plan})
    server = serve()
    meta = server.json("/v2/models/seen")[1]["inputs"]
    assert meta == [{"name": "x", "datatype": "BYTES", "shape": [-1, 1]}]
    files = [element((folder / f).read_bytes()) for f in ("a.jpg", "b.png")]
    got = answered(server, {"name": "x", "datatype": "BYTES", "shape": [2, 1]}, *files)
    np.testing.assert_array_equal(got, expected)
    status, answer = server.json("/v2/models/seen/infer", {"inputs": [
        {"name": "x", "datatype": "BYTES", "shape": [1, 1], "data": ["no picture"]}]})
    assert status == 400 and "picture 0" in answer["error"] and "'x'" in answer["error"]


@pytest.mark.parametrize("match", ["none", "pillow"])
def test_pixels_give_the_same_tensor(serve, tmp_path, match):
    """Raw pixels go through the compiled tensor part: equal bits under match, 1e-4 of a deviation without."""
    folder = prepare(tmp_path / "work", match)
    expected = from_pipeline(folder)[1:]
    np.save(folder / "pixels.npy", PIXELS)
    run("run", "seen.pelton", "--input", "x=pixels.npy", "--output-dir", "out", cwd=folder)
    one = seen(np.load(folder / "out" / "twice.npy"))
    bound = 0 if match != "none" else 1e-4
    np.testing.assert_allclose(one, expected, rtol=0, atol=bound)

    config = """backend: "pelton" max_batch_size: 4
    input [ { name: "x" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ] } ]
    output [ { name: "twice" data_type: TYPE_FP32 dims: [ 3, 24, 24 ] } ]"""
    plan = (folder / "seen.pelton").read_bytes()
    add_model(serve.repository, "seen", config, files={"1/model.pelton": plan})
    got = answered(serve(), {"name": "x", "datatype": "UINT8", "shape": [1, 31, 40, 3]}, PIXELS.tobytes())
    np.testing.assert_array_equal(got, one)


TRAINED = """version = 1
model = { name = "mlp", features = 1728, hidden = [], classes = 2, weights = "zero.npz" }
data = { train = "p.toml", batch = 1 }
step = { steps = 1 }
optimizer = { name = "sgd", lr = 2.0 }
output = { folder = "run", html = false, tensorboard = false }
"""


def seen_by_training(folder):
    """A linear classifier that starts at zero: one step of rate 2 adds the picture to the row of its label, whose
    probability was one half."""
    np.savez(folder / "zero.npz", **{"0.weight": np.zeros((2, 1728), np.float32), "0.bias": np.zeros(2, np.float32)})
    (folder / "t.toml").write_text(TRAINED)
    run("train", "t.toml", cwd=folder)
    raw = sorted((folder / "run" / "checkpoints").glob("step-*"))[-1].read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    begin, end = json.loads(raw[8:8 + size])["0.weight"]["data_offsets"]
    weights = np.frombuffer(raw[8 + size + begin:8 + size + end], np.float32).reshape(2, 3, 24, 24)
    np.testing.assert_array_equal(weights[0], -weights[1])
    return weights[:1]


@pytest.mark.parametrize("match", ["pillow", "none"])
def test_training_sees_the_same_tensor(serve, tmp_path, match):
    """The training step holds the stages behind the resize; a matched pipeline loses no bit by that, another one is
    rounded to 8 bits where the step begins: half a level."""
    folder = prepare(tmp_path / "work", match)
    head = PIPELINE.replace("MATCH", match)
    fixed = head[:head.index("[[stage]]\nop = \"random")] + """[[stage]]
op = "resize"
size = [30, 28]
[[stage]]
op = "crop"
size = 24
[[stage]]
op = "flip"
horizontal = true
[[stage]]
op = "normalize"
"""
    (folder / "p.toml").write_text(fixed)
    (folder / "list.txt").write_text("b.png 0\n")
    run("compile", "seen.plt", "--preprocess", "p.toml", "-o", "seen.pelton", cwd=folder)
    expected = from_pipeline(folder, 1)
    np.testing.assert_array_equal(run_images(folder, "b.png"), expected)
    add_model(serve.repository, "seen", 'backend: "pelton" max_batch_size: 8',
              files={"1/model.pelton": (folder / "seen.pelton").read_bytes()})
    got = answered(serve(), {"name": "x", "datatype": "BYTES", "shape": [1, 1]}, element((folder / "b.png").read_bytes()))
    np.testing.assert_array_equal(got, expected)
    trained = seen_by_training(folder)
    bound = 0 if match == "pillow" else 0.5 / 255 / 0.224
    np.testing.assert_allclose(trained, expected, rtol=0, atol=bound * 1.001)
    (folder / "p.toml").write_text(fixed.replace('op = "flip"', 'op = "flip"\ndevice = "gpu"'))
    refused = run("train", "t.toml", "--device", "cpu", "--set", "output.folder=other", cwd=folder, code=1)
    assert 'device = "gpu" for flip' in refused.stderr and "on the CPU" in refused.stderr
