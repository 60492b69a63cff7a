# SPDX-License-Identifier: BSD-3-Clause
"""The package's hints are strict, and they serve its users."""

import json
import pathlib
import subprocess
import sys

import pytest

from conftest import blocks_of

pytest.importorskip("mypy")

HERE = pathlib.Path(__file__).parent
ROOT = HERE / "../../.."
EXAMPLES = sorted((ROOT / "examples/python").glob("*.py"))
PAGES = [HERE / "../README.md", ROOT / "README.md",
         *sorted((ROOT / "docs").rglob("*.md"))]
# Programs in documents have no annotations, and packages without types.
MYPY = """[mypy]
strict = True
[mypy-pages.*]
disallow_untyped_defs = False
disallow_untyped_calls = False
ignore_missing_imports = True
"""
PYRIGHT = {"typeCheckingMode": "standard", "strict": ["typed.py", "examples"],
           "reportUnnecessaryTypeIgnoreComment": True}


def check(folder, module, *args):
    """Runs a type checker. From there, as no folder of ours must be found beside
    the package."""
    ran = subprocess.run([sys.executable, "-m", module, *args], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         cwd=folder)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What users write: a program that has a type for all, the examples, and
    the programs of the documents."""
    made = tmp_path_factory.mktemp("types")
    for name in "examples", "pages":
        (made / name).mkdir()
        (made / name / "__init__.py").touch()
    (made / "typed.py").write_text((HERE / "typed.py").read_text())
    for example in EXAMPLES:
        (made / "examples" / example.name).write_text(example.read_text())
    for page in PAGES:
        for i, block in enumerate(blocks_of(page)):
            if "ucxx" not in block:  # which is no program of ours
                name = f"{page.resolve().parent.name}_{page.stem}_{i}.py"
                (made / "pages" / name.replace("-", "_")).write_text(block)
    (made / "mypy.ini").write_text(MYPY)
    (made / "pyright.json").write_text(json.dumps(PYRIGHT))
    return made


def test_the_package_is_strict(folder):
    check(folder, "mypy", "--strict", "-p", "tensormsg")


def test_mypy_sees_the_types(folder):
    programs = [str(path.relative_to(folder))
                for path in folder.glob("**/*.py")]
    out = check(folder, "mypy", *programs)
    assert f"no issues found in {len(programs)} source files" in out


def test_pyright_sees_the_types(folder):
    pytest.importorskip("basedpyright")
    out = check(folder, "basedpyright", "-p", "pyright.json", "--pythonpath",
                sys.executable, "--warnings")
    assert "0 errors, 0 warnings" in out


def test_the_stubs_are_of_what_the_extension_has(folder):
    """Each name, and no other; what numpy's types are is no part of that, and to
    read them takes most of the time."""
    config = folder / "stubtest.ini"
    config.write_text("[mypy]\nfollow_imports = skip\n"
                      "follow_imports_for_stubs = True\n")
    out = check(folder, "mypy.stubtest", "--mypy-config-file", config,
                "tensormsg._hot", "tensormsg._native")
    assert "no issues found in 2 modules" in out
