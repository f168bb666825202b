# SPDX-License-Identifier: Apache-2.0
"""The load generator against the real server: it counts right, keeps its rate and tells its latencies truly."""
import json
import subprocess

import pytest
from conftest import add_model, binary, identity


@pytest.fixture
def server(serve):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "text", identity("TYPE_STRING", "2"))
    add_model(serve.repository, "slow", identity("TYPE_INT32", "2", 'max_batch_size: 4 parameters { key: "execute_delay_ms" value { string_value: "20" } }'))
    return serve()


def load(*words, status=0):
    result = subprocess.run([binary(), "loadtest", *words, "--json"], capture_output=True, text=True, timeout=120)
    assert result.returncode == status, result.stderr
    return json.loads(result.stdout.splitlines()[-1])["results"] if status == 0 else result.stderr


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_every_request_is_counted_by_both_sides(server, scheme):
    url = f"{scheme}://{getattr(server, scheme)}"
    row, = load(url, "-m", "id", "--shape", "INPUT0=3", "--requests", "500", "--concurrency", "4")
    assert row["requests"] == 500 and row["errors"] == 0
    assert server.metric('nv_inference_request_success{model="id",version="1"}') == 500
    rows = load(url, "-m", "text", "--requests", "50", "--concurrency", "1:3", *(["--streaming"] if scheme == "grpc" else ["--json-tensors"]))
    assert [r["concurrency"] for r in rows] == [1, 2, 3] and all(r["requests"] == 50 for r in rows)
    assert server.metric('nv_inference_request_success{model="text",version="1"}') == 150


def test_latency_is_at_least_the_work_and_batches_are_sent(server):
    row, = load(server.http, "-m", "slow", "-b", "3", "--requests", "20")
    assert row["latency_us"]["p50"] >= 20_000
    assert server.metric('nv_inference_count{model="slow",version="1"}') == 60


def test_a_rate_beyond_the_server_shows_as_latency(server):
    """50 requests a second can be served; at 100 the intended times run ahead of the answers."""
    row, = load(server.http, "-m", "slow", "--rate", "100", "--poisson", "--requests", "100", "--max-threads", "4")
    assert row["requests"] == 100
    assert row["latency_us"]["p99"] > 500_000, "the time in which requests could not even be sent is missing"


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_shared_memory_and_sequences(serve, scheme):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "seq", identity("TYPE_INT32", "1", "max_batch_size: 4 sequence_batching { direct { } }"))
    server = serve("--allow-client-shm=true")
    url = f"{scheme}://{getattr(server, scheme)}"
    row, = load(url, "-m", "id", "--shape", "INPUT0=100000", "--shared-memory=system", "--output-shared-memory-size=400000", "--requests", "100", "--concurrency", "3")
    assert row["requests"] == 100 and row["errors"] == 0
    small = subprocess.run([binary(), "loadtest", url, "-m", "id", "--shape", "INPUT0=100000", "--shared-memory=system",
                            "--output-shared-memory-size=100", "--requests", "5", "--json"], capture_output=True, text=True)
    row, = json.loads(small.stdout)["results"]
    assert small.returncode == 1 and row["errors"] == 5 and "its place" in row["first_error"]
    assert server.json("/v2/systemsharedmemory/status")[1] == []
    row, = load(url, "-m", "seq", "--sequence-length", "5", "--requests", "100", "--concurrency", "4")
    assert row["errors"] == 0
    assert server.metric('nv_inference_request_success{model="seq",version="1"}') == 100


def test_mistakes_are_named(server):
    assert "unknown model: 'none'" in load(server.http, "-m", "none", status=1)
    assert "give it with --shape INPUT0=" in load(server.http, "-m", "id", status=2)
    assert "cannot connect" in load("127.0.0.1:1", "-m", "id", status=1)
    assert "not a positive number" in load(server.http, "-m", "id", "--concurrency", "x", status=2)
    assert "neither http" in load("https://x", "-m", "id", status=2)
