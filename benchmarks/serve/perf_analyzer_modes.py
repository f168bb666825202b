# SPDX-License-Identifier: Apache-2.0
"""perf_analyzer in its load modes against the server: which of them run through, and what they measure.

    perf_analyzer_modes.py BUILD [-o FILE] -- PERF_ANALYZER...

PERF_ANALYZER... is the command that runs it, perhaps in a chroot of a newer system: the published wheel wants a newer C
library than Debian 12 has, and libcudart.so also for system shared memory.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

IO = """input [ {{ name: "INPUT0" data_type: {0} dims: [ {1} ] }} ]
output [ {{ name: "OUTPUT0" data_type: {0} dims: [ {1} ] }} ]
"""
MODELS = {
    "echo": 'backend: "identity"\n' + IO.format("TYPE_FP32", -1),
    "batched": 'backend: "identity"\nmax_batch_size: 16\ndynamic_batching { }\n' + IO.format("TYPE_FP32", -1),
    "text": 'backend: "identity"\n' + IO.format("TYPE_STRING", -1),
    "seq": 'backend: "identity"\nmax_batch_size: 4\nsequence_batching { }\n' + IO.format("TYPE_FP32", -1),
    "counts": 'backend: "python"\nmodel_transaction_policy { decoupled: true }\n' + IO.format("TYPE_INT32", 1),
}
COUNTS = pathlib.Path(__file__).resolve().parents[2] / "tests/serve/models/three_responses.py"
MODES = {
    "HTTP, concurrency": "-m echo --shape INPUT0:4 --concurrency-range 1:4:3",
    "gRPC, concurrency": "-m echo -i grpc --shape INPUT0:4 --concurrency-range 4",
    "HTTP, request rate": "-m echo --shape INPUT0:4 --request-rate-range 100:200:100",
    "gRPC, Poisson arrivals": "-m echo -i grpc --shape INPUT0:4 --request-rate-range 150 --request-distribution poisson",
    "HTTP, asynchronous": "-m echo --shape INPUT0:4 --async --concurrency-range 8",
    "gRPC, streaming": "-m echo -i grpc --streaming --shape INPUT0:4 --concurrency-range 4",
    "HTTP, system shared memory": "-m echo --shape INPUT0:1024 --shared-memory system --output-shared-memory-size 8192",
    "gRPC, system shared memory": "-m echo -i grpc --shape INPUT0:1024 --shared-memory system --output-shared-memory-size 8192",
    "HTTP, JSON tensors": "-m echo --shape INPUT0:1 --input-tensor-format json --output-tensor-format json",
    "HTTP, batches": "-m batched --shape INPUT0:4 -b 4 -z --concurrency-range 4",
    "gRPC, compressed": "-m echo -i grpc --shape INPUT0:64 --grpc-compression-algorithm gzip",
    "gRPC, sequences": "-m seq -i grpc --shape INPUT0:1 --num-of-sequences 4 --sequence-length 8 --concurrency-range 4",
    "HTTP, sequences at a rate": "-m seq --shape INPUT0:1 --sequence-length 5 --request-rate-range 100",
    "HTTP, BYTES": "-m text --shape INPUT0:1 --string-length 16",
    "HTTP, windows by count": "-m echo --shape INPUT0:4 --measurement-mode count_windows --measurement-request-count 50",
    "HTTP, with server metrics": "-m echo --shape INPUT0:4 --collect-metrics --metrics-url http://{metrics}/metrics --metrics-interval 500",
    "gRPC, decoupled": "-m counts -i grpc --streaming --shape INPUT0:1",
    "HTTP, percentile": "-m echo --shape INPUT0:4 --percentile 95",
    "HTTP, request count": "-m echo --shape INPUT0:4 --request-count 50",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    version = subprocess.run([*args.command, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout.strip()
    report = {"client": version, "load_average": os.getloadavg()[0], "modes": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, config in MODELS.items():
            (pathlib.Path(folder) / name / "1").mkdir(parents=True)
            (pathlib.Path(folder) / name / "config.pbtxt").write_text(config)
        shutil.copy(COUNTS, pathlib.Path(folder) / "counts/1/model.py")
        server = subprocess.Popen([str(args.build / "pelton"), "serve", "--model-repository", folder, "--http-port=0", "--grpc-port=0", "--metrics-port=0",
                                   "--allow-client-shm=true", f"--python-executable={sys.executable}"], stdout=subprocess.PIPE, text=True)
        try:
            line = server.stdout.readline().split()
            where = dict(zip(line[1::2], line[2::2]))
            for name, flags in MODES.items():
                url = where["grpc" if "-i grpc" in flags else "http"]
                run = subprocess.run([*args.command, "-u", url, *flags.format(**where).split(), "-p", "1000", "-s", "500", "-r", "3", "--max-threads", "4"],
                                     capture_output=True, text=True, timeout=300)
                text = run.stdout + run.stderr
                rates = [float(r) for r in re.findall(r"hroughput: ([\d.]+) infer/sec", text)]
                # A wide bound of stability: this asks whether the mode works, not how fast a busy machine is.
                report["modes"][name] = {"ran": run.returncode == 0, "per_s": rates[-1] if rates else None}
                if run.returncode:
                    report["modes"][name]["says"] = text.strip()[-300:]
                print(name, json.dumps(report["modes"][name]), flush=True)
        finally:
            server.terminate()
            server.wait()
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(m["ran"] for m in report["modes"].values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
