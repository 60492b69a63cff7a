# SPDX-License-Identifier: BSD-3-Clause
"""Times, one rule for all: seconds; None and math.inf are no limit, 0 is not to
wait, and what is negative, NaN or no number is refused."""

from __future__ import annotations

import math
from typing import Optional

MOST_MS = 0x7fffffff  # 24 days


def seconds(value: Optional[float], what: str = "timeout") -> float:
    """As a float; math.inf is no limit."""
    if value is None:
        return math.inf
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what}={value!r}: seconds are a number, or None for "
                        "no limit") from None
    if not number >= 0:
        raise ValueError(f"{what}={value!r}: seconds are 0 or more, or None for "
                         "no limit")
    return number


def milliseconds(value: Optional[float], what: str = "timeout") -> int:
    """As the library takes it: -1 is no limit, and 1 the least."""
    number = seconds(value, what) * 1000
    return -1 if number >= MOST_MS else max(1, math.ceil(number))


def bounded_ms(value: Optional[float], what: str = "timeout") -> int:
    """The same where the library knows no -1."""
    made = milliseconds(value, what)
    return MOST_MS if made < 0 else made
