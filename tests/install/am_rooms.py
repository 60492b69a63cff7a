#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""am_rooms.py SOURCE_DIR BUILD_DIR [--update] - a room of src/am, a folder there,
uses only rooms that come earlier in src/am/ROOMS. Of each two files it looks at
the #include lines and at the linker's symbols: what one calls and the other
defines.

Pairs of files that do otherwise yet are in am_upward.txt, a line "FILE USES
FILE" each. A pair that is not there fails, and so does one that is no more: the
list only gets shorter. --update writes it."""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

HEAD = re.compile(r"(\w+): (.+)")
INCLUDE = re.compile(r'^ *# *include *"am/(\w+/\w+)\.h"', re.MULTILINE)


def read_rooms(path):
    """The rooms in their order."""
    rooms = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        head = HEAD.fullmatch(line)
        if head:
            rooms.append(head[1])
        elif line and not line.startswith("#"):
            sys.exit(f"{path}:{number}: neither a room nor a comment")
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


def symbols_of(file):
    """What an object file defines for others, and what it wants of them."""
    out = subprocess.run(["nm", "--extern-only", "--format=posix", file],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    defined, wanted = set(), set()
    for line in out.splitlines():
        symbol, kind = line.split()[:2]
        (wanted if kind in "Uw" else defined).add(symbol)
    return defined, wanted


def called(files, objects):
    """Pairs of names: the first wants a symbol that the second defines."""
    owner, wants = {}, {}
    sources = {name for name, paths in files.items()
               if any(path.suffix == ".c" for path in paths)}
    for path in objects.rglob("*.c.o"):
        name = f"{path.parent.name}/{path.name[:-len('.c.o')]}"
        if name in sources: # an older build may have more
            defined, wants[name] = symbols_of(path)
            owner.update(dict.fromkeys(defined, name))
    missing = sources - set(wants)
    if missing:
        sys.exit(f"{objects} has no object of {', '.join(sorted(missing))}")
    return {(name, owner[symbol]) for name, symbols in wants.items()
            for symbol in symbols if owner.get(symbol, name) != name}


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


def compare(found, known):
    """What is wrong, in words."""
    return ([f"{name} uses {other}, of a later room"
             for name, other in sorted(found - known)] +
            [f"{name} no longer uses {other}: take the line out of am_upward.txt"
             for name, other in sorted(known - found)])


def read_known(path):
    return {tuple(line.split(" uses ")) for line in path.read_text().splitlines()
            if line and not line.startswith("#")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    folder = args.source / "src/am"
    known_path = args.source / "tests/install/am_upward.txt"
    rooms = read_rooms(folder / "ROOMS")
    files = files_of(folder)
    found = upward(included(files) | called(files, args.build / "src/am"), rooms)
    if args.update:
        known_path.write_text(
            "# Pairs of files of src/am of which the first uses a later room\n"
            "# (src/am/ROOMS). am_rooms.py --update writes them.\n" +
            "".join(f"{name} uses {other}\n" for name, other in sorted(found)))
    wrong = check_homes(files, rooms) + compare(found, read_known(known_path))
    print("\n".join(wrong) or f"{len(rooms)} rooms, {len(files)} files, "
          f"{len(found)} pairs that look up")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
