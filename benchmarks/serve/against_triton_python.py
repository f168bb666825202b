# SPDX-License-Identifier: Apache-2.0
"""The same model.py under Triton's Python backend and under ours, in alternating rounds with the same client: CPU time
of the server and its model process a request, throughput, latency. Servers run on core 0, the client on core 1.

    against_triton_python.py BUILD TRITON [--rounds N] [--requests N] [-o FILE]

TRITON is the unpacked wheel of nvidia-pytriton; the Python that runs this script runs the model in both servers.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request

CONFIG = """backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())])
                for r in requests]
"""


def ticks(pid):
    """Of the process and everything below it."""
    parents, spent = {}, {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        parents[int(p)], spent[int(p)] = int(fields[1]), int(fields[11]) + int(fields[12])
    total, todo = 0, [pid]
    while todo:
        p = todo.pop()
        total += spent.get(p, 0)
        todo += [c for c, q in parents.items() if q == p]
    return total


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, command, env=None):
        self.ports = {"http": free_port(), "grpc": free_port()}
        ports = [f"--{k}-port={v}" for k, v in self.ports.items()]
        self.process = subprocess.Popen(["taskset", "-c", "0", *command, *ports, "--allow-metrics=false"], env=env,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.time() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}/v2/health/ready", timeout=2)
                return
            except OSError:
                if time.time() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.2)


def measure(server, pelton, scheme, concurrency, requests):
    before = ticks(server.process.pid)
    out = subprocess.run(["taskset", "-c", "1", pelton, "loadtest", f"{scheme}://127.0.0.1:{server.ports[scheme]}", "-m", "echo", "--shape",
                          "INPUT0=1", "--concurrency", str(concurrency), "--requests", str(requests), "--json"], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{scheme} {server.ports}: {out.stderr}{out.stdout}")
    row = json.loads(out.stdout)["results"][0]
    assert row["errors"] == 0, row
    return {"cpu_us": (ticks(server.process.pid) - before) / os.sysconf("SC_CLK_TCK") / requests * 1e6, "per_s": row["throughput_per_s"],
            "p50_us": row["latency_us"]["p50"], "p99_us": row["latency_us"]["p99"]}


def compare(peer, servers, pelton, args):
    """Times the servers "triton" and "pelton" in alternating order, ends them and writes the report to args.output."""
    report = {"peer": peer, "cores": os.cpu_count(), "rounds": args.rounds, "load_average": os.getloadavg()[0], "cases": []}
    try:
        for scheme, concurrency in (("http", 1), ("http", 16), ("grpc", 1), ("grpc", 16)):
            rounds = []
            for i in range(args.rounds):
                order = list(servers.items())[::1 if i % 2 else -1]
                rounds.append({name: measure(s, pelton, scheme, concurrency, args.requests) for name, s in order})
            case = {"protocol": scheme, "concurrency": concurrency, "requests": args.requests,
                    "ratio": {k: statistics.median(r["pelton"][k] / max(1e-9, r["triton"][k]) for r in rounds) for k in rounds[0]["pelton"]},
                    "median": {name: {k: statistics.median(r[name][k] for r in rounds) for k in rounds[0][name]} for name in servers}}
            report["cases"].append(case)
            print(json.dumps(case), flush=True)
    finally:
        for s in servers.values():
            s.process.terminate()
            s.process.wait()
    report["load_average_end"] = os.getloadavg()[0]
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("triton", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    pelton, root = str(args.build / "pelton"), args.triton.resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "models/echo/1"
        model.mkdir(parents=True)
        (model / "model.py").write_text(MODEL)
        (model.parent / "config.pbtxt").write_text(CONFIG)
        triton = root / "pytriton/tritonserver"
        backends = pathlib.Path(folder) / "backends"
        shutil.copytree(triton / "backends", backends)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        stub = backends / "python/triton_python_backend_stub"
        shutil.copy(triton / "python_backend_stubs" / version / stub.name, stub)
        stub.chmod(0o755)
        (triton / "bin/tritonserver").chmod(0o755)
        env = os.environ | {"LD_LIBRARY_PATH": f"{root / 'nvidia_pytriton.libs'}:{sysconfig.get_config_var('LIBDIR')}",
                            "PYTHONPATH": sysconfig.get_paths()["purelib"], "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        repository = ["--model-repository", str(model.parents[1])]
        servers = {"triton": Server([str(triton / "bin/tritonserver"), *repository, "--backend-directory", str(backends)], env),
                   "pelton": Server([pelton, "serve", *repository, f"--python-executable={sys.executable}"])}
        compare("tritonserver of nvidia-pytriton 0.7.0, Python backend", servers, pelton, args)


if __name__ == "__main__":
    main()
