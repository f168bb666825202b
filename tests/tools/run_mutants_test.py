# SPDX-License-Identifier: Apache-2.0
"""Mutants: all that are stored load and fit the source; a text that is gone or repeated is refused."""
import pathlib

import pytest
import run_mutants

ROOT = pathlib.Path(__file__).resolve().parents[2]
MUTANTS = sorted((ROOT / "tests" / "mutants").glob("*.toml"))


@pytest.mark.parametrize("path", MUTANTS, ids=lambda p: p.stem)
def test_stored_mutant_fits_the_source(path):
    mutant = run_mutants.load(path)
    text = (ROOT / mutant["file"]).read_text()
    assert run_mutants.mutated(text, mutant) != text


@pytest.mark.parametrize("text, count", [("a b", 0), ("x x", 2)])
def test_text_must_occur_once(text, count):
    with pytest.raises(ValueError, match=f"occurs {count} times in f.cc"):
        run_mutants.mutated(text, {"file": "f.cc", "find": "x", "replace": "y"})


def test_missing_and_unknown_keys_are_named(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text('file = "a"\nfind = "b"\nreplace = "c"\nwhy = "d"\ntests = "e"\n')
    with pytest.raises(ValueError, match="test, tests"):
        run_mutants.load(file)


def test_a_test_that_no_folder_has_is_named(tmp_path):
    file = tmp_path / "mutants" / "m.toml"
    file.parent.mkdir()
    file.write_text('file = "a"\nfind = "b"\nreplace = "c"\nwhy = "d"\ntest = "backend_cuda"\n')
    with pytest.raises(ValueError, match='folder of tests/, "backend_cuda" is none'):
        run_mutants.load(file)
