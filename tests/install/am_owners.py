#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""am_owners.py SOURCE_DIR BUILD_DIR - what src/am/ROOMS says of fields, held
against the sources as the compiler sees them, by libclang:

- `own TYPE: ROOM`: no other room touches a member of that sub-struct, nor the
  sub-struct itself, be it in an inline function or by a macro;
- `hook STRUCT.MEMBER: REASON`: a pointer to a function that a room assigns in a
  struct which an earlier room declares. One that is not listed is told, and so is
  one that is listed and that nobody assigns."""

import ctypes.util
import json
import pathlib
import shlex
import sys

from am_rooms import read_rooms
from clang.cindex import (Config, CursorKind, Diagnostic, Index, TypeKind,
                          conf)

Config.set_library_file(ctypes.util.find_library("clang-14") or
                        "libclang-14.so.1")

def units(build):
    """(file, arguments) of each source of src/am, as it is compiled."""
    commands = json.loads((build / "compile_commands.json").read_text())
    for command in commands:
        path = pathlib.Path(command["directory"], command["file"]).resolve()
        if "tmsg_am.dir" not in command["command"] or path.suffix != ".c":
            continue
        words = iter(shlex.split(command["command"]))
        arguments = []
        for word in words:
            if word.startswith(("-I", "-D", "-std")):
                arguments.append(word)
            elif word == "-isystem":
                arguments += [word, next(words)]
        yield path, arguments


def name_of(record):
    """Of a struct: its tag, or the name of a typedef of one without."""
    return record.spelling or record.type.spelling


def is_function_pointer(kind):
    kind = kind.get_canonical()
    return kind.kind == TypeKind.POINTER and \
        kind.get_pointee().kind in (TypeKind.FUNCTIONPROTO,
                                    TypeKind.FUNCTIONNOPROTO)


class Check:
    def __init__(self, folder):
        self.folder = folder.resolve()
        rooms = read_rooms(folder / "ROOMS")
        self.owners, self.hooks = rooms.owners, rooms.hooks
        self.place = {room: i for i, room in enumerate(rooms.order)}
        self.rooms = {}  # by the name of a file
        self.seen = set()  # of headers, what was looked at with another source
        self.used = set()
        self.wrong = set()

    def room_of(self, location):
        if location.file is None:
            return None
        name = location.file.name
        if name not in self.rooms:
            path = pathlib.Path(name).resolve()
            self.rooms[name] = path.relative_to(self.folder).parts[0] \
                if path.is_relative_to(self.folder) else None
        return self.rooms[name]

    def is_new(self, location):
        if conf.lib.clang_Location_isInSystemHeader(location) or \
                self.room_of(location) is None:
            return False
        at = location.file.name, location.offset
        new = at not in self.seen
        self.seen.add(at)
        return new

    def where(self, location):
        path = pathlib.Path(location.file.name).resolve()
        return f"{path.relative_to(self.folder)}:{location.line}"

    def look_at_member(self, cursor, room):
        field = cursor.referenced
        if field is None or field.kind != CursorKind.FIELD_DECL:
            return
        for name in (name_of(field.semantic_parent), field.type.spelling):
            owner = self.owners.get(name)
            if owner not in (None, room):
                self.wrong.add(f"{self.where(cursor.location)} touches "
                               f"{field.spelling} of {name}, which is {owner}'s")

    def look_at_assignment(self, cursor, room):
        left = next(cursor.get_children(), None)
        if left is None or left.kind != CursorKind.MEMBER_REF_EXPR or \
                left.referenced is None or not is_function_pointer(left.type):
            return
        declared = self.room_of(left.referenced.location)
        hook = f"{name_of(left.referenced.semantic_parent)}." \
            f"{left.referenced.spelling}"
        if declared is None or self.place[declared] >= self.place[room]:
            return
        self.used.add(hook)
        if hook not in self.hooks:
            self.wrong.add(f"{self.where(cursor.location)} sets {hook} of the room "
                           f"{declared}, which is no hook in src/am/ROOMS")

    def walk(self, cursor):
        left = [cursor]
        while left:
            cursor = left.pop()
            room = self.room_of(cursor.location)
            if room in self.place:
                if cursor.kind == CursorKind.MEMBER_REF_EXPR:
                    self.look_at_member(cursor, room)
                elif cursor.kind == CursorKind.BINARY_OPERATOR:
                    self.look_at_assignment(cursor, room)
            left.extend(cursor.get_children())

    def run(self, build):
        index = Index.create()
        for path, arguments in units(build):
            unit = index.parse(str(path), args=arguments)
            for said in unit.diagnostics:
                if said.severity >= Diagnostic.Error:
                    sys.exit(f"{said.location.file}:{said.location.line}: "
                             f"{said.spelling}")
            for top in unit.cursor.get_children():
                if self.is_new(top.location):
                    self.walk(top)
        self.wrong |= {f"hook {hook} in src/am/ROOMS: nobody sets it"
                       for hook in self.hooks - self.used}
        return sorted(self.wrong)


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    check = Check(source / "src/am")
    wrong = check.run(build)
    print("\n".join(wrong) or f"{len(check.owners)} sub-structs, "
          f"{len(check.hooks)} hooks")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
