#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""extend.py SOURCE_DIR BUILD_DIR LIBRARY... - a fragment mover, a URL scheme and a
message kind are one new file each, and one line of a table. Applies the patches
beside this file to a copy of src, checks that they do no more than that, builds
what they change, and runs main.c with it: each of the three at work.

LIBRARYs are what the static library wants: -lucp and so on."""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
PATCHES = ("mover", "scheme", "kind")


def run(*command, **how):
    done = subprocess.run([str(word) for word in command], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **how)
    if done.returncode:
        sys.exit(f"{command[0]} ... {command[-1]}:\n{done.stdout}")
    return done.stdout


def check_patch(path):
    """New files, and one line of an old one."""
    old, added = set(), 0
    for part in re.split(r"^diff --git ", path.read_text(), flags=re.M)[1:]:
        is_new = "\nnew file mode" in part
        lines = part.split("\n@@", 1)[1].split("\n")[1:]
        if any(line.startswith("-") for line in lines):
            sys.exit(f"{path.name} takes lines away")
        if not part.startswith("a/src/am/"):
            sys.exit(f"{path.name} is about {part.split()[0]}")
        if not is_new:
            old.add(part.split()[0])
            added += sum(line.startswith("+") for line in lines)
    if len(old) != 1 or added != 1:
        sys.exit(f"{path.name} adds {added} lines to {', '.join(sorted(old))}: "
                 "one line of one table was to be enough")


def compilers_of(build):
    """The compiler's call for a file of src/am, by its path; without warnings,
    and not optimized."""
    calls = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if "/src/am/" in entry["file"]:
            calls[entry["file"]] = entry["directory"], [
                word for word in shlex.split(entry["command"])
                if not re.match(r"-(W|O\d|g|flto|M)|ccache$|.*/ccache$", word)]
    return calls


def compile_all(source, build, copy):
    """The objects of src/am in the copy: of what the build compiles, and of what
    is new."""
    calls = compilers_of(build)
    folder, model = next(iter(calls.values()))
    at = model.index("-c")
    first = model[:at]
    del first[first.index("-o"):first.index("-o") + 2]
    first = [word.replace(str(source / "src"), str(copy / "src"))
             for word in first]

    def compile_one(path):
        out = copy / "out" / (str(path.relative_to(copy)).replace("/", "_") + ".o")
        run(*first, "-O0", "-c", path, "-o", out, cwd=folder)
        return out
    (copy / "out").mkdir()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, (
            path for path in sorted((copy / "src/am").rglob("*.c"))
            if str(there := source / path.relative_to(copy)) in calls
            or not there.exists())))
    return objects, first


def main():
    source, build = (pathlib.Path(name).resolve() for name in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name)
        shutil.copytree(source / "src", copy / "src")
        for patch in PATCHES:
            check_patch(HERE / f"{patch}.patch")
            run("git", "apply", HERE / f"{patch}.patch", cwd=copy)
        objects, compiler = compile_all(source, build, copy)
        program = copy / "main"
        run(*compiler, "-O0", "-g", HERE / "main.c", *objects,
            build / "libtensormsg.a", *sys.argv[3:], "-o", program, cwd=copy)
        print(run(program, timeout=60), end="")


if __name__ == "__main__":
    main()
