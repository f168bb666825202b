# SPDX-License-Identifier: Apache-2.0
"""The files under deploy/ say what their readers understand: manifests by schema, settings by the server."""
import pathlib
import re
import subprocess
import tomllib

import pytest
from conftest import add_model, binary, identity

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
yaml = pytest.importorskip("yaml", reason="kubernetes-validate is not installed")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")


def manifests():
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def test_manifests_follow_the_schema():
    kinds = []
    for m in manifests():
        kubernetes_validate.validate(m, "1.31", strict=True)
        kinds.append(m["kind"])
    assert kinds == ["ConfigMap", "Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"]
    broken = manifests()[1]
    broken["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.31", strict=True)


def test_manifests_fit_each_other_and_the_server():
    config, deployment, service, scaler, _ = manifests()
    pod = deployment["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]
    names = {p["name"] for p in container["ports"]}
    assert {p["targetPort"] for p in service["spec"]["ports"]} <= names
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    settings = tomllib.loads(config["data"]["serve.toml"])
    assert pod["terminationGracePeriodSeconds"] > settings["exit-timeout-secs"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


@pytest.mark.parametrize("source", ["serve.toml", "kubernetes.yaml"])
def test_settings_are_flags_of_the_server(source):
    text = (DEPLOY / source).read_text() if source == "serve.toml" else manifests()[0]["data"]["serve.toml"]
    flags = subprocess.run([binary(), "serve", "--help"], capture_output=True, text=True, check=True).stdout
    for key in tomllib.loads(text):
        assert re.search(rf"--{key}\b", flags), key


def test_the_unit_runs_what_there_is():
    unit = (DEPLOY / "pelton.service").read_text()
    command = re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split()
    flags = subprocess.run([binary(), "serve", "--help"], capture_output=True, text=True, check=True).stdout
    assert command[:2] == ["/usr/bin/pelton", "serve"] and all(f in flags for f in command[2:] if f.startswith("--"))
    assert int(re.search(r"TimeoutStopSec=(\d+)", unit)[1]) > tomllib.loads((DEPLOY / "serve.toml").read_text())["exit-timeout-secs"]


@pytest.mark.parametrize("source", ["serve.toml", "kubernetes.yaml"])
def test_a_server_with_these_settings(serve, tmp_path, source):
    """One model is broken: the others are served, the server is ready, and what steers it wants its key."""
    text = (DEPLOY / source).read_text() if source == "serve.toml" else manifests()[0]["data"]["serve.toml"]
    key = tmp_path / "admin-key"
    key.write_text("open sesame\n")
    key.chmod(0o440)
    settings = tmp_path / "serve.toml"
    settings.write_text(text.replace("/run/secrets/pelton/admin-key", str(key)).replace('"/models"', f'"{serve.repository}"').replace('"0.0.0.0"', '"127.0.0.1"'))
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "broken", "nonsense: 1")
    server = serve("--config", str(settings))
    assert server.infer("id", [1])[0] == 200
    assert server.request("/v2/health/ready")[0] == 200 and server.request("/v2/health/live")[0] == 200
    assert server.request("/v2/repository/index", b"", "POST")[0] == 403
    status, _, index = server.request("/v2/repository/index", b"", "POST", {"admin-key": "open sesame"})
    assert status == 200 and b"nonsense" in index


def test_only_what_is_meant_to_faces_the_network():
    """The settings for a machine listen on loopback; the image and the pods, which have a network of their own, on all addresses."""
    ports = ("http", "grpc", "metrics")
    machine = tomllib.loads((DEPLOY / "serve.toml").read_text())
    assert [machine[f"{p}-address"] for p in ports] == ["127.0.0.1"] * 3
    pods = tomllib.loads(manifests()[0]["data"]["serve.toml"])
    assert [pods[f"{p}-address"] for p in ports] == ["0.0.0.0"] * 3
    image = (DEPLOY / "Containerfile").read_text()
    assert all(f"PELTON_SERVE_{p.upper()}_ADDRESS=0.0.0.0" in image for p in ports)
