# SPDX-License-Identifier: BSD-3-Clause
"""What the pages of figures have in common."""

import os
import platform


def machine():
    """Lines that say where it was measured."""
    lines = [f"- {platform.platform()}, {os.cpu_count()} cores"]
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        lines += sorted({"- " + line.split(":", 1)[1].strip() for line in info
                         if line.startswith("model name")})
    return lines


def spread(pairs):
    """By how much two runs of the same differ, in three of four pairs at most."""
    apart = sorted(max(one / other, other / one) for one, other in pairs)
    return apart[(3 * len(apart) + 3) // 4 - 1] if apart else 1.0
