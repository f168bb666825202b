# SPDX-License-Identifier: Apache-2.0
"""The metrics page under Prometheus itself: its checker, a real scrape, quantiles from the histogram."""
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request

import pytest
from conftest import add_model, binary, identity
from waiting import until

if not shutil.which("promtool") or not shutil.which("prometheus"):
    pytest.skip("prometheus is not installed", allow_module_level=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_checked_scraped_and_queried(serve, tmp_path):
    add_model(serve.repository, "id", identity("TYPE_FP32", "1", 'parameters { key: "execute_delay_ms" value { string_value: "3" } }'))
    server = serve()
    load = lambda: json.loads(subprocess.run([binary(), "loadtest", server.http, "-m", "id", "--requests", "400", "--json"],  # noqa: E731
                                             capture_output=True, text=True, check=True).stdout)["results"][0]
    load()
    page = server.request("/metrics", base=server.metrics)[2]
    lint = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True).stderr.decode().splitlines()
    # The published nv_ names break its style; nothing may be wrong with the page or with names of our own.
    assert all(line.startswith("nv_") and ("should have" in line or "should not" in line) for line in lint), lint
    port = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(f"scrape_configs:\n- job_name: pelton\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{server.metrics}']\n")
    prometheus = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                                   f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def query(expression):
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]["result"]

    try:
        until(lambda: query('nv_inference_request_success{model="id"} == 400'))
        row = load()
        until(lambda: query('nv_inference_request_success{model="id"} == 800'))
        bounds = sorted(float(r["metric"]["le"]) for r in query('pelton_request_duration_seconds_bucket{model="id",stage="request"}'))
        for q, name in ((0.5, "p50"), (0.99, "p99")):
            found = float(query(f'histogram_quantile({q}, sum by (le) (increase(pelton_request_duration_seconds_bucket{{model="id",stage="request"}}[30s])))')[0]["value"][1])
            measured = row["latency_us"][name] * 1e-6
            bucket = lambda v: sum(b < v for b in bounds)  # noqa: E731
            assert abs(bucket(found) - bucket(measured)) <= 1, (q, found, measured)
    finally:
        prometheus.terminate()
        prometheus.wait(20)
