# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs of a page of docs/how-to as the page says."""

import contextlib
import os
import re
import select
import shlex
import subprocess
import sys

import pytest

from conftest import HERE, WAIT, environment

PAGES = HERE / "../../../docs/how-to"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n(?:# needs \w+\n)?# (\w+\.py)\n(.*?)^```",
                     re.MULTILINE | re.DOTALL)


def pattern_of(shown):
    """Three points stand for any lines, or for a part of a line."""
    return "".join(
        "(.*\n)*" if line == "..." else
        re.escape(line).replace(re.escape("..."), ".*") + " *\n"
        for line in shown.splitlines())


class Program:
    """A command of a page, and what the page says that it prints."""

    def __init__(self, words, shown, folder):
        if words[0] == "uvicorn":
            words = ["python", "-m", *words]
        if words[0] == "python":
            words = [sys.executable, "-u", "-W", "error", *words[1:]]
        self.shown = shown
        self.process = subprocess.Popen(
            words, cwd=folder, stdout=subprocess.PIPE, bufsize=0,
            stderr=subprocess.STDOUT, env=environment())

    def line(self):
        """The next line that it prints, within a time."""
        pipe, line = self.process.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            assert select.select([pipe], [], [], WAIT)[0], line
            byte = os.read(pipe, 1)
            assert byte, line
            line += byte
        return line.decode()

    def rest(self, by=None, wait=WAIT):
        """All further lines; it ends by itself or by a signal."""
        if by is not None:
            self.process.send_signal(by)
        return self.process.communicate(timeout=wait)[0].decode()

    def ends(self, by=None, numbers=True, before="", wait=WAIT):
        """It ends in order, by itself or by a signal, and has printed that;
        `before` was read already. Some numbers differ from run to run."""
        printed = before + self.rest(by, wait)
        assert self.process.returncode == 0, printed
        shown = self.shown
        if not numbers:
            shown, printed = (re.sub(r"\d+", "0", it) for it in (shown, printed))
        assert re.fullmatch(pattern_of(shown), printed), printed


class Recipe:
    """Starts commands of one page, whose programs are in a folder."""

    def __init__(self, page, folder, opened, shown={}, **changes):
        """With what is changed in a program, by its name, and in what is shown."""
        self.folder, self.opened, self.shown = folder, opened, {}
        text = (PAGES / page).read_text()
        place = f'"unix://{folder}/socket"'
        for name, code in PROGRAM.findall(text):
            for before, after in changes.get(name[:-3], {}).items():
                assert before in code, name
                code = code.replace(before, after)
            code = re.sub(r'"\w*:4000"', place, code)
            (folder / name).write_text(code)
        for session in CONSOLE.findall(text):
            for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                for before, after in shown.items():
                    printed = printed.replace(before, after)
                self.shown[command] = printed

    def __call__(self, command, url="", port=""):
        """With an URL or a port in place of the page's."""
        words = [url if url and "://" in word else
                 port if port and word.isdigit() else word
                 for word in shlex.split(command)]
        if url not in words and url:
            words.append(url)
        program = Program(words, self.shown[command], self.folder)
        self.opened.enter_context(program.process)
        self.opened.callback(program.process.kill)
        return program


@pytest.fixture
def recipe(tmp_path):
    """A function of a page's name that gives its Recipe."""
    with contextlib.ExitStack() as opened:
        yield lambda page, **changes: Recipe(page, tmp_path, opened, **changes)
