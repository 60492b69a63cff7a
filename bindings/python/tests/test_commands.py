# SPDX-License-Identifier: BSD-3-Clause
"""python -m tensormsg: each command, by the names, the options and the exit codes
of the command `tensormsg` (docs/ends.md) where it has it, too."""

import json

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, python
from tensormsg import health, sync
from tensormsg.__main__ import COMMANDS, main

DONE, FAILED, USAGE, APPLICATION, NO_METHOD, OTHER_MAP, TIMED_OUT, \
    UNAVAILABLE = range(8)


@pytest.fixture
def server():
    with sync.listen(":0", background=True) as listener:
        yield listener


def usage(words, capsys, command=main):
    """What it says of words that are mistaken."""
    with pytest.raises(SystemExit) as ended:
        command(list(map(str, words)))
    assert ended.value.code == USAGE
    return capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_each_says_what_it_takes(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == DONE
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python -m tensormsg {name} ")


def test_all_are_listed():
    """And nothing is loaded of other packages for them."""
    with python("-m", "tensormsg", "--help") as process:
        said, _ = process.communicate(timeout=WAIT)
    assert process.returncode == DONE
    assert all(f"\n  {name} " in said for name in COMMANDS)
    with python("-m", "tensormsg", "--version") as process:
        assert process.communicate(timeout=WAIT)[0] == \
            f"tensormsg {tensormsg.__version__}\n"


def test_one_that_is_unknown_is_bad_usage(capsys):
    assert "invalid choice: 'sned'" in usage(["sned"], capsys)
    assert "the following arguments are required" in usage([], capsys)


def test_info(server, capsys):
    assert main(["info", "--json"]) == DONE
    here = json.loads(capsys.readouterr().out)
    assert here["version"] == tensormsg.__version__
    offer = server.offer({"x": np.ones(2)}, name="weights", version=3)
    assert main(["info", "--json", server.url]) == DONE
    about = json.loads(capsys.readouterr().out)
    assert about["here"] == here
    assert about["offers"]["weights"]["version"] == 3
    assert about["connection"]["state"] == "connected"
    assert main(["info", server.url]) == DONE
    assert "\n  weights\n    version            3\n" in capsys.readouterr().out
    offer.withdraw(WAIT)


@pytest.mark.parametrize("command", [
    lambda words: main(["health", *words]), health.main],
    ids=["tensormsg", "tensormsg.health"])
def test_health(server, command, capsys):
    assert command([server.url]) == NO_METHOD
    with server.serve() as serving:
        serving.method("double")(lambda request: {})
        for words, said, code in (
                ([server.url], "SERVING", DONE),
                (["--ready", server.url], "SERVING", DONE),
                (["--live", server.url], "LIVE", DONE),
                ([server.url, "double"], "SERVING", DONE),
                ([server.url, "triple"], "NOT_FOUND", NO_METHOD)):
            capsys.readouterr()
            assert command(words) == code
            assert capsys.readouterr().out == f"{said}\n"
        serving.ready = False
        assert command([server.url]) == UNAVAILABLE
    assert "--live takes a URL alone" in usage(
        ["--live", server.url, "double"], capsys, command)
    assert "not a number of seconds above 0" in usage(
        ["-t", "0", server.url], capsys, command)


def test_nobody_listens_there(capsys):
    assert main(["health", "tcp://127.0.0.1:1"]) == FAILED
    assert capsys.readouterr().err.startswith("tensormsg: ")
