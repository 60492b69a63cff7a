# SPDX-License-Identifier: BSD-3-Clause
"""Objects that are of use in the process that made them alone."""

from __future__ import annotations

from typing import Any, NoReturn


class Stays:
    """Is not pickled, nor copied: that says what to do instead."""

    __slots__ = ()
    _instead = ""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        kind = type(self)
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be "
                        "pickled or copied, because it belongs to this "
                        "process: "
                        + self._instead)
