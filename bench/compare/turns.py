# SPDX-License-Identifier: BSD-3-Clause
"""Several ways by turns, so that what else the machine does falls on all."""

import re
import subprocess
import sys
from typing import Any, Callable, NamedTuple, Tuple

from table import Table

ABSENT = "not installed"
LIMIT_S = 120  # a run that takes longer is none
SAYS = "tensormsg-bench: "  # a program in C, before why it ends


class Turn(NamedTuple):
    """One way's figures at a place, which go to a table. `measure` gives None
    where the way is not installed, and raises RuntimeError where it fails."""
    table: Table
    place: Tuple[str, ...]
    way: str
    measure: Callable[[], Any]


def reason(words):
    """The line that says why a run failed: the first of a program in C, whose
    other processes fail after it, or else the last."""
    lines = words.strip().splitlines()
    for line in lines:
        if line.startswith(SAYS):
            return line[len(SAYS):]
    return lines[-1] if lines else ""


def run(command):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(reason(done.stderr) or f"exit {done.returncode}")
    return done.stdout


def contest(rounds, series):
    """Takes every turn once a round. `series`: lists of turns, each with the
    ways that are measured once more at its end. Returns why a way was not
    measured, by place and way."""
    missing = {}
    for number in range(rounds):
        for turns, controls in series:
            both = [(turn, False) for turn in turns] + [
                (turn, True) for turn in turns if turn.way in controls]
            # Every second round backwards.
            for turn, again in reversed(both) if number % 2 else both:
                print(f"\r{number + 1} of {rounds}: {', '.join(turn.place)}: "
                      f"{turn.way:40}", end="", file=sys.stderr, flush=True)
                try:
                    found = turn.measure()
                except (RuntimeError, OSError,
                        subprocess.TimeoutExpired) as error:
                    found = None
                    missing[(turn.place, turn.way)] = str(error)
                if found:
                    turn.table.note(turn.place, turn.way, found, again)
                else:
                    missing.setdefault((turn.place, turn.way), ABSENT)
    print(file=sys.stderr)
    return missing


def told(missing, *tables):
    """A line for each way, or for all of a place where none was measured."""
    lines = []
    for place in dict.fromkeys(place for place, _ in missing):
        why = {way: missing[(at, way)] for at, way in missing if at == place}
        if not any(place in table.seen for table in tables):
            # Once, though a folder's name may have another number in it.
            words = {re.sub(r"\d+", "", one): one for one in why.values()}
            lines.append(f"{', '.join(place)}: {'; '.join(words.values())}")
        else:
            lines += [f"{way} ({', '.join(place)}): {words}"
                      for way, words in why.items()]
    return lines
