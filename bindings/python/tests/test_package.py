# SPDX-License-Identifier: BSD-3-Clause
"""The wheel, and which UCX it finds."""

import ast
import importlib.metadata
import inspect
import json
import os
import pathlib
import pickle
import subprocess
import sys
import typing
import zipfile

import pytest

import tensormsg
from conftest import environment

PACKAGE = os.environ.get("TMSG_PACKAGE")
UCX_1_22 = os.environ.get("TMSG_UCX_1_22")


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, **environment})


@pytest.mark.skipif(not PACKAGE, reason="no wheel was built here")
def test_the_wheel_holds_all_but_ucx():
    wheel, = pathlib.Path(PACKAGE, "dist").glob("*.whl")
    assert "-cp39-abi3-" in wheel.name
    names = [pathlib.PurePath(name) for name in
             zipfile.ZipFile(wheel).namelist()]
    libraries = {name.name.split(".so")[0] for name in names
                 if ".so" in name.name}
    assert libraries == {"_native.abi3", "libbz2", "libcjson", "libsodium",
                         "libxxhash", "libz", "libzip"}
    assert any(name.name == "py.typed" for name in names)


@pytest.mark.skipif(not PACKAGE, reason="no wheel was built here")
def test_the_wheel_holds_the_licences_of_all_it_bundles():
    """As the packages of the distribution have them."""
    wheel, = pathlib.Path(PACKAGE, "dist").glob("*.whl")
    licences = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            _, found, path = name.partition(".dist-info/licenses/")
            if found:
                licences[path] = archive.read(name).decode()
    assert licences.pop("LICENSE").startswith("BSD 3-Clause License")
    owners = {path.removesuffix("/copyright").strip("0123456789.-")
              for path in licences}
    assert owners == {"libbz", "libcjson", "libmsgpack-dev", "libsodium",
                      "libxxhash", "libzip", "zlib1g"}
    assert all("Copyright" in text for text in licences.values())


@pytest.mark.skipif(not PACKAGE, reason="no wheel was built here")
def test_the_metadata_says_whose_it_is_and_what_for():
    metadata = importlib.metadata.metadata("tensormsg")
    assert metadata["Author"] == "tensormsg developers"
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata.get_all("Project-URL") is None  # it has no home yet
    assert "shared memory" in metadata["Keywords"]
    assert {"ucx", "cuda12", "cuda13"} <= set(
        metadata.get_all("Provides-Extra"))
    assert "Programming Language :: Python :: 3.9" in \
        metadata.get_all("Classifier")


@pytest.mark.skipif(not PACKAGE, reason="no wheel was built here")
def test_it_is_imported_from_the_wheel_alone():
    assert tensormsg.__file__.startswith(os.path.join(PACKAGE, "venv"))


def test_the_extension_asks_only_for_the_stable_abi():
    """Each symbol of Python's is one of the limited API of 3.9."""
    native = tensormsg.errors.hot.__file__
    wanted = subprocess.run(["nm", "-D", "--undefined-only", native],
                            stdout=subprocess.PIPE, text=True, check=True)
    symbols = [line.split()[-1] for line in wanted.stdout.splitlines()]
    for symbol in symbols:
        assert not symbol.startswith("_Py_") or symbol in (
            "_Py_NoneStruct", "_Py_NotImplementedStruct", "_Py_TrueStruct",
            "_Py_FalseStruct", "_Py_Dealloc"), symbol


@pytest.mark.skipif(not PACKAGE, reason="no wheel was built here")
def test_abi3audit_finds_nothing(tmp_path):
    pytest.importorskip("abi3audit")
    wheel, = pathlib.Path(PACKAGE, "dist").glob("*.whl")
    ran = subprocess.run(
        [sys.executable, "-m", "abi3audit", "--strict", "--report", wheel],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)["specs"][str(wheel)]["wheel"][0]["result"]
    assert result["is_abi3"] and result["baseline"] == "3.9"
    assert result["non_abi3_symbols"] == [] and \
        result["future_abi3_objects"] == {}


def public_of(module):
    """Its public classes and functions, and the public methods of those."""
    for name in module.__all__:
        thing = getattr(module, name)
        if not callable(thing):
            continue
        yield f"{module.__name__}.{name}", thing
        for method in vars(thing) if isinstance(thing, type) else ():
            member = vars(thing)[method]
            if not method.startswith("_") and (
                    callable(member) or isinstance(
                        member, (property, classmethod, staticmethod))):
                yield f"{module.__name__}.{name}.{method}", \
                    getattr(thing, method)


def test_whatever_is_public_says_what_it_is():
    silent = [name for module in (tensormsg, tensormsg.sync)
              for name, thing in public_of(module)
              if not inspect.getdoc(thing)]
    assert silent == []


@pytest.mark.parametrize("module", [tensormsg, tensormsg.sync],
                         ids=lambda module: module.__name__)
