# SPDX-License-Identifier: BSD-3-Clause
"""python -m tensormsg: each command, by the names, the options and the exit codes
of the command `tensormsg` (docs/reference/exit-codes.md) where it has it,
too."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, environment, python
from tensormsg import _plot, health, sync
from tensormsg.__main__ import COMMANDS, main
from tensormsg._cmd_data import Watched, data_of, meta_of, name_fault
from tensormsg._cmd_perf import numbers

DONE, FAILED, USAGE, APPLICATION, NO_METHOD, OTHER_MAP, TIMED_OUT, \
    UNAVAILABLE, CUT = range(9)
TOOL = os.environ["TENSORMSG"]
PATIENT = "--wait", "-t", str(WAIT)  # until somebody listens there


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


def test_its_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"tensormsg {tensormsg.__version__}\n"


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
    said = capsys.readouterr().err
    assert said.startswith("tensormsg: ") and "; --wait waits until" in said


@contextlib.contextmanager
def process(*command):
    """One that prints where it listens."""
    with subprocess.Popen([*map(str, command)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment()) as started:
        try:
            yield started.stdout.readline().strip(), started
        finally:
            started.kill()


class Signals:
    """In place of signals, which the main thread alone is told of."""

    number = None

    def __enter__(self):
        return self

    def __exit__(self, *why):
        pass


class Receiver:
    """`recv` in a thread. `url`: where it listens, soon."""

    def __init__(self, folder, *words):
        self.url = f"unix://{folder}/socket"
        self.signals = Signals()
        self.words = ["recv", "-l", self.url, *map(str, words)]
        self._patch = pytest.MonkeyPatch()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        self.code = main(self.words)

    def __enter__(self):
        self._patch.setattr("tensormsg._cmd_recv.Caught", lambda: self.signals)
        self._thread.start()
        return self

    def __exit__(self, *why):
        self.signals.number = signal.SIGTERM
        self._thread.join()
        self._patch.undo()

    def end(self):
        """Its exit code, when it ends by itself."""
        self._thread.join(WAIT)
        return self.code

    def stop(self):
        self.signals.number = signal.SIGTERM
        return self.end()


@pytest.mark.parametrize("word, array", [
    ("x=7", np.array(7)), ("x=-7", np.array(-7)), ("x=.5", np.array(.5)),
    ("x=+1e3", np.array(1000.)), ("x=true", np.array(True)),
    ("x=nan", np.array(np.nan)), ("x=[inf,-inf]", np.array([np.inf, -np.inf])),
    ("x=[[1, 2],[3,4]]", np.array([[1, 2], [3, 4]])),
    ("x=[true,false]", np.array([True, False])), ("x=[]", np.array([])),
    ("x=[[],[]]", np.zeros((2, 0))),
    ("x=[1,2,3]:float32", np.array([1, 2, 3], "f4")),
    ("x=7:uint8", np.array(7, "u1")),
    ("x=18446744073709551615:uint64", np.array(2**64 - 1, "u8")),
])
def test_a_value_is_an_array(word, array):
    data, files = data_of([word])
    if not array.size:
        array = array.astype("i8")
    assert files == [] and data["x"].dtype == array.dtype
    np.testing.assert_array_equal(data["x"], array)


@pytest.mark.parametrize("word, why", [
    ("x=[1,2", "neither a number"), ("x=[1,[2]]", "neither a number"),
    ("x=[1,true]", "neither a number"), ("x=300:uint8", "neither a number"),
    ("x=[1]:float8", "neither a number"), ("x=[1]:object", "in a file"),
    ("x=1e", "neither a number"), ("x=[__import__('os')]", "neither a number"),
    ("x=no.npy", "No such file"), ("no.npz", "No such file"),
    ("", "No such file"), ("./a=b", "No such file"),
    ("x\udcff=1", r"'x\udcff' is not UTF-8"),
])
def test_a_bad_value_is_bad_usage(word, why, capsys):
    assert main(["call", "tcp://127.0.0.1:1", "f", word]) == USAGE
    said = capsys.readouterr().err
    assert said.startswith("tensormsg: ") and why in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("words, why", [
    (["f", "--meta", "x=9223372036854775808"], "64 bits"),
    (["f", "--meta", "/x=1"], "'/' begins no key"),
    (["f", "--meta", "x=\udcff"], "is not UTF-8"),
    (["f\udcff"], "is not UTF-8"), (["f", "--meta", "x"], "KEY=VALUE")])
def test_a_bad_word_is_bad_usage(words, why, capsys):
    assert main(["call", "tcp://127.0.0.1:1", *words]) == USAGE
    said = capsys.readouterr().err
    assert said.startswith("tensormsg: ") and why in said


def test_metadata_have_their_types():
    assert meta_of(["a=true", "b=7", "c=.5", 'd="7"', "e=x=y", "f="]) == {
        "a": True, "b": 7, "c": .5, "d": "7", "e": "x=y", "f": ""}


@pytest.mark.parametrize("name, fault", [
    ("a.npy", None), ("", "empty"), ("../a", "leave"), (".a", "'.'"),
    ("-a", "'-'"), ("a" * 241, "long"), ("a\x1b[2J", "seen"), ("ü.npy", None)])
def test_names_of_files_that_a_peer_gives(name, fault):
    said = name_fault(name)
    assert said is None if fault is None else fault in said


@pytest.fixture
def serving(server):
    served = server.serve(threads=2)

    @served.method("double", signature="(x: float64[n]) -> (y: float64[n])")
    def double(request):
        """Twice as much."""
        return {"y": 2 * request["x"]}

    @served.method("more")
    def more(request):
        return tensormsg.Reply({"y": request["x"], "n": 7, "a/b": np.ones(1)},
                               frame=request.meta.get("frame", 0))

    @served.method("fail")
    def fail(request):
        raise tensormsg.CallError("too hot", code=42)

    @served.method("late")
    def late(request):
        over.wait(WAIT)
        return {}

    over = threading.Event()
    yield server
    over.set()


def test_call(serving, capsys, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3.))
    x = f"x={tmp_path}/a.npy"
    assert main(["call", serving.url, "more", x, "--meta", "frame=9"]) == DONE
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["reply:", "2", "tensors,", "32", "B"], ["y", "float64", "[3]", "24"],
        ["a/b", "float64", "[1]", "8"], ["n", "int", "7"], ["@frame", "int", "9"]]
    assert main(["call", "--json", serving.url, "more", "x=1.5"]) == DONE
    event = json.loads(capsys.readouterr().out)
    assert event["event"] == "reply" and event["map"]["leaves"] == {"n": 7}
    assert event["map"]["metadata"] == {"frame": 0}
    assert event["map"]["tensors"][0] == {
        "name": "y", "dtype": "float64", "shape": [], "bytes": 8}


@pytest.mark.parametrize("out", ["all.npz", "all.safetensors"])
def test_a_reply_is_kept_in_a_file(out, serving, tmp_path, capsys):
    words = ["call", serving.url, "more", "x=[1.,2.]", "--out",
             str(tmp_path / out)]
    assert main(words) == DONE
    kept = tensormsg.load(tmp_path / out)
    assert kept["y"].tolist() == [1, 2] and kept["a/b"].tolist() == [1]
    assert ("n" in kept) == ("frame" in kept.meta) == ("safe" in out)
    assert main(words) == FAILED
    assert "(--force replaces)" in capsys.readouterr().err
    assert main([*words, "--force"]) == DONE


def test_a_reply_is_kept_array_by_array(serving, tmp_path, capsys):
    assert main(["call", serving.url, "more", "x=[1.]", "-o",
                 str(tmp_path / "new")]) == FAILED
    assert np.load(tmp_path / "new/y.npy").tolist() == [1]
    assert "'a/b' is not kept: the file name would leave the folder" in \
        capsys.readouterr().err
    assert os.listdir(tmp_path / "new") == ["y.npy"]


def test_no_reply_is_kept_to_a_file_that_changed(serving, tmp_path, capsys,
                                                 monkeypatch):
    stat = Watched._stat
    monkeypatch.setattr(Watched, "_stat", lambda self: (
        *stat(self), os.urandom(8)))
    np.save(tmp_path / "a.npy", np.ones(1))
    assert main(["call", serving.url, "more", f"x={tmp_path}/a.npy", "--out",
                 str(tmp_path / "r.npz")]) == FAILED
    said = capsys.readouterr()
    assert "the file changed while it was in use; no reply is kept" in said.err
    assert said.out == "" and not (tmp_path / "r.npz").exists()


@pytest.mark.parametrize("words, code, said", [
    (["fail"], APPLICATION, "too hot"), (["nothing"], NO_METHOD, "nothing"),
    (["double", "x=[1]"], OTHER_MAP, "x"), (["double"], OTHER_MAP, "x"),
    (["late", "-t", "2"], TIMED_OUT, "handler"),
])
def test_calls_that_fail(words, code, said, serving, capsys):
    assert main(["call", "--json", serving.url, *words]) == code
    out, err = capsys.readouterr()
    event = json.loads(out)
    assert event["event"] == "failed" and said in event["error"]
    assert event["code"] == (42 if code == APPLICATION else 0)
    assert err.startswith("tensormsg: ") and said in err


def test_a_server_is_asked(serving, capsys):
    assert main(["call", "--list", serving.url]) == DONE
    out = capsys.readouterr().out
    assert "double (x: float64[n]) -> (y: float64[n])\n  Twice as much.\n" in out
    assert main(["call", "--list", "--json", serving.url]) == DONE
    assert set(json.loads(capsys.readouterr().out)["methods"]) == {
        "double", "fail", "late", "more"}
    assert main(["call", "--health", serving.url, "double"]) == DONE
    assert capsys.readouterr().out == "SERVING\n"


@pytest.mark.parametrize("words, said", [
    ([], "METHOD to call"), (["m", "--list"], "a URL alone"),
    (["--list", "--health"], "exclude each other"),
    (["--health", "m", "x=1"], "a URL and a METHOD"),
])
def test_calls_that_are_mistaken(words, said, capsys):
    assert said in usage(["call", "tcp://127.0.0.1:1", *words], capsys)


def test_serve_echoes_and_ends_as_a_server_does(capsys):
    """It cuts what takes longer than --grace."""
    assert "nothing to serve" in usage(["serve"], capsys)
    words = [sys.executable, "-m", "tensormsg", "serve", "--echo"]
    with process(*words, "--delay", ".5", "--grace", ".1") as (url, it), \
            sync.connect(url, background=True) as ep:
        reply = ep.call("echo", {"x": np.ones(2), "deep": [1, {"a": None}]},
                        frame=3, timeout=WAIT)
        assert reply.tree()["deep"] == [1, {"a": None}]
        assert reply.meta == {"frame": 3}
        call = ep.start_call("echo", {})
        while ep.health().running == 0:
            pass
        it.send_signal(signal.SIGINT)
        with pytest.raises(tensormsg.Unavailable):
            call.wait(WAIT)
        assert it.wait(WAIT) == CUT


@pytest.fixture
def files(tmp_path):
    made = {"m.safetensors": {"w": np.arange(4.), "b": np.ones(2, "f4")},
            "z.npz": {"w": np.arange(1 << 16)}, "one.npy": {"w": np.eye(3)}}
    for name, data in made.items():
        tensormsg.save(tmp_path / name, data)
    return [str(tmp_path / name) for name in made]


def whole(files, folder):
    for path in files:
        with open(path, "rb") as sent, \
                open(folder / os.path.basename(path), "rb") as kept:
            assert sent.read() == kept.read()


def test_files_come_whole(files, tmp_path, capsys):
    """Byte by byte. Both end by themselves."""
    with Receiver(tmp_path, "-n", 3, "-o", tmp_path / "out") as it:
        assert main(["send", *PATIENT, "--verify", it.url, *files]) == DONE
        assert it.end() == DONE
    assert capsys.readouterr().out.count("\n") == 4
    whole(files, tmp_path / "out")


def test_files_of_the_command_come_whole(files, tmp_path):
    with Receiver(tmp_path, "-n", 3, "-o", tmp_path / "out") as it:
        subprocess.run([TOOL, "send", *PATIENT, "--verify", it.url, *files],
                       timeout=WAIT, check=True)
        assert it.end() == DONE
    whole(files, tmp_path / "out")


def test_files_come_whole_to_the_command(files, tmp_path):
    with process(TOOL, "recv", "-n", 3, "-o", tmp_path / "out") as (url, it):
        assert main(["send", "--verify", url, *files]) == DONE
        assert it.wait(WAIT) == DONE
    whole(files, tmp_path / "out")


TREE = {"x": np.ones(2), "deep": [1, "a"]}


def test_recv_tells_what_came(tmp_path, files, capsys):
    """Also of a program that offers nothing; no file is overwritten."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/map-000001.safetensors").touch()
    with Receiver(tmp_path, "-n", 2, "--json", "-o", tmp_path / "out") as it:
        with sync.connect(it.url, wait=True, timeout=WAIT) as ep:
            ep.send(TREE, meta={"frame": 5}, acked=True, timeout=WAIT)
        assert main(["send", "--json", it.url, files[0]]) == DONE
        assert it.end() == DONE
    url, *events = capsys.readouterr().out.splitlines()
    first, second, third = sorted(map(json.loads, events),
                                  key=lambda event: event.get("number", 3))
    assert url == it.url and first["path"] == "map-000002.safetensors"
    assert (first["event"], first["tensors"], second["number"]) == (
        "received", 1, 2)
    assert third["event"] == "sent" and third["kept_as"] == "m.safetensors"
    kept = tensormsg.load(tmp_path / "out/map-000002.safetensors")
    assert kept.tree()["deep"] == [1, "a"] and kept.meta["frame"] == 5


