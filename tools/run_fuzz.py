#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes every parser for some seconds: tools/run_fuzz.py [TARGET...] [--seconds N | --cpu-seconds N] [--jobs N] [--seed N]
                                                 [--preset fuzz|asan|coverage|cpu-release]

Starts each target from the valid files of tests/fuzz/ and from the inputs of old findings, and fails on any finding,
whose input stays in build/PRESET/findings/. The preset `fuzz` is clang with libFuzzer; the corpus that grows in
build/fuzz/corpus/ is kept between runs. The preset `asan` shares its objects with the tests: no coverage guides it,
but it is built in no time. Both have the address and undefined-behaviour sanitizers. The preset `cpu-release` has
none, and what `make test` built. With --cpu-seconds (only `fuzz`) a target ends when it has had that much processor time:
on a busy machine the clock says little about what was tried. The preset `coverage` prints which
share of each parser's lines the runs reached, and fails where that is less than 85%.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOUND = ROOT / "tests" / "fuzz" / "found"  # inputs of old findings, by target
PARSERS = {  # sources whose lines a target must reach
    "tensor_file": [f"src/tensor/{name}.cc" for name in ("npy", "npy_header", "zip_read", "safetensors", "proto_wire", "tensor_pb",
                                                         "tensor_pb_messages", "tensor_pb_sparse", "tensor_pb_value")],
    "ir_text": ["src/ir/text_scanner.cc", "src/ir/text_values.cc", "src/ir/text_parse.cc"],
    "plan_file": ["src/ir/binary_bytes.cc", "src/ir/binary_values.cc", "src/ir/binary_read.cc", "src/runtime/manifest.cc",
                  "src/runtime/plan_file_load.cc", "src/runtime/sections.cc"],
    "onnx_model": ["src/onnx/import", "src/onnx/proto"],
}
LEAST_COVERED = 0.85


def processor_seconds(pid: int) -> float:
    """Of a child that is not waited for yet; -1 when it has ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":
        return -1
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # the leak check is a process of its own


def run_target(build: pathlib.Path, name: str, seconds: int, cpu_seconds: int, seed: int) -> bool:
    """Runs for `seconds` on the clock, or without a limit on it for `cpu_seconds` of processor time."""
    corpus, findings = build / "corpus" / name, build / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    command = [build / f"fuzz_{name}", f"-max_total_time={0 if cpu_seconds else seconds}", f"-seed={seed}",
               f"-timeout={600 if cpu_seconds else 20}",
               "-rss_limit_mb=2048", "-malloc_limit_mb=1024", "-print_final_stats=1", "-max_len=65536",
               f"-artifact_prefix={findings}/{name}-", corpus, build / "seeds" / name,
               *([FOUND / name] if (FOUND / name).is_dir() else [])]
    environment = {**os.environ, "LLVM_PROFILE_FILE": str(build / f"{name}.profraw")}
    with open(build / f"{name}.log", "wb") as log:
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=log, env=environment)
        while cpu_seconds and 0 <= processor_seconds(process.pid) < cpu_seconds:
            time.sleep(1)
        if cpu_seconds:
            os.kill(process.pid, signal.SIGUSR1)  # libFuzzer ends in order, its statistics written
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    log = (build / f"{name}.log").read_text(errors="replace")  # texts of findings and of errors may hold any bytes
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", log)
    edges = re.findall(r"cov: (\d+)", log)
    print(f"{name}: {runs.group(1) if runs else '?'} runs in {used.ru_utime + used.ru_stime:.0f} s of processor time"
          + (f", {edges[-1]} edges" if edges else ""), flush=True)
    if process.returncode:
        print(log[-4000:])
    return process.returncode == 0


def covered(build: pathlib.Path, name: str) -> bool:
    """Prints the share of the parser's lines that the last run reached; the lines that it did not are in NAME.lines."""
    profile, program = build / f"{name}.profdata", build / f"fuzz_{name}"
    subprocess.run(["llvm-profdata-16", "merge", build / f"{name}.profraw", "-o", profile], check=True)
    sources = [ROOT / s for s in PARSERS[name]]
    files = [str(f) for s in sources for f in (sorted(s.rglob("*.cc")) if s.is_dir() else [s])]
    show = subprocess.run(["llvm-cov-16", "show", program, f"-instr-profile={profile}", *files], check=True, capture_output=True,
                          text=True).stdout
    (build / f"{name}.lines").write_text(show)
    counts = re.findall(r"^ *\d+\| *([0-9.]+[kMGT]?)\|", show, re.M)
    share = 1 - counts.count("0") / len(counts)
    print(f"{name}: {share:.1%} of {len(counts)} lines", flush=True)
    return share >= LEAST_COVERED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=int, default=30)
    length.add_argument("--cpu-seconds", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="targets at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preset", choices=["fuzz", "asan", "coverage", "cpu-release"], default="fuzz")
    args = parser.parse_args()
    if args.cpu_seconds and args.preset != "fuzz":
        parser.error("--cpu-seconds is for the preset fuzz")
    build = ROOT / "build" / args.preset
    every = PARSERS if args.preset == "coverage" else [f.name.removesuffix("_fuzz.cc") for f in FOUND.parent.glob("*_fuzz.cc")]
    names = args.targets or sorted(every)
    subprocess.run(["cmake", "--preset", args.preset], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(build), "--target", *[f"fuzz_{n}" for n in names]], cwd=ROOT, check=True)
    subprocess.run([sys.executable, str(ROOT / "tests" / "fuzz" / "make_seeds.py"), str(build / "seeds")], check=True)
    os.environ.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    os.environ.setdefault("ASAN_OPTIONS", "allocator_may_return_null=0:max_allocation_size_mb=1024:detect_leaks=1")
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        clean = sum(pool.map(lambda name: run_target(build, name, args.seconds, args.cpu_seconds, args.seed), names))
    if args.preset == "coverage" and not all([covered(build, name) for name in names]):
        print(f"less than {LEAST_COVERED:.0%} of a parser is reached")
        return 1
    print(f"{clean} targets without a finding, {len(names) - clean} with one")
    return 1 if clean < len(names) else 0


if __name__ == "__main__":
    sys.exit(main())
