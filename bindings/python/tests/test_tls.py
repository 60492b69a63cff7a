# SPDX-License-Identifier: BSD-3-Clause
"""Over tls:// peers prove who they are by certificates, or by keys."""

import asyncio
import hashlib
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tensormsg
from certificates import Site, needs_tls, openssl
from conftest import WAIT
from tensormsg.__main__ import main

pytestmark = needs_tls
X = {"x": np.arange(4), "large": np.arange(1 << 16)}
URL = "tls://localhost:0"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"))
    made.issue("farm")
    made.issue("camera")
    return made


@pytest.fixture(scope="module")
def farm(site):
    return tensormsg.TLS(**site.files("farm"))


@pytest.fixture(scope="module")
def camera(site):
    return tensormsg.TLS(**site.files("camera"))


def test_both_know_who_the_other_is(mode, farm, camera):
    with tensormsg.listen(URL, tls=farm, background=True) as server:
        assert server.url.startswith("tls://")

        async def scenario(ep):
            await ep.send(X, frame=7)
            msg = server.recv(WAIT)
            assert msg.peer.principal == "camera" and msg.meta["frame"] == 7
            assert np.array_equal(msg["large"], X["large"])
            assert getattr(ep, "endpoint", ep).principal == "farm"
            msg.peer.send({"x": X["x"]}, timeout=WAIT)
            assert (await ep.recv())["x"][3] == 3

        mode.run(server.url, scenario, tls=camera)


def test_a_server_and_a_publisher_of_both_faces(farm, camera):
    with tensormsg.sync.listen(URL, tls=farm, background=True) as door:
        server = door.serve(threads=1)

        @server.method("who")
        def who(request):
            return {"who": request.principal}

        with tensormsg.sync.connect(door.url, tls=camera) as ep:
            assert ep.call("who", timeout=WAIT)["who"] == "camera"

    async def main():
        async with tensormsg.publish(URL, keep=1, tls=farm) as publisher:
            await publisher.send(X)
            async with tensormsg.connect(publisher.url, tls=camera) as ep:
                assert (await ep.recv())["x"][3] == 3

    asyncio.run(asyncio.wait_for(main(), WAIT))
    with tensormsg.sync.publish(URL, keep=1, tls=farm) as publisher:
        publisher.send(X)
        with tensormsg.sync.connect(publisher.url, tls=camera) as ep:
            assert ep.recv(WAIT)["x"][3] == 3


def test_the_certificates_of_a_context_are_for_its_tls_alone(farm, camera):
    ours = tensormsg.Context(tls=farm)
    theirs = tensormsg.Context(tls=camera)
    with tensormsg.listen(URL, context=ours, background=True) as server, \
            tensormsg.connect(server.url, context=theirs) as ep:
        assert ep.principal == "farm"
    with tensormsg.listen(":0", context=ours, background=True) as server, \
            tensormsg.connect(server.url, context=theirs) as ep:
        assert ep.principal is None
    key = tensormsg.generate_key()
    with tensormsg.listen(URL, context=ours, key={"a": key},
                          background=True) as server, \
            tensormsg.connect(server.url, context=theirs, key=key) as ep:
        assert ep.principal == "default"


def test_a_key_will_do_without_certificates(mode):
    key = tensormsg.generate_key()
    with tensormsg.listen(URL, key={"camera": key}, background=True) as server:
        async def scenario(ep):
            await ep.send(X)
            assert server.recv(WAIT).peer.principal == "camera"

        mode.run(server.url, scenario, key=key)
        with pytest.raises(tensormsg.Error, match="key"):
            mode.run(server.url, scenario, key=tensormsg.generate_key())


def test_files_are_read_again_on_request(tmp_path, site, camera):
    files = {what: shutil.copy(path, tmp_path / what)
             for what, path in site.files("farm").items()}
    tls = tensormsg.TLS(**files)
    with tensormsg.listen(URL, tls=tls, background=True) as server, \
            tensormsg.connect(server.url, tls=camera) as first:
        assert first.principal == "farm"
        for what, path in site.issue("barn").items():
            shutil.copy(path, tmp_path / what)
        tls.reload()
        with tensormsg.connect(server.url, tls=camera) as ep:
            assert ep.principal == "barn"
        (tmp_path / "cert").write_text("no certificate")
        with pytest.raises(tensormsg.Malformed, match="certificate"):
            tls.reload()
        with tensormsg.connect(server.url, tls=camera) as ep:
            assert ep.principal == "barn"
        first.send(X, timeout=WAIT)
        assert server.recv(WAIT)["x"][3] == 3


