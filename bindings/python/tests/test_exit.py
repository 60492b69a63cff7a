# SPDX-License-Identifier: BSD-3-Clause
"""A program ends with whatever is alive, wherever that is kept. exits.py has what
there is; all of it is in the soak."""

import pytest

from exits import A_PART, end


@pytest.mark.parametrize("alive, place, background", A_PART)
def test_it_ends(alive, place, background):
    assert end(alive, place, background) < 20
