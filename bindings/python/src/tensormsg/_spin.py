# SPDX-License-Identifier: BSD-3-Clause
"""How long a wait of asyncio polls before it sleeps."""

import time

_LONGER = 4  # times spin_us
_SHORT_OF = 8  # times spin_us: had both polled, it would have been
_TRIES = 3  # in a row
_WARY_AFTER = 64  # short waits, once all were in vain
_LIKELY_OF = 40  # times spin_us: longer is no wait for two that sleep


class Spin:
    """To be woken costs tens of microseconds, and a peer that sleeps too costs
    as many again. So where a wait turns out to end soon after polling was given
    up, the next ones poll longer, and where polling is in vain a few times in a
    row they sleep at once (src/am/worker/spin.h, and one step more). Where to be
    woken takes long, two that sleep both wait for longer than is short: one that
    polls for once has the other see that it is worth while."""

    __slots__ = "spin_us", "_longer", "_wary", "_misses", "_naps"

    def __init__(self, spin_us: int) -> None:
        self.spin_us = spin_us
        self._longer = self._wary = self._misses = self._naps = 0

    def next_us(self) -> int:
        """What the next wait polls."""
        if self._naps >= _WARY_AFTER:
            self._naps = 0
            return _SHORT_OF * self.spin_us
        if self._misses >= _TRIES:
            return 0
        return (_LONGER if self._longer else 1) * self.spin_us

    def missed(self) -> None:
        """A wait has polled in vain, and sleeps: of many that begin at once all
        but the first few do that at once."""
        self._misses += 1

    def polled(self) -> None:
        """A wait has ended while it polled."""
        self._misses = self._naps = 0
        if self._longer:
            self._longer = _TRIES

    def slept(self, since: float) -> None:
        """One that began then has ended, and had to sleep."""
        waited = time.monotonic() - since
        if waited >= _SHORT_OF * self.spin_us * 1e-6:
            self._longer = 0
            self._naps += waited < _LIKELY_OF * self.spin_us * 1e-6
        elif self._longer:
            self._longer -= 1
            if not self._longer:
                self._wary = _WARY_AFTER
        elif self._wary:
            self._wary -= 1
        else:
            self._longer = _TRIES
            self._misses = 0
