# SPDX-License-Identifier: BSD-3-Clause
"""The commands `tensormsg call` and `tensormsg serve`."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

import cli
from cli import DONE, FAILED, one_line, receiver, run

NO_METHOD, OTHER_MAP, UNAVAILABLE = 4, 5, 7

pytestmark = pytest.mark.filterwarnings("ignore:Custom dtypes")


@pytest.fixture(scope="module")
def echo():
    with receiver("--echo", command="serve") as server:
        yield server.url
        code, out, errors = server.stop()
        assert (code, out, errors) == (DONE, "", "")


def must_call(*words):
    called = run("call", *words)
    assert (called.returncode, called.stderr) == (DONE, "")
    return called.stdout


def test_a_newcomers_session(echo, tmp_path):
    assert must_call(echo, "--list") == (
        "echo (...)\n  Answers with the map that it was called with\n")
    arrays = {
        "image": np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
        "f": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        "c": np.array([1 + 2j], dtype=np.complex64),
        "b": np.array([True, False]),
        "half": np.array(1.5, dtype=np.float16),
        "none": np.zeros((0, 3), dtype=np.int32),
    }
    for name, array in arrays.items():
        np.save(tmp_path / name, array)
    shown = must_call(echo, "echo", *(f"{name}={tmp_path}/{name}.npy"
                                      for name in arrays),
                      "--out", tmp_path / "reply")
    assert shown.startswith("reply: 6 tensors, ")
    for name, array in arrays.items():
        came = np.load(tmp_path / "reply" / f"{name}.npy")
        assert (came.dtype, came.shape) == (array.dtype, array.shape)
        assert came.tobytes() == array.tobytes()
        assert name in shown
    assert sorted(os.listdir(tmp_path / "reply")) == sorted(
        f"{name}.npy" for name in arrays)


def test_values_and_metadata_of_the_command_line(echo, tmp_path):
    out = tmp_path / "all.npz"
    shown = must_call(
        echo, "echo", "a=[[1,2],[3,-4]]", "b=[1,2,3]:float32", "c=0.5",
        "d=[true, false]", "e=[]:int8", "f=-128:int8", "g=[[],[]]",
        "h=18446744073709551615:uint64", "i=[nan,inf]", "j=1e3",
        "--meta", "n=7", "--meta", "x=0.25", "--meta", "t=true",
        "--meta", "s=a=b", "--meta", 'q="7"', "--out", out)
    wanted = {
        "a": np.array([[1, 2], [3, -4]], dtype=np.int64),
        "b": np.array([1, 2, 3], dtype=np.float32),
        "c": np.array(0.5), "d": np.array([True, False]),
        "e": np.zeros(0, dtype=np.int8), "f": np.array(-128, dtype=np.int8),
        "g": np.zeros((2, 0), dtype=np.int64),
        "h": np.array(2**64 - 1, dtype=np.uint64),
        "i": np.array([np.nan, np.inf]), "j": np.array(1000.0),
    }
    came = np.load(out)
    assert sorted(came.files) == sorted(wanted)
    for name, array in wanted.items():
        assert came[name].dtype == array.dtype
        np.testing.assert_array_equal(came[name], array)
    for line in ("@n  i64  7", "@x  f64  0.25", "@t  bool  true",
                 "@s  string  a=b", "@q  string  7"):
        assert f"  {line}\n" in shown


def test_files_of_several_tensors_keep_their_names(echo, tmp_path):
    sample = cli.make_sample(tmp_path)
    out = tmp_path / "reply.safetensors"
    must_call(echo, "echo", sample, "--out", out)
    first, second = (cli.safetensors.numpy.load_file(p) for p in (sample, out))
    assert sorted(first) == sorted(second)
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes()
    denied = run("call", echo, "echo", "x=1", "--out", out)
    assert denied.returncode == FAILED
    one_line(denied.stderr, str(out), "--force replaces")
    must_call(echo, "echo", "x=1", "--out", out, "--force")
    assert list(cli.safetensors.numpy.load_file(out)) == ["x"]


def test_names_from_a_server_stay_in_the_folder(echo, tmp_path):
    out, sent = tmp_path / "out", tmp_path / "sent.safetensors"
    for name in ("../x", ".x", "a/b", "a\tb", "/x", "-rf", "a\u202eb"):
        cli.safetensors.numpy.save_file({name: np.zeros(1)}, sent)
        called = run("call", echo, "echo", sent, "--out", out)
        assert called.returncode == FAILED
        one_line(called.stderr, "--out FILE.safetensors takes")
        assert os.listdir(out) == []
    assert sorted(os.listdir(tmp_path)) == ["out", "sent.safetensors"]


@pytest.mark.once
def test_every_bad_value_is_told(tmp_path):
    bad = {
        "x=/nowhere.npy": "/nowhere.npy",
        "/nowhere.npz": "/nowhere.npz",
        f"x={cli.DIGITS}": "for the one name 'x'",
        "x=[1,2": "']'",
        "x=[[1],2]": "lists and numbers",
        "x=[1,[2]]": "lists and numbers",
        "x=[[1],[2,3]]": "different lengths",
        "x=[1]]": "behind the value",
        "x=[1,]": "not a number",
        "x=[1,a]": "not a number",
        "x=256:uint8": "a number that the dtype does not have",
        "x=-1:uint8": "a number that the dtype does not have",
        "x=128:int8": "a number that the dtype does not have",
        "x=9223372036854775808": "a number that the dtype does not have",
        "x=1.5:int8": "not a number",
        "x=1:float33": "'float33' is not a dtype: write float32 or uint8, for example",
        "x=1:bfloat16": "in a file",
        "x=[2]:bool": "neither true nor false",
        "x=" + "[" * 65 + "]" * 65: "64 brackets",
        "good=1": None,
        "good=2": "good",
        "--meta=k": "KEY=VALUE",
        "--meta==1": "empty",
        "--meta=tensormsg.x=1": "reserved",
    }
    called = run("call", "tcp://127.0.0.1:1", "m", *bad)
    assert (called.returncode, called.stdout) == (cli.USAGE, "")
    lines = called.stderr.splitlines()
    wanted = [part for part in bad.values() if part is not None]
    assert len(lines) == len(wanted), called.stderr
    for line in lines:
        assert line.startswith("tensormsg: ") and len(line) < 500
    for part in wanted:
        assert any(part in line for line in lines), part


def test_health(echo):
    assert must_call(echo, "--health") == "SERVING\n"
    assert must_call(echo, "--health", "echo") == "SERVING\n"
    asked = run("call", echo, "--health", "other")
    assert (asked.returncode, asked.stdout) == (NO_METHOD, "NOT_FOUND\n")


def test_json(echo):
    called = json.loads(must_call(echo, "echo", "x=[1]", "--json"))
    assert (called["event"], called["tensors"]) == ("reply", 1)
    assert called["map"]["tensors"][0]["name"] == "x"
    listed = json.loads(must_call(echo, "--list", "--json"))["methods"]
    assert [m["name"] for m in listed] == ["echo"]
    assert listed[0]["takes_and_gives"]["inputs"]["further"] is True
    failed = run("call", echo, "other", "--json")
    told = json.loads(failed.stdout)
    assert failed.returncode == NO_METHOD
    assert (told["event"], told["status"]) == ("failed", "not found")
    assert told["may_have_run"] is False
    one_line(failed.stderr, "method 'other'", "no such method here")


def test_a_method_that_takes_another_map(tmp_path):
    url = f"unix://{tmp_path}/socket"
    program = os.path.join(os.path.dirname(cli.HELLO), "server")
    with subprocess.Popen([program, url]) as server:
        try:
            end = time.monotonic() + 60
            while not (tmp_path / "socket").exists():
                assert server.poll() is None and time.monotonic() < end
                time.sleep(0.01)
            assert must_call(url, "--list") == (
                "double [idempotent] (x: float32[n]) -> (x: float32[n])\n"
                "  Twice each element\n")
            must_call(url, "double", "x=[1,2.5]:float32", "--out", tmp_path)
            np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), [2, 5])
            called = run("call", url, "double", "x=[[1,2],[3,4]]")
        finally:
            server.kill()
    assert called.returncode == OTHER_MAP
    one_line(called.stderr, "method 'double': \"x\" is int64[2,2]: the method "
                            "takes float32[n] (no handler saw the call)")


def test_where_nobody_serves():
    with receiver() as there:
        for words, code in ((["--list"], NO_METHOD), (["--health"], NO_METHOD),
                            (["echo", "x=1"], UNAVAILABLE)):
            called = run("call", there.url, *words)
            assert called.returncode == code
            one_line(called.stderr, "nobody serves here")
        called = run("call", "--wait", "-t", ".3", there.url, "echo", "x=1")
        assert called.returncode == UNAVAILABLE
        one_line(called.stderr, "nobody serves here (", "attempts)")
    called = run("call", "tcp://127.0.0.1:1", "echo")
    assert called.returncode == FAILED
    one_line(called.stderr, "127.0.0.1:1")


@pytest.mark.parametrize("change, words", cli.CHANGES)
def test_a_file_that_changes_before_the_reply(tmp_path, change, words):
    """The second of two: the line says which."""
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path in paths:
        np.save(path, np.ones(300_000, np.uint8))
    with receiver("--echo", command="serve") as server:
        server.process.send_signal(signal.SIGSTOP)
        with subprocess.Popen(
                [cli.TOOL, "call", server.url, "echo",
                 *(f"{path.stem}={path}" for path in paths),
                 "--out", tmp_path / "reply"], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True) as call:
            cli.wait_until_mapped(call, paths[1])
            change(paths[1])
            server.process.send_signal(signal.SIGCONT)
            out, said = call.communicate(timeout=cli.BOUND)
        assert (call.returncode, out) == (FAILED, "")
        one_line(said, "b.npy", words)
        assert server.stop()[0] == DONE
    assert os.listdir(tmp_path / "reply") == []
