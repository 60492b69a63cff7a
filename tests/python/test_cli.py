# SPDX-License-Identifier: BSD-3-Clause
"""The command `tensormsg`: what arrives, and what is printed."""

import contextlib
import json
import os
import pty
import re
import resource
import subprocess
import time

import numpy as np
import pytest
import safetensors.numpy
import xxhash

import cli
from cli import (BOUND, DIGITS, DONE, FAILED, HELLO, SOURCE, TOOL, USAGE,
                 assert_same_safetensors, must_send, one_line, receiver, run)

# numpy warns of ml_dtypes that it could not load again
pytestmark = pytest.mark.filterwarnings("ignore:Custom dtypes")


@pytest.fixture
def sample(tmp_path):
    return cli.make_sample(tmp_path)


# --- what arrives ---

def test_a_data_set_arrives(tmp_path):
    with receiver("--out", tmp_path / "out", "--count", 1) as there:
        assert must_send(there.url, DIGITS).stdout == ""
        code, out, errors = there.end()
    assert (code, errors) == (DONE, "")
    assert "digits.npz" in out
    sent, kept = np.load(DIGITS), np.load(tmp_path / "out/digits.npz")
    assert sent.files == kept.files
    for name in sent.files:
        assert sent[name].dtype == kept[name].dtype
        np.testing.assert_array_equal(sent[name], kept[name])


@pytest.mark.parametrize("scheme", ["tcp", "host:port", "unix"])
def test_a_file_arrives_by_every_kind_of_url(tmp_path, sample, scheme):
    listen = f"unix://{tmp_path}/socket" if scheme == "unix" else \
        "tcp://localhost:0"
    with receiver("-l", listen, "-o", tmp_path / "out", "-n", 1) as there:
        url = there.url
        if scheme == "host:port":
            url = url.removeprefix("tcp://")
        must_send(url, sample)
        assert there.end()[0] == DONE
    assert_same_safetensors(sample, tmp_path / "out" / sample.name)


