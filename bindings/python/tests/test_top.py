# SPDX-License-Identifier: BSD-3-Clause
"""What a process tells of itself over the network, and how `top` shows it."""

import contextlib
import json
import os
import signal
import threading

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, echo, python
from tensormsg import _cmd_top, _observed, sync
from tensormsg.__main__ import main

DONE, FAILED = 0, 1


def top(*words, **more):
    return python("-m", "tensormsg", "top", *words, **more)


def looks(process, holds):
    """The first of its looks in JSON that is so."""
    for line in process.stdout:
        about = json.loads(line)
        if holds(about):
            return about
    raise AssertionError("it ended")


@contextlib.contextmanager
def busy(url):
    """A camera with one viewer that keeps up and one that takes nothing, and a
    server whose caller goes on and on."""
    stop = threading.Event()

    def film():
        while not stop.wait(.005):
            camera.send({"image": np.zeros(1000, "u1")})

    def view():
        with contextlib.suppress(tensormsg.Error):
            for _ in viewer:
                pass

    def call():
        with contextlib.suppress(tensormsg.Error):
            while not stop.wait(.002):
                caller.call("infer", {"x": np.ones(10)})
                with contextlib.suppress(tensormsg.Internal):
                    caller.call("bad")

    with contextlib.ExitStack() as opened:
        camera = sync.publish(url)
        opened.callback(camera.abort)
        server = camera.listener.serve(threads=1)
        server.method("infer")(lambda request: {"y": request["x"]})

        @server.method("bad")
        def bad(request):
            raise tensormsg.CallError("so", status=tensormsg.Status.INTERNAL)
        viewer, mute, caller = [sync.connect(camera.url, background=True)
                                for _ in range(3)]
        for ep in viewer, mute, caller:
            opened.callback(ep.abort)
        threads = [threading.Thread(target=work, daemon=True)
                   for work in (film, view, call)]
        for thread in threads:
            thread.start()
        opened.callback(threads[2].join, WAIT)
        opened.callback(stop.set)
        yield camera


def test_rates_queues_and_latencies(tmp_path):
    with busy(f"unix://{tmp_path}/socket") as camera, \
            top("--json", "-i", ".3", camera.url) as process:
        about = looks(process, lambda it: any(
            one["waiting"] for it_ in it["publishers"]
            for one in it_["subscribers"]) and any(
                one["method"] == "infer" and one["a_second"]["ended"]
                for one in it["calls"]))
    assert about["url"] == camera.url and about["pid"] == os.getpid()
    assert about["health"] == "SERVING" and about["why"] == ""
    assert len(about["endpoints"]) == 4  # and ours
    assert max(one["a_second"]["sent_bytes"] for one in about["endpoints"]) > 0
    publisher, = about["publishers"]
    assert publisher["a_second"]["published"] > 0
    assert {one["id"] for one in publisher["subscribers"]} == \
        {one["id"] for one in about["endpoints"]}
    calls = {one["method"]: one for one in about["calls"]}
    assert 0 < calls["infer"]["p50_s"] <= calls["infer"]["p99_s"] < 10
    assert calls["bad"]["failed"] > 0 == calls["infer"]["failed"]


def test_the_table(tmp_path):
    with busy(f"unix://{tmp_path}/socket") as camera, \
            top("--once", "-i", ".3", camera.url) as process:
        out, _ = process.communicate(timeout=WAIT)
    assert process.returncode == DONE
    assert "\x1b" not in out
    first, second, *rest = out.splitlines()
    assert first == f"{camera.url}  pid {os.getpid()}  tensormsg " \
        f"{tensormsg.__version__}  SERVING"
    assert second.startswith("  3 connections, ")
    assert [line.split()[0] for line in rest if line and line[2] != "u"] == \
        ["connection", "publisher:", "subscriber", "method", "bad", "infer"]


