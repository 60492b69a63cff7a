# SPDX-License-Identifier: BSD-3-Clause
"""What src/memory says of CUDA's binary interface, against the toolkit's
headers where they are installed: versions of functions, numbers."""

import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ["TMSG_SOURCE_DIR"], "src/memory")
NUMBERS = [  # the prefix of theirs; ours: file, names
    ("CU_POINTER_ATTRIBUTE_", "cuda_memory.c", [
        "CONTEXT", "MEMORY_TYPE", "IS_MANAGED", "DEVICE_ORDINAL",
        ("IS_LEGACY_IPC_CAPABLE", "IS_LEGACY_CUDA_IPC_CAPABLE"),
        ("RANGE_START", "RANGE_START_ADDR"), "RANGE_SIZE", "MEMPOOL_HANDLE"]),
    ("CUDA_ERROR_", "cuda_driver.h", [
        ("TMSG_CU_INVALID_VALUE", "INVALID_VALUE"),
        ("TMSG_CU_OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("TMSG_CU_STUB_LIBRARY", "STUB_LIBRARY"),
        ("TMSG_CU_NO_DEVICE", "NO_DEVICE"),
        ("TMSG_CU_INVALID_CONTEXT", "INVALID_CONTEXT"),
        ("TMSG_CU_NOT_READY", "NOT_READY"),
        ("TMSG_CU_ALREADY_REGISTERED", "HOST_MEMORY_ALREADY_REGISTERED")]),
    ("CU_DEVICE_ATTRIBUTE_", "cuda_context.c", ["MEMORY_POOLS_SUPPORTED"]),
    ("CU_MEM_ALLOCATION_TYPE_", "cuda_context.c", ["PINNED"]),
    ("CU_MEM_LOCATION_TYPE_", "cuda_context.c", [("ON_DEVICE", "DEVICE")]),
    ("CU_STREAM_", "cuda_context.c", ["NON_BLOCKING"]),
    ("CU_EVENT_", "cuda_stream.c", [("NO_TIMES", "DISABLE_TIMING")]),
    ("CU_MEMHOSTREGISTER_", "cuda_alloc.c", ["PORTABLE"]),
    ("CU_MEMORYTYPE_", "cuda_memory.c", [("TYPE_HOST", "HOST")]),
    ("CU_GET_PROC_ADDRESS_", "cuda_driver.c", ["LEGACY_STREAM"]),
    ("CU_DEVICE_ATTRIBUTE_", "cuda_lines.c", [
        ("HAS_WORDS", "CAN_USE_64_BIT_STREAM_MEM_OPS"),
        ("FLUSH_OPTIONS", "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS"),
        ("ORDERING", "GPU_DIRECT_RDMA_WRITES_ORDERING")]),
    ("CU_FLUSH_GPU_DIRECT_RDMA_WRITES_", "cuda_lines.c", [
        ("FLUSH_BY_HOST", "OPTION_HOST"),
        ("CURRENT_CONTEXT", "TARGET_CURRENT_CTX"),
        ("ORDERED_FOR_OWNER", "TO_OWNER")]),
    ("CU_GPU_DIRECT_RDMA_WRITES_ORDERING_", "cuda_lines.c",
     [("ORDERED_FOR_OWNER", "OWNER")]),
    ("CU_MEMHOSTREGISTER_", "cuda_lines.c",
     ["PORTABLE", ("DEVICE_MAP", "DEVICEMAP")]),
    ("CU_STREAM_", "cuda_lines.c", [
        ("WAIT_GEQ", "WAIT_VALUE_GEQ"),
        ("WRITE_AFTER", "WRITE_VALUE_DEFAULT")]),
]


def number(text, name):
    """Of an enumerator or a macro; 1 << 0 is one, too."""
    found = re.search(rf"\b{name}\b\s*=?\s*((?:0x)?[0-9a-fA-F]+"
                      r"(?:\s*<<\s*\d+)?)", text)
    assert found, f"no number of {name}"
    base, _, shift = found[1].partition("<<")
    return int(base, 0) << int(shift or 0)


def main():
    folders = [os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include",
               "/usr/include"]
    for folder in map(pathlib.Path, folders):
        if (folder / "cudaTypedefs.h").exists():
            break
    else:
        print("SKIPPED: no headers of the CUDA toolkit")
        return 77
    cuda = (folder / "cuda.h").read_text()
    shapes = (folder / "cudaTypedefs.h").read_text()
    rows = re.findall(r'(?:NEEDED|OPTIONAL)\((\w+),((?:\s*SYMBOL\([^)]*\),?)+)\)',
                      (SOURCE / "cuda_driver.c").read_text())
    assert len(rows) > 30
    bad = []
    for name, versions in rows:
        for symbol, version in re.findall(r'SYMBOL\("(\w+)",\s*(\d+)\)',
                                          versions):
            if not re.search(rf"\bPFN_{name}_v{version}\b", shapes):
                bad.append(f"{name} has no version {version} ({symbol})")
    for prefix, file, names in NUMBERS:
        ours = (SOURCE / file).read_text()
        for name in names:
            name, theirs = name if isinstance(name, tuple) else (name, name)
            if number(ours, name) != number(cuda, prefix + theirs):
                bad.append(f"{prefix + theirs} is {name} in {file}")
    print("\n".join(bad) or f"{len(rows)} functions agree with {folder}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
