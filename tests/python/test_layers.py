# SPDX-License-Identifier: BSD-3-Clause
"""The Python package: its modules have no circle, the files of its extension
their order, and its two faces one text."""

import ast
import re
import shutil
import subprocess
import sys

import pytest

from headers import SOURCE

pytestmark = pytest.mark.once

PYTHON = SOURCE / "bindings/python"
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


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


def mistakes_in(folder):
    """What is not as ORDER says."""
    lines = [line.split(":")[0].split()
             for line in (folder / "ORDER").read_text().splitlines()
             if line and not line.startswith("#")]
    place = {name: i for i, line in enumerate(lines) for name in line}
    texts = {path.name: COMMENT.sub("", path.read_text())
             for path in folder.glob("*.[ch]")}
    mistakes = [f"{name}: only in one of ORDER and the folder"
                for name in sorted(set(texts) ^ set(place))]
    for name in sorted(set(texts) & set(place)):
        mistakes += [
            f"{name}: includes {other}, which comes later"
            for other in re.findall(r'^#include "(.*)"', texts[name],
                                    re.MULTILINE)
            if place.get(other, len(place)) > place[name]]
    for header, source in (line for line in lines if len(line) == 2):
        mistakes += [
            f"{header}: {function}() is not defined in {source}"
            for function in re.findall(r"^\S.*?\b(tmsgpy_\w+)\(",
                                       texts.get(header, ""), re.MULTILINE)
            if not re.search(rf"^\S.*\b{function}\(", texts.get(source, ""),
                             re.MULTILINE)]
    return mistakes


def test_the_extension_includes_in_order():
    assert mistakes_in(PYTHON / "native") == []


def test_mistakes_in_the_order_are_found(tmp_path):
    (tmp_path / "ORDER").write_text("# Of a test.\na.h a.c: low\nb.h: high\n")
    (tmp_path / "a.h").write_text("int tmsgpy_a(void);\nint tmsgpy_b(void);\n")
    (tmp_path / "a.c").write_text(
        '#include "a.h"\n\n#include "b.h"\n\nint tmsgpy_a(void)\n{\n'
        "    return 1;\n}\n")
    (tmp_path / "c.c").write_text('#include "b.h"\n')
    assert mistakes_in(tmp_path) == [
        "b.h: only in one of ORDER and the folder",
        "c.c: only in one of ORDER and the folder",
        "a.c: includes b.h, which comes later",
        "a.h: tmsgpy_b() is not defined in a.c"]
