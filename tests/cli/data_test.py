# SPDX-License-Identifier: Apache-2.0
"""pelton data on made-up folders."""
import json
import re
import signal
import struct
import subprocess
import zlib

import pytest

from conftest import BINARY, assert_error
from waiting import cpu_seconds, until


def png(width, height, value):
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes([value, 255 - value, y % 256] * width) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


PIPELINE = """version = 1
seed = 4
source = { kind = "folder", path = "images", shuffle = true }
[[stage]]
op = "decode"
[[stage]]
op = "random_resized_crop"
size = 16
[[stage]]
op = "normalize"
"""


@pytest.fixture
def flowers(tmp_path):
    for name in ("daisy", "rose"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "images" / name / f"{i}.png").write_bytes(png(20 + i, 30, 40 * i))
    (tmp_path / "flowers.toml").write_text(PIPELINE)
    return tmp_path


def test_statistics(pelton, flowers):
    out = pelton("data", "flowers.toml", "--batch=4", "--json").json()
    assert out["samples"] == 10 and out["classes"] == ["daisy", "rose"] and out["steps"] == 3
    assert {"name": "image", "dtype": "f32", "dims": [4, 3, 16, 16]} in out["fields"]
    text = pelton("data", "flowers.toml", "--batch=4").out
    assert "decode -> random_resized_crop -> normalize" in text and "f32[4,3,16,16]" in text


def test_verify_lists_bad_samples(pelton, flowers):
    good = pelton("data", "flowers.toml", "--verify", "--json")
    assert good.code == 0 and good.json()["labels"] == {"daisy": 5, "rose": 5}
    (flowers / "images/rose/2.png").write_bytes(png(20, 30, 9)[:60])
    (flowers / "images/rose/3.png").write_bytes(b"")
    bad = pelton("data", "flowers.toml", "--verify", "--json")
    assert bad.code == 1
    assert [b["index"] for b in bad.json()["bad"]] == [7, 8]
    assert all(b["op"] == "decode" and "images/rose" in b["origin"] for b in bad.json()["bad"])


def test_convert_then_read_the_shards(pelton, flowers):
    out = pelton("data", "flowers.toml", "--convert", "shard", "--shard-mib=1", "--json").json()
    assert out == {"samples": 10, "skipped": 0, "shards": ["shard-000000.tar"]}
    (flowers / "shards.toml").write_text(PIPELINE.replace('{ kind = "folder", path = "images", shuffle = true }',
                                                          '{ kind = "tar", shards = "shard-000000.tar" }'))
    again = pelton("data", "shards.toml", "--verify", "--json").json()
    assert again["labels"] == {"0": 5, "1": 5} and again["bad"] == []


def test_contact_sheet(pelton, flowers):
    assert pelton("data", "flowers.toml", "--html", "sheet.html", "--count=6").code == 0
    page = (flowers / "sheet.html").read_text()
    assert page.count("<figure>") == 6 and page.count("data:image/jpeg;base64,") == 6
    assert re.search(r"#\d · (daisy|rose) · 16×16", page)


def test_bench(pelton, flowers):
    out = pelton("data", "flowers.toml", "--bench", "--seconds=0.3", "--batch=4", "--json").json()
    assert out["samples_per_s"] > 0 and out["final"] and out["bad"] == 0
    assert set(out["stage_thread_ms_per_sample"]) >= {"read", "1 decode"}


def test_bench_tells_what_is_cached(pelton, flowers):
    (flowers / "cached.toml").write_text(PIPELINE.replace('op = "decode"\n', 'op = "decode"\n[[stage]]\nop = "cache"\n'))
    out = pelton("data", "cached.toml", "--bench", "--seconds=0.3", "--batch=4", "--json").json()
    assert out["cached_samples"] == 10 and out["cached_bytes"] > 10 * 20 * 30 * 3


def test_an_interrupted_bench_prints_its_figures(flowers):
    process = subprocess.Popen([str(BINARY), "data", "flowers.toml", "--bench", "--seconds=60", "--batch=4", "--json"], cwd=flowers,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: cpu_seconds(process) > 0.5)                       # well within the measurement
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in err, err
    figures = json.loads(out)
    assert figures["final"] and figures["seconds"] < 50


def test_schema_is_json(pelton):
    schema = json.loads(pelton("data", "--schema").out)
    assert schema["properties"]["version"] == {"const": 1}


def test_mistakes(pelton, flowers):
    (flowers / "wrong.toml").write_text(PIPELINE.replace("size = 16", "sise = 16"))
    assert_error(pelton("data", "wrong.toml"), 1, "no option 'sise'", "did you mean 'size'?", "wrong.toml line 6")
    assert_error(pelton("data", "absent.toml"), 1, "absent.toml")
    assert_error(pelton("data"), 2, "no pipeline")


def test_a_disk_that_is_full_is_one_error(pelton, flowers):
    # A limit on the size of files stands for it.
    command = f"ulimit -f 2; trap '' XFSZ; exec {BINARY} data flowers.toml --convert shard"
    result = subprocess.run(["bash", "-c", command], cwd=flowers, capture_output=True, text=True)
    assert result.returncode == 1 and "shard-000000.tar" in result.stderr and "File too large" in result.stderr
    assert not list(flowers.glob("shard*"))


def test_a_cache_on_the_gpu_needs_one(pelton, flowers):
    (flowers / "gpu.toml").write_text(PIPELINE.replace('op = "decode"\n', 'op = "decode"\n[[stage]]\nop = "cache"\ndevice = "gpu"\nmemory_mib = 64\n'))
    assert_error(pelton("data", "gpu.toml", "--bench", "--device", "cpu"), 1, 'device = "gpu" for cache: nothing here runs on a GPU')
    assert pelton("data", "gpu.toml", "--eval").code == 0  # evaluation has no such cache