def test_dir_is_the_public_list(module):
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)
    assert [name for name in module.__all__ if name.startswith("_")] == []


@pytest.mark.parametrize("module", [tensormsg, tensormsg.sync],
                         ids=lambda module: module.__name__)
def test_what_is_public_names_where_it_is_imported_from(module):
    for name in sorted(set(module.__all__) - {"sync"}):
        thing = getattr(module, name)
        home = sys.modules[thing.__module__]
        assert home in (tensormsg, tensormsg.sync), name
        assert getattr(home, name) is thing
        assert pickle.loads(pickle.dumps(thing)) is thing
        for one in thing, *vars(thing).values():
            if inspect.isclass(one) or inspect.isfunction(one):
                typing.get_type_hints(one)
    assert module.Endpoint.__module__ == module.__name__


@pytest.mark.parametrize("has_lock", [True, False])
def test_a_python_without_its_lock_is_refused(has_lock):
    """As a free-threaded one says it."""
    ran = subprocess.run(
        [sys.executable, "-c", "import sys; "
         f"sys._is_gil_enabled = lambda: {has_lock}; import tensormsg"],
        capture_output=True, text=True, env=environment())
    assert (ran.returncode == 0) == has_lock
    assert has_lock or "ImportError: tensormsg needs the interpreter's " \
        "lock" in ran.stderr


def test_nothing_of_it_pickles():
    folder = pathlib.Path(tensormsg.__file__).parent
    sources = {path.name: path.read_text() for path in folder.rglob("*.py")}
    assert len(sources) > 15
    for name, source in sources.items():
        if name == "_bench_ways.py":  # which compares with it
            continue
        for node in ast.walk(ast.parse(source)):
            modules = [alias.name for alias in node.names] \
                if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            if isinstance(node, ast.ImportFrom):
                modules.append(node.module or "")
            if name == "errors.py" and modules == ["dumps", "pickle"]:
                continue  # whether details can be: they are not read again
            assert not {"pickle", "cloudpickle", "marshal", "dill"} & \
                {module.split(".")[0] for module in modules}, name
            assert not (isinstance(node, ast.Call) and
                        getattr(node.func, "id", "") in ("eval", "exec")), name


INFO = "import tensormsg; ucx = tensormsg.info()['ucx']; print(ucx)"


def test_info_says_which_ucx_and_why():
    info = tensormsg.info()
    assert info["version"] == tensormsg.__version__
    assert os.path.exists(info["ucx"]["path"])
    assert info["ucx"]["why"].startswith("the loader found it")
    assert info["ucx"]["version"] == info["machine"]["ucx_version"] \
        if "ucx_version" in info["machine"] else info["machine"]


@pytest.mark.skipif(not UCX_1_22, reason="no UCX 1.22")
def test_the_wheels_ucx_on_request():
    ran = run(INFO, TENSORMSG_UCX="wheel")
    assert ran.returncode == 0, ran.stderr
    assert "'version': '1.22" in ran.stdout and "libucx 1.22" in ran.stdout


@pytest.mark.skipif(not UCX_1_22, reason="no UCX 1.22")
def test_a_folder_on_request():
    ran = run(INFO, TENSORMSG_UCX=UCX_1_22)
    assert "'version': '1.22" in ran.stdout, ran.stderr


@pytest.mark.skipif(not UCX_1_22, reason="no UCX 1.22")
def test_a_ucx_that_is_loaded_already_is_used():
    ran = run("import libucx; libucx.load_library(); " + INFO)
    assert "'version': '1.22" in ran.stdout, ran.stderr
    assert "had loaded it before" in ran.stdout


LOADED = """
import os
print(len({os.path.realpath(line.split()[-1]) for line in open("/proc/self/maps")
           if "libucp.so" in line}))
"""
UCXX = """
import asyncio, numpy as np, ucxx
async def ucxx_alone():
    there = asyncio.get_running_loop().create_future()
    async def echo(ep):
        x = np.empty(1000)
        await ep.recv(x)
        await ep.send(2 * x)
        there.set_result(ep)
    listener = ucxx.create_listener(echo)
    ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
    x = np.ones(1000)
    await ep.send(x)
    await ep.recv(x)
    assert (x == 2).all()
    await (await there).close()
    await ep.close()
asyncio.run(ucxx_alone())
"""


@pytest.mark.skipif(not UCX_1_22, reason="no UCX 1.22")
@pytest.mark.parametrize("first", ["ucxx", "tensormsg"])
def test_one_ucx_for_ucxx_too(first):
    """Whichever was imported first, both move their messages by it. UCXX asks
    for libucx, but not where librmm is not, as here."""
    pytest.importorskip("libucxx", reason="no UCXX in build/venv")
    begin = "import libucx; libucx.load_library()\n" if first == "ucxx" else ""
    parts = [UCXX, ROUND_TRIP]
    if first == "tensormsg":
        parts.reverse()
    ran = run(begin + "".join(parts) + INFO + LOADED,
              UCXPY_PROGRESS_MODE="polling", UCX_LOG_LEVEL="fatal",
              **({} if first == "ucxx" else {"TENSORMSG_UCX": "wheel"}))
    assert ran.returncode == 0, ran.stderr
    *_, version, said, count = ran.stdout.splitlines()
    assert version.startswith("1.22") and count == "1"
    assert ("had loaded it before" in said) == (first == "ucxx")


