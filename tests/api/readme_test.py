# SPDX-License-Identifier: Apache-2.0
"""The README's commands for programs in C and C++, as printed but for the places of things."""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["PELTON_BINARY_DIR"]).resolve()


def test_programs_are_built_and_run_as_the_readme_says(tmp_path):
    section = (ROOT / "README.md").read_text().split("## From C and C++\n")[1]
    commands = [line for line in re.search(r"```\n(.*?)```", section, re.S).group(1).splitlines() if line.startswith(("cc ", "c++ "))]
    assert len(commands) == 2
    subprocess.run([BUILD / "pelton", "compile", "zoo:mlp", "-o", "m.pelton", "-q"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    results = []
    for command in commands:
        command = re.sub(r"(\$PWD/)?build/cpu-release", lambda _: str(BUILD), command)
        command = command.replace("-Iinclude", f"-I{ROOT}/include").replace(" examples/", f" {ROOT}/examples/")
        results.append(subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True, text=True).stdout)
    assert results[0].startswith("logits f32[N,10] ") and "every sum" in results[1], results
