# SPDX-License-Identifier: BSD-3-Clause
"""alone.py DIST FOLDER: the pages of docs/python, done with the wheel alone. Makes a
new environment in the folder, has pip install the wheel in DIST into it with what it
asks for (an index is asked), and runs each block of the README that the wheel
carries, and of these pages, that needs no more, in a folder where there is no
checkout."""

import email
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile


PAGES = pathlib.Path(__file__).resolve().parents[3] / "docs/python"


def programs(text):
    return re.findall(r"^```python\n(?!# needs )(.*?)^```", text,
                      re.MULTILINE | re.DOTALL)


def blocks_of(wheel):
    """Those of the README that the wheel carries, then those of the pages."""
    with zipfile.ZipFile(wheel) as archive:
        name, = [name for name in archive.namelist()
                 if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    return [block for text in (
        email.message_from_string(text).get_payload(),
        *(page.read_text() for page in sorted(PAGES.glob("*.md"))))
            for block in programs(text)]


def main(dist, folder):
    folder = pathlib.Path(folder).resolve()
    wheel, = pathlib.Path(dist).resolve().glob("*.whl")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "-q",
                    "install", wheel], check=True, cwd=folder)
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("PYTHON", "TENSORMSG_"))}
    blocks = blocks_of(wheel)
    for index, block in enumerate(blocks):
        path = folder / f"block{index}.py"
        path.write_text(block)
        ran = subprocess.run([python, "-W", "error", path], cwd=folder,
                             text=True, stdout=subprocess.PIPE, timeout=60,
                             stderr=subprocess.STDOUT,
                             env={**environment, "UCX_LOG_LEVEL": "fatal"})
        if ran.returncode != 0 or (ran.stdout != "") != ("print" in block):
            sys.exit(f"block {index}:\n{block}\n{ran.stdout}")
    listed = subprocess.run([python, "-m", "pip", "list", "--format=freeze"],
                            text=True, stdout=subprocess.PIPE, check=True)
    print(f"{len(blocks)} blocks ran with", *listed.stdout.split())
    assert blocks


if __name__ == "__main__":
    main(*sys.argv[1:])
