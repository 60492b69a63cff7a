# SPDX-License-Identifier: BSD-3-Clause
"""The command `tensormsg` where UCX has something to say of its own: variables
that do not suit, transports that are not there."""

import json
import os

from cli import DIGITS, DONE, FAILED, USAGE, one_line, receiver, run


def with_variables(**variables):
    return {**os.environ, **variables}


def test_what_ucx_prints_is_not_in_our_output():
    odd = with_variables(UCX_NET_DEVICES="nosuchdevice0")
    with receiver("-n", 1, "--json", env=odd) as there:
        assert there.url.startswith("tcp://")
        sent = run("send", "--json", there.url, DIGITS, env=odd)
        code, out, errors = there.end()
    assert (sent.returncode, code) == (DONE, DONE)
    assert json.loads(sent.stdout)["event"] == "sent"
    assert json.loads(out)["event"] == "received"
    for said in (sent.stderr, errors):
        assert "nosuchdevice0" in said
        assert "invalid configuration" not in said  # a default of ours
