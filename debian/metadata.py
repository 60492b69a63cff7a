#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""metadata.py PYPROJECT FOLDER: writes the dist-info of the package that was
copied to FOLDER, so that pip and importlib.metadata know it.

Debian 12 has no scikit-build-core, which would do it.
"""

import pathlib
import re
import sys
import tomllib

project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]
header = pathlib.Path("include/tensormsg/version.h").read_text()
version = ".".join(re.search(rf"VERSION_{part} (\d+)", header)[1]
                   for part in ("MAJOR", "MINOR", "PATCH"))
folder = pathlib.Path(sys.argv[2]) / f"tensormsg-{version}.dist-info"
folder.mkdir()
(folder / "INSTALLER").write_text("dpkg\n")
(folder / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in [
    ("Metadata-Version", "2.1"), ("Name", project["name"]),
    ("Version", version), ("Summary", project["description"]),
    ("Requires-Python", project["requires-python"]),
    *(("Requires-Dist", what) for what in project["dependencies"])]))
