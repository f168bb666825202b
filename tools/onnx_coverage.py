#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/onnx-coverage.md: which ONNX ops are imported, against the installed onnx package.

usage: onnx_coverage.py [--results FILE] [--check]
--results takes the JSON of conform_classes.py and adds pass rates; --check only compares the list of ops with the
page and fails when it is out of date.
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


def page(results):
    ours, versions = imported(), known()
    lines = ["# ONNX coverage", "",
             f"Made by `tools/onnx_coverage.py` against onnx {onnx.__version__} (operator set {onnx.defs.onnx_opset_version()}).",
             "An imported op takes every version listed unless a note in its import function refuses a form by name.", ""]
    if results:
        lines += ["## Conformance on the reference path", "", "| class | pass | cases | rate |", "|---|---|---|---|"]
        total, passed = collections.Counter(), collections.Counter()
        for row in results:
            total[row["class"]] += 1
            passed[row["class"]] += row["passed"]
        lines += [f"| {c} | {passed[c]} | {total[c]} | {100 * passed[c] / total[c]:.1f}% |" for c in sorted(total)]
        failures = [r for r in results if not r["passed"]]
        lines += ["", "Cases that do not pass:", ""]
        lines += [f"- `{r['case']}` ({r['class']}): {r['reason'][:160]}" for r in failures] + [""]
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
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        strip = lambda text: re.sub(r"## Conformance on.*?(?=^## )", "", text, flags=re.S | re.M)
        if strip(PAGE.read_text()) != strip(page(None)):
            sys.exit("docs/onnx-coverage.md is out of date: run tools/onnx_coverage.py")
        return
    PAGE.write_text(page(json.loads(args.results.read_text()) if args.results else None))
    print(f"{PAGE.relative_to(ROOT)}: {len(imported())} ops")


if __name__ == "__main__":
    main()
