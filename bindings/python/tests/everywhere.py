# SPDX-License-Identifier: BSD-3-Clause
"""everywhere.py SOURCE FOLDER: builds the wheel that users get (scripts/wheel.sh)
and installs it, with UCX from PyPI, where nothing else is: into an environment of
each CPython that is found here, and in bare roots of Debian without a compiler,
the oldest and the newest C library that can be had. Each does the programs of
the README, in less than 30 seconds of a processor. An index and a mirror are
asked; where a root cannot be made, it says so and why."""

import pathlib
import resource
import shutil
import subprocess
import sys
import time

from alone import blocks_of

PYTHONS = [f"3.{minor}" for minor in range(9, 15)]
ROOTS = {"bullseye": "3.9", "bookworm": "3.11", "trixie": "3.13"}
PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64"]
INSTALL = "{python} -m venv {to} && {to}/bin/python -m pip -q install --no-index " \
          "--find-links {carry} --no-warn-script-location " \
          "{carry}/{wheel}'[ucx]'"
WHICH = """
import platform, sys, tensormsg
ucx = tensormsg.info()["ucx"]
print("Python", platform.python_version(), *platform.libc_ver(), "UCX",
      ucx["version"], "of", ucx["why"])
"""


def run(*command, **more):
    ran = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=900, **more)
    return ran.returncode, ran.stdout


def must(*command, **more):
    code, out = run(*command, **more)
    if code != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{out}")
    return out


def fetch(wheel, carry, version):
    """What the wheel asks for, which no clock below counts."""
    must(sys.executable, "-m", "pip", "-q", "download", "--only-binary=:all:",
         "--python-version", version, "--implementation", "cp",
         *[word for one in PLATFORMS for word in ("--platform", one)],
         "-d", carry, f"{wheel}[ucx]")


def processor_seconds():
    """What does not depend on who else is busy here."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def use(name, shell, carry, wheel, python, to):
    """Installs it, and does the programs of the README with it."""
    since, busy = time.monotonic(), processor_seconds()
    shell(INSTALL.format(python=python, to=to, carry=carry, wheel=wheel.name))
    installed = time.monotonic()
    said = ""
    for block in *blocks_of(wheel)[:2], WHICH:
        said = shell(f"cd /tmp && UCX_LOG_LEVEL=fatal {to}/bin/python -W error -",
                     input=block)
    seconds = time.monotonic() - since
    busy = processor_seconds() - busy
    print(f"{name}: installed in {installed - since:.1f} s, with the README's "
          f"programs {seconds:.1f} s, of a processor {busy:.1f} s: "
          f"{said.strip()}", flush=True)
    assert busy < 30


def find_python(version):
    """On the path, or pyenv's."""
    own = pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    for python in f"python{version}", *map(str, own):
        if run("sh", "-c", f"{python} -c 'import venv, ensurepip'")[0] == 0:
            return python
    return None


def make_root(release, folder):
    root = folder / f"root-{release}"
    if not root.exists():
        part = folder / f"part-{release}"
        shutil.rmtree(part, ignore_errors=True)
        code, out = run("debootstrap", "--variant=minbase",
                        "--include=python3-venv,libucx0", release, part)
        if code != 0:
            print(f"SKIPPED: no root of {release}: {out.splitlines()[-1:]}")
            return None
        part.rename(root)
    return root


def in_root(root, carry, script, **more):
    """Runs a script there. Mounts are this call's own."""
    return must("unshare", "-m", "sh", "-euc", f"""
        mount --make-rprivate /
        mkdir -p {root}/carry {root}/dev/shm
        mount --bind -o ro {carry} {root}/carry
        mount -t proc proc {root}/proc
        [ -c {root}/dev/null ] || mount --rbind /dev {root}/dev
        mount -t tmpfs tmpfs {root}/dev/shm
        exec chroot {root} /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp \
            $VARIABLES sh -euc "$0"
        """, script, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                          "VARIABLES": more.pop("variables", "")}, **more)


def main(source, folder):
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "dist", ignore_errors=True)
    must(pathlib.Path(source, "scripts/wheel.sh"), "x86_64", folder / "dist")
    wheel, = (folder / "dist").glob("*.whl")
    assert wheel.name.endswith("-cp39-abi3-manylinux_2_28_x86_64.whl")
    carry = folder / "carry"
    carry.mkdir(exist_ok=True)
    for old in carry.glob("tensormsg-*"):
        old.unlink()
    shutil.copy(wheel, carry)

    for version in PYTHONS:
        python = find_python(version)
        if python is None:
            print(f"SKIPPED: no CPython {version} here")
            continue
        fetch(wheel, carry, version)
        to = folder / f"venv-{version}"
        shutil.rmtree(to, ignore_errors=True)
        use(version, lambda script, **more: must("sh", "-euc", script, **more),
            carry, wheel, python, to)

    for release, version in ROOTS.items():
        root = make_root(release, folder)
        if root is None:
            continue
        fetch(wheel, carry, version)
        assert in_root(root, carry, "command -v cc gcc c99 || true") == ""
        shutil.rmtree(root / "venv", ignore_errors=True)
        variables = "TENSORMSG_UCX=wheel"  # the distribution's may be older
        use(release, lambda script, **more: in_root(
            root, carry, script, variables=variables, **more),
            "/carry", wheel, "python3", "/venv")
        said = in_root(root, carry,
                       "/venv/bin/python -c 'import tensormsg' 2>&1 || true")
        assert said == "" or "TENSORMSG_UCX=wheel" in said, said
        print(f"{release}'s own UCX: {said.strip().splitlines()[-1:] or 'works'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