def test_a_stalled_server_says_why():
    release = threading.Event()
    with sync.listen(":0", background=True) as listener, \
            listener.serve(threads=1, concurrency=1) as server:
        server.method("slow")(lambda request: release.wait(WAIT) and None)
        with sync.connect(listener.url, background=True) as ep:
            calls = [ep.start_call("slow") for _ in range(3)]
            with top("--json", "-i", ".2", listener.url) as process:
                about = looks(process, lambda it: it["health"] == "STALLED")
            release.set()
            for call in calls:
                call.wait(WAIT)
    assert "'slow'" in about["why"]
    assert about["worker"]["running_calls"] == 1
    assert about["worker"]["waiting_calls"] == 2


def test_it_slows_no_publisher():
    """One that waits for its slowest subscriber does not wait for top, which
    takes nothing."""
    with sync.publish(":0", mode="all", queue=1, window=1) as camera, \
            top("--json", "-i", ".2", camera.url) as process:
        looks(process, lambda about: about["publishers"])
        for _ in range(50):
            camera.send({"x": np.ones(10)}, timeout=WAIT)
        about = looks(process, lambda it: it["publishers"][0]["published"] == 50)
        assert about["publishers"][0]["blocked"] == 0
        process.send_signal(signal.SIGINT)
        process.wait(WAIT)


def test_it_finds_a_process_that_comes_back():
    listener = sync.listen(":0", background=True, context=tensormsg.Context())
    with top("--json", "-i", ".1", "-t", "5", listener.url) as process:
        looks(process, lambda about: "pid" in about)
        listener.abort()
        looks(process, lambda about: "error" in about)
        listener = sync.listen(listener.url, background=True)
        looks(process, lambda about: "pid" in about)
        listener.abort()


def test_one_that_does_not_answer_holds_up_no_other():
    with sync.listen(":0", background=True) as listener, \
            echo() as (url, other), top("--json", "-i", ".05", "-t", "60", url,
                                        listener.url) as process:
        looks(process, lambda about: about["url"] == url)
        other.send_signal(signal.SIGSTOP)
        for _ in range(5):  # all of them before it counts as lost
            looks(process, lambda about: about["url"] == listener.url
                  or "error" in about and pytest.fail("it waited"))


def test_several_urls(capsys):
    with sync.listen(":0", background=True) as one, \
            sync.listen(":0", background=True) as other:
        assert main(["top", "--once", "--json", "-i", ".05", one.url,
                     other.url]) == DONE
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [about["url"] for about in said] == [one.url, other.url]
    assert [about["health"] for about in said] == [None, None]
    assert {one["method"] for about in said for one in about["calls"]} <= \
        {"tensormsg.describe"}  # it asks nothing that is not there


def test_who_has_no_key_for_it_is_refused(monkeypatch, tmp_path, capsys):
    tensormsg.save_key(tmp_path / "key", "ops")
    words = ["top", "--once", "-i", ".05", "--key", str(tmp_path / "key")]
    for observers, code in ("", FAILED), ("eve", FAILED), ("eve ops", DONE):
        monkeypatch.setenv("TENSORMSG_OBSERVERS", observers)
        with sync.listen(":0", background=True, key=tmp_path / "key",
                         context=tensormsg.Context()) as listener:
            assert main([*words, listener.url]) == code
        said = capsys.readouterr()
        assert ("TENSORMSG_OBSERVERS" in said.err) == (code == FAILED)
        assert ("principal" in said.err) == (code == FAILED)


def test_nobody_there_is_an_error(capsys):
    assert main(["top", "--once", "127.0.0.1:1"]) == FAILED
    assert "127.0.0.1:1" in capsys.readouterr().err


class Told(dict):
    """What a process tells of itself, whatever that is."""
    meta = {}

    def __init__(self, process, metrics=""):
        super().__init__(process=np.frombuffer(process.encode(), "u1"),
                         metrics=np.frombuffer(metrics.encode() + b"\n", "u1"))


def told_of(**more):
    """With one connection."""
    worker = dict.fromkeys(("waiting_messages", "ready_messages", "held_bytes",
                            "running_calls", "waiting_calls", "held_calls",
                            "stalls"), 0)
    one = {**dict.fromkeys(_observed.ENDPOINT, 0), "id": 1, "peer": "x",
           "state": "connected", "unacknowledged_ms": 0, "send_ns": {},
           "ack_ns": {}, "waiting_messages": 0, "ready_messages": 0}
    return json.dumps({"pid": 1, "version": "1", "worker": worker,
                       "endpoints": [one], "publishers": [],
                       "more_endpoints": 0, **more})


