# SPDX-License-Identifier: BSD-3-Clause
"""Each block of the tutorial runs as it stands, without a warning."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
BLOCKS = re.findall(r"^```python\n(.*?)^```", (HERE / "../README.md")
                    .read_text(), re.MULTILINE | re.DOTALL)
EXAMPLES = sorted((HERE / "../../../examples/python").glob("*.py"))


def run(*args):
    ran = subprocess.run([sys.executable, "-W", "error", *map(str, args)],
                         text=True, stdout=subprocess.PIPE, timeout=50,
                         stderr=subprocess.STDOUT,
                         env={**os.environ, "UCX_LOG_LEVEL": "fatal"})
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_a_block_of_the_tutorial(index, tmp_path):
    (tmp_path / "block.py").write_text(BLOCKS[index])
    out = run(tmp_path / "block.py")
    assert (out != "") == ("print" in BLOCKS[index]), out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example(example):
    assert run(example)
