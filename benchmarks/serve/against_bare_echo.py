# SPDX-License-Identifier: Apache-2.0
"""The identity model against a bare echo on the same HTTP or gRPC library with the same client, in alternating rounds: CPU time
of the server a request, latencies, throughput, with one element and with 16 MB. Then a request whose 16 MB lie in system
shared memory against one of a single element to the same model. Servers run on core 0, the client on core 1.

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
# Hands back the small one, so that nothing has to be written.
PICK = CONFIG.replace("output {", 'input { name: "LARGE" data_type: TYPE_FP32 dims: -1 }\noutput {')
LARGE = 4 << 20  # elements


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().split()
        self.address = dict(zip(line[1::2], line[2::2]))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server, pelton, scheme, concurrency, requests, *flags):
    before = server.cpu_seconds()
    out = subprocess.run(["taskset", "-c", "1", pelton, "loadtest", f"{scheme}://{server.address[scheme]}", *flags,
                          "--concurrency", str(concurrency), "--requests", str(requests), "--json"], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(out.stderr + out.stdout)
    row = json.loads(out.stdout)["results"][0]
    assert row["errors"] == 0, row
    return {"cpu_us": (server.cpu_seconds() - before) / requests * 1e6, "p50_us": row["latency_us"]["p50"], "p99_us": row["latency_us"]["p99"],
            "per_s": row["throughput_per_s"]}


def summary(rounds, ours, other):
    return {"ratio": {k: statistics.median(r[ours][k] / max(1e-9, r[other][k]) for r in rounds) for k in rounds[0][ours]},
            "median": {name: {k: statistics.median(r[name][k] for r in rounds) for k in rounds[0][name]} for name in (ours, other)}}


def build_echoes(build, folder):
    """The two programs, by protocol."""
    compiler = ["g++", "-std=c++20", "-O3", "-DNDEBUG"]
    source = ROOT / "benchmarks/serve"
    subprocess.run([*compiler, str(source / "bare_http_echo.cc"), "-o", f"{folder}/http", "-pthread"], check=True)
    libraries = subprocess.run(["pkg-config", "--libs", "grpc++", "protobuf"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run([*compiler, "-I", str(build / "proto"), str(source / "bare_grpc_echo.cc"), "-o", f"{folder}/grpc",
                    str(build / "libpelton_serve_proto.a"), *libraries], check=True)
    return {scheme: f"{folder}/{scheme}" for scheme in ("http", "grpc")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    pelton = str(args.build / "pelton")
    few = max(20, args.requests // 400)
    report = {"cpu": platform.processor() or platform.machine(), "rounds": args.rounds, "load_average": os.getloadavg()[0], "cases": []}

    def add(case):
        report["cases"].append(case)
        print(json.dumps(case), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for name, config in (("id", CONFIG), ("pick", PICK)):
            model = pathlib.Path(folder) / "models" / name / "1"
            model.mkdir(parents=True)
            (model.parent / "config.pbtxt").write_text(config)
        servers = {scheme: Server([program, "0"]) for scheme, program in build_echoes(args.build.resolve(), folder).items()}
        ours = servers["pelton"] = Server([pelton, "serve", "--model-repository", f"{folder}/models", "--http-port=0", "--grpc-port=0",
                                           "--allow-metrics=false", "--http-thread-count=1", "--allow-client-shm=true"])
        try:
            for scheme in ("http", "grpc"):
                for elements, concurrency, requests in ((1, 1, args.requests), (1, 16, args.requests), (LARGE, 1, few)):
                    rounds = []
                    for i in range(args.rounds):
                        pair = [("bare", servers[scheme]), ("pelton", ours)][::1 if i % 2 else -1]
                        rounds.append({name: measure(s, pelton, scheme, concurrency, requests, "-m", "id", "--shape", f"INPUT0={elements}")
                                       for name, s in pair})
                    add({"protocol": scheme, "elements": elements, "concurrency": concurrency, "requests": requests} | summary(rounds, "pelton", "bare"))
            for scheme in ("http", "grpc"):
                rounds = [{"one_element": measure(ours, pelton, scheme, 1, args.requests // 4, "-m", "pick", "--shape", "INPUT0=1", "--shape", "LARGE=1"),
                           "shared_16_mb": measure(ours, pelton, scheme, 1, args.requests // 4, "-m", "pick", "--shape", "INPUT0=1", "--shape", f"LARGE={LARGE}",
                                                   "--shared-memory", "system", "--output-shared-memory-size", "64")}
                          for _ in range(args.rounds)]
                add({"protocol": scheme, "case": "system shared memory", "requests": args.requests // 4} | summary(rounds, "shared_16_mb", "one_element"))
        finally:
            for s in servers.values():
                s.process.terminate()
                s.process.wait()
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