def test_who_may_not_come_in_hears_why(mode, tmp_path, site, farm, camera):
    async def scenario(ep):
        raise AssertionError("connected")

    other = Site(tmp_path)
    stranger = tensormsg.TLS(**{**other.issue("stranger"), "ca": site.ca})
    with tensormsg.listen(URL, tls=farm, background=True) as server:
        with pytest.raises(tensormsg.Refused, match="authorities"):
            mode.run(server.url, scenario, tls=stranger)
        named = tensormsg.TLS(name="elsewhere", **site.files("camera"))
        with pytest.raises(tensormsg.Insecure, match="not for 'elsewhere'"):
            mode.run(server.url, scenario, tls=named)
        assert server.peers == []


def without(files, what):
    return {name: path for name, path in files.items() if name != what}


def test_each_wrong_file_is_named(tmp_path, site):
    files = site.files("farm")
    locked = tmp_path / "locked.key"
    openssl("ec", "-in", files["key"], "-aes128", "-passout", "pass:wrong no",
            "-out", locked)
    locked.chmod(0o600)
    text, shared = tmp_path / "text", tmp_path / "shared.key"
    text.write_text("hello")
    text.chmod(0o600)
    shutil.copy(files["key"], shared)
    shared.chmod(0o644)
    key = {**files, "key": locked}
    assert tensormsg.TLS(password="wrong no", **key)
    assert tensormsg.TLS(password=b"wrong no", **key)
    for given, kind, words in (
            (without(files, "ca"), tensormsg.InvalidParam, "(ca)"),
            ({**files, "cert": None}, tensormsg.InvalidParam, "(cert)"),
            ({**files, "key": None}, tensormsg.InvalidParam, "(key)"),
            ({**files, "ca": tmp_path / "no"}, tensormsg.NotFound, "ca "),
            ({**files, "cert": tmp_path / "no"}, tensormsg.NotFound,
             "certificate "),
            ({**files, "key": tmp_path / "no"}, tensormsg.NotFound, "key "),
            ({**files, "crl": tmp_path / "no"}, tensormsg.NotFound, "crl "),
            ({**files, "ca": text}, tensormsg.Malformed, str(text)),
            ({**files, "cert": text}, tensormsg.Malformed, str(text)),
            ({**files, "key": text}, tensormsg.Malformed, str(text)),
            ({**files, "key": shared}, tensormsg.Insecure, str(shared)),
            ({**files, "key": site.files("camera")["key"]},
             tensormsg.InvalidParam, "not that of certificate"),
            (key, tensormsg.Malformed, str(locked)),
            ({**key, "password": "another"}, tensormsg.Malformed, str(locked)),
            ({**files, "pin": "abc"}, tensormsg.InvalidParam, "pin"),
            ({**files, "rekey_bytes": 1}, tensormsg.InvalidParam, "rekey_bytes"),
            ({**files, "depth": 99}, tensormsg.InvalidParam, "depth")):
        with pytest.raises(kind) as caught:
            tensormsg.TLS(**given)
        assert words in str(caught.value), given
        assert "another" not in str(caught.value)


@pytest.mark.parametrize("more, kind, words", [
    ({"password": 7}, TypeError, "password= is a str or bytes"),
    ({"password": "a\0hidden"}, ValueError, "password= has a NUL"),
    ({"name": 7}, TypeError, "name=7"),
    ({"ca": 7}, TypeError, "ca=7: it is the name of a file"),
    ({"ca": "-----BEGIN CERTIFICATE-----\n"}, ValueError, "ca is the content"),
    ({"ca": "a\0b"}, ValueError, "ca='a.*NUL"),
    ({"depth": "4"}, TypeError, "depth='4'"),
    ({"rekey_bytes": -1}, ValueError, "rekey_bytes=-1")])
def test_what_is_no_argument_is_refused_by_name(site, more, kind, words):
    with pytest.raises(kind, match=words) as caught:
        tensormsg.TLS(**{**site.files("farm"), **more})
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("face", [tensormsg, tensormsg.sync])
def test_what_does_not_go_together_is_refused(face, farm):
    for use in face.listen, face.publish, face.connect:
        with pytest.raises(TypeError, match="tls= is a tensormsg.TLS"):
            use(URL, tls="ca.pem")
        with pytest.raises(ValueError, match="one of them"):
            use(URL, tls=farm, key=bytes(range(32)))
    for use in face.listen, face.publish:
        with pytest.raises(tensormsg.InvalidParam, match="tls=.*key="):
            use(URL)
        with pytest.raises(tensormsg.Unsupported, match="tcp://"):
            use(":0", tls=farm)
    with pytest.raises(TypeError, match="tls= is"):
        tensormsg.Context(tls=7)


