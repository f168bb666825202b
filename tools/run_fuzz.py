#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes every parser for some seconds: tools/run_fuzz.py [TARGET...] [--seconds N] [--seed N] [--preset fuzz|asan]

Starts each target from the valid files of tests/fuzz/ and from the inputs of old findings, and fails on any finding,
whose input stays in build/PRESET/findings/. The preset `fuzz` is clang with libFuzzer; the corpus that grows in
build/fuzz/corpus/ is kept between runs. The preset `asan` shares its objects with the tests: no coverage guides it,
but it is built in no time. Both have the address and undefined-behaviour sanitizers.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOUND = ROOT / "tests" / "fuzz" / "found"  # inputs of old findings, by target


def run_target(build: pathlib.Path, name: str, seconds: int, seed: int) -> bool:
    corpus, findings = build / "corpus" / name, build / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    command = [build / f"fuzz_{name}", f"-max_total_time={seconds}", f"-seed={seed}", "-timeout=20",
               "-rss_limit_mb=2048", "-malloc_limit_mb=1024", "-print_final_stats=1", "-max_len=65536",
               f"-artifact_prefix={findings}/{name}-", corpus, build / "seeds" / name,
               *([FOUND / name] if (FOUND / name).is_dir() else [])]
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    log = result.stderr
    (build / f"{name}.log").write_text(log)
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", log)
    covered = re.findall(r"cov: (\d+)", log)
    print(f"{name}: {runs.group(1) if runs else '?'} runs" + (f", {covered[-1]} edges" if covered else ""), flush=True)
    if result.returncode:
        print(log[-4000:])
    return result.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preset", choices=["fuzz", "asan"], default="fuzz")
    args = parser.parse_args()
    build = ROOT / "build" / args.preset
    names = args.targets or sorted(f.name.removesuffix("_fuzz.cc") for f in (ROOT / "tests" / "fuzz").glob("*_fuzz.cc"))
    subprocess.run(["cmake", "--preset", args.preset], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(build), "--target", *[f"fuzz_{n}" for n in names]], cwd=ROOT, check=True)
    subprocess.run([sys.executable, str(ROOT / "tests" / "fuzz" / "make_seeds.py"), str(build / "seeds")], check=True)
    os.environ.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    os.environ.setdefault("ASAN_OPTIONS", "allocator_may_return_null=0:max_allocation_size_mb=1024:detect_leaks=1")
    failed = [name for name in names if not run_target(build, name, args.seconds, args.seed)]
    print(f"{len(names) - len(failed)} targets without a finding, {len(failed)} with one")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
