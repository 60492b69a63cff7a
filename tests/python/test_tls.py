# SPDX-License-Identifier: BSD-3-Clause
"""The command at tls://, with certificates of `tensormsg key --ca`."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import termios
import time

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
                (stranger, "not signed by one of its"),
                (files(tmp_path, "stranger"), "which is not an authority"),
                ((*files(site, "camera"), "--tls-name", "barn"),
                 "not for 'barn', but for localhost")):
            said = run("send", *words, there.url, DIGITS)
            assert said.returncode == FAILED
            one_line(said.stderr, why)


def copy(site, folder, name):
    for file in ("ca.pem", f"{name}.pem", f"{name}.key"):
        shutil.copy(site / file, folder)
    return files(folder, name)


def await_words(there, words, times=1):
    """Until a receiver has said that on standard error, so many times."""
    deadline = time.monotonic() + BOUND
    path = f"/proc/self/fd/{there.errors.fileno()}"
    while pathlib.Path(path).read_text().count(words) < times:
        assert time.monotonic() < deadline and there.process.poll() is None
        time.sleep(.005)


@pytest.mark.parametrize("command", [["serve", "--echo"], ["recv"],
                                     ["perf"]], ids=lambda words: words[0])
def test_sighup_reads_certificates_again(site, tmp_path, command):
    make(tmp_path / "other", "--principal", "camera")
    camera = files(site, "camera")
    with receiver(*command[1:], "-l", URL, *copy(site, tmp_path, "farm"),
                  command=command[0]) as there:
        shutil.copy(tmp_path / "other/ca.pem", tmp_path / "ca.pem")
        assert run("info", *camera, there.url).returncode == DONE
        there.process.send_signal(signal.SIGHUP)
        await_words(there, "farm.pem: read again\n")
        assert "authorities" in run("info", *camera, there.url).stderr
        shutil.copy(site / "ca.pem", tmp_path / "ca.pem")
        there.process.send_signal(signal.SIGHUP)
        await_words(there, "farm.pem: read again\n", 2)
        (tmp_path / "farm.pem").write_text("no PEM")
        there.process.send_signal(signal.SIGHUP)
        await_words(there, "; the previous ones stay in use\n")
        assert run("info", *camera, there.url).returncode == DONE
        assert there.stop()[0] == DONE


def test_sighup_reads_keys_again(tmp_path):
    for name in "one", "two":
        assert run("key", "--out", tmp_path / name).returncode == DONE
    shutil.copy(tmp_path / "one", tmp_path / "keys")
    with receiver("--key", tmp_path / "keys", "-l", "tcp://127.0.0.1:0") as there:
        assert run("info", "--key", tmp_path / "one", there.url).returncode == DONE
        shutil.copy(tmp_path / "two", tmp_path / "keys")
        there.process.send_signal(signal.SIGHUP)
        await_words(there, "keys: read again\n")
        assert run("info", "--key", tmp_path / "one", there.url).returncode == FAILED
        assert run("info", "--key", tmp_path / "two", there.url).returncode == DONE


def test_a_terminal_that_hangs_up_ends_it(site):
    ours, theirs = os.openpty()
    with receiver("--echo", "-l", URL, *files(site, "farm"), command="serve",
                  stdin=theirs, start_new_session=True,
                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as there:
        os.close(theirs)
        os.close(ours)
        assert there.end()[0] == DONE


def openssl(*words, **options):
    return subprocess.run(["openssl", *map(str, words)], capture_output=True,
                          check=True, timeout=BOUND, **options).stdout


def revoke(folder, name):
    """A list of the authority of a folder that has a certificate of it."""
    config = folder / "ca.cnf"
    config.write_text(f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index\n"
                      f"crlnumber={folder}/number\ndefault_md=sha256\n"
                      "default_crl_days=7\n")
    (folder / "index").touch()
    (folder / "number").write_text("01\n")
    ca = ("ca", "-config", config, "-keyfile", folder / "ca.key", "-cert",
          folder / "ca.pem")
    openssl(*ca, "-revoke", folder / f"{name}.pem")
    openssl(*ca, "-gencrl", "-out", folder / "crl.pem")
    return folder / "crl.pem"


@pytest.mark.usefixtures("site")
def test_who_is_revoked_may_not_come_in(tmp_path):
    make(tmp_path, "--principal", "farm")
    make(tmp_path, "--principal", "camera")
    make(tmp_path, "--principal", "barn")
    with receiver("-l", URL, *files(tmp_path, "farm"), "--tls-crl",
                  revoke(tmp_path, "camera")) as there:
        said = run("info", *files(tmp_path, "camera"), there.url)
        assert (said.returncode, "was revoked" in said.stderr) == (FAILED, True)
        assert run("info", *files(tmp_path, "barn"), there.url).returncode == DONE


def pin(site, name):
    key = openssl("x509", "-in", site / f"{name}.pem", "-noout", "-pubkey")
    return hashlib.sha256(openssl("pkey", "-pubin", "-outform", "DER",
                                  input=key)).hexdigest()


def test_who_is_not_pinned_may_not_come_in(site, tmp_path):
    make(tmp_path, "--principal", "farm")
    farm = files(tmp_path, "farm")[2:]
    camera = *files(site, "camera")[2:], "--tls-pin", pin(tmp_path, "farm")
    with receiver("-l", URL, *farm, "--tls-pin",
                  f"lens={pin(site, 'camera')},{pin(site, 'farm')}") as there:
        assert run("info", *camera, there.url).returncode == DONE
        said = run("info", *files(tmp_path, "farm"), there.url)
        assert "is not one that it takes" in said.stderr
        said = run("info", *camera[:-1], pin(site, "camera"), there.url)
        assert "is not pinned" in said.stderr


def test_a_password_is_read_from_a_file(site, tmp_path):
    farm = copy(site, tmp_path, "farm")
    secret = tmp_path / "secret"
    secret.write_text("a b\nmore\n")
    openssl("pkey", "-in", site / "farm.key", "-aes256", "-passout", "pass:a b",
            "-out", tmp_path / "farm.key")
    for mode, text, code, why in (
            (0o600, None, FAILED, "needs its password"),
            (0o644, "a b", USAGE, "others can read or change it"),
            (0o600, "", USAGE, "is not a password"),
            (0o600, "wrong\n", FAILED, "the password is wrong")):
        secret.write_text(text or "")
        secret.chmod(mode)
        said = run("serve", "--echo", "-l", URL, *farm, *(
            () if text is None else ("--tls-password", secret)))
        assert said.returncode == code
        one_line(said.stderr, why)
    os.mkfifo(tmp_path / "fifo", 0o600)
    one_line(run("serve", "--echo", "-l", URL, *farm, "--tls-password",
                 tmp_path / "fifo").stderr, "must be a regular file")
    secret.write_text("a b\nmore\n")
    with receiver("-l", URL, *farm, "--tls-password", secret) as there:
        assert run("info", *files(site, "camera"), there.url).returncode == DONE
        there.process.send_signal(signal.SIGHUP)
        await_words(there, "read again")


@pytest.mark.parametrize("words, why", [
    (["-l", URL, "--tls-pin", "a", "--tls-cert", "b"], "go together"),
    (["-l", URL, "--tls-password", "a"], "go together"),
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
