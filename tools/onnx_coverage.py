#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/onnx-coverage.md: which ONNX ops are imported, against the installed onnx package.

usage: onnx_coverage.py [--results NAME=FILE...] [--check]
--results takes JSON files of conform_classes.py, one for each way to run the cases, and adds pass rates; --check
only compares the list of ops with the page and fails when it is out of date.
"""
import argparse
import collections
import json
import pathlib
import re
import sys

import onnx

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "onnx-coverage.md"
CONSTANTS = {"kMsDomain": "com.microsoft", "kMlDomain": "ai.onnx.ml"}


def imported():
    """(domain, op) pairs that the import table registers, read from the sources."""
    found = set()
    for path in sorted((ROOT / "src/onnx/import").glob("*.cc")):
        text = path.read_text()
        local = {name: value for name, value in re.findall(r'constexpr std::string_view (\w+) = "([^"]+)"', text)}
        for names in re.findall(r"constexpr Rename k\w+\[\] = \{(.*?)\};", text, re.S):
            found.update(("", op) for op in re.findall(r'\{"(\w+)",', names))
        for arguments in re.findall(r"table\.add\(([^;]*?)\);", text, re.S):
            cells = [c.strip() for c in arguments.split(",")]
            if len(cells) == 2 and cells[0].startswith('"'):
                found.add(("", cells[0].strip('"')))
            elif len(cells) == 3:
                domain = cells[0].strip('"')
                domains = ["", "com.microsoft"] if domain == "domain" and "domain" not in local else [
                    local.get(domain, CONSTANTS.get(domain, domain))]
                found.update((d, cells[1].strip('"')) for d in domains)
    return found


def known():
    versions = collections.defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        versions[schema.domain, schema.name].add(schema.since_version)
    return versions


def conformance(results):
    """Pass rates of each class in each way, and what does not pass."""
    ways = list(results)
    lines = ["## Conformance", "", "Cases that the onnx package generates, by the class that their model alone decides.", "",
             f"| class | cases | {' | '.join(ways)} |", f"|---|---|{'---|' * len(ways)}"]
    total, passed, failures = collections.Counter(), collections.Counter(), {}
    for way, rows in results.items():
        for row in rows:
            total[way, row["class"]] += 1
            passed[way, row["class"]] += row["passed"]
            if not row["passed"]:
                failures.setdefault((row["case"], row["class"], row["reason"]), []).append(way)
    for c in sorted({c for _, c in total}):
        rates = " | ".join(f"{100 * passed[w, c] / total[w, c]:.1f}%" for w in ways)
        lines.append(f"| {c} | {total[ways[0], c]} | {rates} |")
    lines += ["", "Cases that do not pass:", ""]
    for (case, kind, reason), where in sorted(failures.items()):
        lines.append(f"- `{case}` ({kind}; {'every way' if where == ways else ', '.join(where)}): {reason[:160]}")
    return lines + [""]


def page(results):
    ours, versions = imported(), known()
    lines = ["# ONNX coverage", "",
             f"Made by `tools/onnx_coverage.py` against onnx {onnx.__version__} (operator set {onnx.defs.onnx_opset_version()}).",
             "An imported op takes every version listed unless a note in its import function refuses a form by name.", "",
             "`pelton export` refuses by name what ONNX cannot say: state that changes from run to run, and a plan made with `--shape` in which a branch of an",
             "If does not allow these sizes. No op of ONNX refuses to run, and such a plan holds the graph at its sizes alone: export the model itself, or a plan",
             "compiled without `--shape`.", ""]
    lines += conformance(results) if results else []
    for domain in ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"):
        ops = sorted(op for d, op in versions if d == domain)
        have = [op for op in ops if (domain, op) in ours]
        lines += [f"## {domain or 'ai.onnx'}: {len(have)} of {len(ops)}", "", "| op | versions | imported |", "|---|---|---|"]
        lines += [f"| {op} | {' '.join(map(str, sorted(versions[domain, op])))} | {'yes' if (domain, op) in ours else 'no'} |" for op in ops]
        lines.append("")
    extra = sorted((d, op) for d, op in ours if (d, op) not in versions)
    lines += ["## Other ops", "", "| op | domain |", "|---|---|"] + [f"| {op} | {d or 'ai.onnx'} |" for d, op in extra]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        strip = lambda text: re.sub(r"## Conformance.*?(?=^## )", "", text, flags=re.S | re.M)
        if strip(PAGE.read_text()) != strip(page(None)):
            sys.exit("docs/onnx-coverage.md is out of date: run tools/onnx_coverage.py")
        return
    results = {}
    for item in args.results:
        name, _, file = item.partition("=")
        results[name] = json.loads(pathlib.Path(file).read_text())
    PAGE.write_text(page(results))
    print(f"{PAGE.relative_to(ROOT)}: {len(imported())} ops")


if __name__ == "__main__":
    main()
