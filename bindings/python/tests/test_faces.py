# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's face and the blocking one have the same methods."""

import inspect

import pytest

import tensormsg
from tensormsg import sync

# Parameters of one face alone: asyncio has no threads, but executors.
BLOCKING, ASYNCIO = {"threads"}, {"executor"}
KINDS = [name for name in sync.__all__ if inspect.isclass(getattr(sync, name))]
FUNCTIONS = ["connect", "listen", "publish"]


def members(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def assert_alike(there, here):
    """The parameters of a blocking function, and of asyncio's."""
    there, here = [dict(inspect.signature(function).parameters)
                   for function in (there, here)]
    for name in set(there) - set(here):
        assert name in BLOCKING
        del there[name]
    for name in set(here) - set(there):
        assert name in ASYNCIO
        del here[name]
    assert there == here


@pytest.mark.parametrize("name", KINDS)
def test_both_faces_have_the_same_methods(name):
    blocking, ours = getattr(sync, name), getattr(tensormsg, name)
    assert members(blocking) == members(ours)
    for member in members(blocking):
        there, here = getattr(blocking, member), getattr(ours, member)
        assert inspect.getdoc(there) and inspect.getdoc(here), member
        assert not inspect.iscoroutinefunction(there), member
        if inspect.isfunction(there):
            assert_alike(there, here)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_faces_are_opened_alike(name):
    there, here = [inspect.signature(getattr(module, name)).parameters
                   for module in (sync, tensormsg)]
    assert list(there) == list(here)
    assert {key for key in there if there[key] != here[key]} <= {"background"}


def test_a_docstring_is_of_its_own_face():
    assert "Ctrl-C" in sync.Endpoint.send.__doc__
    assert "task" not in sync.Endpoint.send.__doc__
    assert "`with`" in sync.Endpoint.stream.__doc__
    assert "cancelled" in tensormsg.Endpoint.send.__doc__
    assert "`async with`" in tensormsg.Endpoint.stream.__doc__