def test_one_stays_what_and_where_it_is(site, farm):
    again = tensormsg.TLS(password="secret", depth=2, **site.files("farm"))
    assert "secret" not in repr(again)
    assert repr(again).startswith(f"tensormsg.TLS(ca='{site.ca}'")
    assert "depth=2, password=..." in repr(again)
    for change in "name", "pointer", "anything":
        with pytest.raises(AttributeError, match="does not change"):
            setattr(farm, change, None)
    with pytest.raises(AttributeError):
        del farm.pointer
    with pytest.raises(TypeError, match="paths of the files"):
        pickle.dumps(farm)


def test_the_command_knows_the_files(site, farm, capsys):
    words = [word for what, path in site.files("camera").items()
             for word in (f"--tls-{what}", str(path))]
    with tensormsg.listen(URL, tls=farm, background=True) as server:
        server.serve(threads=1)
        assert main(["health", server.url, *words]) == 0
        assert capsys.readouterr().out == "SERVING\n"
        assert main(["top", "--once", server.url, *words]) == 1
        assert "TENSORMSG_OBSERVERS" in capsys.readouterr().err  # it came in
        assert main(["health", server.url, *words, "--tls-name", "barn"]) == 1
        assert "not for 'barn'" in capsys.readouterr().err
        for bad, why in ((words[:4], "go together"),
                         ([*words, "--key", "k"], "one of them")):
            with pytest.raises(SystemExit) as ended:
                main(["health", server.url, *bad])
            assert ended.value.code == 2 and why in capsys.readouterr().err


def test_the_command_has_passwords_pins_and_lists(site, farm, tmp_path, capsys):
    def pin(name):
        der = tmp_path / f"{name}.der"
        openssl("pkey", "-in", site.folder / f"{name}.key", "-pubout",
                "-outform", "DER", "-out", der)
        return hashlib.sha256(der.read_bytes()).hexdigest()

    key, secret = tmp_path / "camera.key", tmp_path / "secret"
    openssl("pkey", "-in", site.folder / "camera.key", "-aes256", "-passout",
            "pass:a b", "-out", key)
    secret.touch(0o600)
    secret.write_text("a b\nmore\n")
    words = ["--tls-cert", site.folder / "camera.pem", "--tls-key", key,
             "--tls-password", secret, "--tls-pin"]
    with tensormsg.listen(URL, tls=farm, background=True) as server:
        server.serve(threads=1)

        def health(*words):
            code = main(["health", server.url, *map(str, words)])
            return code, capsys.readouterr().err

        assert health(*words, pin("farm")) == (0, "")
        code, said = health(*words, pin("camera"))
        assert code == 1 and "key is not pinned" in said
        code, said = health(*words, pin("farm"), "--tls-ca", site.ca,
                            "--tls-crl", "nowhere.pem")
        assert code == 1 and "crl nowhere.pem" in said
        secret.chmod(0o644)
        code, said = health(*words, pin("farm"))
        assert code == 2 and "others can read or change it" in said
        secret.unlink()
        os.mkfifo(secret, 0o600)
        code, said = health(*words, pin("farm"))
        assert code == 2 and "must be a regular file" in said


WITHOUT = """
import sys
import tensormsg

with tensormsg.listen(":0", background=True) as server, \\
        tensormsg.sync.connect(server.url) as ep:
    ep.send({"x": 1})
    assert server.recv(10)["x"] == 1
print(tensormsg.info()["machine"]["tls"])
for make in (lambda: tensormsg.TLS(ca="a", cert="b", key="c"),
             lambda: tensormsg.listen("tls://localhost:0", key=sys.argv[1])):
    try:
        with make():
            pass
    except tensormsg.Unsupported as error:
        print(error)
"""


def test_a_process_without_openssl_lacks_tls_alone(tmp_path):
    """The wheel's module loads it when it is asked for."""
    needs = subprocess.run(["readelf", "-d", tensormsg._lib._native.__file__],
                           capture_output=True, text=True, check=True).stdout
    if "[libssl" in needs:
        pytest.skip("a processor that late_ssl.c does not know")
    tensormsg.save_key(tmp_path / "key")
    (tmp_path / "libssl.so.3").write_text("no library")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path / "key")],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True, text=True, timeout=WAIT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    version, *errors = done.stdout.splitlines()
    assert "libssl.so.3" in version and len(errors) == 2
    for error in errors:
        assert "tls:// needs OpenSSL 3, which is not there: " in error
        assert "libssl.so.3" in error
