#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sbom.py VERSION FOLDER TIME: writes FOLDER/tensormsg-VERSION.spdx.json.

That is the files of a release, and the libraries that are in them or that they
load. What is not valid SPDX is not written.
"""

import datetime
import hashlib
import pathlib
import subprocess
import sys
import uuid

from spdx_tools.common.spdx_licensing import spdx_licensing
from spdx_tools.spdx.model import (
    Actor, ActorType, Checksum, ChecksumAlgorithm, CreationInfo, Document,
    ExternalPackageRef, ExternalPackageRefCategory, Package, Relationship,
    RelationshipType, SpdxNoAssertion)
from spdx_tools.spdx.writer.write_anything import write_file

# Debian's package of its headers, and its licence. The first of them become a
# part of the wheels' extension; all are loaded by the other packages.
IN_WHEELS = {"libcjson-dev": "MIT", "libmsgpack-dev": "BSL-1.0",
             "libsodium-dev": "ISC", "libxxhash-dev": "BSD-2-Clause",
             "libzip-dev": "BSD-3-Clause", "zlib1g-dev": "Zlib"}
LOADED = {"libucx-dev": "BSD-3-Clause", "libssl-dev": "Apache-2.0",
          "libseccomp-dev": "LGPL-2.1-only"}

version, folder, when = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]


def package(name, number, licence, supplier="tensormsg developers",
            **more):
    return Package(
        spdx_id="SPDXRef-" + "".join(c if c.isalnum() or c in ".-" else "-"
                                     for c in name),
        name=name, version=number, files_analyzed=False,
        supplier=Actor(ActorType.ORGANIZATION, supplier),
        download_location=SpdxNoAssertion(), license_concluded=licence,
        license_declared=licence, **more)


def of_debian(name, licence):
    number = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", name], check=True, text=True,
        capture_output=True).stdout
    purl = f"pkg:deb/debian/{name}@{number}"
    return package(name.removesuffix("-dev"), number,
                   spdx_licensing.parse(licence), "Debian",
                   external_references=[
                       ExternalPackageRef(
                           ExternalPackageRefCategory.PACKAGE_MANAGER, "purl",
                           purl)])


ours = package("tensormsg", version, spdx_licensing.parse("BSD-3-Clause"))
files = [package(str(path.relative_to(folder)), version,
                 spdx_licensing.parse("BSD-3-Clause"),
                 file_name=str(path.relative_to(folder)), checksums=[Checksum(
                     ChecksumAlgorithm.SHA256,
                     hashlib.sha256(path.read_bytes()).hexdigest())])
         for path in sorted(folder.rglob("*"))
         if path.is_file() and path.suffix != ".md"]
inside = [of_debian(*one) for one in IN_WHEELS.items()]
loaded = [of_debian(*one) for one in LOADED.items()]


def related(one, how, other):
    return Relationship(one.spdx_id, how, other.spdx_id)


document = Document(
    CreationInfo(
        spdx_version="SPDX-2.3", spdx_id="SPDXRef-DOCUMENT",
        name=f"tensormsg-{version}", data_license="CC0-1.0",
        document_namespace="urn:uuid:" + str(uuid.uuid5(
            uuid.NAMESPACE_OID, f"tensormsg-{version}-{when}")),
        creators=[Actor(ActorType.TOOL, "packaging/sbom.py")],
        created=datetime.datetime.fromisoformat(when).astimezone(
            datetime.timezone.utc).replace(tzinfo=None)),
    packages=[ours, *files, *inside, *loaded],
    relationships=[
        Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES,
                     ours.spdx_id),
        *(related(ours, RelationshipType.CONTAINS, one) for one in files),
        *(related(one, RelationshipType.STATIC_LINK, lib) for one in files
          if one.name.endswith(".whl") for lib in inside),
        *(related(ours, RelationshipType.DEPENDS_ON, lib)
          for lib in [*inside, *loaded])])
write_file(document, str(folder / f"tensormsg-{version}.spdx.json"))
