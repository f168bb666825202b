# SPDX-License-Identifier: Apache-2.0
"""The source check on single texts."""
import check_source

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def test_a_good_header_passes():
    assert check_source.check_text("src/a.h", SPDX + "#pragma once\n// reads /proc/self/cgroup\n") == []


def test_what_is_missing_or_wrong_is_named_with_its_line():
    folder = "/" + "home/someone/x"
    mark = "TO" + "DO"
    errors = check_source.check_text("src/a.h", f'int x;\nconst char* p = "{folder}";\n// {mark} later\nint y; \n')
    assert len(errors) == 5
    assert "src/a.h:1: no line 'SPDX" in errors[0]
    assert "without #pragma once" in errors[1]
    assert "src/a.h:2: an absolute path" in errors[2]
    assert "src/a.h:3: a mark of unfinished work" in errors[3]
    assert "src/a.h:4: space at the end" in errors[4]


def test_length_limit():
    text = "# SPDX-License-Identifier: Apache-2.0\n" + "x = 1\n" * 600
    assert "601 lines, more than 600" in check_source.check_text("tools/a.py", text)[0]
