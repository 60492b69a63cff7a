# SPDX-License-Identifier: BSD-3-Clause
"""Objects that are known for as long as somebody else holds them."""

from __future__ import annotations

import weakref
from typing import Dict, Generic, Iterator, TypeVar

T = TypeVar("T")


class Weakly(Generic[T]):
    """As a WeakSet, which raises where one thread goes through it and another
    adds to it."""

    def __init__(self) -> None:
        self._references: "Dict[int, weakref.ref[T]]" = {}

    def add(self, one: T) -> None:
        number, references = id(one), self._references
        references[number] = weakref.ref(
            one, lambda _: references.pop(number, None))

    def discard(self, one: T) -> None:
        self._references.pop(id(one), None)

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._references.values()):
            one = reference()
            if one is not None:
                yield one
