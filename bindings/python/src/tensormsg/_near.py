# SPDX-License-Identifier: BSD-3-Clause
"""Names that are almost another: which one may have been meant."""

from __future__ import annotations

import difflib
import functools
import sys
import warnings
from typing import Iterable, List, Optional

# What calls that send take beside metadata.
OPTIONS = frozenset(("acked", "attempts", "copy", "idempotent", "into",
                     "keep_strides", "lend", "loan", "timeout", "verify"))
_MEANT = OPTIONS | {"meta", "on_release"}
_OTHER_WORDS = {"ack": "acked", "acks": "acked", "acknowledged": "acked",
                "checksum": "verify", "metadata": "meta", "retries": "attempts"}
_CLOSE = 0.8  # of 1; "lens" is not "lend"


def close_names(name: str, names: Iterable[str], most: int) -> List[str]:
    """Those that the name is close to, the closest first."""
    return difflib.get_close_matches(name, names, most, .6)


@functools.lru_cache(1024)
def option_meant(key: str) -> Optional[str]:
    """The option that a keyword may stand for, which is no option itself."""
    if not isinstance(key, str) or key in _MEANT:
        return None
    word = key.lower()
    close = difflib.get_close_matches(word, _MEANT, 1, _CLOSE)
    if close and close[0][0] == word[0]:  # "packed" is not "acked"
        return close[0]
    return _OTHER_WORDS.get(word)


def _level() -> int:
    """Of the first frame outside of the package, for a warning in the caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and \
            frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    return level


def warn_of_options(keywords: Iterable[str]) -> None:
    """Warns, once in each place, of keywords that look like an option and
    become metadata."""
    for key in keywords:
        option = option_meant(key)
        if option is not None:
            warnings.warn(
                f"{key}= is sent as metadata: was {option}= meant? As metadata, "
                f"without this warning, it is meta={{{key!r}: ...}}",
                stacklevel=_level())
