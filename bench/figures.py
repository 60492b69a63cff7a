# SPDX-License-Identifier: BSD-3-Clause
"""What the pages of figures have in common."""

import math
import os
import platform


def machine():
    """Lines that say where it was measured."""
    lines = [f"- {platform.platform()}, {os.cpu_count()} cores"]
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        lines += sorted({"- " + line.split(":", 1)[1].strip() for line in info
                         if line.startswith("model name")})
    return lines


def quantile(values, part):
    """The least value such that `part` of all are no greater, as
    tools/measure/figures.h has it."""
    return sorted(values)[math.ceil(part * len(values) - 1e-9) - 1]


def spread(pairs):
    """By how much two runs of the same differ, in three of four pairs at most."""
    apart = [max(one / other, other / one) for one, other in pairs]
    return quantile(apart, .75) if apart else 1.0
