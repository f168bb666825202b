# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in: a file whose tests are all skipped while it is imported has passed, with its skips told."""
import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.OK
