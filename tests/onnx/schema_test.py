# SPDX-License-Identifier: Apache-2.0
"""Tables and pages that are compared with the onnx package."""
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("onnx", reason="the onnx package is absent")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*args):
    return subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True)


def test_field_tables_agree_with_the_package():
    done = run("tools/check_onnx_schema.py")
    assert done.returncode == 0, done.stdout
    assert "0 differ" in done.stdout


def test_coverage_page_lists_the_ops_that_are_imported():
    done = run("tools/onnx_coverage.py", "--check")
    assert done.returncode == 0, done.stderr
