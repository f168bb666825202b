# SPDX-License-Identifier: Apache-2.0
"""Clients and machines that misbehave: every accepted request is answered once, and nothing is left behind."""
import json
import os
import random
import resource
import socket
import struct
import subprocess
import threading
import time

import pytest
from conftest import add_model, identity
from waiting import until

BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()
HEAD = b"POST /v2/models/id/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY)


@pytest.fixture
def server(serve):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "slow", identity(more='max_batch_size: 4 dynamic_batching { } parameters { key: "execute_delay_ms" value { string_value: "5" } }'))
    return serve("--header-timeout-secs=1")


def connect(server, timeout=10):
    return socket.create_connection(("127.0.0.1", server.port), timeout=timeout)


def reset(s):
    """Closes with a reset instead of a farewell."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def settle(server, before, seconds=10):
    end = time.time() + seconds
    while (now := descriptors(server)) > before:
        assert time.time() < end, (before, now)
        time.sleep(0.05)


def test_clients_that_vanish_anywhere(server):
    before = descriptors(server)
    whole = HEAD + BODY
    random.seed(5)
    for i in range(300):
        s = connect(server)
        s.sendall(whole[:random.randrange(len(whole) + 1)])
        if i % 3 == 0:
            reset(s)
        elif i % 3 == 1:
            s.shutdown(socket.SHUT_WR)                              # half closed
            s.close()
        else:
            s.close()
    settle(server, before)
    assert server.infer("id", [1])[0] == 200


def test_half_open_and_silent_connections_are_cut_off(server):
    before = descriptors(server)
    silent = [connect(server) for _ in range(50)]
    for i, s in enumerate(silent):
        s.sendall(HEAD[:i])
    assert server.infer("id", [1])[0] == 200
    settle(server, before, 15)                                      # none of them ever said a word more
    assert all(s.recv(1) == b"" for s in silent)
    for s in silent:
        s.close()


def test_vanishing_while_batches_run_costs_no_answer(server):
    stop, wrong, right, rudeness = threading.Event(), [], [], [0]

    def honest(k):
        while not stop.is_set():
            status, answer = server.infer("slow", [k, k], shape=[1, 2])
            (right if status == 200 and answer["outputs"][0]["data"] == [k, k] else wrong).append((status, answer))

    def rude():
        body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [-1, -1]}]}).encode()
        while not stop.is_set():
            s = connect(server)
            s.sendall(b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(random.random() * 0.01)
            reset(s)
            rudeness[0] += 1

    threads = [threading.Thread(target=honest, args=(k,)) for k in (1, 2, 3)] + [threading.Thread(target=rude) for _ in range(3)]
    for t in threads:
        t.start()
    until(lambda: len(right) > 200 and rudeness[0] > 200)
    stop.set()
    for t in threads:
        t.join()
    assert not wrong
    until(lambda: server.waiting("slow") == 0)


def test_thousands_of_connections(serve):
    add_model(serve.repository, "id", identity())
    server = serve()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    held, refused = [], 0
    try:
        for _ in range(2000):
            s = connect(server)
            held.append(s)
        held[0].sendall(HEAD + BODY)                                # those who came first are served
        assert held[0].recv(100).startswith(b"HTTP/1.1 200")
        for s in held[1100:]:
            s.settimeout(5)
            refused += s.recv(20).startswith(b"HTTP/1.1 503")
        assert refused == 900
    finally:
        for s in held:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until(lambda: server.infer("id", [1])[0] == 200)


def test_a_full_disk_stops_nobody(serve, tmp_path):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "bad", "nonsense: 1")
    server = serve("--log-file=/dev/full", f"--trace-config=triton,file={tmp_path}/missing/trace", "--trace-config=level=TIMESTAMPS",
                   "--trace-config=rate=1", "--trace-config=triton,log-frequency=5", "--log-verbose=1", "--exit-on-error=false")
    for _ in range(40):
        assert server.infer("id", [1])[0] == 200
    status, _ = server.stop()
    assert status == 143


def test_an_upload_that_does_not_fit(serve, tmp_path, monkeypatch):
    """The disk's limit is the process's own: files above 64 KiB cannot be written."""
    import base64
    add_model(serve.repository, "id", identity())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, hard))
    try:
        server = serve("--model-control-mode=explicit", "--allow-model-upload", "--load-model=*")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    config = json.dumps({"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
                         "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]})
    load = lambda size: server.json("/v2/repository/models/up/load", {"parameters": {  # noqa: E731
        "config": config, "file:1/m.bin": base64.b64encode(bytes(size)).decode()}})
    assert load(200_000)[0] >= 400
    assert load(1000)[0] == 200
    assert server.infer("up", [1])[0] == server.infer("id", [1])[0] == 200


def test_garbage_never_ends_the_server(server):
    """Seeded noise in every place of a request; what is no request gets an error or a closed connection."""
    rng = random.Random(11)
    whole = bytearray(HEAD + BODY)
    for i in range(400):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with connect(server, timeout=3) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            try:
                s.recv(1000)
            except (TimeoutError, ConnectionResetError):
                pass
    assert server.infer("id", [1])[1]["outputs"][0]["data"] == [1]


def test_a_standard_error_that_nobody_reads_stops_nobody(serve):
    """Far more log lines than the pipe holds; once it is read, a line tells how many were dropped."""
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "bad", "n" * 5000 + ": 1")
    server = serve("--exit-on-error=false", "--model-control-mode=explicit", "--load-model=id")
    for i in range(900):                                            # 2 KB each, more than the queue and the pipe hold
        assert server.json("/v2/repository/models/bad/load", b"", "POST")[0] == 400
        assert i % 8 or server.infer("id", [1])[0] == 200
    status, err = server.stop()
    assert status == 143 and "unknown field 'nnn" in err
    assert "log messages were dropped" in err


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
/* The wall clock, moved by as many seconds as the file named by MOVED_CLOCK is long, less a day. */
static long moved(void) {
  static int file = -1;
  if (file < 0) file = open(getenv("MOVED_CLOCK"), O_RDONLY | O_CLOEXEC);
  return (long)lseek(file, 0, SEEK_END) - 86400;
}
int clock_gettime(clockid_t clock, struct timespec* t) {
  long r = syscall(SYS_clock_gettime, clock, t);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) t->tv_sec += moved();
  return (int)r;
}
int gettimeofday(struct timeval* t, void* zone) {
  struct timespec s;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &s);
  t->tv_sec = s.tv_sec;
  t->tv_usec = s.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* t) {
  struct timespec s;
  clock_gettime(CLOCK_REALTIME, &s);
  if (t) *t = s.tv_sec;
  return s.tv_sec;
}
"""


