#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ctest and sums up cases: tools/run_tests.py BUILD_FOLDER [--label L] [--counts FILE]

The last line is `N passed, N failed, N skipped`, in cases of doctest and pytest. Skips are listed by reason;
one whose reason is not in tests/allowed_skips.txt is an error.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

DOCTEST = re.compile(r"test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")
SKIP_LINE = re.compile(r"^\[skip\] (.+)$", re.M)
PYTEST_SKIP = re.compile(r"^SKIPPED \[(\d+)\] [^\s]+?(?::\d+)?: (.+)$", re.M)
PYTEST_COUNT = re.compile(r"(\d+) (passed|failed|error|errors|skipped)")
PYTEST_END = re.compile(r"^[=\s]*((?:\d+ \w+(?:, )?)+) in [\d.]+s.*$", re.M)
ONE_TEST = re.compile(r"^\d+/\d+ Testing: (.+?)$(.*?)^Test (Passed|Failed)\.", re.M | re.S)


class Summary:
    def __init__(self):
        self.passed = self.failed = 0
        self.skips: collections.Counter[str] = collections.Counter()

    def add_output(self, name: str, text: str, ok: bool) -> None:
        """Counts of one ctest entry. One that prints no counts is a single case."""
        passed = failed = 0
        counted = False
        for match in DOCTEST.finditer(text):
            counted = True
            passed, failed = passed + int(match.group(2)), failed + int(match.group(3))
        for reason in SKIP_LINE.findall(text):
            self.skips[reason.strip()] += 1
            passed -= 1  # doctest counts a case that returns early as passed
        ends = PYTEST_END.findall(text)
        if ends:
            counted = True
            for number, kind in PYTEST_COUNT.findall(ends[-1]):
                if kind == "passed":
                    passed += int(number)
                elif kind != "skipped":
                    failed += int(number)
            for number, reason in PYTEST_SKIP.findall(text):
                self.skips[reason.strip()] += int(number)
        if not counted:
            passed = 1 if ok else 0
        if not ok and failed == 0:
            failed = 1  # a crash, a time-out, or a check outside any case
            print(f"failed outside its cases: {name}")
        self.passed += max(0, passed)
        self.failed += failed

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {sum(self.skips.values())} skipped"


def read_log(text: str) -> Summary:
    summary = Summary()
    for name, body, result in ONE_TEST.findall(text):
        summary.add_output(name, body, result == "Passed")
    return summary


def allowed_reasons(path: pathlib.Path) -> set[str]:
    return {line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--label", help="only tests with this ctest label (a folder of tests/)")
    parser.add_argument("--exclude-label", help="no tests with a label that this expression matches")
    parser.add_argument("--compiled", action="store_true", help="no tests in Python")
    parser.add_argument("--counts", type=pathlib.Path, help="append `passed failed skipped` to this file")
    args = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    command = ["ctest", "--output-on-failure", "--no-tests=error", f"-j{os.cpu_count()}"]
    if args.label:
        command += ["-L", args.label]
    if args.exclude_label:
        command += ["-LE", args.exclude_label]
    if args.compiled:
        command += ["-E", "_test$"]
    status = subprocess.run(command, cwd=args.build).returncode
    summary = read_log((args.build / "Testing" / "Temporary" / "LastTest.log").read_text(errors="replace"))

    allowed = allowed_reasons(root / "tests" / "allowed_skips.txt")
    strange = [reason for reason in summary.skips if reason not in allowed]
    for reason, count in sorted(summary.skips.items()):
        print(f"skipped {count}: {reason}")
    for reason in strange:
        print(f"error: a skip whose reason is not in tests/allowed_skips.txt: {reason}")
    if args.counts:
        with args.counts.open("a") as out:
            out.write(f"{summary.passed} {summary.failed} {sum(summary.skips.values())}\n")
    if status and not summary.failed:
        print(f"error: ctest ended with status {status}")
    print(summary.line())
    return 1 if status or summary.failed or strange else 0


if __name__ == "__main__":
    sys.exit(main())
