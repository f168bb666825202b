# SPDX-License-Identifier: Apache-2.0
"""The installer: with PELTON_NO_INSTALL it only lists, without it it prints its commands before running them."""
import pathlib
import shutil
import stat
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(tmp_path):
    """A copy of the tools, and a machine where no Debian package is installed and every command only logs."""
    tools, bin_folder = tmp_path / "src" / "tools", tmp_path / "bin"
    tools.mkdir(parents=True)
    bin_folder.mkdir()
    for name in ("install_deps.sh", "debian_packages.txt", "test_requirements.txt"):
        shutil.copy(ROOT / "tools" / name, tools / name)
    (tools / "fetch_onednn.sh").write_text("#!/bin/sh\necho fetched >> ../log\n")
    for name, body in (("dpkg-query", "exit 1"), ("apt-get", 'echo "apt-get $*" >> "$LOG"'), ("id", "echo 0"),
                       ("python3", 'mkdir -p .venv/bin; [ -e .venv/bin/python ] || cp "$0" .venv/bin/python; echo "python3 $*" >> "$LOG"')):
        (bin_folder / name).write_text(f"#!/bin/sh\n{body}\n")
    for file in [*tools.glob("*.sh"), *bin_folder.iterdir()]:
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def run(*sets, **environment):
        env = {"PATH": f"{bin_folder}:/usr/bin:/bin", "LOG": str(tmp_path / "log"), "TMPDIR": str(tmp_path), **environment}
        result = subprocess.run([str(tools / "install_deps.sh"), *sets], capture_output=True, text=True, env=env)
        log = tmp_path / "log"
        return result, log.read_text() if log.exists() else ""

    return run


def test_no_install_lists_everything_and_runs_nothing(machine):
    result, log = machine("build", "test", PELTON_NO_INSTALL="1")
    assert result.returncode == 1
    assert "PELTON_NO_INSTALL is set" in result.stderr
    for word in ("g++", "libtbb-dev", "doctest-dev", "test_requirements.txt in .venv", "oneDNN"):
        assert word in result.stderr
    assert "clang-16" not in result.stderr
    assert log == ""


def test_commands_are_printed_and_run(machine):
    result, log = machine("build", "test")
    assert result.returncode == 0, result.stderr
    assert "+ apt-get update" in result.stdout
    assert "apt-get install -y --no-install-recommends g++ cmake" in result.stdout
    assert "+ python3 -m venv .venv" in result.stdout
    assert "+ .venv/bin/python -m pip install" in result.stdout
    assert "apt-get install" in log and "doctest-dev" in log and "fetched" in log


def test_second_run_installs_no_python_package_again(machine):
    machine("test")
    result, _ = machine("test")
    assert "pip install" not in result.stdout


def test_no_set_is_wrong_usage(machine):
    result, _ = machine()
    assert result.returncode == 2 and "usage" in result.stderr
