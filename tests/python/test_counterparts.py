# SPDX-License-Identifier: BSD-3-Clause
"""The tests that tests/README.md names as counterparts of UCXX's are there."""

import os
import pathlib
import re

import pytest

pytestmark = pytest.mark.once

TESTS = pathlib.Path(os.environ["TMSG_SOURCE_DIR"]) / "tests"
ROOMS = ["am", "core", "fuzz", "golden", "model", "netns", "python", "serialize",
         "tsan"]
WORD = re.compile(rf"\b((?:{'|'.join(ROOMS)})/[a-z0-9_*]+)|`([a-z0-9_*]+)`")


def named():
    """(file, test) of each row, the test None where the file alone is named."""
    for line in (TESTS / "README.md").read_text().splitlines():
        cells = line.split("|")
        where = None
        for file, test in WORD.findall(cells[2] if len(cells) == 4 else ""):
            where = file or where
            if where:
                yield where, test or None


def sources(where):
    room, name = where.split("/")
    return [path for pattern in (f"test_{name}.*", f"fuzz_{name}.c", f"{name}.c",
                                 name)
            for path in (TESTS / room).rglob(pattern)]


def test_every_counterpart_is_there():
    rows = list(named())
    assert len(rows) > 80
    for where, test in rows:
        found = sources(where)
        assert found, where
        if test:
            pattern = re.compile(r"\b" + test.replace("*", r"\w*") + r"\b")
            assert any(path.is_file() and pattern.search(path.read_text())
                       for path in found), (where, test)
