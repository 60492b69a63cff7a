# SPDX-License-Identifier: BSD-3-Clause
"""am_owners.py finds who touches what another room owns, and hooks that are not
on record."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(os.environ["TMSG_SOURCE_DIR"], "tests/install/am_owners.py")
ROOMS = """# two
low: below
high: above
own tx_t: high
hook timer.expired: what is due
"""
TIMER = """typedef struct { int count; } tx_t;
struct house { tx_t tx; int door; };
struct timer { void (*expired)(void); void (*other)(void); };
static inline int count_of(struct house *house) { return house->door; }
"""
HIGH = """#include "am/low/house.h"
static void ring(void) {}
void set(struct timer *timer) { timer->expired = ring; }
int grow(struct house *house) { return house->tx.count++; }
"""
LOW = '#include "am/low/house.h"\nint look(struct house *h) { return h->door; }\n'


@pytest.fixture
def tree(tmp_path):
    for room in ("low", "high"):
        (tmp_path / "src/am" / room).mkdir(parents=True)
    files = {"ROOMS": ROOMS, "low/house.h": TIMER, "low/look.c": LOW,
             "high/grow.c": HIGH}
    for name, text in files.items():
        (tmp_path / "src/am" / name).write_text(text)
    (tmp_path / "compile_commands.json").write_text(json.dumps([
        {"directory": str(tmp_path), "file": f"src/am/{name}",
         "command": f"cc -I{tmp_path}/src -std=c11 -o tmsg_am.dir/{name}.o "
                    f"-c src/am/{name}"}
        for name in files if name.endswith(".c")]))
    return tmp_path


def check(tree):
    done = subprocess.run([sys.executable, CHECK, tree, tree], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.strip()


def replace(tree, name, old, new):
    path = tree / "src/am" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_what_is_on_record_is_right(tree):
    assert check(tree) == (0, "1 sub-structs, 1 hooks")


def test_a_field_of_another_room_is_told(tree):
    replace(tree, "low/look.c", "h->door", "h->tx.count")
    assert check(tree) == (1, "low/look.c:2 touches count of tx_t, which is "
                           "high's\nlow/look.c:2 touches tx of tx_t, which is "
                           "high's")


@pytest.mark.parametrize("new", ["house->tx.count", "COUNT(house)"])
def test_an_inline_function_and_a_macro_count(tree, new):
    replace(tree, "low/house.h", "house->door", new)
    replace(tree, "low/house.h", "typedef",
            "#define COUNT(of) (of)->tx.count\ntypedef")
    code, said = check(tree)
    assert code == 1 and "low/house.h:5 touches count of tx_t" in said


def test_a_hook_that_is_not_on_record_is_told(tree):
    replace(tree, "high/grow.c", "timer->expired = ring;",
            "timer->expired = ring; timer->other = ring;")
    assert check(tree) == (1, "high/grow.c:3 sets timer.other of the room low, "
                           "which is no hook in src/am/ROOMS")


def test_a_hook_that_nobody_sets_is_told(tree):
    replace(tree, "high/grow.c", "timer->expired = ring;", "(void)timer;")
    assert check(tree) == (1, "hook timer.expired in src/am/ROOMS: nobody sets "
                           "it")


def test_a_source_that_does_not_compile_is_told(tree):
    replace(tree, "low/look.c", "am/low/house.h", "am/low/houses.h")
    code, said = check(tree)
    assert code == 1 and "'am/low/houses.h' file not found" in said
