# SPDX-License-Identifier: Apache-2.0
"""The files under deploy/ say what their readers understand: manifests by schema, settings by the server."""
import pathlib
import re
import subprocess
import tomllib

import pytest
from conftest import binary

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
