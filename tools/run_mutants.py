#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeded faults: each file of tests/mutants/ changes one place of the source, and its tests must then fail.

  tools/run_mutants.py [NAME...] [--build FOLDER] [--jobs N] [--seconds N]

A mutant is a TOML file: `file`, `find` (text that occurs there exactly once), `replace`, `why` (the fault in
words) and `test` (a ctest name; its target test_<name> is the only thing built). The source is copied to a
scratch folder, so the work tree is never touched. A mutant that does not compile (unless a static assertion
caught it), whose text is not found, or that the tests do not notice is an error.

With --seconds only as many are run as fit: first those of files that the last commit changed, then the others in
an order that the commit draws, so that every one has its turn.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import tomllib

KEYS = {"file", "find", "replace", "why", "test"}


def load(path: pathlib.Path) -> dict:
    mutant = tomllib.loads(path.read_text())
    wrong = KEYS ^ mutant.keys()
    if wrong:
        raise ValueError(f"{path.name}: missing or unknown keys: {', '.join(sorted(wrong))}")
    if not (path.parent.parent / mutant["test"]).is_dir():
        raise ValueError(f"{path.name}: `test` must name a folder of tests/, \"{mutant['test']}\" is none")
    return mutant


def mutated(text: str, mutant: dict) -> str:
    count = text.count(mutant["find"])
    if count != 1:
        raise ValueError(f"`find` occurs {count} times in {mutant['file']}, must be once")
    return text.replace(mutant["find"], mutant["replace"])


def copy_source(root: pathlib.Path, scratch: pathlib.Path) -> None:
    """Tracked files, only those that changed, so that the scratch build stays incremental."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    wanted = {n for n in names.decode().split("\0") if n and (root / n).is_file()}
    for name in wanted:
        source, target = root / name, scratch / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
    for file in scratch.rglob("*"):
        name = file.relative_to(scratch).as_posix()
        if file.is_file() and name not in wanted and not name.startswith("build/"):
            file.unlink()


def git(root: pathlib.Path, *command: str) -> str:
    return subprocess.run(["git", *command], cwd=root, capture_output=True, text=True).stdout.strip()


def in_turn(mutants: dict, root: pathlib.Path) -> list:
    """Names in the order of their turn, those that share a test side by side: its target is built once."""
    changed = set(git(root, "diff", "--name-only", "HEAD~1").split("\n"))
    names = sorted(mutants)
    random.Random(git(root, "rev-parse", "HEAD")).shuffle(names)
    names.sort(key=lambda n: mutants[n]["file"] not in changed)
    tests = list(dict.fromkeys(mutants[n]["test"] for n in names))
    return sorted(names, key=lambda n: tests.index(mutants[n]["test"]))


def run(command: list, cwd: pathlib.Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)


class Bench:
    """The scratch copy, its build folder, and what runs there. Folders lie to each other as in the real tree and
    the flags are those of cpu-release, so that ccache knows every file that a mutant does not touch."""

    def __init__(self, root: pathlib.Path, folder: pathlib.Path, jobs: int):
        self.source, self.build, self.jobs = folder, folder / "build" / "cpu-release", jobs
        self.limits = {}  # by test, in seconds
        self.source.mkdir(parents=True, exist_ok=True)
        copy_source(root, self.source)
        os.environ["CCACHE_BASEDIR"], os.environ["CCACHE_NOHASHDIR"] = str(self.source), "1"
        result = run(["cmake", "--preset", "cpu-release", f"-DPELTON_DEPS_DIR={root / '.deps'}"], self.source)
        if result.returncode:
            raise RuntimeError(result.stdout + result.stderr)

        known = run(["ctest", "--test-dir", self.build, "--show-only=json-v1"], self.source).stdout
        self.tests = {test["name"] for test in json.loads(known)["tests"]}

    def build_test(self, test: str) -> str:
        target = "test_" + test.replace("/", "_")
        result = run(["cmake", "--build", self.build, "-j", self.jobs, "--target", target], self.source)
        return result.stdout[-3000:] + result.stderr[-1000:] if result.returncode else ""

    def test_fails(self, test: str, timeout: int) -> bool:
        return run(["ctest", "--test-dir", self.build, "-R", f"^{test}$", "--no-tests=error", "--timeout", timeout],
                   self.source).returncode != 0

    def sound(self, test: str) -> int:
        """Builds the test and runs it without a fault; returns after how many seconds it counts as hung, 0 if it fails."""
        if test not in self.limits:
            failure, start = self.build_test(test), time.monotonic()
            good = not failure and not self.test_fails(test, 1500)
            self.limits[test] = max(120, int(4 * (time.monotonic() - start))) if good else 0
            if not good:
                print(f"error: the tests of {test} fail without any mutant\n{failure}", flush=True)
        return self.limits[test]

    def judge(self, mutant: dict, limit: int) -> str:
        """Empty when the fault is caught (the tests fail, or do not end within `limit` seconds), else what is wrong."""
        path = self.source / mutant["file"]
        original = path.read_text()
        path.write_text(mutated(original, mutant))
        try:
            failure = self.build_test(mutant["test"])
            if "static assertion failed" in failure:
                return ""
            if failure:
                return "does not compile:\n" + failure
            return "" if self.test_fails(mutant["test"], limit) else "NOT caught"
        finally:
            path.write_text(original)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=int, default=0, help="start no mutant after so many seconds")
    args = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    files = sorted((root / "tests" / "mutants").glob("*.toml"))
    if args.names:
        files = [f for f in files if f.stem in args.names]
    if not files:
        print("error: no such mutant")
        return 1
    mutants = {f.stem: load(f) for f in files}
    bench = Bench(root, (args.build or root / "build" / "mutants").resolve(), args.jobs)

    errors, ran = 0, 0
    begin = time.monotonic()
    absent = sorted(n for n in mutants if mutants[n]["test"] not in bench.tests)
    if absent:
        print(f"{len(absent)} mutants of layers that this build does not have are left out: {', '.join(absent)}")
    for name in in_turn({n: m for n, m in mutants.items() if n not in absent}, root):
        if args.seconds and time.monotonic() - begin > args.seconds:
            break
        limit = bench.sound(mutants[name]["test"])
        start = time.monotonic()
        try:
            verdict = bench.judge(mutants[name], limit) if limit else "not run"
        except ValueError as error:
            verdict = str(error)
        errors += bool(verdict)
        ran += 1
        print(f"{'error' if verdict else 'caught'}: {name} ({mutants[name]['why']}) {verdict} "
              f"[{time.monotonic() - start:.0f} s]", flush=True)
    late = len(mutants) - len(absent) - ran
    left_out = f", {late} left out for time" if late else ""
    print(f"{ran - errors} of {ran} mutants caught{left_out}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
