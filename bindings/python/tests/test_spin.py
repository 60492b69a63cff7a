# SPDX-License-Identifier: BSD-3-Clause
"""How long waits of asyncio poll, from how those before them ended."""

import time

from tensormsg._spin import Spin


def ago(us: float) -> float:
    return time.monotonic() - us * 1e-6


def sleep(spin: Spin, us: float) -> None:
    """A wait that polls in vain, and ends so long after it began."""
    spin.missed()
    spin.slept(ago(us))


def test_many_that_wait_at_once_do_not_poll_in_turn() -> None:
    spin = Spin(5000)
    sleep(spin, 19000)
    polled = []
    for _ in range(64):
        polled.append(spin.next_us())
        spin.missed()
    assert polled == 3 * [20000] + 61 * [0]


def test_waits_that_end_soon_are_polled_for() -> None:
    spin = Spin(5000)
    assert spin.next_us() == 5000
    sleep(spin, 19000)
    assert spin.next_us() == 20000
    for _ in range(1000):
        spin.polled()
    assert spin.next_us() == 20000


def test_waits_that_last_are_not_polled_for_at_all() -> None:
    spin = Spin(50)
    for _ in range(3):
        assert spin.next_us() == 50
        sleep(spin, 1e6)
    for _ in range(1000):
        assert spin.next_us() == 0
        sleep(spin, 1e6)
    spin.polled()
    assert spin.next_us() == 50


def test_two_that_sleep_find_back_to_polling() -> None:
    """To be woken takes 8 ms, and both sleep: each waits for 16."""
    ours, theirs = Spin(1000), Spin(1000)
    for _ in range(10):
        sleep(ours, 16000)
        sleep(theirs, 16000)
    waits = 0
    while (us := ours.next_us()) < 8000:
        assert us == 0
        sleep(ours, 16000)
        waits += 1
        assert waits < 100
    ours.polled()  # while they, still asleep, have waited for half as long
    sleep(theirs, 7900)
    assert theirs.next_us() == 4000 and ours.next_us() == 1000


def test_what_is_in_vain_is_seldom_tried() -> None:
    spin = Spin(50000)
    longer = 0
    for _ in range(1000):
        longer += spin.next_us() > 50000
        sleep(spin, 250000)
    assert 3 <= longer < 60


def test_who_never_polls_never_does() -> None:
    spin = Spin(0)
    sleep(spin, 0)
    spin.polled()
    assert spin.next_us() == 0
