# SPDX-License-Identifier: BSD-3-Clause
"""Trees: what is sent comes back, and a peer's form of one that lies costs a
ValueError and nothing else. Forms, leaves and damage are made up by hypothesis."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensormsg
from tensormsg import _data

QUICK = settings(max_examples=100, deadline=None, database=None,
                 derandomize=True,
                 suppress_health_check=list(HealthCheck))

# Names that look like places in a list, like paths, or like marks.
NAMES = st.one_of(st.sampled_from(["", "0", "1", "a", "l", "t", "a/0", "/"]),
                  st.text(max_size=4))
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2**63, 2**63 - 1), st.text(max_size=5),
    st.binary(max_size=5), st.floats(allow_nan=False),
    st.lists(st.integers(0, 255), max_size=3).map(
        lambda items: np.array(items, "u1")))
TREES = st.recursive(LEAVES, lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple),
    st.lists(st.floats(allow_nan=False), max_size=4),
    st.dictionaries(NAMES | st.integers(-3, 3), inner, max_size=4)),
    max_leaves=12)
DATA = st.one_of(st.dictionaries(NAMES, TREES, max_size=4),
                 st.lists(TREES, max_size=4), st.lists(TREES, max_size=4).map(tuple))

# What JSON can say where a form is expected.
FORMS = st.recursive(
    st.one_of(st.just(0), st.none(), st.booleans(), st.integers(),
              st.floats(), NAMES),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["l", "t", "d", "L", "T", "x", 0, None]),
                  st.lists(inner, max_size=4)).map(lambda it: [it[0], *it[1]]),
        st.lists(inner, max_size=4),
        st.dictionaries(NAMES, inner, max_size=4)), max_leaves=12)


def same(a, b):
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and \
            np.array_equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and \
            all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and \
            all(map(same, a, b))
    return type(a) is type(b) and a == b


def leaves_of(arrays, meta):
    """As a message has them."""
    return {**arrays, **{name[len(_data.MARK):]: value
                         for name, value in meta.items()
                         if name != _data.MARK}}


@QUICK
@given(DATA)
def test_a_tree_comes_back(data):
    try:
        arrays, meta = _data.flatten(data)
    except (TypeError, ValueError):
        return  # two leaves of one name, which the sender is told
    form = meta.get(_data.MARK)
    leaves = leaves_of(arrays, meta)
    got = leaves if form is None else _data.unflatten(form, leaves)
    assert same(got, data)


def all_of(tree):
    """Its leaves, and how many containers it has."""
    found, containers, left = [], 0, [tree]
    while left:
        at = left.pop()
        if isinstance(at, (dict, list, tuple)):
            containers += 1
            left.extend(at.values() if isinstance(at, dict) else at)
        else:
            found.append(at)
    return found, containers


def is_harmless(form, leaves):
    """A ValueError, or a tree of the leaves that is no larger than its form."""
    try:
        tree = _data.unflatten(form, leaves)
    except ValueError as error:
        assert len(str(error)) < 10000
        return
    found, containers = all_of(tree)
    known = set(map(id, leaves.values()))
    assert all(leaf is None or id(leaf) in known for leaf in found)
    assert len(found) + containers <= len(form)


def some_leaves(names):
    return {name: object() for name in names}


@QUICK
@given(FORMS, st.lists(NAMES, max_size=6))
def test_a_form_that_lies_costs_a_value_error(form, names):
    is_harmless(json.dumps(form), some_leaves(names))
    is_harmless(json.dumps({"a": form}), some_leaves([*names, "a", "a/0"]))


@QUICK
@given(DATA, st.data())
def test_so_does_one_that_was_changed(data, draw):
    try:
        arrays, meta = _data.flatten({"a": data})
    except (TypeError, ValueError):
        return
    form = meta.get(_data.MARK, '{"a":0}')
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(form)))
        form = form[:at] + draw.draw(st.sampled_from(
            ["", "0", "1", "[", "]", "{", "}", ",", ":", '"', "\\", "null",
             '"l"', '"d"', '"L"', "\0", "\ud800", "1e999", "NaN", "9" * 5000])) + \
            form[at + draw.draw(st.integers(0, 2)):]
    is_harmless(form, some_leaves(leaves_of(arrays, meta)))


@pytest.mark.parametrize("form", [
    "", "0", "null", "[]", "{}", '["l"]', '["t"]', '["l",0]', '{"":0}',
    '["d"]', '["d",[0,0]]', '["d",["a",0],["a",null]]', '["L"]', '{"a":["T"]}',
    "[" * 100000, '["l",' * 100000, '{"a":' * 100000,
    '["l",' * 50000 + "0" + "]" * 50000, '{"a":' * 900 + "0" + "}" * 900,
    "9" * 100000, '"' + "a" * 100000 + '"', '{"\\ud800":0}', "\ufeff{}"],
    ids=lambda form: form[:8] + f"-{len(form)}")
def test_forms_of_note(form):
    is_harmless(form, some_leaves(["", "0", "a", "a/0"]))


def test_a_message_with_such_a_form_is_read(monkeypatch):
    """A peer says it, and its messages go on."""
    forms = ['{"x":0,"y":0}', '{"x":[]}', "{", '["l",' * 20000, "null",
             '{"x":1}', '{"x":"\\ud800"}', '["t",0,{"":null}]', "0"]
    said, refused = iter(forms), 0
    with tensormsg.listen(":0", background=True) as server, \
            tensormsg.connect(server.url) as endpoint:
        for form in forms:
            with monkeypatch.context() as lying:
                lying.setattr(_data, "flatten", lambda data: (
                    {"x": np.ones(1)}, {_data.MARK: next(said),
                                        _data.MARK + "x": "also",
                                        _data.MARK + "y": 3}))
                endpoint.send({"x": [np.ones(1)]})
            message = server.recv(timeout=30)
            names = list(message)
            assert len(message) == len(names) and repr(message)
            assert all(message[name] is not None for name in names)
            assert message.meta == {}
            try:
                message.tree()
            except ValueError:
                refused += 1
        assert refused == 7
        endpoint.send({"x": [np.ones(2)]})
        assert server.recv(timeout=30).tree()["x"][0].shape == (2,)
