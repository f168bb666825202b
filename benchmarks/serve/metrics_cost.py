# SPDX-License-Identifier: Apache-2.0
"""What statistics and metrics cost: the share of a request's instructions (one element to the identity model over HTTP) that
callgrind counts in them, with and without the metrics port.

    metrics_cost.py BUILD [--requests N] [-o FILE]
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile
import time

CONFIG = 'backend: "identity"\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }\noutput { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }\n'
# Called from outside of the statistics; what they call themselves is part of them.
ENTRIES = ("ModelStats::record_success", "ModelStats::record_execution")


def measure(pelton, folder, metrics, requests):
    out = pathlib.Path(folder) / f"callgrind.{metrics}"
    server = subprocess.Popen(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no", pelton, "serve",
                               "--model-repository", f"{folder}/models", "--http-port=0", "--metrics-port=0", "--allow-grpc=false",
                               f"--allow-metrics={metrics}", "--http-thread-count=1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    address = server.stdout.readline().split()[2]
    load = lambda n: subprocess.run([pelton, "loadtest", address, "-m", "id", "--shape", "INPUT0=1", "--requests", str(n)],  # noqa: E731
                                    check=True, capture_output=True)
    load(300)
    control = lambda word: subprocess.run(["callgrind_control", "-i", word, str(server.pid)], check=True, capture_output=True)  # noqa: E731
    control("on")
    load(requests)
    control("off")
    server.terminate()
    server.wait(60)
    time.sleep(0.2)
    text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(out)], check=True, capture_output=True, text=True).stdout
    count = lambda s: int(s.replace(",", ""))  # noqa: E731
    total = count(re.search(r"^ *([\d,]+) .*PROGRAM TOTALS", text, re.M)[1])
    spent = {name: max((count(m) for m in re.findall(rf"^ *([\d,]+) .*{re.escape(name)}\(", text, re.M)), default=0) for name in ENTRIES}
    assert all(spent.values()), spent
    return {"instructions_a_request": total / requests, "of_statistics": sum(spent.values()) / requests, "share": sum(spent.values()) / total}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        version = pathlib.Path(folder) / "models/id/1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG)
        report = {f"metrics_{m}": measure(str(args.build / "pelton"), folder, m, args.requests) for m in ("true", "false")}
    print(json.dumps(report))
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
