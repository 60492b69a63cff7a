#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""run.py BUILD [--only NUMBER...] - whether the tests find the faults of
mutants.txt. Each fault is put into the sources, the tests that are to find it
are built and run until one fails, and the source is put back. BUILD is a build
of this checkout with TMSG_BUILD_TESTS. Exit status 1: a fault was not found."""

import argparse
import dataclasses
import datetime
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("mutants.txt")
HEAD = re.compile(r"(\d+) (.+): (\S+), (\S+)")
ENTRY = re.compile(r"Test +#\d+: (\S+)")
SECONDS = 60  # an entry has, whatever its own limit is: a hang is a failure
ROOMS = ("core", "serialize", "memory", "am", "rpc")  # an entry, a target


@dataclasses.dataclass
class Mutant:
    number: int
    kind: str
    file: str
    entries: str  # a regular expression of ctest
    old: str = ""
    new: str = ""

    def __str__(self):
        return f"{self.number} {self.kind}, {self.file}"

    def apply(self, text):
        if not self.old or text.count(self.old) != 1:
            sys.exit(f"{self}: its text is there {text.count(self.old)} times")
        return text.replace(self.old, self.new)


def read_list():
    mutants = []
    for line in LIST.read_text().splitlines():
        head = HEAD.fullmatch(line)
        if head:
            mutants.append(Mutant(int(head[1]), *head.groups()[1:]))
        elif line[:2] == "- ":
            mutants[-1].old += line[2:] + "\n"
        elif line[:2] == "+ ":
            mutants[-1].new += line[2:] + "\n"
        elif line and line[0] != "#":
            sys.exit(f"{LIST.name}: what is '{line}'?")
    for at, mutant in enumerate(mutants, 1):
        if mutant.number != at:
            sys.exit(f"{LIST.name}: {mutant} is number {at}")
        mutant.old = mutant.old.removesuffix("\n")
        mutant.new = mutant.new.removesuffix("\n")
    return mutants


def entries_of(build, mutant):
    """The names of its entries of ctest."""
    listed = subprocess.run(["ctest", "--test-dir", build, "-N", "-R",
                             mutant.entries], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    return ENTRY.findall(listed) or sys.exit(f"{mutant}: no such entries")


def compiles(build, entries):
    """Builds what the entries run; gives the words of the compiler, or ""."""
    targets = {f"test_{name.split('@')[0].replace('/', '_')}"
               if name.split("/")[0] in ROOMS else "all" for name in entries}
    done = subprocess.run(["cmake", "--build", build, "--target", *targets,
                           "-j", "1"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return done.stdout if done.returncode else ""


def passes(build, name):
    """ctest's own --timeout yields to the limit of an entry, its end does not.
    An entry that is skipped has not passed."""
    end = datetime.datetime.now() + datetime.timedelta(seconds=SECONDS)
    said = subprocess.run(["ctest", "--test-dir", build, "-R",
                           f"^{re.escape(name)}$", "--stop-time",
                           f"{end:%H:%M:%S}"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return re.search(rf"{re.escape(name)} \.*\s+Passed", said.stdout)


def find(build, mutant, entries):
    """The entry that finds the fault, or None."""
    path = ROOT / mutant.file
    before = path.read_text()
    try:
        path.write_text(mutant.apply(before))
        words = compiles(build, entries)
        if words:
            sys.exit(f"{mutant}: it does not compile\n{words[-2000:]}")
        return next((name for name in entries if not passes(build, name)), None)
    finally:
        path.write_text(before)


def check_ready(build, mutants, entries):
    """What is mutated is committed, and what is to fail passes without."""
    files = sorted({mutant.file for mutant in mutants})
    for mutant in mutants:
        mutant.apply((ROOT / mutant.file).read_text())
    if subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD", "--",
                       *files]).returncode:
        sys.exit("a file that is to be mutated has changes: commit them first")
    words = compiles(build, entries)
    if words:
        sys.exit(f"without a fault it does not compile\n{words[-2000:]}")
    failed = [name for name in entries if not passes(build, name)]
    if failed:
        sys.exit(f"without a fault these do not pass: {' '.join(failed)}")
    print(f"without a fault {len(entries)} entries pass", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("--only", metavar="NUMBER", type=int, nargs="+")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    begun = time.monotonic()
    mutants = [mutant for mutant in read_list()
               if args.only is None or mutant.number in args.only]
    names = {mutant.number: entries_of(args.build, mutant)
             for mutant in mutants}
    check_ready(args.build, mutants, sorted(set(sum(names.values(), []))))
    missed = 0
    for mutant in mutants:
        found = find(args.build, mutant, names[mutant.number])
        missed += found is None
        print(f"{mutant}:", f"found by {found}" if found else "NOT FOUND",
              flush=True)
    print(f"{len(mutants) - missed} of {len(mutants)} found,",
          f"{time.monotonic() - begun:.0f} s")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
