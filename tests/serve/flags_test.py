# SPDX-License-Identifier: Apache-2.0
"""Every flag that tritonserver 2.51 lists in its help, and those of its documentation that this build of it lacks: taken with its
meaning, or refused with what to do instead."""
import os
import subprocess

import pytest
from conftest import add_model, binary, identity
from waiting import until

HONOURED = {
    "model-repository": None, "model-store": None, "model-control-mode": "explicit", "repository-poll-secs": "5", "load-model": "id",
    "model-load-thread-count": "2", "disable-auto-complete-config": None, "exit-on-error": "true", "strict-readiness": "true", "exit-timeout-secs": "3",
    "id": "me", "log-verbose": "0", "log-info": "true", "log-warning": "true", "log-error": "true", "log-format": "ISO8601", "log-file": "LOG",
    "allow-http": "true", "http-address": "127.0.0.1", "http-port": "0", "reuse-http-port": "true", "http-thread-count": "2",
    "http-header-forward-pattern": "x-.*", "http-restricted-api": "logging:k=env:KEY", "http-max-input-size": "100000",
    "allow-grpc": "true", "grpc-address": "127.0.0.1", "grpc-port": "0", "reuse-grpc-port": "true", "grpc-header-forward-pattern": "x-.*",
    "grpc-restricted-protocol": "logging:k=env:KEY", "grpc-use-ssl": "false", "grpc-use-ssl-mutual": "false", "grpc-server-cert": "FILE",
    "grpc-server-key": "FILE", "grpc-root-cert": "FILE", "grpc-infer-response-compression-level": "low", "grpc-keepalive-time": "7200000",
    "grpc-keepalive-timeout": "20000", "grpc-keepalive-permit-without-calls": "false", "grpc-http2-max-pings-without-data": "2",
    "grpc-http2-min-recv-ping-interval-without-data": "300000", "grpc-http2-max-ping-strikes": "2", "grpc-max-connection-age": "100000",
    "grpc-max-connection-age-grace": "1000", "allow-metrics": "true", "allow-gpu-metrics": "true", "allow-cpu-metrics": "true",
    "metrics-address": "127.0.0.1", "metrics-port": "0", "metrics-config": "summary_latencies=true", "trace-config": "level=OFF",
    "cache-config": "local,size=1000000", "response-cache-byte-size": "1000000", "rate-limit": "off", "rate-limit-resource": "R:2",
    "allow-client-shm": "false", "min-supported-compute-capability": "6.0", "enable-peer-access": "false", "metrics-interval-ms": "1000",
}
REFUSED = {
    "model-namespacing", "model-config-name", "model-load-retry-count", "model-load-gpu-limit", "backend-directory", "backend-config", "repoagent-directory",
    "cache-directory", "host-policy", "allow-sagemaker", "sagemaker-port", "sagemaker-safe-port-range", "sagemaker-thread-count", "allow-vertex-ai",
    "vertex-ai-port", "vertex-ai-thread-count", "vertex-ai-default-model", "trace-file", "trace-level", "trace-rate", "trace-count", "trace-log-frequency",
    "strict-model-config", "buffer-manager-thread-count", "pinned-memory-pool-byte-size", "cuda-memory-pool-byte-size", "cuda-virtual-address-size",
    "grpc-infer-thread-count", "grpc-infer-allocation-pool-size", "grpc-max-response-pool-size",
}


def run(*flags):
    """Standard error of a server that ends at once, since all together make no sense, unless one of them stops it before."""
    last = ["--http-max-input-size=0"] if any("allow-" in f for f in flags) else ["--allow-http=false", "--allow-grpc=false"]
    done = subprocess.run([binary(), "serve", *flags, *last], capture_output=True, text=True, env=os.environ | {"KEY": "secret"})
    assert done.returncode == 2
    return done.stderr