@pytest.mark.once
def test_a_sender_may_come_first(tmp_path, sample):
    url = f"unix://{tmp_path}/later.sock"
    sender = subprocess.Popen([TOOL, "send", "--wait", "--timeout", str(BOUND),
                               url, sample], stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        sender.wait(.2)
    with receiver("-l", url, "-n", 1, "-o", tmp_path / "out") as there:
        _, errors = sender.communicate(timeout=BOUND)
        assert (sender.returncode, errors) == (DONE, "")
        assert there.end()[0] == DONE
    assert_same_safetensors(sample, tmp_path / "out" / sample.name)


def test_checksums_are_sent_on_request(tmp_path, sample):
    with receiver("-n", 2, "--capture", tmp_path) as there:
        must_send(there.url, sample)
        must_send("--verify", there.url, sample)
        assert there.end()[0] == DONE
    without, verified = (json.loads(run("dump", path).stdout) for path in
                         sorted(tmp_path.glob("header-*.tmsg")))
    assert "checksums" not in without
    arrays = safetensors.numpy.load_file(sample)
    assert verified["checksums"] == {
        "algorithm": "xxh3_64",
        "values": [xxhash.xxh3_64_hexdigest(arrays[tensor["name"]].tobytes())
                   for tensor in verified["tensors"]]}
    assert verified["tensors"] == without["tensors"]


def test_fortran_order_and_names_survive_in_npz_and_npy(tmp_path):
    array = np.asfortranarray(np.arange(24.).reshape(2, 3, 4))
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", **{"x y": array, "z": np.int8(3)})
    with receiver("-o", tmp_path / "out", "-n", 2) as there:
        must_send(there.url, tmp_path / "a.npy", tmp_path / "b.npz")
        assert there.end()[0] == DONE
    kept = np.load(tmp_path / "out/a.npy")
    assert kept.flags.f_contiguous and not kept.flags.c_contiguous
    np.testing.assert_array_equal(kept, array)
    both = np.load(tmp_path / "out/b.npz")
    assert both.files == ["x y", "z"]
    np.testing.assert_array_equal(both["x y"], array)


def test_both_sides_say_that_big_endian_was_converted(tmp_path):
    path = tmp_path / "big.npy"
    np.save(path, np.arange(5, dtype=">f4"))
    with receiver("-n", 2) as there:
        sent = must_send("-v", there.url, path, DIGITS)
        code, out, _ = there.end()
    for said in (sent.stdout, out):
        assert "note: 'array' is big-endian and was converted\n" in said
        assert said.count("note:") == 1
    assert code == DONE


def test_several_senders_at_once(tmp_path):
    files = []
    for i in range(6):
        files.append(tmp_path / f"{i}.npy")
        np.save(files[-1], np.full((1 << 18) + i, i, dtype=np.float32))
    with receiver("-o", tmp_path / "out", "-n", len(files)) as there:
        senders = [subprocess.Popen([TOOL, "send", there.url, *files[i:i + 2]])
                   for i in range(0, len(files), 2)]
        assert [s.wait(BOUND) for s in senders] == [DONE] * 3
        assert there.end()[0] == DONE
    for i, file in enumerate(files):
        assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()


def test_a_large_file_passes_through_the_folder(tmp_path):
    """Beyond 32 MiB a payload lies in an unnamed file, which goes away."""
    data = np.random.default_rng(1).integers(0, 255, 40 << 20, dtype=np.uint8)
    np.savez(tmp_path / "a.npz", a=data, b=data[:1000])
    with receiver("-o", tmp_path / "out", "-n", 1) as there:
        must_send(there.url, tmp_path / "a.npz")
        assert there.end()[0] == DONE
    np.testing.assert_array_equal(np.load(tmp_path / "out/a.npz")["a"], data)
    assert os.listdir(tmp_path / "out") == ["a.npz"]


def test_maps_of_other_programs_are_numbered(tmp_path):
    with receiver("-o", tmp_path / "out", "-n", 2) as there:
        for _ in range(2):
            assert subprocess.run([HELLO, there.url],
                                  timeout=BOUND).returncode == 0
        assert there.end()[0] == DONE
    for i in (1, 2):
        kept = safetensors.numpy.load_file(
            tmp_path / "out" / f"map-00000{i}.safetensors")
        np.testing.assert_array_equal(
            kept["image"], np.arange(1, 7, dtype=np.float32).reshape(2, 3))


def test_without_out_it_prints_what_came(sample):
    with receiver("-n", 1) as there:
        must_send(there.url, sample)
        code, out, _ = there.end()
    assert code == DONE
    lines = [line.split() for line in out.splitlines()[1:]]
    assert ["image", "float32", "[3,4]", "cpu", "48"] in [l[:5] for l in lines]
    assert all(re.fullmatch("xxh3:[0-9a-f]{16}", l[-1]) for l in lines)


def test_both_sides_list_the_same_tensors(sample, tmp_path):
    with receiver("-o", tmp_path / "out", "-n", 1, "-v") as there:
        sent = must_send("-v", there.url, sample).stdout
        _, out, _ = there.end()
    tensors = [l for l in sent.splitlines() if "xxh3:" in l]
    assert len(tensors) == 6
    assert tensors == [l for l in out.splitlines() if "xxh3:" in l]
    table = run("dump", "--table", tmp_path / "out" / sample.name)
    assert table.stdout.splitlines() == tensors


def test_an_existing_file_is_kept_unless_forced(tmp_path, sample):
    out = tmp_path / "out"
    out.mkdir()
    (out / sample.name).write_text("precious")
    with receiver("-o", out) as there:
        np.save(tmp_path / "other.npy", np.arange(3))
        sent = run("send", there.url, sample, tmp_path / "other.npy")
        assert sent.returncode == FAILED
        one_line(sent.stderr, str(sample), "exists")
        assert there.stop()[0] == DONE
    assert (out / sample.name).read_text() == "precious"
    assert (out / "other.npy").exists()  # one refusal does not stop the rest
    with receiver("-o", out, "--force", "-n", 1) as there:
        must_send(there.url, sample)
        assert there.end()[0] == DONE
    assert_same_safetensors(sample, out / sample.name)


def test_captured_headers_can_be_dumped(tmp_path, sample):
    with receiver("--capture", tmp_path / "caught", "-n", 2) as there:
        must_send(there.url, sample, DIGITS)
        assert there.end()[0] == DONE
    headers = sorted(os.listdir(tmp_path / "caught"))
    assert headers == ["header-000001.tmsg", "header-000002.tmsg"]
    dumped = json.loads(run("dump", tmp_path / "caught" / headers[1]).stdout)
    assert dumped["preamble"]["kind"] == 1
    assert [t["name"] for t in dumped["tensors"]] == ["images", "labels"]
    assert dumped["tensors"][0]["shape"] == [1797, 8, 8]


def test_json_lines(tmp_path, sample):
    with receiver("--json", "-o", tmp_path / "out", "-n", 1) as there:
        sent = json.loads(must_send("--json", there.url, sample).stdout)
        code, out, _ = there.end()
    assert code == DONE and there.url.startswith("tcp://127.0.0.1:")
    came = json.loads(out)
    assert (sent["event"], came["event"]) == ("sent", "received")
    assert came["path"] == str(tmp_path / "out" / sample.name)
    assert sent["kept_as"] == sample.name
    for key in ("tensors", "bytes", "map", "xxh3"):
        assert sent[key] == came[key]
    assert came["tensors"] == 6 == len(came["xxh3"])
    assert came["map"]["metadata"]["who"] == {"string": "a test"}


def test_a_file_is_mapped_and_not_read(tmp_path):
    """96 MiB pass where a process may have 64 MiB of its own memory."""
    if os.environ.get("TMSG_SANITIZE"):
        pytest.skip("a sanitizer's own memory counts as well")
    size, allowed = 96 << 20, 64 << 20
    cli.must_have_room(tmp_path, 2 * 96)
    path = tmp_path / "big.npy"
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (size,))
    array[::4096] = 7
    del array
    least = {"preexec_fn": lambda: resource.setrlimit(
        resource.RLIMIT_DATA, (allowed, allowed))}
    with cli.alone("tests/python/test_cli.py"), receiver(
            "-o", tmp_path / "out", "-n", 1, **least) as there:
        said = run("send", there.url, path, **least)
        assert (said.returncode, said.stderr) == (DONE, "")
        assert there.end()[0] == DONE
    path.unlink()
    kept = np.load(tmp_path / "out/big.npy", mmap_mode="r")
    assert kept.shape == (size,) and (kept[::4096] == 7).all()
    (tmp_path / "out/big.npy").unlink()


