"""What users install, away from the build tree: the wheel in a fresh environment, .deb, .tar.gz, find_package.

DDP_PACKAGES: the folder with the packages; DDP_SITE: site-packages with a torch that fits them. Nothing is downloaded.
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = Path(os.environ["DDP_PACKAGES"])
SITE = Path(os.environ["DDP_SITE"]).resolve()
USER_SCRIPT = HERE / "user_script.py"
STEPS = ["data_config.path=" + str(ROOT / "data/sample_corpus.txt"), "trainer_config.max_steps=3",
         "gpt_config.n_layer=1", "gpt_config.n_embd=32", "gpt_config.n_head=2", "trainer_config.snapshot_path=snapshot.pt"]


def the(pattern):
    found = sorted(PACKAGES.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


def run(*command, cwd=None, path="/usr/bin:/bin", **environment):
    """With little in the environment, as on another machine."""
    env = {"PATH": path, "HOME": "/nonexistent", "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120)


def run_path(program):
    text = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    return [line.split("[")[1].rstrip("]") for line in text.splitlines() if "RUNPATH" in line or "RPATH" in line]


def dead_links(folder):
    """Relative links of the pages below the folder that lead nowhere."""
    pages = sorted(folder.rglob("*.md"))
    assert len(pages) > 20, pages
    return [f"{page.relative_to(folder)}: {link}" for page in pages
            for link in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", page.read_text()) if not (page.parent / link).exists()]


class PackageTest(unittest.TestCase):
    def folder(self):
        path = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, path)
        return path

    def assertSuccess(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def assertTrains(self, prefix, **environment):
        """Three steps on two ranks by prefix/bin/trainer, which ddp-run finds beside itself."""
        result = run(prefix / "bin/ddp-run", "--standalone", "--nproc_per_node=2", "trainer", "--config",
                     prefix / "share/ddp_run/configs/quickstart.yaml", *STEPS, cwd=self.folder(), **environment)
        self.assertSuccess(result)
        self.assertIn("step 3", result.stdout + result.stderr)


class Wheel(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.env = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.env)
        subprocess.run([sys.executable, "-m", "venv", cls.env], check=True)
        cls.site = next(cls.env.glob("lib/python3*/site-packages"))
        subprocess.run([cls.env / "bin/pip", "install", "-q", "--no-index", "--disable-pip-version-check",
                        the("ddp_run-*.whl")], check=True)
        # torch and what it needs, as if installed here.
        for entry in SITE.iterdir():
            if not (cls.site / entry.name).exists():
                (cls.site / entry.name).symlink_to(entry)
        cls.command = cls.env / "bin/ddp-run"

    def without_torch(self, version=None):
        """For one test: no torch, or one that says this version."""
        torch = self.site / "torch"
        torch.unlink()

        def restore():
            if version:
                shutil.rmtree(torch)
            torch.symlink_to(SITE / "torch")

        self.addCleanup(restore)
        if version:
            (torch / "lib").mkdir(parents=True)
            (torch / "lib/libtorch_cpu.so").touch()  # nothing in it
            (torch / "version.py").write_text(f"__version__ = '{version}'\n")

    def torch_version(self):
        return next(self.site.glob("ddp_run/torch-*")).name.removeprefix("torch-")

    def test_ddp_run_is_a_command_of_the_environment_and_a_module(self):
        version = run(self.command, "--version")
        self.assertSuccess(version)
        self.assertRegex(version.stdout, r"^ddp-run \d+\.\d+\.\d+ \(commit [0-9a-f]{10}")
        self.assertEqual(run(self.env / "bin/python", "-m", "ddp_run", "--version").stdout, version.stdout)
        self.assertEqual(run(self.env / "bin/trainer", "--version").stdout.split()[1], version.stdout.split()[1])

    def test_the_module_loads_nothing_but_itself(self):
        """Beside what Python loads for any `-m`."""
        names = "import sys, runpy; before = set(sys.modules); import os; os.execv = lambda *_: print(set(sys.modules) - before); "
        result = run(self.env / "bin/python", "-c", names + "runpy.run_module('ddp_run', run_name='__main__')")
        loaded = result.stdout.splitlines()[0]
        self.assertNotIn("torch", loaded)
        self.assertLessEqual(set(eval(loaded)), {"ddp_run", "ddp_run.__main__", "pkgutil", "importlib", "importlib.machinery",
                                                 "typing", "weakref", "importlib.util", "importlib._abc", "contextlib",
                                                 "zipimport", "_weakrefset", "types", "inspect"})

    def test_a_users_script_runs_on_two_ranks_with_the_environments_python(self):
        for start in ([self.command], [self.env / "bin/python", "-m", "ddp_run"]):
            result = run(*start, "--standalone", "--nproc_per_node=2", USER_SCRIPT)
            self.assertSuccess(result)
            for rank in (0, 1):
                self.assertIn(f"rank {rank} of 2: sum 3, store of ddp-run: True", result.stdout)

    def test_trainer_trains(self):
        self.assertTrains(self.env)

    def test_a_torch_that_does_not_fit_is_one_line_that_says_what_to_install(self):
        self.without_torch("2.10.0+cpu")
        needed = self.torch_version()
        result = run(self.env / "bin/trainer", "--version")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, f"error: this trainer needs torch {needed}, and {self.site}/torch is 2.10; "
                         f"pip install 'torch=={needed}.*', or set TORCH_ROOT to the folder of such a torch\n")

    def test_a_damaged_torch_is_one_line_that_says_what_to_install(self):
        needed = self.torch_version()
        self.without_torch(needed + ".0")
        result = run(self.env / "bin/trainer", "--version")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, f"error: this trainer needs torch {needed}, and {self.site}/torch/lib/libtorch_cpu.so is "
                         f"empty; pip install --force-reinstall --no-deps 'torch=={needed}.*', or set TORCH_ROOT to the folder "
                         "of such a torch\n")

    def test_ddp_run_needs_no_torch(self):
        self.without_torch()
        result = run(self.command, "--standalone", "--nproc_per_node=2", "bash", "-c", "echo $TORCHELASTIC_USE_AGENT_STORE")
        self.assertSuccess(result)
        self.assertEqual(result.stdout.count("True"), 2)
        result = run(self.env / "bin/trainer", "--version")
        self.assertIn("no torch was found; pip install 'torch==", result.stderr)

    def test_scripts_use_the_torch_of_another_place_through_pythonpath(self):
        self.without_torch()
        other = self.folder()
        for entry in SITE.iterdir():
            (other / entry.name).symlink_to(entry)
        self.assertTrains(self.env, PYTHONPATH=str(other))

    def test_completions_manual_page_and_documentation_are_in_it(self):
        for name in ("man/man1/ddp-run.1", "bash-completion/completions/ddp-run", "zsh/site-functions/_ddp-run",
                     "fish/vendor_completions.d/ddp-run.fish", "ddp_run/configs/gpt2_train_cfg.yaml", "doc/ddp-run/NOTICE"):
            self.assertTrue((self.env / "share" / name).is_file(), name)

    def test_links_of_the_documentation_lead_somewhere(self):
        self.assertEqual(dead_links(self.env / "share/doc/ddp-run"), [])
        readme = (self.env / "share/doc/ddp-run/README.md").read_text()
        self.assertTrue(readme.startswith("# ddp-run and trainer\n"))  # not the launcher's

    def test_the_page_says_how_new_a_system_must_be(self):
        needed = {}
        for program in self.site.glob("ddp_run/torch-*/*"):
            text = subprocess.run(["readelf", "-V", program], capture_output=True, text=True, check=True).stdout
            for library, version in re.findall(r"\b(GLIBC|GLIBCXX)_([\d.]+)\b", text):
                needed[library] = max(needed.get(library, (0,)), tuple(map(int, version.split("."))))
        page = (ROOT / "docs/install.md").read_text()
        self.assertIn(f"needs glibc {'.'.join(map(str, needed['GLIBC']))} and libstdc++", page)
        self.assertIn(f"`GLIBCXX_{'.'.join(map(str, needed['GLIBCXX']))}`", page)

    def test_the_metadata_names_the_torch_it_was_built_with(self):
        metadata = next(self.site.glob("ddp_run-*.dist-info/METADATA")).read_text()
        self.assertIn(f"Requires-Dist: torch=={self.torch_version()}.*; extra == 'trainer'", metadata.replace('"', "'"))
        self.assertNotIn("Requires-Dist: torch\n", metadata)

    def test_the_description_links_to_no_file(self):
        metadata = next(self.site.glob("ddp_run-*.dist-info/METADATA")).read_text()
        head, _, text = metadata.partition("\n\n")
        self.assertIn("Description-Content-Type: text/markdown", head)
        self.assertIn("# ddp-run and trainer", text)
        self.assertEqual(re.findall(r"\]\((?!https?:)[^)]*\)", text), [])


class Packages(PackageTest):
    def unpacked(self, *kinds):
        folder = self.folder()
        for kind in kinds:
            subprocess.run(["dpkg", "-x", the(f"{kind}_*.deb"), folder], check=True)
        return folder / "usr"

    def field(self, kind, name):
        return subprocess.run(["dpkg-deb", "-f", the(f"{kind}_*.deb"), name], capture_output=True, text=True,
                              check=True).stdout.strip()

    def test_the_launchers_package_depends_on_nothing(self):
        self.assertEqual(self.field("ddp-run", "Depends"), "")
        prefix = self.unpacked("ddp-run")
        self.assertSuccess(run(prefix / "bin/ddp-run", "--standalone", "--nproc_per_node=2", "true"))
        ldd = subprocess.run(["ldd", prefix / "bin/ddp-run"], capture_output=True, text=True)
        self.assertRegex(ldd.stdout + ldd.stderr, "not a dynamic executable|statically linked")

    def test_the_trainers_package_declares_what_it_needs(self):
        depends = self.field("ddp-trainer", "Depends")
        version = self.field("ddp-run", "Version")
        self.assertIn(f"ddp-run (= {version})", depends)
        for library in ("libc6", "libstdc++6"):
            self.assertIn(library, depends)
        for static in ("yaml", "ssl", "utf8proc", "torch"):
            self.assertNotIn(static, depends)
        self.assertRegex(self.field("ddp-trainer", "Description"), r"pip install 'torch==2\.\d+\.\*'")

    def test_the_packages_train_with_a_torch_from_torch_root(self):
        self.assertTrains(self.unpacked("ddp-run", "ddp-trainer"), TORCH_ROOT=str(SITE / "torch"))

    def test_the_packages_train_with_the_torch_of_an_active_environment(self):
        environment = self.folder()
        lib = environment / "lib" / SITE.parent.name
        lib.mkdir(parents=True)
        (lib / "site-packages").symlink_to(SITE)
        self.assertTrains(self.unpacked("ddp-run", "ddp-trainer"), VIRTUAL_ENV=str(environment))

    def test_the_archives_unpack_into_one_folder(self):
        folder = self.folder()
        for archive in PACKAGES.glob("*.tar.gz"):
            subprocess.run(["tar", "xf", archive, "-C", folder], check=True)
        (prefix,) = folder.iterdir()
        self.assertTrains(prefix, TORCH_ROOT=str(SITE / "torch"))
        result = run(prefix / "bin/trainer", "--version")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^error: this trainer needs torch 2\.\d+, and no torch was found; .*\n$")

    def test_no_run_path_leads_into_the_build_machine(self):
        programs = list(self.unpacked("ddp-trainer").glob("lib/ddp_run/torch-*/*"))
        self.assertGreaterEqual(len(programs), 3)
        for program in programs:
            self.assertEqual(run_path(program), ["$ORIGIN/../../torch/lib:$ORIGIN/../../pyarrow"], program)

    def test_the_licences_are_in_each_package(self):
        for kind in ("ddp-run", "ddp-trainer"):
            archive = self.folder()
            subprocess.run(["tar", "xf", the(f"{kind}-*.tar.gz"), "-C", archive, "--strip-components=1"], check=True)
            for prefix in (archive, self.unpacked(kind)):
                for name in ("LICENSE", "NOTICE"):
                    self.assertEqual((prefix / "share/doc" / kind / name).read_text(), (ROOT / name).read_text())
            for text in Path("/usr/share/common-licenses").glob("LGPL-2.1"):
                self.assertEqual((archive / "share/doc" / kind / "licenses" / text.name).read_bytes(), text.read_bytes())

    def test_debian_packages_have_a_copyright_file_and_a_changelog(self):
        for kind in ("ddp-run", "ddp-trainer"):
            documents = self.unpacked(kind) / "share/doc" / kind
            head, files, licence = (documents / "copyright").read_text().split("\n\n")
            self.assertTrue(head.startswith("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"))
            notice = re.sub(r"^\.$", "", re.sub("^ ", "", head.split("\n .\n", 1)[1], flags=re.M), flags=re.M)
            self.assertEqual(notice.rstrip(), (ROOT / "NOTICE").read_text().rstrip())
            self.assertIn("Files: *\nCopyright: 2026 the ddp-run authors\nLicense: Apache-2.0", files)
            self.assertIn("/usr/share/common-licenses/Apache-2.0", licence)
            changes = gzip.decompress((documents / "changelog.gz").read_bytes()).decode()
            self.assertTrue(changes.startswith(f"{kind} ({self.field(kind, 'Version')}) "), changes)

    def test_links_of_the_documentation_lead_somewhere(self):
        self.assertEqual(dead_links(self.unpacked("ddp-run") / "share/doc/ddp-run"), [])
        archive = self.folder()
        subprocess.run(["tar", "xf", the("ddp-run-*.tar.gz"), "-C", archive, "--strip-components=1"], check=True)
        self.assertEqual(dead_links(archive / "share/doc/ddp-run"), [])

    def test_another_program_finds_the_workers_contract(self):
        prefix, build = self.unpacked("ddp-run"), self.folder()
        for command in (["cmake", "-S", HERE / "consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"],
                        ["cmake", "--build", build]):
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = run(prefix / "bin/ddp-run", "--standalone", "--nproc_per_node=1", "--max_restarts=1", build / "worker")
        self.assertSuccess(result)
        self.assertEqual(result.stdout.count("rank 0 of 1"), 2)

    def test_the_checksums_are_those_of_all_files(self):
        done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=PACKAGES, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        listed = {line.split(maxsplit=1)[1] for line in (PACKAGES / "SHA256SUMS").read_text().splitlines()}
        self.assertEqual(listed, {path.name for path in PACKAGES.iterdir()} - {"SHA256SUMS"})
        self.assertIn(the("*.whl").name, listed)


if __name__ == "__main__":
    unittest.main()
