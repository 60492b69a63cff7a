# SPDX-License-Identifier: BSD-3-Clause
"""The command at tls://, with certificates of `tensormsg key --ca`."""

import os
import stat
import subprocess

import pytest

import cli
from cli import BOUND, DIGITS, DONE, FAILED, USAGE, one_line, receiver, run

pytestmark = pytest.mark.once
URL = "tls://127.0.0.1:0"


def make(folder, *words):
    made = run("key", "--ca", folder, *words)
    assert (made.returncode, made.stderr) == (DONE, "")
    return made.stdout


def files(folder, name):
    return ("--tls-ca", folder / "ca.pem", "--tls-cert", folder / f"{name}.pem",
            "--tls-key", folder / f"{name}.key")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not cli.has_tls():
        pytest.skip("a build without OpenSSL")
    folder = tmp_path_factory.mktemp("tls") / "site"
    assert "for tests and small sites" in make(folder, "--principal", "farm")
    assert "authority" not in make(folder, "--principal", "camera")
    return folder


def test_files_go_there(site, tmp_path):
    with receiver("-l", URL, "-o", tmp_path, "-n", 1,
                  *files(site, "farm")) as there:
        assert there.url.startswith("tls://127.0.0.1:")
        sent = run("send", *files(site, "camera"), there.url, DIGITS)
        assert (sent.returncode, sent.stderr) == (DONE, "")
        assert there.end()[0] == DONE
    assert (tmp_path / DIGITS.name).stat().st_size > 0


def test_others_connect_there(site):
    camera = files(site, "camera")
    with receiver("--echo", "-l", URL, *files(site, "farm"),
                  command="serve") as there:
        assert "reply" in run("call", *camera, there.url, "echo", "x=1").stdout
        assert run("health", *camera, there.url).returncode == DONE
        assert "TLS_AES" in run("info", *camera, there.url).stdout
        assert there.stop()[0] == DONE


def test_in_a_sandbox(site, tmp_path):
    no_leaks = {**os.environ, "ASAN_OPTIONS": os.environ.get(
        "ASAN_OPTIONS", "") + ":detect_leaks=0"}
    with receiver("-l", URL, "--sandbox", "-o", tmp_path, "-n", 1,
                  *files(site, "farm"), env=no_leaks) as there:
        if not there.url:
            pytest.skip(there.end()[2])
        sent = run("send", *files(site, "camera"), there.url, DIGITS)
        code, _, errors = there.end()
    assert (sent.returncode, code) == (DONE, DONE), errors + sent.stderr


def test_who_may_not_come_in_hears_why(site, tmp_path):
    make(tmp_path, "--principal", "stranger")
    stranger = ["--tls-ca", site / "ca.pem", *files(tmp_path, "stranger")[2:]]
    with receiver("-l", URL, *files(site, "farm")) as there:
        for words, why in (
                (stranger, "signed by no authority"),
                (files(tmp_path, "stranger"), "which is no authority"),
                ((*files(site, "camera"), "--tls-name", "barn"),
                 "not for 'barn', but for localhost")):
            said = run("send", *words, there.url, DIGITS)
            assert said.returncode == FAILED
            one_line(said.stderr, why)


@pytest.mark.parametrize("words, why", [
    (["-l", URL], "needs --tls-ca, --tls-cert and --tls-key, or --key"),
    (["-l", URL, "--tls-ca", "ca"], "go together"),
    (["-l", ":0", "--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"],
     "a URL of tls://, and not with :0"),
    (["-l", URL, "--key", "k", "--tls-ca", "a", "--tls-cert", "b", "--tls-key",
      "c"], "one of them")])
def test_what_does_not_go_together_is_bad_usage(words, why):
    said = run("recv", *words)
    assert (said.returncode, said.stdout) == (USAGE, "")
    one_line(said.stderr, why)


def test_certificates_as_openssl_reads_them(site):
    def shown(name, *what):
        return subprocess.run(
            ["openssl", "x509", "-in", site / f"{name}.pem", "-noout", *what],
            capture_output=True, text=True, check=True, timeout=BOUND).stdout

    for name in "ca", "farm", "camera":
        mode = (site / f"{name}.key").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    assert shown("farm", "-subject") == "subject=CN = farm\n"
    text = shown("farm", "-text")
    for part in ("NIST CURVE: P-256", "CA:FALSE", "Digital Signature",
                 "TLS Web Server Authentication, TLS Web Client Authentication",
                 "DNS:localhost, IP Address:127.0.0.1, "
                 "IP Address:0:0:0:0:0:0:0:1"):
        assert part in text
    days = 24 * 60 * 60
    for seconds, code in ((29 * days, 0), (31 * days, 1)):
        assert subprocess.run(
            ["openssl", "x509", "-in", site / "farm.pem", "-noout", "-checkend",
             str(seconds)], stdout=subprocess.DEVNULL,
            timeout=BOUND).returncode == code
    assert "CA:TRUE" in shown("ca", "-text")
    make(site, "--principal", "barn", "--host", "barn.example", "--host",
         "10.0.0.7")
    assert "DNS:barn.example, IP Address:10.0.0.7\n" in shown("barn", "-text")


@pytest.mark.parametrize("words, code, why", [
    (["--principal", "farm"], FAILED, "farm.key: File exists"),
    (["--principal", "ca"], USAGE, "--principal ca"),
    (["--principal", "../up"], USAGE, "--principal ../up"),
    (["--host", "a b"], USAGE, "--host a b"),
    (["--host", "[::1]"], USAGE, "without brackets"),
    (["--host", "localhost:4000"], USAGE, "port")])
def test_bad_certificates_are_not_made(site, words, code, why):
    before = sorted(os.listdir(site))
    said = run("key", "--ca", site, *words)
    assert (said.returncode, said.stdout) == (code, "")
    one_line(said.stderr, why)
    assert sorted(os.listdir(site)) == before


def test_an_authority_without_its_key_is_an_error(site, tmp_path):
    (tmp_path / "ca.pem").write_bytes((site / "ca.pem").read_bytes())
    said = run("key", "--ca", tmp_path)
    assert said.returncode == FAILED
    one_line(said.stderr, "ca.key: No such file")


def test_the_example(site, tmp_path):
    make(tmp_path, "--principal", "server")
    make(tmp_path, "--principal", "client")
    example = os.path.join(os.path.dirname(cli.HELLO), "tls")
    ran = subprocess.run([example, tmp_path], capture_output=True, text=True,
                         timeout=BOUND)
    assert (ran.returncode, ran.stderr) == (DONE, "")
    assert ran.stdout == "client sent 1000000 numbers to server\n"
