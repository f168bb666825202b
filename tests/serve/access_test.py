# SPDX-License-Identifier: Apache-2.0
"""Keys, TLS and settings from file and environment: real clients against the real server."""
import contextlib
import os
import socket
import ssl
import subprocess

import numpy as np
import pytest
from conftest import add_model, binary, identity

REASON = "tritonclient is not installed"
http = pytest.importorskip("tritonclient.http", reason=REASON)
grpc = pytest.importorskip("tritonclient.grpc", reason=REASON)
from tritonclient.utils import InferenceServerException  # noqa: E402


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """An authority, a server certificate for localhost and a client certificate, all with openssl."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority", "-days", "2")
    (folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl(*new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", "san")
        os.chmod(folder / f"{name}.key", 0o600)
    return folder


def tensor(module):
    t = module.InferInput("INPUT0", [2], "FP32")
    t.set_data_from_numpy(np.array([1, 2], np.float32))
    return [t]


def https_client(server, pki, client_cert=False):
    options = {"ca_certs": str(pki / "ca.pem")}
    if client_cert:
        options |= {"certfile": str(pki / "client.pem"), "keyfile": str(pki / "client.key")}
    return http.InferenceServerClient(server.http, ssl=True, ssl_options=options)


def tls_flags(pki, mutual=False):
    flags = []
    for p in ("http", "grpc"):
        flags += [f"--{p}-use-ssl=true", f"--{p}-server-cert={pki / 'server.pem'}", f"--{p}-server-key={pki / 'server.key'}"]
        if mutual:
            flags += [f"--{p}-use-ssl-mutual=true", f"--{p}-root-cert={pki / 'ca.pem'}"]
    return flags


def test_tls_on_both_protocols(serve, pki):
    add_model(serve.repository, "id", identity())
    server = serve(*tls_flags(pki))
    assert list(https_client(server, pki).infer("id", tensor(http)).as_numpy("OUTPUT0")) == [1, 2]
    client = grpc.InferenceServerClient(server.grpc, ssl=True, root_certificates=str(pki / "ca.pem"))
    assert list(client.infer("id", tensor(grpc)).as_numpy("OUTPUT0")) == [1, 2]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:      # plain text is no TLS
        s.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not s.recv(100).startswith(b"HTTP")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s, pytest.raises((ssl.SSLError, OSError)):
        old.wrap_socket(s)


def test_a_tls_client_that_goes_cancels_its_request(serve, pki):
    """Before a request of a second that is sent after that: however busy the machine is, both meet it."""
    add_model(serve.repository, "long", identity(more='parameters { key: "execute_delay_ms" value { string_value: "100000" } }'))
    add_model(serve.repository, "second", identity(more='parameters { key: "execute_delay_ms" value { string_value: "1000" } }'))
    server = serve(*tls_flags(pki))
    client = https_client(server, pki)
    with pytest.raises(InferenceServerException):          # its metrics begin
        client.infer("long", [])
    context = ssl.create_default_context(cafile=pki / "ca.pem")
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}'
    both = [context.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="localhost") for _ in range(2)]
    for s in both:
        s.sendall(b"POST /v2/models/long/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    server.until_waiting("long", 1)                        # the other one runs
    for s in both:
        s.close()
    client.infer("second", tensor(http))
    assert server.metric('nv_inference_request_failure{model="long",version="1",reason="CANCELED"}') == 2


def test_tls_clients_may_wait_to_send_and_send_ahead(serve, pki):
    """A client that expects 100-continue gets it; a request that comes before the last answer is read whole."""
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "slow", identity(more='parameters { key: "execute_delay_ms" value { string_value: "300" } }'))
    server = serve(*tls_flags(pki))
    context = ssl.create_default_context(cafile=pki / "ca.pem")
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}'
    head = b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n"
    def connect():
        return context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=10), server_hostname="localhost")
    def answers(s, count, out=b""):
        while out.count(b"HTTP/1.1 200 OK") < count or not out.endswith(b"}"):
            more = s.recv(65536)
            assert more, out
            out += more
        return out
    with connect() as s:
        s.sendall(head % (b"id", len(body), b"Expect: 100-continue\r\n"))
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(body)
        assert s.recv(1000).startswith(b"HTTP/1.1 200 OK")
    second = head % (b"id", len(body), b"") + body
    for split in (1, 40, len(second) - 30):
        with connect() as s:
            s.sendall(head % (b"slow", len(body), b"") + body)
            s.sendall(second[:split])          # waits behind the first request
            out = answers(s, 1)
            s.sendall(second[split:])
            answers(s, 2, out)


def test_mutual_tls_wants_the_clients_certificate(serve, pki):
    add_model(serve.repository, "id", identity())
    server = serve(*tls_flags(pki, mutual=True))
    assert https_client(server, pki, client_cert=True).is_server_live()
    with pytest.raises(Exception):
        https_client(server, pki).is_server_live()
    client = grpc.InferenceServerClient(server.grpc, ssl=True, root_certificates=str(pki / "ca.pem"),
                                        private_key=str(pki / "client.key"), certificate_chain=str(pki / "client.pem"))
    assert client.is_server_live()
    with pytest.raises(InferenceServerException):
        grpc.InferenceServerClient(server.grpc, ssl=True, root_certificates=str(pki / "ca.pem")).is_server_live(client_timeout=5)


def test_restricted_groups_want_their_key(serve, tmp_path):
    add_model(serve.repository, "id", identity())
    secret = tmp_path / "key"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    server = serve("--model-control-mode=explicit", "--load-model=*",
                   f"--http-restricted-api=model-repository,logging:admin-key=file:{secret}",
                   f"--grpc-restricted-protocol=model-repository,inference,health:admin-key=file:{secret}")
    assert server.infer("id", [1])[0] == 200
    for key, status in ((None, 403), ("wrong!", 403), ("s3cret ", 200), ("s3cretx", 403), ("", 403), ("s3cret", 200)):
        headers = {"Admin-Key": key} if key is not None else {}
        assert server.request("/v2/repository/models/id/load", b"", "POST", headers)[0] == status, key
        assert server.request("/v2/logging", headers=headers)[0] == status
    assert "want a key in header 'admin-key'" in server.json("/v2/logging")[1]["error"]
    client = grpc.InferenceServerClient(server.grpc)
    key = {"triton-grpc-protocol-admin-key": "s3cret"}
    assert client.get_server_metadata()
    for call in (lambda h: client.load_model("id", headers=h), lambda h: client.infer("id", tensor(grpc), headers=h),
                 lambda h: client.get_model_repository_index(headers=h), lambda h: client.is_server_live(headers=h)):
        for wrong in (None, {"triton-grpc-protocol-admin-key": "other"}):
            with pytest.raises(InferenceServerException, match="want a key in metadata 'triton-grpc-protocol-admin-key'"):
                call(wrong)
        call(key)
    got = []
    client.start_stream(lambda result, error: got.append((result, error)))
    with contextlib.suppress(InferenceServerException):  # the refusal may arrive before the client has sent anything
        client.async_stream_infer("id", tensor(grpc))
    client.stop_stream()
    assert "want a key" in str(got[0][1])


@pytest.mark.parametrize("flag, words", [
    ("--http-restricted-api=logging:admin-key=s3cret", "stands in the command line"),
    ("--http-restricted-api=logging:admin-key=env:NO_SUCH_NAME", "NO_SUCH_NAME of the key 'admin-key' is not set"),
    ("--http-restricted-api=loging:admin-key=env:HOME", "no group of endpoints is named 'loging'"),
    ("--http-restricted-api=logging,logging:k=env:HOME", "restricted twice"),
    ("--grpc-restricted-protocol=logging", "is not GROUP"),
    ("--http-header-forward-pattern=(", "is not an extended regular expression"),
    ("--http-use-ssl=true", "TLS needs a certificate and a key"),
])
def test_wrong_security_flags_end_the_start(serve, flag, words):
    server = serve(flag, expect_ready=False)
    assert server.process.wait(20) == 2
    error = server.process.stderr.read()
    assert words in error and "s3cret" not in error


def test_a_key_that_others_can_read_is_refused(serve, tmp_path, pki):
    secret = tmp_path / "key"
    secret.write_text("s3cret")
    secret.chmod(0o644)
    server = serve(f"--http-restricted-api=logging:k=file:{secret}", expect_ready=False)
    assert server.process.wait(20) == 2 and "may be read or changed by others" in server.process.stderr.read()


def test_settings_from_file_and_environment(serve, tmp_path):
    add_model(serve.repository, "id", identity())
    config = tmp_path / "serve.toml"
    config.write_text(f'model_repository = ["{serve.repository}"]\nhttp-port = 0\ngrpc-port = 0\nmetrics-port = 0\n'
                      'http-max-input-size = 1000\nallow-model-upload = true\nallow-metrics = false\n')

    def start(*flags, **more):
        process = subprocess.Popen([binary(), "serve", "--config", str(config), *flags], env=os.environ | more,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        process.terminate()
        return line, process.communicate()[1]

    line, error = start()
    assert line.startswith("ready: http 127.0.0.1:") and "grpc" in line and "metrics" not in line, error
    assert "grpc" not in start(PELTON_SERVE_ALLOW_GRPC="false")[0]
    assert "grpc" in start("--allow-grpc=true", PELTON_SERVE_ALLOW_GRPC="false")[0]
    config.write_text('model-repository = "x"\nhttp-prot = 1\n')
    line, error = start()
    assert line == "" and "sets 'http-prot', which is no flag" in error
    config.write_text('model-repository = \n')
    assert "line 1" in start()[1]
