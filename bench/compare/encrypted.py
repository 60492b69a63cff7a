# SPDX-License-Identifier: BSD-3-Clause
"""What encryption costs with tensormsg, over what it costs at least."""

import statistics

OVER = "encrypted"
OURS, CALL, RAW, GRPC = "tensormsg", "tensormsg, call", "OpenSSL", "gRPC C++"

# What is divided, by what, and which figure of each: the round trip or GB/s.
RATIOS = {f"round trip over {RAW}'s": (OURS, RAW, 0),
          f"a call over {RAW}'s round trip": (CALL, RAW, 0),
          f"GB/s over {RAW}'s": (OURS, RAW, 1),
          f"GB/s over {GRPC}'s": (OURS, GRPC, 1)}


def ratio(ways, one, other, index):
    """The median of the ratios within a round, the least and the most."""
    found = [mine[index] / theirs[index]
             for mine, theirs in zip(ways.get(one, []), ways.get(other, []))]
    return (f"{statistics.median(found):.2f} ({min(found):.2f}.."
            f"{max(found):.2f})" if found else "")


def markdown(table):
    """Lines: a row for each map that was sent encrypted."""
    rows = [[name, *(ratio(ways, *which) for which in RATIOS.values())]
            for (name, over), ways in table.seen.items() if over == OVER]
    rows = [row for row in rows if any(row[1:])]
    if not rows:
        return []
    return ["## Encrypted, beside one raw connection", "",
            "| map | " + " | ".join(RATIOS) + " |",
            "|---|" + "---:|" * len(RATIOS),
            *("| " + " | ".join(row) + " |" for row in rows), ""]
