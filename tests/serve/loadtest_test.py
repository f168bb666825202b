# SPDX-License-Identifier: Apache-2.0
"""The load generator against the real server: it counts right, keeps its rate and tells its latencies truly."""
import json
import pathlib
import signal
import struct
import subprocess
import sys

import pytest
from conftest import add_model, binary, identity
from waiting import until


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
    # A sequence that is under way at the end is ended by one request more.
    assert 100 <= server.metric('nv_inference_request_success{model="seq",version="1"}') <= 104


DECOUPLED = pathlib.Path(__file__).parent / "models/three_responses.py"


def test_all_responses_of_a_decoupled_model_belong_to_its_request(serve):
    add_model(serve.repository, "d", identity("TYPE_INT32", "1", "model_transaction_policy { decoupled: true }").replace('"identity"', '"python"'),
              files={"1/model.py": DECOUPLED.read_bytes()})
    server = serve("--python-executable", sys.executable)
    row, = load(f"grpc://{server.grpc}", "-m", "d", "--streaming", "--requests", "30", "--concurrency", "2")
    assert row["requests"] == 30 and row["errors"] == 0
    assert server.metric('nv_inference_request_success{model="d",version="1"}') == 30
    for url in server.http, f"grpc://{server.grpc}":
        assert "is decoupled" in load(url, "-m", "d", "--requests", "1", status=2)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_ipv6(serve, scheme):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "a b", identity())
    server = serve(f"--{scheme}-address=::1")
    address = getattr(server, scheme)
    assert address.startswith("[::1]:")
    for model in "id", "a b":
        row, = load(f"{scheme}://{address}", "-m", model, "--shape", "INPUT0=2", "--requests", "20")
        assert row["requests"] == 20 and row["errors"] == 0, row
    assert "put an IPv6 address in brackets" in load(f"{scheme}://{address.replace('[', '').replace(']', '')}", "-m", "id", status=2)


def test_inputs_from_files(serve, tmp_path):
    """A Python model that refuses all but the values that the file has."""
    code = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            a, t = (pb_utils.get_input_tensor_by_name(r, n).as_numpy().tolist() for n in ("A", "T"))
            right = a == [[1, 2], [1, 2]] and t == [[b"one", b"two"], [b"three", b"four"]]
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("O", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())],
                                                  error=None if right else pb_utils.TritonError(str((a, t)))))
        return out
