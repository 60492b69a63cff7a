# SPDX-License-Identifier: BSD-3-Clause
"""install.py DIST SOURCE FOLDER: what the README says of pip, each in a new
environment in the folder: `pip install SDIST[ucx]`, the sdist of SOURCE, as pip does
it, which fetches what builds the wheel; and the wheel in DIST with [cuda12]. An
index is asked. Then each block of the README and of docs/python runs with the UCX of the distribution, and,
where the loader does not find that, with PyPI's."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv

from alone import blocks_of

WHICH = "import tensormsg; ucx = tensormsg.info()['ucx']; " \
        "print(ucx['version'], ucx['path'], ucx['why'], sep='\\n')"


class Installed:
    """An environment that has it."""

    def __init__(self, folder, what):
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        venv.create(folder / "venv", with_pip=True)
        since = time.monotonic()
        subprocess.run([self.python, "-m", "pip",
                        "--disable-pip-version-check", "-q", "install", what],
                       check=True, cwd=folder)
        self.seconds = time.monotonic() - since

    def run(self, program, **environment):
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("PYTHON", "TENSORMSG_", "LD_"))}
        with tempfile.TemporaryDirectory() as folder:  # what it writes is new
            ran = subprocess.run(
                [self.python, "-W", "error", "-c", program], cwd=folder,
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=60,
                env={**kept, "UCX_LOG_LEVEL": "fatal", **environment})
        if ran.returncode != 0:
            sys.exit(f"{program}\n{ran.stdout}")
        return ran.stdout

    def listed(self):
        return subprocess.run(
            [self.python, "-m", "pip", "list", "--format=freeze"], text=True,
            stdout=subprocess.PIPE, check=True).stdout.split()


def make_sdist(source, folder):
    """Without tests, documents and what else no wheel is made of."""
    subprocess.run(
        [sys.executable, "-c", "import sys, scikit_build_core.build as backend; "
         "backend.build_sdist(sys.argv[1])", folder], check=True, cwd=source)
    made, = folder.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "PKG-INFO", "src/core/map.c",
            "bindings/python/native/hot.c"} <= names
    assert not any(name.startswith(("tests/", "docs/", "bindings/go/"))
                   for name in names)
    return made


def main(dist, source, folder):
    folder = pathlib.Path(folder).resolve()
    wheel, = pathlib.Path(dist).resolve().glob("*.whl")
    shutil.rmtree(folder, ignore_errors=True)
    # What hides a library from the loader: one of its name that is none.
    nowhere = folder / "nowhere"
    nowhere.mkdir(parents=True)
    (nowhere / "libucp.so.0").touch()
    hidden = {"LD_LIBRARY_PATH": str(nowhere)}
    blocks = blocks_of(wheel)
    assert blocks
    for extra, ucx, what in (("ucx", "libucx-cu13", make_sdist(source, folder)),
                             ("cuda12", "libucx-cu12", wheel)):
        there = Installed(folder / extra, f"{what}[{extra}]")
        listed = there.listed()
        assert any(one.startswith(f"{ucx}==") for one in listed), listed
        for environment, why in (({}, "the loader found it"),
                                 (hidden, "from the package libucx")):
            version, path, said = there.run(WHICH, **environment).splitlines()
            assert said.startswith(why), said
            assert path.startswith(f"{there.folder}") == bool(environment)
            for block in blocks:
                out = there.run(block, **environment)
                assert (out != "") == ("print" in block), f"{block}\n{out}"
            print(f"{what.name}[{extra}], {there.seconds:.0f} s: "
                  f"{len(blocks)} blocks ran with UCX {version}: {said}",
                  flush=True)
        print(*listed)


if __name__ == "__main__":
    main(*sys.argv[1:])
