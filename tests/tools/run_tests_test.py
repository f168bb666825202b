# SPDX-License-Identifier: Apache-2.0
"""The summary of ctest logs: counts, skips by reason, crashes."""
import run_tests

LOG = """Start testing
----------------------------------------------------------
1/4 Testing: base
1/4 Test: base
Output:
----------------------------------------------------------
[doctest] test cases:   34 |   34 passed | 0 failed | 0 skipped
[skip] no network
[skip] no network
<end of output>
----------------------------------------------------------
Test Passed.
"base" end time: now
2/4 Testing: tensor
[doctest] test cases: 5 | 3 passed | 2 failed | 0 skipped
Test Failed.
3/4 Testing: tools/x
SKIPPED [2] tests/tools/x_test.py:12: needs torch
========= 7 passed, 1 failed, 2 skipped in 0.31s =========
Test Failed.
4/4 Testing: crash
Segmentation fault
Test Failed.
"""


def test_counts_cases_of_both_frameworks_and_crashes():
    summary = run_tests.read_log(LOG)
    assert summary.passed == 34 - 2 + 3 + 7
    assert summary.failed == 2 + 1 + 1
    assert summary.skips == {"no network": 2, "needs torch": 2}
    assert summary.line() == "42 passed, 4 failed, 4 skipped"


def test_a_test_without_counts_is_one_case():
    summary = run_tests.read_log("1/1 Testing: script\nfine\nTest Passed.\n")
    assert (summary.passed, summary.failed) == (1, 0)


def test_allowed_reasons_skip_comments(tmp_path):
    file = tmp_path / "allowed.txt"
    file.write_text("# why\nneeds a GPU\n\n")
    assert run_tests.allowed_reasons(file) == {"needs a GPU"}
