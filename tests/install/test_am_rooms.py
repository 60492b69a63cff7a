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
    (tmp_path / "src/am/ROOMS").write_text(ROOMS)
    for name, text in SOURCES.items():
        (tmp_path / "src/am" / name).write_text(text)
    return tmp_path


def check(tree):
    objects = tree / "build/src/am"
    for source in (tree / "src/am").glob("*/*.c"):
        (objects / source.parent.name).mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-I", tree / "src", "-c", source, "-o",
                        objects / source.parent.name / f"{source.name}.o"],
                       check=True)
    done = subprocess.run([sys.executable, CHECK, tree, tree / "build"],
                          stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.strip()


def change(tree, name, text):
    (tree / "src/am" / name).write_text(text)


def test_what_looks_down_is_right(tree):
    assert check(tree) == (0, "2 rooms, 3 files, 0 tables")


def test_an_include_that_looks_up_is_found(tree):
    change(tree, "low/floor.h", '#include "am/high/roof.h"\n')
    assert check(tree) == (1, "low/floor uses high/roof, of a later room")


def test_a_call_that_looks_up_is_found(tree):
    change(tree, "low/cellar.c", "int roof_of(void);\n"
           "int cellar_of(void) { return roof_of(); }")
    assert check(tree) == (1, "low/cellar uses high/roof, of a later room")


TABLE = """typedef struct {
    int (*open)(int door); /* with; care */
    int (*shut)(int door);
} house_t;
extern const house_t house;
"""


def build_table(tree, entries="open shut"):
    """The first room calls the second by a table."""
    change(tree, "ROOMS", ROOMS + f"table house: low/floor: {entries}\n")
    change(tree, "low/floor.h", TABLE)
    change(tree, "low/cellar.c", '#include "am/low/floor.h"\n'
           "int cellar_of(void) { return house.open(1); }")
    change(tree, "high/roof.c", '#include "am/low/floor.h"\n'
           "const house_t house = {0, 0};")


def test_a_table_may_be_called(tree):
    build_table(tree)
    assert check(tree) == (0, "2 rooms, 3 files, 1 tables")
    change(tree, "ROOMS", ROOMS)
    assert check(tree) == (1, "low/cellar uses high/roof, of a later room")


def test_a_table_s_entries_are_those_on_record(tree):
    build_table(tree, "open")
    assert check(tree) == (1, "house has the entries open shut, and in "
                           "src/am/ROOMS open")
    change(tree, "low/floor.h", "")
    change(tree, "low/cellar.c", "")
    change(tree, "high/roof.c", "")
    assert check(tree) == (1, "low/floor.h declares no table house")


def test_a_table_has_14_entries_at_most(tree):
    names = [f"f{i}" for i in range(15)]
    build_table(tree, " ".join(names))
    change(tree, "low/floor.h", TABLE.replace(
        "    int (*shut)(int door);\n",
        "".join(f"    int (*{name})(int door);\n" for name in names[1:])).replace(
            "(*open)", "(*f0)"))
    change(tree, "low/cellar.c", "")
    change(tree, "high/roof.c", "")
    assert check(tree) == (1, "house has more than 14 entries")


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
