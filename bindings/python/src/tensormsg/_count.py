# SPDX-License-Identifier: BSD-3-Clause
"""Counts, one rule for all: whole numbers within bounds, and what is none is
refused by the argument's name."""

from __future__ import annotations

import operator
from typing import Any

UINT32 = 0xffffffff
UINT64 = 0xffffffffffffffff


def count(value: Any, what: str, least: int = 0, most: int = UINT32) -> int:
    """As an int."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}={value!r} is not a whole number") from None
    if not least <= number <= most:
        raise ValueError(f"{what}={value!r}: {least} to {most} are possible")
    return number