def test_every_flag_of_the_other_server(tmp_path):
    for name, value in HONOURED.items():
        given = f"--{name}" + ("" if value is None else f"={value}")
        if value is None and name.startswith("model-"):
            given += f"={tmp_path}"
        flags = [given] if name.startswith("model-repository") or name == "model-store" else [f"--model-repository={tmp_path}", given]
        err = run(*flags, *(["--model-control-mode=explicit"] if name == "load-model" else []))
        assert "--http-max-input-size is 0" in err or "neither HTTP nor gRPC is allowed" in err, err
        assert "is not supported" not in err and "no effect" not in err and name not in err, err
    for name in REFUSED:
        err = run(f"--model-repository={tmp_path}", f"--{name}=1")
        assert f"flag --{name} is not supported: " in err and len(err.split("is not supported: ")[1].strip()) > 10, err


def test_flags_that_show(serve):
    add_model(serve.repository, "id", identity())
    server = serve("--id=north", "--log-warning=false", "--log-verbose=0", "--grpc-infer-response-compression-level=high")
    assert server.json("/v2")[1]["name"] == "north"
    settings = server.json("/v2/logging")[1]
    assert (settings["log_info"], settings["log_warning"], settings["log_error"], settings["log_verbose_level"]) == (False, False, True, 0)


def test_a_reading_of_the_machine_stands_for_its_interval(serve):
    def memory(server):
        return server.metric("nv_cpu_memory_used_bytes")

    server, held = serve("--metrics-interval-ms=3600000"), []
    before = memory(server)
    changing = serve("--metrics-interval-ms=0")
    first = memory(changing)
    # The system counts pages in batches, so that some memory more need not show at once.
    until(lambda: held.append(os.urandom(8 << 20)) or memory(changing) != first)
    assert memory(server) == before


@pytest.mark.parametrize("flag, words", [
    ("--grpc-infer-response-compression-level=most", "is none, low, medium or high, not 'most'"), ("--grpc-keepalive-time=-1", "grpc-keepalive-time"),
    ("--rate-limit-resource=R:2:0", "names a device"), ("--enable-peer-access=true", "is not supported with true: tensors go from GPU to GPU through"),
    ("--min-supported-compute-capability=ten", "is MAJOR.MINOR, not 'ten'"), ("--metrics-interval-ms=-1", "metrics-interval-ms"), ("--log-format=default", "--log-format is ISO8601"),
    *((f"--{name}={value}", f"'{value}' is not a number between ") for name, values in {
        "exit-timeout-secs": ("nan", "-1", "inf"), "header-timeout-secs": ("nan", "0", "1e300", "-1"), "repository-poll-secs": ("nan", "0", "inf"),
        "max-connections": ("0", "-1"), "max-queue-size": ("0", "-1"), "max-inflight-bytes": ("0", "-5"), "http-thread-count": ("-1", "100000"),
        "model-load-thread-count": ("0", "-3"), "response-cache-byte-size": ("-1",)}.items() for value in values),
    ("--http-port=99999", "'99999' is not a number between 0 and 65535"), ("--grpc-port=x", "'x' is not a number between 0 and 65535"),
    ("--allow-client-shm=maybe", "--allow-client-shm: takes true or false, not 'maybe'"),
    ("--exit-on-error --log-info=true", "--exit-on-error: takes true or false, not '--log-info=true'"),
    ("--trace-config=count=18446744073709551615", "'18446744073709551615' is not a number between 0 and"),
    ("--cache-config=local,size=", "'' is not a number between 0 and")])
def test_values_that_cannot_be(tmp_path, flag, words):
    assert words in run(f"--model-repository={tmp_path}", *flag.split())


def test_old_connections_are_ended(serve):
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
    service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2", reason="tritonclient is not installed")
    from tritonclient.grpc import service_pb2_grpc
    add_model(serve.repository, "id", identity())
    server = serve("--grpc-max-connection-age=300", "--grpc-max-connection-age-grace=100")
    with grpc.insecure_channel(server.grpc) as channel:
        seen = []
        channel.subscribe(seen.append)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def renewed():
            assert stub.ServerLive(service_pb2.ServerLiveRequest(), wait_for_ready=True, timeout=60).live
            return grpc.ChannelConnectivity.IDLE in seen[1:] or seen.count(grpc.ChannelConnectivity.CONNECTING) > 1
        until(renewed)
