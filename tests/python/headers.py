# SPDX-License-Identifier: BSD-3-Clause
"""The public headers as cffi reads them. As a program it prints the asserts of
tests/install/layout.c (cmake --build build --target update-layout)."""

import os
import pathlib
import subprocess
import tempfile

import cffi

SOURCE = pathlib.Path(os.environ.get(
    "TMSG_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
TOP = """\
/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes and offsets of the public structs, which are ABI: a binding, and a
 * program that was compiled before, have them inside. Written by
 * `cmake --build build --target update-layout`; the diff belongs in the commit
 * that means it. */
#include <stddef.h>

#include <tensormsg/tensormsg.h>

#define SIZE(type, bytes)                                                      \\
    _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, field, offset)                                                \\
    _Static_assert(offsetof(type, field) == (offset), #type "." #field)

#if defined(__x86_64__) && defined(__LP64__)
"""


def declarations():
    """tensormsg.h without attributes and without the system's headers, whose
    types cffi knows."""
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stddef.h", "stdint.h"):
            pathlib.Path(empty, name).touch()
        return subprocess.run(
            ["gcc", "-E", "-P", "-nostdinc", "-D__attribute__(x)=",
             f"-I{empty}", f"-I{SOURCE}/include",
             SOURCE / "include/tensormsg/tensormsg.h"],
            stdout=subprocess.PIPE, text=True, check=True).stdout


def parse():
    ffi = cffi.FFI()
    ffi.cdef(declarations())
    return ffi


def structs(ffi):
    """Those with fields, and so with a size."""
    for name in sorted(ffi.list_types()[0]):
        kind = ffi.typeof(name)
        if kind.kind == "struct" and kind.fields:
            yield name, kind


def layout(ffi):
    text = TOP
    for name, kind in structs(ffi):
        text += f"\nSIZE({name}, {ffi.sizeof(kind)});\n"
        for field, _ in kind.fields:
            text += f"AT({name}, {field}, {ffi.offsetof(kind, field)});\n"
    return text + "\n#endif\n"


if __name__ == "__main__":
    print(layout(parse()), end="")
