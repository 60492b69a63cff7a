# SPDX-License-Identifier: BSD-3-Clause
"""The command `tensormsg` where UCX has something to say of its own: variables
that do not suit, transports that are not there. And what a terminal shows."""

import json
import os

import numpy as np
import safetensors.numpy

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


NO_TRANSPORT = {"UCX_TLS": "rc", "UCX_SOMETHING_ELSE": "1"}


def test_info_tells_the_settings_where_ucx_does_not_open():
    environment = with_variables(**NO_TRANSPORT)
    said = run("info", env=environment)
    assert said.returncode == FAILED
    for part in ("UCX_TLS=rc  (environment)", "UCX_SOMETHING_ELSE=1  (environ",
                 "ucx_error"):
        assert part in said.stdout
    assert "UCX_TLS=rc" in said.stderr
    said = run("info", "--json", "localhost:1", env=environment)
    assert said.returncode == FAILED
    said = json.loads(said.stdout)
    assert said["here"]["ucx_error"] and said["connection"] is None


def our_lines(text):
    """Without those of UCX."""
    return "".join(line for line in text.splitlines(keepends=True)
                   if line.startswith("tensormsg: "))


def test_whoever_cannot_be_reached_does_not_listen(tmp_path):
    for url in ("tcp://127.0.0.1:0", f"unix://{tmp_path}/socket"):
        said = run("recv", "--listen", url, env=with_variables(**NO_TRANSPORT))
        assert (said.returncode, said.stdout) == (FAILED, "")
        one_line(our_lines(said.stderr), "UCX_TLS=rc (environment)")
    assert os.listdir(tmp_path) == []


def test_a_receiver_hears_why_a_sender_cannot_connect():
    with receiver() as there:
        sent = run("send", there.url, DIGITS,
                   env=with_variables(**NO_TRANSPORT))
        assert sent.returncode == FAILED
        one_line(our_lines(sent.stderr), "UCX_TLS=rc (environment)")
        code, _, errors = there.stop()
    assert code == DONE
    one_line(errors, "refused by the peer", "UCX_TLS=rc (environment)")


HIDDEN = "\u00ad\u061c\u200b\u200c\u200e\u202e\u2066\ufeff\U000e0041\x7f\x85"


def test_names_do_not_deceive_the_eye(tmp_path):
    path = tmp_path / "a.safetensors"
    names = [f"gpj{HIDDEN}.exe", "میخواهم", "名前 😀"]
    safetensors.numpy.save_file({name: np.zeros(1) for name in names}, path)
    for words in ([], ["--table"]):
        shown = run("dump", *words, path).stdout
        assert not set(shown) & set(HIDDEN)
        assert "\\u202e" in shown
        assert names[1] in shown and names[2] in shown
    tensors = json.loads(run("dump", path).stdout)["tensors"]
    assert {t["name"] for t in tensors} == set(names)
