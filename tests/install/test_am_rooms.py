# SPDX-License-Identifier: BSD-3-Clause
"""am_rooms.py finds what looks up, and says which file does."""

import os
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(os.environ["TMSG_SOURCE_DIR"], "tests/install/am_rooms.py")
ROOMS = "# two\nlow: below\nhigh: above\n"
SOURCES = {"low/floor.h": "", "low/floor.c": "int floor_of(void) { return 0; }",
           "low/cellar.c": "int cellar_of(void) { return 0; }",
           "high/roof.h": "", "high/roof.c": '#include "am/low/floor.h"\n'
           "int floor_of(void);\nint roof_of(void) { return floor_of(); }"}


@pytest.fixture
def tree(tmp_path):
    """A checkout with two rooms, of which the second uses the first."""
    for room in ("low", "high"):
        (tmp_path / "src/am" / room).mkdir(parents=True)
    (tmp_path / "tests/install").mkdir(parents=True)
    (tmp_path / "src/am/ROOMS").write_text(ROOMS)
    (tmp_path / "tests/install/am_upward.txt").write_text("# none\n")
    for name, text in SOURCES.items():
        (tmp_path / "src/am" / name).write_text(text)
    return tmp_path


def check(tree, *options):
    objects = tree / "build/src/am"
    for source in (tree / "src/am").glob("*/*.c"):
        (objects / source.parent.name).mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-I", tree / "src", "-c", source, "-o",
                        objects / source.parent.name / f"{source.name}.o"],
                       check=True)
    done = subprocess.run([sys.executable, CHECK, tree, tree / "build", *options],
                          stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.strip()


def change(tree, name, text):
    (tree / "src/am" / name).write_text(text)


def test_what_looks_down_is_right(tree):
    assert check(tree) == (0, "2 rooms, 3 files, 0 pairs that look up")


def test_an_include_that_looks_up_is_found(tree):
    change(tree, "low/floor.h", '#include "am/high/roof.h"\n')
    assert check(tree) == (1, "low/floor uses high/roof, of a later room")


def test_a_call_that_looks_up_is_found(tree):
    change(tree, "low/cellar.c", "int roof_of(void);\n"
           "int cellar_of(void) { return roof_of(); }")
    assert check(tree) == (1, "low/cellar uses high/roof, of a later room")


def test_a_pair_on_record_is_let_through_until_it_is_no_more(tree):
    change(tree, "low/floor.h", '#include "am/high/roof.h"\n')
    assert check(tree, "--update") == (
        0, "2 rooms, 3 files, 1 pairs that look up")
    assert check(tree)[0] == 0
    change(tree, "low/floor.h", "")
    assert check(tree) == (1, "low/floor no longer uses high/roof: take the line "
                           "out of am_upward.txt")


def test_each_file_is_in_a_room(tree):
    (tree / "src/am/attic").mkdir()
    change(tree, "attic/box.h", "")
    assert check(tree) == (1, "attic/box is in no room of src/am/ROOMS")


def test_a_room_without_a_file_is_told(tree):
    change(tree, "ROOMS", ROOMS + "attic: highest\n")
    assert check(tree) == (1, "attic is in src/am/ROOMS, and has no file")


def test_a_file_that_was_not_built_is_told(tree):
    check(tree)
    change(tree, "low/cellar.c", "int cellar_of(void) { return 0; }")
    (tree / "build/src/am/low/cellar.c.o").unlink()
    done = subprocess.run([sys.executable, CHECK, tree, tree / "build"],
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "has no object of low/cellar" in done.stderr
