#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each header alone, with the flags of its layer's sources: tools/check_headers.py BUILD_FOLDER

A header of a layer that this build leaves out (its dependency is absent) is listed as skipped.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

import check_layers


def flags_by_folder(build: pathlib.Path, source: pathlib.Path) -> dict[str, list[str]]:
    """For each folder below src/ with a compiled file: the command, less its input and outputs."""
    out: dict[str, list[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if source not in file.parents or file.suffix != ".cc":  # other compilers take other flags
            continue
        words = shlex.split(entry["command"])
        kept, skip = [], False
        for word in words:
            if skip:
                skip = False
            elif word in ("-o", "-MF", "-MT", "-c"):
                skip = True
            elif word != "-MD" and not word.endswith("ccache"):
                kept.append(word)
        out.setdefault(file.parent.relative_to(source).as_posix(), kept)
    return out


def flags_for(header: pathlib.Path, source: pathlib.Path, flags: dict[str, list[str]],
              layers: dict[str, check_layers.Layer]) -> list[str] | None:
    folder = header.parent.relative_to(source).as_posix()
    while folder not in flags:
        inside = [f for f in flags if f.startswith(folder + "/")]
        if inside:
            return flags[sorted(inside)[0]]
        if "/" not in folder or folder in layers:
            return None
        folder = folder.rsplit("/", 1)[0]
    return flags[folder]


def compile_alone(header: pathlib.Path, command: list[str], build: pathlib.Path) -> str:
    text = f'#include "{header}"\n'
    result = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=text, cwd=build,
                            capture_output=True, text=True)
    return result.stderr.strip() if result.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    args = parser.parse_args()
    source, build = (args.root / "src").resolve(), args.build.resolve()
    flags = flags_by_folder(build, source)
    layers, _ = check_layers.read_table((args.root / "docs" / "architecture.md").read_text())
    jobs, skipped = [], []
    for header in sorted(source.rglob("*.h")):
        command = flags_for(header, source, flags, layers)
        if command is None:
            skipped.append(header)
        else:
            jobs.append((header, command))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (header, _), message in zip(jobs, pool.map(lambda job: compile_alone(*job, build), jobs)):
            if message:
                failed += 1
                print(f"error: {header.relative_to(args.root)} does not compile alone:\n{message}")
    for header in skipped:
        print(f"skipped: {header.relative_to(args.root)} (its layer is not in this build)")
    print(f"{len(jobs)} headers, {failed} errors")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
