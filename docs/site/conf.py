# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx's settings for the site. scripts/docs.sh runs it."""

import ast
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
from unittest import mock

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

SOURCE = os.environ["TMSG_SOURCE"]

with open(f"{SOURCE}/include/tensormsg/version.h", encoding="utf-8") as header:
    release = ".".join(re.findall(r"_(?:MAJOR|MINOR|PATCH) (\d+)",
                                  header.read()))
project = "tensormsg"
version = release
root_doc = "index"
extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc"]
html_theme = "furo"
html_favicon = f"{SOURCE}/docs/site/favicon.svg"
html_title = f"tensormsg {release}"
html_copy_source = False
html_show_copyright = False
highlight_language = "none"

myst_heading_anchors = 4
breathe_projects = {"tensormsg": os.environ["TMSG_XML"]}
breathe_default_project = "tensormsg"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False
breathe_show_enumvalue_initializer = True
breathe_default_members = ("members", "undoc-members")

# Docstrings write `names` as the C headers do.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = ["opentelemetry", "prometheus_client", "ray"]

# The package is read from its sources, without its extension.
sources = tempfile.TemporaryDirectory()
shutil.copytree(f"{SOURCE}/bindings/python/src", sources.name,
                dirs_exist_ok=True)
subprocess.run([sys.executable, f"{SOURCE}/bindings/python/faces/make_faces.py",
                f"{sources.name}/tensormsg"], check=True)
sys.path.insert(0, sources.name)
with open(f"{SOURCE}/bindings/python/src/tensormsg/_lib.py",
          encoding="utf-8") as lib:
    names = ast.literal_eval(re.search(r"^__all__ = (.*)$", lib.read(),
                                       re.MULTILINE)[1])
native = types.ModuleType("tensormsg._lib")
for name in names:
    setattr(native, name, mock.MagicMock())
native.text = lambda pointer: release
sys.modules["tensormsg._lib"] = native

# autodoc finds members, and their order, in the module that a class is written
# in; the package has its classes name the one that they are imported from.
package = importlib.import_module("tensormsg")
for path in pathlib.Path(sources.name, "tensormsg").glob("*.py"):
    home = sys.modules.get(f"tensormsg.{path.stem}")
    for node in ast.parse(path.read_text()).body if home else ():
        if isinstance(node, ast.ClassDef) and \
                vars(package).get(node.name) is vars(home)[node.name]:
            vars(home)[node.name].__module__ = home.__name__

NAME = re.compile(r"(tmsg_\w+)(\(\))?|(TMSG_[A-Z0-9_]+)|(tensormsg/(\w+)\.h)")


class CLinks(SphinxTransform):
    """`tmsg_map_add()`, `TMSG_OK` and `tensormsg/map.h` lead to the reference."""

    default_priority = 500

    def apply(self, **kwargs):
        for literal in list(self.document.findall(nodes.literal)):
            match = NAME.fullmatch(literal.astext())
            if match is None or self.env.docname.startswith("c/") or \
                    isinstance(literal.parent, (nodes.reference,
                                                addnodes.pending_xref)):
                continue
            if match[4]:
                link = addnodes.pending_xref(
                    "", refdomain="std", reftype="doc", refexplicit=True,
                    reftarget=f"/c/{match[5]}", refwarn=True,
                    refdoc=self.env.docname)
            else:
                link = addnodes.pending_xref(
                    "", refdomain="c", refexplicit=True,
                    reftype="func" if match[2] else "identifier",
                    reftarget=match[1] or match[3], refwarn=False,
                    refdoc=self.env.docname)
            literal.replace_self(link)
            link += literal


def hide_constructor(_app, what, name, *_rest):
    """Most objects are given out by the package, not made by its users."""
    if what in ("class", "exception") and \
            name.split(".")[-1] not in ("Context", "CallError"):
        return "", None
    return None


def setup(app):
    app.add_transform(CLinks)
    app.connect("autodoc-process-signature", hide_constructor)
