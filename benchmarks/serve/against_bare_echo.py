# SPDX-License-Identifier: Apache-2.0
"""The identity model against a bare echo on the same HTTP library with the same client, in alternating rounds:
CPU time of the server a request, p50, throughput. Servers run on core 0, the client on core 1.

    against_bare_echo.py BUILD [--rounds N] [--requests N] [-o FILE]
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = 'backend: "identity"\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }\noutput { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }\n'


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=subprocess.PIPE, text=True)
        self.http = self.process.stdout.readline().split()[2]

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server, pelton, elements, concurrency, requests):
    before = server.cpu_seconds()
    out = subprocess.run(["taskset", "-c", "1", pelton, "loadtest", server.http, "-m", "id", "--shape", f"INPUT0={elements}",
                          "--concurrency", str(concurrency), "--requests", str(requests), "--json"], capture_output=True, text=True, check=True)
    row = json.loads(out.stdout)["results"][0]
    assert row["errors"] == 0, row
    return {"cpu_us": (server.cpu_seconds() - before) / requests * 1e6, "p50_us": row["latency_us"]["p50"], "p99_us": row["latency_us"]["p99"],
            "per_s": row["throughput_per_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    pelton = str(args.build / "pelton")
    with tempfile.TemporaryDirectory() as folder:
        echo = f"{folder}/bare_echo"
        subprocess.run(["g++", "-std=c++20", "-O3", "-DNDEBUG", str(ROOT / "benchmarks/serve/bare_echo.cc"), "-o", echo, "-pthread"], check=True)
        model = pathlib.Path(folder) / "models/id/1"
        model.mkdir(parents=True)
        (model.parent / "config.pbtxt").write_text(CONFIG)
        servers = {"bare": Server([echo, "0"]),
                   "pelton": Server([pelton, "serve", "--model-repository", f"{folder}/models", "--http-port=0", "--allow-grpc=false",
                                     "--allow-metrics=false", "--http-thread-count=1"])}
        report = {"cpu": platform.processor() or platform.machine(), "rounds": args.rounds, "load_average": os.getloadavg()[0], "cases": []}
        try:
            for elements, concurrency, requests in ((1, 1, args.requests), (1, 16, args.requests), (4 << 20, 1, max(20, args.requests // 400))):
                rounds = []
                for _ in range(args.rounds):
                    rounds.append({name: measure(s, pelton, elements, concurrency, requests) for name, s in servers.items()})
                case = {"elements": elements, "concurrency": concurrency, "requests": requests,
                        "ratio": {k: statistics.median(r["pelton"][k] / max(1e-9, r["bare"][k]) for r in rounds) for k in rounds[0]["bare"]},
                        "median": {name: {k: statistics.median(r[name][k] for r in rounds) for k in rounds[0][name]} for name in servers}}
                report["cases"].append(case)
                print(json.dumps(case))
        finally:
            for s in servers.values():
                s.process.terminate()
                s.process.wait()
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
