#!/usr/bin/env python3
"""Writes the software bill of materials of the packages, as CycloneDX 1.5 JSON.

  sbom.py FOLDER     for the packages in FOLDER; prints the JSON

Components: what is linked into the programs, with the versions of the Debian packages they were built with, and, as
optional ones, what they load at run time. Each package with its SHA-256.
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Debian package, licence (SPDX), what it is linked into.
LINKED = {
    "fmt": ("libfmt-dev", "MIT", "ddp-run, trainer"),
    "cxxopts": ("libcxxopts-dev", "MIT", "ddp-run, trainer"),
    "nlohmann-json": ("nlohmann-json3-dev", "MIT", "ddp-run, trainer"),
    "nettle": ("nettle-dev", "LGPL-3.0-or-later", "ddp-run (static)"),
    "yaml-cpp": ("libyaml-cpp-dev", "MIT", "trainer"),
    "openssl": ("libssl-dev", "Apache-2.0", "ddp-run (static), trainer"),
    "boost": ("libboost-dev", "BSL-1.0", "ddp-run (headers)"),
    "utf8proc": ("libutf8proc-dev", "MIT", "trainer"),
    "libpng": ("libpng-dev", "libpng-2.0", "trainer"),
    "libjpeg-turbo": ("libturbojpeg0-dev", "IJG AND BSD-3-Clause AND Zlib", "trainer"),
    "zlib": ("zlib1g-dev", "Zlib", "trainer"),
    "xxhash": ("libxxhash-dev", "BSD-2-Clause", "trainer"),
    "gloo": ("libgloo-dev", "BSD-3-Clause", "trainer (headers)"),
    "glibc": ("libc6-dev", "LGPL-2.1-or-later", "ddp-run (static)"),
    "libstdc++": ("libstdc++-12-dev", "GPL-3.0-or-later WITH GCC-exception-3.1", "ddp-run (static)"),
}


def debian_version(package):
    done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def linked(name, package, licence, into):
    version = debian_version(package)
    component = {"type": "library", "name": name, "scope": "required", "description": f"linked into {into}",
                 "licenses": [{"expression": licence}]}
    if version:
        component |= {"version": version, "purl": f"pkg:deb/debian/{package}@{version.replace('+', '%2B').replace(':', '%3A')}"}
    return component


def loaded(name, requirement):
    return {"type": "library", "name": name, "version": requirement, "scope": "optional",
            "description": "loaded at run time, not contained"}


def package(path):
    return {"type": "file", "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]}


def torch_of(packages):
    found = [match[1] for path in packages if (match := re.search(r"-torch(\d+\.\d+)-", path.name))]
    return found[0] + ".*" if found else "2.11 to 2.15"


def main(folder):
    version = re.search(r"project\(ddp_run VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    packages = sorted(path for path in Path(folder).iterdir() if path.suffix in (".deb", ".gz", ".whl"))
    if not packages:
        sys.exit(f"error: {folder} holds no package; ./scripts/package.sh makes them")
    components = [linked(name, *facts) for name, facts in LINKED.items()]
    components += [loaded("torch", torch_of(packages)), loaded("pyarrow", "26.*")]
    components += [package(path) for path in packages]
    print(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
                      "metadata": {"component": {"type": "application", "name": "ddp-run", "version": version,
                                                 "licenses": [{"expression": "Apache-2.0"}]}},
                      "components": components}, indent=2))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        sys.exit(0 if len(sys.argv) == 2 else 2)
    main(sys.argv[1])
