#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what every source file must have: a licence line, a bounded length, no absolute path, the format.

Runs on the files that git tracks. The format is checked with clang-format-16 where it is installed; with
--require-format its absence is an error.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

CODE = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake"}
FORMATTED = {".h", ".cc", ".cu", ".cuh"}
MAX_LINES = 600
# Folders of one machine. Paths of the system itself (/proc, /sys, /dev) are interfaces.
ABSOLUTE = re.compile(r"""(?<![\w./$}\-])/(home|root|work|mnt|opt|Users)/[\w.\-]""")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
THIS = "tools/check_source.py"


def tracked(root: pathlib.Path) -> list[str]:
    out = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    return [name for name in out.decode().split("\0") if name and (root / name).is_file()]


def check_text(name: str, text: str) -> list[str]:
    errors = []
    lines = text.splitlines()
    if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:3]):
        errors.append(f"{name}:1: no line 'SPDX-License-Identifier: Apache-2.0' in the first three")
    if len(lines) > MAX_LINES:
        errors.append(f"{name}: {len(lines)} lines, more than {MAX_LINES}: is it one idea?")
    if pathlib.PurePath(name).suffix == ".h" and "#pragma once" not in text:
        errors.append(f"{name}: a header without #pragma once")
    for number, line in enumerate(lines, 1):
        if ABSOLUTE.search(line) and name != THIS:
            errors.append(f"{name}:{number}: an absolute path")
        if UNFINISHED.search(line) and name != THIS:
            errors.append(f"{name}:{number}: a mark of unfinished work")
        if line != line.rstrip():
            errors.append(f"{name}:{number}: space at the end of the line")
    return errors


def check_format(root: pathlib.Path, names: list[str], required: bool) -> list[str]:
    tool = shutil.which("clang-format-16")
    if not tool:
        return ["clang-format-16 is not installed (tools/install_deps.sh ci)"] if required else []
    errors = []
    for at in range(0, len(names), 50):
        result = subprocess.run([tool, "--dry-run", "-Werror", *names[at : at + 50]], cwd=root,
                                capture_output=True, text=True)
        bad = {m.group(1) for m in re.finditer(r"^([^\s:]+):\d+:\d+: error:", result.stderr, re.M)}
        errors += [f"{name}: not formatted (clang-format-16 -i {name})" for name in sorted(bad)]
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--require-format", action="store_true")
    args = parser.parse_args()
    names = [n for n in tracked(args.root) if pathlib.PurePath(n).suffix in CODE or n == "Makefile"]
    errors = []
    for name in names:
        errors += check_text(name, (args.root / name).read_text())
    formatted = [n for n in names if pathlib.PurePath(n).suffix in FORMATTED]
    errors += check_format(args.root, formatted, args.require_format)
    for error in errors:
        print(f"error: {error}")
    print(f"{len(names)} files, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
