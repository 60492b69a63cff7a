# SPDX-License-Identifier: BSD-3-Clause
"""What pytest has to know of the tests here."""


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "once: a second UCX would add nothing to it "
        "(CMakeLists.txt leaves it out there)")