def test_recv_lists_where_it_keeps_nothing():
    """And a signal ends it with 0."""
    with process(sys.executable, "-m", "tensormsg", "recv") as (url, it):
        with sync.connect(url) as ep:
            ep.send(TREE, acked=True, timeout=WAIT)
            assert it.stdout.readline().startswith("map 1: map-000001")
            assert it.stdout.readline().split() == ["x", "float64", "[2]", "16"]
        it.send_signal(signal.SIGTERM)
        assert it.wait(WAIT) == DONE


def test_what_is_refused_is_told(tmp_path, files, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/z.npz").touch()
    with Receiver(tmp_path, "-o", tmp_path / "out") as it:
        assert main(["send", *PATIENT, "-v", it.url, *files]) == FAILED
        assert it.stop() == DONE
    said = capsys.readouterr()
    assert f"tensormsg: {files[1]}: the file is there already" in said.err
    assert ": z.npz: the file is there already" in said.err
    assert "m.safetensors: 40 B, moved in" in said.out
    assert sorted(os.listdir(tmp_path / "out")) == [
        "m.safetensors", "one.npy", "z.npz"]
    assert main(["send", "tcp://127.0.0.1:1", "no.npz"]) == USAGE


def offered(ep, **more):
    ep.send({}, meta={"transfer.offer": 1, "transfer.bytes": 8,
                      "transfer.checked": True, "file_name": "x.npy",
                      "file_format": "npy", **more})
    return ep.recv(WAIT).meta


def test_a_sender_that_falls_silent_ends_one_that_counts(tmp_path, capsys):
    with Receiver(tmp_path, "-n", 1, "-t", ".2", "-o", tmp_path / "out") as it:
        with contextlib.closing(sync.connect(it.url, background=True,
                                             wait=True, timeout=WAIT)) as ep:
            assert offered(ep)["transfer.state"] == "go"
            assert it.end() == FAILED
            ep.abort()
    assert "did not come in time" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []


def test_a_sender_that_fails_is_told_of(tmp_path, capsys):
    """Its file changed; or it has gone."""
    err = ""
    with Receiver(tmp_path, "-n", 1, "-t", WAIT, "-o", tmp_path / "out") as it, \
            sync.connect(it.url, background=True, wait=True,
                         timeout=WAIT) as ep:
        assert offered(ep)["transfer.state"] == "go"
        ep.send({"x": np.ones(1)}, acked=True)
        ep.send({}, meta={"transfer.verdict": 1, "transfer.state": "changed",
                          "transfer.error": "it grew"})
        assert ep.recv(WAIT).meta["transfer.error"] == "it grew"
        assert offered(ep)["transfer.state"] == "go"
        ep.close(WAIT)
        end = time.monotonic() + WAIT
        while "has gone before the file was whole" not in err:
            assert time.monotonic() < end
            time.sleep(0.01)
            err += capsys.readouterr().err
        assert it.stop() == FAILED
    assert "x.npy: it grew" in err and err.count("\n") == 2
    assert os.listdir(tmp_path / "out") == []


def test_a_peer_cannot_choose_another_folder(tmp_path, capsys):
    """Nor write the receiver's log full."""
    with Receiver(tmp_path, "-o", tmp_path / "out") as it, \
            sync.connect(it.url, background=True, wait=True,
                         timeout=WAIT) as ep:
        for _ in range(30):
            said = offered(ep, file_name="../x.npy")
            assert said["transfer.state"] == "failed"
            assert "would leave the folder" in said["transfer.error"]
    assert capsys.readouterr().err.count("would leave the folder") == 10


def test_a_file_that_changes_is_not_kept(tmp_path, files, monkeypatch, capsys):
    stat = Watched._stat
    monkeypatch.setattr(Watched, "_stat", lambda self: (
        *stat(self), os.urandom(8)))
    with Receiver(tmp_path, "-o", tmp_path / "out") as it:
        assert main(["send", *PATIENT, it.url, files[0]]) == FAILED
        assert it.stop() == DONE
    assert "the file changed while it was in use" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []


def rows(**more):
    """As the command prints them."""
    return [{"measure": measure, "transport": transport, "memory": "host",
             "map": f"{tensors}x{size}B", "tensors": tensors,
             "bytes": tensors * size, "in_flight": 8, "p50_us": size / 10,
             "p99_us": size / 5, "messages_per_s": None if measure == "latency"
             else 1e6 / size, "gb_per_s": None if measure == "latency" else 2.5,
             **more}
            for measure in ("latency", "bandwidth", "calls")
            for transport in ("shm", "tcp") for tensors in (1, 8)
            for size in (64, 1024, 4096)]


def drawn(path):
    """The texts of a picture."""
    return re.findall("<!-- (.*) -->", path.read_text())


@pytest.fixture
def matplotlib(monkeypatch, tmp_path):
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    pytest.importorskip("matplotlib")


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_a_plot_of_rows_that_were_measured(tmp_path, matplotlib):
    """A panel a measure, a line for each that differs in anything but size."""
    path, plot = tmp_path / "rows.csv", tmp_path / "rows.svg"
    write_csv(path, rows())
    assert _plot.read(str(path)) == rows()
    assert main(["perf", str(path), "--plot", str(plot)]) == DONE
    texts = drawn(plot)
    for title in ("latency, us: p50, up to p99", "bandwidth, GB/s",
                  "calls a second"):
        assert texts.count(title) == 1
    for line in "shm, 1 tensor", "tcp, 8 tensors":
        assert texts.count(line) == 3
    assert texts.count("bytes of a message") == 3


@pytest.mark.parametrize("rows, axis, lines", [
    ([{**row, "bytes": 8} for row in rows()], "tensors", {"shm", "tcp"}),
    ([{**row, "bytes": 8, "tensors": 1, "in_flight": n} for n in (1, 8)
      for row in rows()], "in_flight", {"shm", "tcp"}),
    ([{**row, "memory": memory, "in_flight": n} for n in (1, 8)
      for memory in ("host", "cuda") for row in rows()[-1:]], "in_flight",
     {"tcp, host", "tcp, cuda"}),
    (rows()[:1], "bytes", {"shm"}),
])
def test_a_plot_is_over_what_differs(rows, axis, lines):
    assert _plot._axis(rows) == axis
    assert set(map(_plot._namer(rows, axis), rows)) == lines


def test_the_rows_of_the_command_are_read(tmp_path):
    ran = subprocess.run([TOOL, "perf", "--quick", "--json", "-b", "64",
                          "--over", "shm"], timeout=2 * WAIT, check=True,
                         stdout=subprocess.PIPE)
    (tmp_path / "rows.json").write_bytes(ran.stdout)
    latency, bandwidth = _plot.read(str(tmp_path / "rows.json"))
    assert latency["measure"] == "latency" and bandwidth["gb_per_s"] > 0
    assert set(rows()[0]) < set(latency)


def test_perf_measures_and_draws(tmp_path, matplotlib, capsys):
    plot = tmp_path / "rows.png"
    assert main(["perf", "--bytes", "64", "--tensors", "2", "--seconds",
                 ".01", "--ways", "pickle", "--json", "--plot",
                 str(plot)]) == DONE
    said = capsys.readouterr()
    assert [row["work"] for row in json.loads(said.out)] == ["2 x 64"]
    assert "half a round trip" in said.err
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("words, said", [
    (["rows.json"], "a FILE of rows is drawn: give --plot"),
    (["--plot", "x.gif"], "x.gif: none of .png, .svg, .pdf"),
    (["--plot", "no/such/x.svg"], "no folder that can be written to"),
    (["--plot", "there.svg"], "the file exists (--force replaces it)"),
    (["no.json", "--plot", "x.svg"], "no.json: No such file"),
    (["bad.json", "--plot", "x.svg"], "bad.json: no rows of tensormsg perf"),
    (["bad.csv", "--plot", "x.svg"], "bad.csv: no rows of tensormsg perf"),
    (["less.json", "--plot", "x.svg"], "a row lacks a column to draw: "
                                       "'transport'"),
    (["--bytes", "64:8"], "'64:8' is not A:B or A:B:F"),
    (["--bytes", "0"], "'0' is not a number of 1 or more"),
    (["--bytes", ""], "'' is not a number of 1 or more"),
    (["--ways", "D"], "D: none of C, blocking,"),
])
def test_perf_that_is_mistaken(words, said, tmp_path, monkeypatch, capsys,
                               matplotlib):
    monkeypatch.chdir(tmp_path)
    for name, text in ("there.svg", "mine"), ("bad.json", "[7]"), (
            "bad.csv", "a,b\n1,2\n"), ("less.json", '[{"measure": "calls"}]'):
        (tmp_path / name).write_text(text)
    with contextlib.suppress(SystemExit):
        assert main(["perf", *words]) == USAGE
    assert said in capsys.readouterr().err
    assert (tmp_path / "there.svg").read_text() == "mine"


@pytest.mark.parametrize("text, made", [
    ("7", [7]), ("1K,2M", [1024, 2 << 20]), ("64:512", [64, 128, 256, 512]),
    ("64:4K:4", [64, 256, 1024, 4096]), ("3:10", [3, 6, 10])])
def test_lists_of_numbers(text, made):
    assert numbers(text) == made
