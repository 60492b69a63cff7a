#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""am_rooms.py SOURCE_DIR BUILD_DIR - a room of src/am, a folder there, uses only
rooms that come earlier in src/am/ROOMS. Of each two files it looks at the
#include lines and at the linker's symbols: what one calls and the other defines.

Calls go up by tables alone, which ROOMS lists with their headers and entries; a
table that has others, or more than 14, is told."""

import argparse
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys

ENTRIES_MOST = 14  # of a table
HEAD = re.compile(r"(\w+): (.+)")  # of a room
OWN = re.compile(r"own (\w+): (\w+)")
HOOK = re.compile(r"hook (\w+\.\w+): .+")
TABLE = re.compile(r"table (\w+): (\w+/\w+): (.+)")
INCLUDE = re.compile(r'^ *# *include *"am/(\w+/\w+)\.h"', re.MULTILINE)


@dataclasses.dataclass
class Rooms:
    """What src/am/ROOMS says."""
    order: list = dataclasses.field(default_factory=list)
    tables: dict = dataclasses.field(default_factory=dict)  # header, entries
    owners: dict = dataclasses.field(default_factory=dict)  # of a type
    hooks: set = dataclasses.field(default_factory=set)


def read_rooms(path):
    rooms = Rooms()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if table := TABLE.fullmatch(line):
            rooms.tables[table[1]] = table[2], table[3].split()
        elif own := OWN.fullmatch(line):
            rooms.owners[own[1]] = own[2]
        elif hook := HOOK.fullmatch(line):
            rooms.hooks.add(hook[1])
        elif head := HEAD.fullmatch(line):
            rooms.order.append(head[1])
        elif line and not line.startswith("#"):
            sys.exit(f"{path}:{number}: neither a room, a table, an owner, a "
                     "hook nor a comment")
    return rooms


def room_of(name):
    return name.split("/")[0]


def files_of(folder):
    """ROOM/FILE -> its .c and .h."""
    files = collections.defaultdict(list)
    for path in sorted(folder.rglob("*.[ch]")):
        files[str(path.relative_to(folder).with_suffix(""))].append(path)
    return files


def included(files):
    """Pairs of names: the first includes the second's header."""
    return {(name, other) for name, paths in files.items() for path in paths
            for other in INCLUDE.findall(path.read_text(errors="replace"))
            if other != name}


def symbols_of(paths):
    """Of each of these object files, what it defines for others, and what it wants
    of them. One nm reads them all."""
    out = subprocess.run(["nm", "-A", "--extern-only", "--format=posix", *paths],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {path: (set(), set()) for path in paths}
    for line in out.splitlines():
        path, _, rest = line.rpartition(": ")
        symbol, kind = rest.split()[:2]
        defined, wanted = found[pathlib.Path(path)]
        (wanted if kind in "Uw" else defined).add(symbol)
    return found


def called(files, objects, tables):
    """Pairs of names: the first wants a symbol that the second defines, and that
    is no table."""
    owner, wants = {}, {}
    sources = {name for name, paths in files.items()
               if any(path.suffix == ".c" for path in paths)}
    names = {path: f"{path.parent.name}/{path.name[:-len('.c.o')]}"
             for path in objects.rglob("*.c.o")}
    # A room's none.c is in each build, and stands for files that one may lack.
    missing = {name for name in sources - set(names.values())
               if f"{room_of(name)}/none" not in sources}
    if missing:
        sys.exit(f"{objects} has no object of {', '.join(sorted(missing))}")
    # An older build may have more.
    ours = [path for path, name in names.items() if name in sources]
    for path, (defined, wanted) in symbols_of(ours).items():
        wants[names[path]] = wanted
        owner.update(dict.fromkeys(defined, names[path]))
    return {(name, owner[symbol]) for name, symbols in wants.items()
            for symbol in symbols - set(tables)
            if owner.get(symbol, name) != name}


def entries_of(text, symbol):
    """The members of the struct of which a header declares an object, or an array
    of pointers to such; None: it declares none."""
    declared = re.search(rf"^extern const (\w+) (?:\*const )?{symbol}\b", text,
                         re.MULTILINE)
    body = declared and re.search(
        rf"^typedef struct (?:\w+ )?{{\n((?:(?!^}}).*\n)*)}} {declared[1]};", text,
        re.MULTILINE)
    if not body:
        return None
    members = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL).split(";")
    return [(re.search(r"\(\*(\w+)\)", member) or
             re.search(r"(\w+)$", member))[1]
            for member in map(str.strip, members) if member]


def check_tables(folder, tables):
    """What is wrong with a table, in words."""
    wrong = []
    for symbol, (header, entries) in tables.items():
        path = folder / f"{header}.h"
        found = entries_of(path.read_text(), symbol) if path.exists() else None
        if found is None:
            wrong.append(f"{header}.h declares no table {symbol}")
        elif sorted(found) != sorted(entries):
            wrong.append(f"{symbol} has the entries {' '.join(found)}, and in "
                         f"src/am/ROOMS {' '.join(entries)}")
        elif len(found) > ENTRIES_MOST:
            wrong.append(f"{symbol} has more than {ENTRIES_MOST} entries")
    return wrong


def check_homes(files, rooms):
    """Each file is in a room, and each room is a folder."""
    inhabited = {room_of(name) for name in files}
    return ([f"{name} is in no room of src/am/ROOMS"
             for name in sorted(files) if room_of(name) not in rooms] +
            [f"{room} is in src/am/ROOMS, and has no file"
             for room in rooms if room not in inhabited])


def upward(pairs, rooms):
    place = {room: i for i, room in enumerate(rooms)}
    return {(name, other) for name, other in pairs
            if room_of(name) in place and room_of(other) in place and
            place[room_of(name)] < place[room_of(other)]}


def in_words(pairs):
    return [f"{name} uses {other}, of a later room"
            for name, other in sorted(pairs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.source / "src/am"
    said = read_rooms(folder / "ROOMS")
    rooms, tables = said.order, said.tables
    files = files_of(folder)
    found = included(files) | called(files, args.build / "src/am", tables)
    wrong = (check_homes(files, rooms) + check_tables(folder, tables) +
             in_words(upward(found, rooms)))
    print("\n".join(wrong) or f"{len(rooms)} rooms, {len(files)} files, "
          f"{len(tables)} tables")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
