#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests that need a GPU: tools/run_gpu_tests.py BUILD_FOLDER [--jobs 6] [--only WORD]

A process for each source file of test_backend_cuda and test_gpu, several for the longest, so many at a time; files that fill the GPU's
memory run last and alone. The last line is `N passed, N failed, N skipped`, in cases of doctest.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

from run_tests import Summary

SHARES = {"ops_test.cc": 4, "random_test.cc": 3}  # tests/support/share.h
ALONE = {"faults_test.cc"}
LIMIT_S = 500


def source_files(binary):
    listed = subprocess.run([binary, "--list-test-cases", "--reporters=xml"], capture_output=True, text=True, check=True).stdout
    cases = xml.etree.ElementTree.fromstring(listed[listed.index("<?xml"):]).iter("TestCase")
    return sorted({pathlib.Path(c.get("filename")).name for c in cases})


def run(binary, name, share, of):
    environment = dict(os.environ)
    if of > 1:
        environment["PELTON_TEST_SHARE"] = f"{share}/{of}"
    start = time.perf_counter()
    try:
        done = subprocess.run([binary, f"--source-file=*/{name}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=LIMIT_S, env=environment)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        output, status = f"{(late.stdout or b'').decode(errors='replace')}\nnot ended after {LIMIT_S} s", -1
    return output, status == 0, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--only", default="", help="only files whose name holds this")
    options = parser.parse_args()
    jobs, alone = [], []
    for binary in ("test_gpu", "test_backend_cuda"):
        path = (options.build / binary).resolve()
        for name in source_files(path):
            of = SHARES.get(name, 1)
            wanted = [(path, name, share, of) for share in range(1, of + 1) if options.only in name]
            (alone if name in ALONE else jobs).extend(wanted)
    jobs.sort(key=lambda job: -job[3])
    summary = Summary()

    def report(job, result):
        output, ok, seconds = result
        label = f"{job[1]} {job[2]}/{job[3]}" if job[3] > 1 else job[1]
        print(f"{seconds:6.1f} s  {label}: {'ok' if ok else 'FAILED'}", flush=True)
        if not ok:
            print(re.sub(r"^", "    ", output[-4000:], flags=re.M), flush=True)
        summary.add_output(label, output, ok)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        pending = {pool.submit(run, *job): job for job in jobs}
        for done in concurrent.futures.as_completed(pending):
            report(pending[done], done.result())
    for job in alone:
        report(job, run(*job))
    for reason, count in sorted(summary.skips.items()):
        print(f"skipped: {count} {reason}")
    print(summary.line())
    sys.exit(summary.failed > 0)


if __name__ == "__main__":
    main()
