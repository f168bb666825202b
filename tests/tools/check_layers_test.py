# SPDX-License-Identifier: Apache-2.0
"""The layer check on small trees: what it must refuse, and the words it says."""
import check_layers
import pytest

TABLE = """
<!-- layers -->
| layer | may include | holds |
|---|---|---|
| `base` | - | x |
| `backend` | base | x |
| `backend/cpu` | base, backend | x |
| `onnx` | base | x |
<!-- /layers -->
"""


@pytest.fixture
def tree(tmp_path):
    def make(files, cmake=""):
        for name, text in files.items():
            path = tmp_path / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "CMakeLists.txt").write_text(cmake)
        layers, errors = check_layers.read_table(TABLE)
        assert not errors
        return check_layers.check_includes(tmp_path, layers) + check_layers.check_cmake(tmp_path, layers)

    return make


def test_allowed_includes_pass(tree):
    assert tree({
        "base/a.h": "#include <string>\n",
        "backend/k.h": '#include "base/a.h"\n#include "elsewhere/x.h"\n',
        "backend/cpu/c.cc": '#include "backend/k.h"\n#include "base/a.h"\n',
    }, "pelton_layer(base)\npelton_layer(cpu DIR backend/cpu SEES base backend)\npelton_layer(backend SEES base)\n") == []


def test_upward_include_is_named_with_file_and_line(tree):
    errors = tree({"base/a.h": '\n#include "onnx/o.h"\n', "onnx/o.h": ""})
    assert errors == ["src/base/a.h:2: base includes onnx/o.h, but may not see onnx"]


def test_sideways_and_into_a_nested_layer(tree):
    errors = tree({"onnx/o.cc": '#include "backend/k.h"\n', "backend/k.h": ' #  include "backend/cpu/c.h"\n',
                   "backend/cpu/c.h": ""})
    assert len(errors) == 2
    assert "onnx includes backend/k.h, but may not see backend" in errors[1]
    assert "backend includes backend/cpu/c.h, but may not see backend/cpu" in errors[0]


def test_folder_without_a_row(tree):
    assert tree({"misc/m.cc": ""}) == ["src/misc/m.cc: its folder is no layer of docs/architecture.md"]


def test_cmake_may_not_link_more_than_the_table(tree):
    errors = tree({}, "pelton_layer(base DEPENDS tbb)\npelton_layer(onnx SEES base backend DEPENDS json)\n"
                      "pelton_layer(extra SEES base)\n# pelton_layer(old SEES nothing)\n")
    assert errors == ["CMakeLists.txt: onnx SEES backend, which docs/architecture.md does not allow",
                      "CMakeLists.txt: layer extra (extra) has no row in docs/architecture.md"]


def test_a_row_may_only_name_earlier_rows():
    _, errors = check_layers.read_table("<!-- layers -->\n| `a` | b | x |\n| `b` | - | x |\n<!-- /layers -->")
    assert errors == ["layer table: a names b, which no earlier row declares"]


def test_a_page_without_the_table_is_an_error():
    layers, errors = check_layers.read_table("# Architecture\n")
    assert layers == {} and "no table" in errors[0]