"""
    add_model(serve.repository, "m", """
        backend: "python" max_batch_size: 4
        input [ { name: "A" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "T" data_type: TYPE_STRING dims: [ 2 ] } ]
        output [ { name: "O" data_type: TYPE_INT32 dims: [ 2 ] } ]""", files={"1/model.py": code})
    server = serve("--python-executable", sys.executable)
    numbers, lines = tmp_path / "numbers", tmp_path / "lines"
    numbers.write_bytes(struct.pack("<ii", 1, 2))             # of one row: for each
    lines.write_text("one\ntwo\nthree\nfour\n")
    files = ["--input", f"A={numbers}", "--input", f"T={lines}"]
    for url in server.http, f"grpc://{server.grpc}":
        row, = load(url, "-m", "m", "-b", "2", *files, "--requests", "5")
        assert row["requests"] == 5 and row["errors"] == 0, row
    row, = load(server.http, "-m", "m", "-b", "2", *files, "--json-tensors", "--requests", "5")
    assert row["errors"] == 0, row
    assert "takes 6 lines, the file has 4" in load(server.http, "-m", "m", "-b", "3", *files, status=2)


def test_no_answer_in_time_is_an_error(server):
    for url, words in ((server.http, "no answer in time"), (f"grpc://{server.grpc}", "gRPC 4"), (f"grpc://{server.grpc}", "no answer in time")):
        flags = ["--streaming"] if url.startswith("grpc") and "gRPC" not in words else []
        done = subprocess.run([binary(), "loadtest", url, "-m", "slow", "--requests", "2", "--timeout", "0.005", "--json", *flags],
                              capture_output=True, text=True, timeout=60)
        row, = json.loads(done.stdout)["results"]
        assert done.returncode == 1 and row["errors"] == 2 and words in row["first_error"], row
    row, = load(f"grpc://{server.grpc}", "-m", "slow", "--requests", "3", "--streaming")      # a stream is begun anew
    assert row["errors"] == 0


@pytest.mark.parametrize("scheme, flags", [("http", []), ("grpc", []), ("grpc", ["--streaming"])])
def test_a_server_that_goes_is_counted_and_survived(server, scheme, flags):
    run = subprocess.Popen([binary(), "loadtest", f"{scheme}://{getattr(server, scheme)}", "-m", "slow", "--requests", "60", "--concurrency", "2", "--json", *flags],
                           stdout=subprocess.PIPE, text=True)
    until(lambda: server.stats("slow")["success"]["count"] > 0)
    server.process.kill()
    row, = json.loads(run.communicate(timeout=60)[0])["results"]
    assert row["requests"] + row["errors"] == 60 and row["errors"] > 0 and row["first_error"], row
    server.process.wait()


def test_an_interrupt_ends_it(server):
    run = subprocess.Popen([binary(), "loadtest", server.http, "-m", "slow", "--requests", "100000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    def answered():
        return server.stats("slow")["success"]["count"]
    until(lambda: answered() > 0)
    run.send_signal(signal.SIGSTOP)                        # it sends nothing while this counts
    until(lambda: pathlib.Path(f"/proc/{run.pid}/stat").read_text().rsplit(") ", 1)[1][0] == "T")
    before = answered()
    run.send_signal(signal.SIGINT)
    run.send_signal(signal.SIGCONT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGINT and "interrupted" in err
    assert answered() <= before + 2                        # the one on its way, and one that was about to be


def test_mistakes_are_named(server):
    assert "unknown model: 'none'" in load(server.http, "-m", "none", status=1)
    assert "give it with --shape INPUT0=" in load(server.http, "-m", "id", status=2)
    assert "cannot connect" in load("127.0.0.1:1", "-m", "id", status=1)
    assert "not a positive number" in load(server.http, "-m", "id", "--concurrency", "x", status=2)
    assert "neither http" in load("https://x", "-m", "id", status=2)
    for url in "[::1", "[::1]x", "http://", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:80/v2", "a?b":
        assert f"'{url}'" in load(url, "-m", "id", status=2)


@pytest.mark.parametrize("flags, words", [
    ("--window nan", "--window is nan, it must lie"), ("--window -1", "--window is -1"), ("--warm-up inf", "--warm-up is inf"), ("--stability 0", "--stability is 0"),
    ("--windows 0", "--windows is 0"), ("--max-windows 1", "--max-windows is 1, it must lie between 3"), ("--timeout 0", "--timeout is 0"),
    ("--rate nan", "'nan' is not a positive number"), ("--rate 5:1", "wants begin <= end"), ("--rate 1e9", "--rate is 1e+09"), ("--rate 1:1e9", "wants begin <= end"),
    ("--concurrency 0", "'0' is not a positive number"), ("--concurrency 5000", "--concurrency is 5000"), ("--concurrency 1:4000", "more than 1000 levels"),
    ("--concurrency 1,,2", "'' is not a positive number"), ("--poisson", "--poisson requires --rate"), ("--max-threads 3", "--max-threads requires --rate"),
    ("--requests 0", "not in range 1"), ("--requests 3 --window 1", "excludes"), ("--rate 3 --concurrency 2", "excludes"), ("--batch 0", "not in range 1"),
    ("--batch 2", "does not batch"), ("--sequence-length -1", "--sequence-length is -1"), ("--output-shared-memory-size 5", "requires --shared-memory"),
    ("--shared-memory cuda", "is none or system"), ("--shape X=3", "which is no input of the model"), ("--shape INPUT0=2x3", "does not fit the model's [-1]"),
    ("--input X=/dev/null", "which is no input of the model"), ("--streaming", "--streaming is of gRPC"), ("--requests 100000000 --rate 1", "can be planned"),
    ("--json-tensors --shared-memory system", "exclude each other")])
def test_values_that_cannot_be(server, flags, words):
    assert words in load(server.http, "-m", "id", "--shape", "INPUT0=3", *flags.split(), status=2)