@pytest.mark.skipif(not UCX_1_22, reason="no UCX 1.22")
def test_where_there_is_no_other_the_wheels_is_chosen(tmp_path):
    """A library that is none hides the distribution's from the loader."""
    (tmp_path / "libucp.so.0").touch()
    ran = run(INFO, LD_LIBRARY_PATH=str(tmp_path))
    assert "'version': '1.22" in ran.stdout, ran.stderr
    assert "libucx 1.22" in ran.stdout and "no other was found" in ran.stdout


def test_without_ucx_the_import_says_what_to_install(tmp_path):
    ran = run("import tensormsg", TENSORMSG_UCX=str(tmp_path))
    assert ran.returncode == 1
    assert "ImportError: tensormsg needs UCX 1.13.1" in ran.stderr
    assert "libucx0" in ran.stderr and "libucx-cu13" in ran.stderr


ROUND_TRIP = """
import numpy as np, threading, tensormsg
server = tensormsg.listen(":0")
def serve():
    for msg in server:
        msg.peer.send(msg)
thread = threading.Thread(target=serve, daemon=True)
thread.start()
with tensormsg.connect(server.url) as ep:
    ep.send({"x": np.arange(100000)})
    assert ep.recv(10)["x"].sum() == 4999950000
print(tensormsg.info()["ucx"]["version"])
"""


SECOND_UCX = """
import ctypes
second = ctypes.CDLL({path!r})
context, worker = ctypes.c_void_p(), ctypes.c_void_p()
params = (ctypes.c_uint64 * 64)(1, 1)  # UCP_PARAM_FIELD_FEATURES: tags
assert second.ucp_init_version(1, 22, params, None, ctypes.byref(context)) == 0
params = (ctypes.c_uint64 * 64)()
assert second.ucp_worker_create(context, params, ctypes.byref(worker)) == 0
second.ucp_worker_progress(worker)
"""


@pytest.mark.skipif(not UCX_1_22, reason="no UCX 1.22")
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_another_package_may_bring_a_ucx_under_names_of_its_own(tmp_path,
                                                                first):
    """As NIXL's wheel does: both are then in the process, and both work."""
    for name in ["libucm.so.0", "libucp.so.0", "libucs.so.0", "libuct.so.0"]:
        content = pathlib.Path(UCX_1_22, name).read_bytes()
        for letter in b"mpst":
            content = content.replace(b"libuc%c.so.0" % letter,
                                      b"libxy%c.so.0" % letter)
        (tmp_path / name.replace("libuc", "libxy")).write_bytes(content)
    theirs = SECOND_UCX.format(path=str(tmp_path / "libxyp.so.0"))
    parts = [ROUND_TRIP, theirs, ROUND_TRIP] if first == "ours" else \
        [theirs, ROUND_TRIP, "second.ucp_worker_progress(worker)\n"]
    ran = run("".join(parts) + "print(open('/proc/self/maps').read())",
              LD_LIBRARY_PATH=str(tmp_path), UCX_LOG_LEVEL="fatal",
              UCX_MEM_BISTRO_GRACE_DURATION="0us", TENSORMSG_UCX="system")
    assert ran.returncode == 0, ran.stderr
    assert "/libucp.so.0" in ran.stdout and "/libxyp.so.0" in ran.stdout


@pytest.mark.skipif(not UCX_1_22, reason="no UCX 1.22")
@pytest.mark.parametrize("ucx", ["system", "wheel"])
def test_messages_move_by_either(ucx):
    ran = run(ROUND_TRIP, TENSORMSG_UCX=ucx)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("1.")


@pytest.mark.skipif(not UCX_1_22, reason="no UCX 1.22")
def test_two_versions_of_ucx_refuse_each_other_by_name():
    program = "import tensormsg\nwith tensormsg.listen(':0') as server:\n" \
              "    print(server.url, flush=True)\n" \
              "    for msg in server: pass\n"
    with subprocess.Popen([sys.executable, "-c", program], text=True,
                          stdout=subprocess.PIPE,
                          env={**os.environ, "TENSORMSG_UCX": "wheel"}) as peer:
        try:
            url = peer.stdout.readline().strip()
            ran = run(f"import tensormsg\nwith tensormsg.connect('{url}'):\n"
                      "    pass", TENSORMSG_UCX="system")
            assert "tensormsg.Incompatible" in ran.stderr
            assert "1.13" in ran.stderr and "1.22" in ran.stderr
        finally:
            peer.kill()
