# SPDX-License-Identifier: BSD-3-Clause
"""make_cffi.py COMPILER INCLUDE_DIR HUB_H OUTPUT: writes the C of the cffi
module tensormsg._native. What it declares is read from the public headers,
which are declarations only."""

import pathlib
import subprocess
import sys
import tempfile

import cffi

LEFT_OUT = {"tensormsg.h"}  # which includes the others


def declarations(compiler, include, hub):
    """The headers without attributes and without the system's headers, whose
    types cffi knows."""
    headers = sorted(set(include.glob("tensormsg/*.h")))
    text = "".join(f'#include "tensormsg/{header.name}"\n'
                   for header in headers if header.name not in LEFT_OUT)
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stddef.h", "stdint.h", "stdbool.h"):
            pathlib.Path(empty, name).touch()
        return subprocess.run(
            [compiler, "-E", "-P", "-nostdinc", "-D__attribute__(x)=",
             f"-I{empty}", f"-I{include}", "-x", "c", "-"],
            input=f'{text}#include "{hub}"\n', stdout=subprocess.PIPE,
            text=True, check=True).stdout


def main(compiler, include, hub, output):
    ffi = cffi.FFI()
    ffi.cdef(declarations(compiler, pathlib.Path(include), hub))
    ffi.set_source("tensormsg._native",
                   '#include <tensormsg/tensormsg.h>\n#include "hub.h"\n')
    ffi.emit_c_code(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
