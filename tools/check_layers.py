#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an include that the layer table does not allow.

The table in docs/architecture.md has one row a layer: its folder below src/ and the layers it may include.
A row may only name layers of earlier rows, so the graph cannot have a cycle. Checked are every #include of
src/, and that the SEES lists in CMakeLists.txt allow no more than the table.
"""
import argparse
import dataclasses
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
CMAKE_LAYER = re.compile(r"^\s*pelton_layer\(\s*(\S+)([^)]*)\)", re.M)


@dataclasses.dataclass
class Layer:
    folder: str
    sees: set[str]


def read_table(text: str) -> tuple[dict[str, Layer], list[str]]:
    """Rows between the markers `<!-- layers -->` and `<!-- /layers -->`: | `name` | sees | what it holds |"""
    errors, layers = [], {}
    found = re.search(r"<!-- layers -->(.*?)<!-- /layers -->", text, re.S)
    if not found:
        return {}, ["docs/architecture.md has no table between <!-- layers --> and <!-- /layers -->"]
    for line in found.group(1).strip().splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) < 3 or not cells[0].startswith("`"):
            continue
        name = cells[0].strip("`")
        sees = {s.strip(" `") for s in cells[1].split(",") if s.strip(" `-")}
        for seen in sorted(sees - layers.keys()):
            errors.append(f"layer table: {name} names {seen}, which no earlier row declares")
        layers[name] = Layer(name, sees)
    return layers, errors


def layer_of(path: str, layers: dict[str, Layer]) -> str | None:
    """The layer with the longest folder that `path` (relative to src/) lies in."""
    fitting = [name for name, layer in layers.items() if path.startswith(layer.folder + "/")]
    return max(fitting, key=len, default=None)


def check_includes(root: pathlib.Path, layers: dict[str, Layer]) -> list[str]:
    errors = []
    source = root / "src"
    for file in sorted(source.rglob("*")):
        if file.suffix not in (".h", ".cc", ".cu", ".cuh", ".inc"):
            continue
        relative = file.relative_to(source).as_posix()
        own = layer_of(relative, layers)
        if own is None:
            errors.append(f"src/{relative}: its folder is no layer of docs/architecture.md")
            continue
        for match in INCLUDE.finditer(file.read_text(errors="replace")):
            included = match.group(1)
            if not (source / included).exists():
                continue  # not ours, or relative to the public include folder
            other = layer_of(included, layers)
            if other != own and other not in layers[own].sees:
                line = file.read_text(errors="replace")[: match.start(1)].count("\n") + 1
                errors.append(f"src/{relative}:{line}: {own} includes {included}, but may not see {other}")
    return errors


def check_cmake(root: pathlib.Path, layers: dict[str, Layer]) -> list[str]:
    """SEES and the table agree in this: CMake links nothing that the table forbids."""
    errors = []
    files = [root / "CMakeLists.txt", *sorted(root.glob("cmake/*.cmake"))]  # a group of layers may have its own file
    lines = [line for file in files if file.name != "PeltonLayers.cmake" for line in file.read_text().splitlines()]
    text = "\n".join(line.split("#")[0] for line in lines)
    folder_of = {}
    rows = []
    for match in CMAKE_LAYER.finditer(text):
        words = match.group(2).split()
        folder = words[words.index("DIR") + 1] if "DIR" in words else match.group(1)
        folder_of[match.group(1)] = folder
        sees = []
        if "SEES" in words:
            for word in words[words.index("SEES") + 1 :]:
                if word.isupper():
                    break
                sees.append(word)
        rows.append((match.group(1), sees))
    for name, sees in rows:
        layer = layers.get(folder_of[name])
        if layer is None:
            errors.append(f"CMakeLists.txt: layer {name} ({folder_of[name]}) has no row in docs/architecture.md")
            continue
        for seen in sees:
            if folder_of.get(seen, seen) not in layer.sees:
                errors.append(f"CMakeLists.txt: {name} SEES {seen}, which docs/architecture.md does not allow")
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    layers, errors = read_table((root / "docs" / "architecture.md").read_text())
    if layers:
        errors += check_includes(root, layers) + check_cmake(root, layers)
    for error in errors:
        print(f"error: {error}")
    print(f"{len(layers)} layers, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
