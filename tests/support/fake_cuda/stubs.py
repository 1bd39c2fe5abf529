#!/usr/bin/env python3
"""Writes a stub for every symbol that torch's CUDA libraries want and the fakes do not define.

  stubs.py TORCH_LIB OUT SONAME=OBJECT[,OBJECT...] ...

For each library: OUT/SONAME.cc, whose functions print their name and fail, and OUT/SONAME.map, the version script of the
symbols' versions.
"""

import re
import subprocess
import sys
from pathlib import Path

# Unversioned symbols by prefix. ncclCommDump is optional: torch looks it up.
PREFIXES = [("ncclCommDump", None), ("nccl", "libnccl.so.2"), ("cuFile", "libcufile.so.0"),
            ("cusparseLt", "libcusparseLt.so.0"), ("nvshmem", "libnvshmem_host.so.3"), ("cupti", "libcupti.so.13")]
# What each library's functions return for "not supported".
ERRORS = {"libcudart.so.13": 801, "libcublas.so.13": 15, "libcublasLt.so.13": 15, "libcudnn.so.9": 3000,
          "libcusparse.so.12": 10, "libcufft.so.12": 16, "libcusolver.so.12": 9, "libnccl.so.2": 3, "libnvrtc.so.13": 11,
          "libcuda.so.1": 801, "libcupti.so.13": 15, "libcufile.so.0": 5001, "libcusparseLt.so.0": 10,
          "libnvshmem_host.so.3": 7}
UNVERSIONED = {"libnccl.so.2", "libcuda.so.1", "libcufile.so.0", "libcusparseLt.so.0"}
# Looked up by name at run time (c10/cuda/driver_api.h); where one is missing, torch takes none.
DRIVER = """cuCtxFromGreenCtx cuCtxPopCurrent cuCtxPushCurrent cuDevResourceGenerateDesc cuDevSmResourceSplitByCount
cuDeviceGetDevResource cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuLogsRegisterCallback
cuLogsUnregisterCallback cuMemAddressFree cuMemAddressReserve cuMemCreate cuMemExportToShareableHandle cuMemGetAddressRange
cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle cuMemImportFromShareableHandle cuMemMap cuMemRelease
cuMemRetainAllocationHandle cuMemSetAccess cuMemUnmap cuMemsetD32Async cuMulticastAddDevice cuMulticastBindMem
cuMulticastCreate cuMulticastUnbind cuStreamWriteValue32""".split()


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def library_of(symbol):
    """The soname that an undefined symbol `name[@version]` belongs to, or None."""
    name, _, version = symbol.partition("@")
    if version.startswith("lib"):
        return version
    if version == "NVSHMEM":
        return "libnvshmem_host.so.3"
    if version:
        return None
    for prefix, soname in PREFIXES:
        if name.startswith(prefix):
            return soname
    return "libcuda.so.1" if re.match("cu[A-Z]", name) else None


def wanted(torch_lib):
    """{soname: {symbol: version or None}} of all of torch's libraries."""
    result = {soname: {} for soname in ERRORS}
    for library in sorted(torch_lib.glob("*.so")):
        for line in output_of("readelf", "-W", "--dyn-syms", str(library)):
            fields = line.split()
            if len(fields) < 8 or fields[6] != "UND":
                continue
            soname = library_of(fields[7])
            if soname in result:
                name, _, version = fields[7].partition("@")
                result[soname][name] = version or None
    for name in DRIVER:
        result["libcuda.so.1"].setdefault(name, None)
    return result


def defined_in(objects):
    return {line.split()[-1] for path in objects for line in output_of("nm", "--defined-only", "-g", path)}


def main():
    torch_lib, out = Path(sys.argv[1]), Path(sys.argv[2])
    objects = {soname: paths.split(",") for soname, paths in (word.split("=") for word in sys.argv[3:])}
    out.mkdir(parents=True, exist_ok=True)
    for soname, symbols in wanted(torch_lib).items():
        missing = sorted(symbols.keys() - defined_in(objects.get(soname, [])))
        lines = [f'int {name}() {{ return fakecuda_missing("{name}", {ERRORS[soname]}); }}\n' for name in missing]
        (out / f"{soname}.cc").write_text(
            'extern "C" {\nint fakecuda_missing(const char*, int);\n' + "".join(lines) + "}\n")
        versions = {version for version in symbols.values() if version}
        if not versions and soname not in UNVERSIONED:
            versions = {soname}
        (out / f"{soname}.map").write_text("".join(f"{version} {{ global: *; }};\n" for version in sorted(versions) or [""]))


if __name__ == "__main__":
    main()