def test_a_clock_that_jumps_disturbs_nobody(serve, tmp_path, monkeypatch):
    """Hours forth and back under delays, time-outs, deadlines, idle times and keep-alive connections."""
    source, library, clock = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "clock"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", str(source), "-o", str(library), "-ldl"], check=True)
    clock.write_bytes(b"")
    os.truncate(clock, 86400)
    add_model(serve.repository, "id", identity(more='max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 20000 default_queue_policy '
                                                    '{ timeout_action: REJECT default_timeout_microseconds: 5000000 } }'))
    add_model(serve.repository, "slow", identity(more='parameters { key: "execute_delay_ms" value { string_value: "100" } }'))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("MOVED_CLOCK", str(clock))
    log = tmp_path / "log"
    server = serve("--header-timeout-secs=3", f"--log-file={log}", "--log-verbose=1", "--model-control-mode=explicit", "--load-model=*")
    monkeypatch.delenv("LD_PRELOAD")
    kept = connect(server)
    stop, wrong, right = threading.Event(), [], [0]

    def honest(model, k):
        while not stop.is_set():
            began = time.monotonic()
            status, answer = server.infer(model, [k, k], shape=[1, 2] if model == "id" else [2])
            took = time.monotonic() - began
            if status == 200 and answer["outputs"][0]["data"] == [k, k] and took < 3:
                right[0] += 1
            else:
                wrong.append((status, answer, took))

    threads = [threading.Thread(target=honest, args=a) for a in (("id", 1), ("id", 2), ("slow", 3))]
    for t in threads:
        t.start()
    for seconds in (3600, -3600, 40000, -80000, 0):
        os.truncate(clock, 86400 + seconds)
        before = right[0]
        until(lambda: right[0] > before + 5 or wrong)
        kept.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(1000).startswith(b"HTTP/1.1 200")
        assert server.json("/v2/repository/models/id/load", b"", "POST")[0] == 200
    stop.set()
    for t in threads:
        t.join()
    assert right[0] > 20 and not wrong
    _, _, counted = server.request("/metrics", base=server.metrics)
    assert b'nv_inference_request_failure{model="id",version="1",reason="REJECTED"} 0' in counted
    server.stop()
    days = {line[:13] for line in log.read_text().splitlines()}
    assert len(days) > 2                                            # the preload did move the clock


def test_memory_that_runs_out_ends_no_server(serve):
    """The address space is limited while large requests come: each gets an answer, a refusal or a closed connection."""
    add_model(serve.repository, "id", identity())
    server = serve("--allow-grpc=false", "--http-thread-count=2")
    assert server.infer("id", [1])[0] == 200
    pid = server.process.pid
    with open(f"/proc/{pid}/statm") as f:
        now = int(f.read().split()[0]) * resource.getpagesize()
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[8000000],"data":[' + b"1," * 7_999_999 + b"1]}]}"
    unlimited = resource.prlimit(pid, resource.RLIMIT_AS, (now + (40 << 20), resource.RLIM_INFINITY))
    seen = []

    def ask():
        try:
            seen.append(server.request("/v2/models/id/infer", body)[0])
        except OSError:
            seen.append(None)                                       # closed without an answer

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(seen) == 6 and any(s != 200 for s in seen), seen
    resource.prlimit(pid, resource.RLIMIT_AS, unlimited)
    assert server.infer("id", [1])[1]["outputs"][0]["data"] == [1]
    ask()
    assert seen[-1] == 200
