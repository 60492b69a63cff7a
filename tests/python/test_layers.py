# SPDX-License-Identifier: BSD-3-Clause
"""The Python package: its modules have no circle, and its two faces one text."""

import ast
import re
import shutil
import subprocess
import sys

import pytest

from headers import SOURCE

pytestmark = pytest.mark.once

PYTHON = SOURCE / "bindings/python"


def imported(tree):
    """The full names of what a module of the package imports, wherever it does:
    inside functions, and for the type checker alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ["tensormsg"] if node.level else []
            base = ".".join([*package, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and \
                ast.unparse(node.func).split(".")[-1] == "import_module" and \
                isinstance(node.args[0], ast.Constant):
            yield node.args[0].value


def graph_of(folder):
    """Module -> those that it imports; the package itself is `__init__`."""
    modules = {path.stem for path in folder.glob("*.py*")}
    graph = {}
    for path in folder.glob("*.py"):
        names = [name.split(".") for name in
                 imported(ast.parse(path.read_text()))]
        graph[path.stem] = {
            name[1] if name[1:] and name[1] in modules else "__init__"
            for name in names if name[0] == "tensormsg"}
    return graph


def circle_in(graph):
    """A circle, as a list that ends with its first module; or None."""
    done = set()

    def search(module, path):
        if module in path:
            return [*path[path.index(module):], module]
        if module in done:
            return None
        for other in sorted(graph.get(module, ())):
            found = search(other, [*path, module])
            if found:
                return found
        done.add(module)
        return None

    return next(filter(None, (search(module, [])
                              for module in sorted(graph))), None)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Its modules, with those that make_faces.py writes."""
    folder = tmp_path_factory.mktemp("package") / "tensormsg"
    shutil.copytree(PYTHON / "src/tensormsg", folder)
    subprocess.run([sys.executable, PYTHON / "faces/make_faces.py", folder],
                   check=True)
    return folder


def test_no_circle_of_modules(package):
    graph = graph_of(package)
    assert "sync" in graph["__init__"] and "_hub" in graph["sync"]
    assert circle_in(graph) is None


@pytest.mark.parametrize("other", [
    "from .a import x", "from . import a", "import tensormsg.a",
    "from tensormsg.a import x", "def f():\n    from .a import x",
    "if TYPE_CHECKING:\n    from .a import x",
    "import importlib\nimportlib.import_module('tensormsg.a')"])
def test_a_circle_of_modules_is_found(tmp_path, other):
    (tmp_path / "a.py").write_text("from . import b\n")
    (tmp_path / "b.py").write_text(f"from .c import y\n{other}\n")
    (tmp_path / "c.py").write_text("import a\n")  # another package's
    assert circle_in(graph_of(tmp_path)) == ["a", "b", "a"]


def test_a_circle_through_the_package_is_found(tmp_path):
    (tmp_path / "__init__.py").write_text("from . import a\n")
    (tmp_path / "a.py").write_text("from . import connect\n")
    assert circle_in(graph_of(tmp_path)) == ["__init__", "a", "__init__"]


def test_no_mark_of_a_face_is_left(package):
    for name in ("sync", "_aio", "_open"):
        text = (package / f"{name}.py").read_text()
        assert re.findall(r"# (?:asyncio|blocking|both)\b.*", text) == []
    blocking = (package / "sync.py").read_text()
    assert re.findall(r".*\b(?:await|async|LoopHub|import asyncio)\b.*",
                      blocking) == []