# --- output ---

def test_whoever_read_the_url_may_go(tmp_path, sample):
    with receiver("-v", "-o", tmp_path / "out", "-n", 1) as there:
        there.process.stdout.close()
        must_send(there.url, sample)
        assert there.process.wait(BOUND) == DONE
    assert_same_safetensors(sample, tmp_path / "out" / sample.name)


def on_a_terminal(words):
    """Runs it with a terminal as standard error; what that showed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stderr=theirs, stdout=subprocess.PIPE,
                          env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while chunk := os.read(ours, 4096):
                shown += chunk
        assert process.wait(BOUND) == DONE
        assert process.stdout.read() == b""
    os.close(ours)
    return shown.decode()


def test_a_terminal_sees_the_rate_and_a_pipe_sees_nothing(sample):
    with receiver() as there:
        shown = on_a_terminal([TOOL, "send", there.url, str(sample)])
        quiet = must_send(there.url, sample)
        there.stop()
    assert "GB/s" in shown and sample.name in shown
    assert quiet.stdout == ""


def test_names_do_not_drive_the_terminal(tmp_path):
    name = "a\x1b[31mb\x9b1m\n"
    safetensors.numpy.save_file({name: np.zeros(1)},
                                tmp_path / "a.safetensors")
    shown = run("dump", "--table", tmp_path / "a.safetensors")
    assert shown.returncode == DONE
    assert shown.stdout.count("\n") == 1
    assert "\x1b" not in shown.stdout and "\x9b" not in shown.stdout
    assert "a\\x1b[31mb" in shown.stdout


@pytest.mark.once
@pytest.mark.parametrize("words", [
    ["--help"], ["help"], ["recv", "--help"], ["send", "--help"],
    ["info", "--help"], ["dump", "--help"], ["call", "--help"],
    ["serve", "--help"], ["--version"], ["-h"],
    ["recv", "-h"], ["send", "x", "-h"]])
def test_help(words):
    shown = run(*words)
    assert shown.returncode == DONE and "tensormsg" in shown.stdout
    assert shown.stderr == ""


@pytest.mark.once
def test_the_man_page_has_every_option():
    page = (SOURCE / "docs/man/tensormsg.1").read_text().replace("\\-", "-")
    synopsis, *sections = re.split(r"^\.SH ", page, flags=re.M)[2:]
    for command in ("recv", "send", "call", "serve", "health", "info", "dump", "perf",
                    "key"):
        usage = "".join(one for one in synopsis.split(".br\n")
                        if re.match(rf"(SYNOPSIS\n)?\.B tensormsg {command}\b", one))
        for option in options_of(command):
            assert option in usage, f"{command} {option} in the synopsis"
            assert any(option in one for one in sections), f"{command} {option}"


def options_of(command):
    """The long options of a command, each with its sentence in --help."""
    words = run(command, "--help").stdout.split("Mandatory or optional")[0]
    told = re.findall(r"^ +(?:-\w, )?(--[a-z-]+)\S*(.*(?:\n {20,}.*)*)", words, re.M)
    return {option: " ".join(sentence.split()) for option, sentence in told
            if option not in ("--help", "--usage")}


@pytest.mark.once
def test_commands_say_the_same_of_connections():
    told = {command: options_of(command) for command in
             ("recv", "serve", "send", "call", "health", "info", "perf")}
    listen = "recv", "serve", "perf"
    connect = "send", "call", "health", "info", "perf"
    for option, commands in {"--listen": listen, "--timeout": connect, "--wait": connect,
                             "--allow-unauthenticated": listen,
                             "--key": listen + connect, "--tls-ca": listen + connect,
                             "--tls-cert": listen + connect, "--tls-key": listen + connect,
                             "--tls-password": listen + connect,
                             "--tls-crl": listen + connect, "--tls-pin": listen + connect,
                             "--tls-name": connect}.items():
        sentences = {told[command].get(option) for command in commands}
        assert len(sentences) == 1 and all(sentences), (option, sentences)


def test_info_tells_versions_and_settings():
    shown = json.loads(run("info", "--json").stdout)
    assert {"version", "wire_version", "ucx_version", "transports", "limits",
            "ucx_keys", "domains", "ucx_memory_types"} <= set(shown)
    assert all({"name", "value", "origin"} <= set(k)
               for k in shown["ucx_keys"])
    text = run("info")
    assert text.returncode == DONE and shown["ucx_version"] in text.stdout


def test_info_lists_devices_with_the_numbers_of_a_table():
    table = '{"version": 1, "devices": [{"index": 5, "kind": "host"}]}'
    named = {**os.environ, "TENSORMSG_DEVICE_TABLE": table}
    host = json.loads(run("info", "--json", env=named).stdout)["devices"][0]
    assert (host["device"], host["kind"], host["index"]) == ("cpu:0", "host", 5)
    text = run("info", env=named).stdout
    assert re.search(r"^    cpu:0.* \(5 in the device table\)$", text, re.M)
    wrong = run("info", env={**named, "TENSORMSG_DEVICE_TABLE": "[7]"})
    assert wrong.returncode == USAGE and "entry 0: " in wrong.stderr


def test_info_connects_and_leaves_the_receiver_as_it_was(sample):
    with receiver("--count", 1) as there:
        shown = run("info", there.url, "--json")
        connection = json.loads(shown.stdout)["connection"]
        assert connection["state"] == "connected"
        assert connection["transports"] and connection["why"]
        assert connection["peer_ucx_version"]
        assert connection["round_trip_ns"]["count"] == 20
        assert 0 < connection["round_trip_ns"]["p50"] < 1e9
        text = run("info", there.url).stdout
        assert "posix" in text
        assert re.search(r"^  heartbeats +yes$", text, re.M)
        assert re.search(r"^  reconnects +no$", text, re.M)
        assert re.search(r"round_trip_ns +count 20, mean \d+, p50 \d+", text)
        assert "held_bytes" not in text and "sent_messages" not in text
        text = run("info", there.url, "--all").stdout
        assert "held_bytes" in text and "sent_messages" in text
        must_send(there.url, sample)
        code, out, errors = there.end()
    assert (code, errors) == (DONE, "") and out.startswith("map 1:")


def test_info_waits_for_the_bulk():
    tcp = {**os.environ, "UCX_TLS": "tcp"}
    with receiver(env=tcp) as there:
        shown = run("info", there.url, "--json", env=tcp)
        assert json.loads(shown.stdout)["connection"]["bulk"] == "stands"


def test_send_and_recv_name_the_bulk_where_it_was_used(tmp_path):
    tcp = {**os.environ, "UCX_TLS": "tcp"}
    large = tmp_path / "large.npy"
    np.save(large, np.zeros(1 << 20, np.uint8))
    with receiver("-n", 10, env=tcp) as there:
        small = must_send("-v", there.url, DIGITS, env=tcp).stdout
        sent = must_send("-v", there.url, *[large] * 9, env=tcp).stdout
        code, out, errors = there.end()
    assert (code, errors) == (DONE, "")
    assert " and its bulk stream" not in small + out.splitlines()[0]
    # The first may be sent before the bulk stream stands.
    assert re.findall("  by (.*):", sent)[-1].endswith(" and its bulk stream")
    assert re.findall("^map .*", out, re.M)[-1].endswith(" and its bulk stream")


# --- the front of the project ---

def test_the_hello_example():
    url = "tcp://127.0.0.1:13337"
    with cli.alone("examples/hello.c"), subprocess.Popen(  # it has one port
            [HELLO], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True) as there:
        try:
            deadline = time.monotonic() + BOUND
            while (said := subprocess.run([HELLO, url], capture_output=True,
                                          text=True, timeout=BOUND)).returncode:
                assert "Connection refused" in said.stderr
                assert there.poll() is None and time.monotonic() < deadline
            out, errors = there.communicate(timeout=BOUND)
        finally:
            there.kill()
    assert (out, errors, said.stderr) == ("image: 2 rows\n", "done\n", "done\n")
    assert there.returncode == DONE


def test_the_echo_example():
    echo = subprocess.run([os.path.join(os.path.dirname(cli.HELLO), "echo")],
                          capture_output=True, text=True, timeout=BOUND)
    assert (echo.returncode, echo.stderr) == (DONE, "")
    assert echo.stdout == "ramp came back as it was\n"
    page = (SOURCE / "docs/understand/ownership.md").read_text()
    handler = re.search(r"static void echo.*?\n}\n", page, re.DOTALL)[0]
    assert handler in (SOURCE / "examples/echo.c").read_text()


def test_the_device_example():
    """Its memory is none that the CPU could touch."""
    example = os.path.join(os.path.dirname(cli.HELLO), "device")
    done = subprocess.run([example], capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("image: memory of 'host' 0, its middle is 1\n"
                           "weights: memory of 'card' 0, its middle is 2\n")


def test_the_receive_into_example():
    example = os.path.join(os.path.dirname(cli.HELLO), "receive_into")
    into = subprocess.run([example], capture_output=True, text=True, timeout=BOUND)
    assert (into.returncode, into.stderr) == (DONE, "")
    assert into.stdout.splitlines() == [
        f"frame {i}: the middle is {i + 1}" for i in range(5)]


def test_the_publish_example():
    publish = subprocess.run([os.path.join(os.path.dirname(cli.HELLO), "publish")],
                             capture_output=True, text=True, timeout=BOUND)
    assert (publish.returncode, publish.stderr) == (DONE, "")
    assert re.findall("saw (all|some) .* last one (.*)", publish.stdout) == [
        ("all", "50"), ("all", "50"), ("some", "50")]


def test_the_camera_loan_example():
    camera = subprocess.run(
        [os.path.join(os.path.dirname(cli.HELLO), "camera_loan")],
        capture_output=True, text=True, timeout=BOUND)
    assert (camera.returncode, camera.stderr) == (DONE, "")
    assert sorted(re.findall(r"viewer (\d) saw \d+ frames, (\w+) lent, 0 torn",
                             camera.stdout)) == [
        (viewer, lent) for viewer in "123" for lent in ("all", "none")]


def test_the_camera_example():
    camera = subprocess.run(
        [os.path.join(os.path.dirname(cli.HELLO), "camera")],
        capture_output=True, text=True, timeout=BOUND)
    assert (camera.returncode, camera.stderr) == (DONE, "")
    assert camera.stdout in [
        f"the last frame came, others were dropped\na further one is {end}\n"
        for end in ("canceled", "gone already")]
    page = (SOURCE / "docs/reference/sending.md").read_text()
    queue = re.search(r"static void prefer_new.*?\n}\n", page, re.DOTALL)[0]
    assert queue in (SOURCE / "examples/camera.c").read_text()


def test_the_trace_example():
    trace = subprocess.run([os.path.join(os.path.dirname(cli.HELLO), "trace")],
                           capture_output=True, text=True, timeout=BOUND)
    assert (trace.returncode, trace.stderr) == (DONE, "")
    events = json.loads(trace.stdout)[1:]
    for number in range(20):
        steps = [(e["name"], e["ph"]) for e in
                 sorted((e for e in events if e["id"] == number),
                        key=lambda e: e["pid"])]
        assert steps == [
            ("send", "b"), ("posted", "n"), ("done", "n"), ("send", "e"),
            ("receive", "b"), ("fetched", "n"), ("delivered", "n"),
            ("receive", "e")]


@pytest.mark.once
def test_the_pages_have_hello():
    """One the whole of it, README the lines that send."""
    code = (SOURCE / "examples/hello.c").read_text()
    whole, part = [re.search(r"```c\n(.*?)```", (SOURCE / page).read_text(),
                             re.DOTALL)[1]
                   for page in ("docs/start/first-message.md", "README.md")]
    assert whole == code
    assert re.sub("^ +", "", part, flags=re.M) in re.sub("^ +", "", code,
                                                         flags=re.M)
    assert code.count("\n") <= 36 and part.count("\n") <= 12


@pytest.mark.parametrize("file", ["", "sample"])
def test_the_demo(tmp_path, sample, file):
    path = str(sample) if file else ""
    environment = {**os.environ, "BUILD": os.path.dirname(TOOL), "FILE": path}
    demo = subprocess.run([SOURCE / "scripts/demo.sh"], capture_output=True,
                          text=True, timeout=BOUND, env=environment)
    assert (demo.returncode, demo.stderr) == (0, "")
    name = sample.name if file else "digits.npz"
    for part in (name, "xxh3:", "GB/s", "same machine", "are equal"):
        assert part in demo.stdout


@pytest.mark.once
def test_the_demo_fails_with_the_command(tmp_path):
    environment = {**os.environ, "BUILD": os.path.dirname(TOOL),
                   "FILE": str(tmp_path / "none.npz")}
    demo = subprocess.run([SOURCE / "scripts/demo.sh"], capture_output=True,
                          text=True, timeout=BOUND, env=environment)
    assert demo.returncode != 0
    assert "none.npz" in demo.stderr