@contextlib.contextmanager
def telling(monkeypatch, told):
    async def call(ep, *args, **more):
        return told
    monkeypatch.setattr(tensormsg.Endpoint, "call", call)
    with sync.listen(":0", background=True) as listener:
        yield listener.url


@pytest.mark.parametrize("told", [
    Told("[]"), Told("{"), Told('{"endpoints": 5}'),
    Told('{"endpoints": [{}], "publishers": []}'), Told("[" * 100000),
    Told(told_of(endpoints=[{"id": 1, "sent_bytes": 10**400}])),
    Told(told_of(worker={"waiting_messages": float("-inf")})),
    Told(told_of(), 'tensormsg_calls_total{side="x",status="ok"} -inf')])
def test_a_process_that_lies_is_malformed(told, monkeypatch, capsys):
    with telling(monkeypatch, told) as url:
        assert main(["top", "--once", "-i", ".05", url]) == FAILED
    assert "is not understood" in capsys.readouterr().err


def test_what_a_process_tells_is_escaped(monkeypatch, capsys):
    evil = "\x1b]0;pwned\x07\x1b[2J"
    subscriber = {"id": 1, "peer": evil, "mode": evil, "waiting": evil,
                  "under_way": evil}
    told = Told(told_of(version=evil, pid=evil, publishers=[
        {"blocked": evil, "subscribers": [subscriber]}]),
        f'tensormsg_calls_total{{side="{evil}",method="m",status="ok"}} 1')
    with telling(monkeypatch, told) as url:
        assert main(["top", "--once", "-i", ".05", url]) == DONE
    out = capsys.readouterr().out
    assert out.count(r"\x1b[2J") == 8
    assert out.isascii() and out.replace("\n", "").isprintable()


def test_what_is_left_out_is_counted(monkeypatch, capsys):
    told = Told(told_of(more_publishers=2, publishers=[
        {"blocked": 0, "subscribers": [], "more_subscribers": 3}]))
    with telling(monkeypatch, told) as url:
        assert main(["top", "--once", "-i", ".05", url]) == DONE
    out = capsys.readouterr().out
    assert "maps/s to 3 subscribers" in out
    assert out.splitlines()[-3:-1] == ["  and 3 more",
                                       "  and 2 more publishers"]


TEXT = r"""# HELP tensormsg_calls_total Calls that have ended.
tensormsg_calls_total{side="server",method="a\"\\b\nc",status="ok"} 90
tensormsg_calls_total{side="server",method="a\"\\b\nc",status="internal"} 10
tensormsg_call_duration_seconds_bucket{side="server",method="a\"\\b\nc",le="0.001"} 50
tensormsg_call_duration_seconds_bucket{side="server",method="a\"\\b\nc",le="0.002"} 100
tensormsg_call_duration_seconds_bucket{side="server",method="a\"\\b\nc",le="+Inf"} 100
tensormsg_late_replies_total 3
"""


def test_metrics_are_read():
    (key, calls), = _observed.calls_of(TEXT).items()
    assert key == ("server", 'a"\\b\nc')
    assert (calls.ended, calls.failed) == (100, 10)
    assert calls.quantile(.5) == pytest.approx(.001)
    assert calls.quantile(.75) == pytest.approx(.0015)
    assert calls.less(calls).quantile(.5) is None


def test_numbers_are_short():
    assert [_cmd_top.amount(value) for value in
            (0, 7, 7.25, 999.4, 1000, 28.9e6, 5e15)] == \
        ["0", "7", "7.2", "999.4", "1.0k", "28.9M", "5.0P"]
    assert [_cmd_top.span(value) for value in (None, 1e-6, .0038, 2.5)] == \
        ["-", "1.0us", "3.8ms", "2.50s"]


def test_a_terminal_is_drawn_over(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "3")
    _cmd_top.show(["x" * 20, "y", "z"], True)
    assert capsys.readouterr().out == \
        "\x1b[H" + "x" * 10 + "\x1b[K\ny\x1b[K\n\x1b[J"
