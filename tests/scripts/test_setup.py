"""setup.sh: what is installed is recognised, what is missing is named, failures are one clear error. No network."""

import shutil

from support import ScriptTest

TORCH = "torch-2.15.0"
CPU_SET = [TORCH, "nvidia_cuda_runtime-13.2.86", "nvidia_cuda_cupti-13.2.86"]


class Setup(ScriptTest):
    script = "setup.sh"

    def setUp(self):
        super().setUp()
        self.site = self.folder / ".venv" / "lib" / "python3.11" / "site-packages"
        self.fake("dpkg-query", "echo installed\n")
        self.fake("apt-get", "echo called >>calls; exit 1\n")
        self.fake("nvidia-smi", "exit 1\n")
        self.fake("df", "echo header; echo disk 1 1 999999 1 /\n")

    def have(self, *distributions):
        for name in distributions:
            info = self.site / f"{name}.dist-info"
            info.mkdir(parents=True)
            (info / "RECORD").touch()

    def pip(self, body):
        """A virtual environment whose pip does BODY instead."""
        bin = self.folder / ".venv" / "bin"
        bin.mkdir(parents=True)
        for name in ("pip", "python"):
            (bin / name).write_text(f'#!/bin/bash\nwhile [ "$1" != --log ]; do shift; done\nlog=$2\n{body}\n')
            (bin / name).chmod(0o755)

    def test_a_complete_environment_is_recognised_without_pip_and_apt(self):
        self.have(*CPU_SET)
        result = self.run_script("--cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ready: torch 2.15.0", result.stdout)
        self.assertFalse((self.folder / "calls").exists())

    def test_the_launcher_alone_needs_no_torch(self):
        self.fake("dpkg-query", '[ "${@: -1}" = libyaml-cpp-dev ] || echo installed\n')
        result = self.run_script("--launcher")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("./scripts/build.sh launcher builds it", result.stdout)
        self.assertFalse((self.folder / "calls").exists())
        self.assertFalse((self.folder / ".venv").exists())

    def test_what_the_launcher_lacks_is_named_with_the_command_that_installs_it(self):
        self.fake("dpkg-query", '[ "${@: -1}" = nettle-dev ] || echo installed\n')
        result = self.run_script("--launcher", "--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("missing: nettle-dev\n", result.stderr)
        self.assertIn("./scripts/setup.sh --launcher installs them", result.stderr)

    def test_a_local_version_of_the_wheel_counts(self):
        self.have("torch-2.15.0+cpu", *CPU_SET[1:])
        self.assertEqual(self.run_script("--cpu", "--check").returncode, 0)

    def test_a_missing_wheel_is_named_by_check(self):
        self.have(TORCH)
        result = self.run_script("--cpu", "--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("missing: nvidia-cuda-runtime==13.2.86 nvidia-cuda-cupti==13.2.86\n", result.stderr)

    def test_the_small_set_is_not_taken_for_the_full_one(self):
        self.have(*CPU_SET)
        result = self.run_script("--gpu", "--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nvidia-nccl-cu13", result.stderr)

    def test_the_full_set_has_the_headers_that_those_of_the_cuda_runtime_include(self):
        self.have(*CPU_SET)
        result = self.run_script("--gpu", "--check")
        self.assertIn("nvidia-cuda-crt==13.2.86", result.stderr)

    def test_an_interrupted_installation_is_repeated(self):
        self.have(*CPU_SET)
        self.pip(f"touch {self.folder}/pip_called")
        (self.folder / ".venv" / ".incomplete").touch()
        self.assertEqual(self.run_script("--cpu").returncode, 0)
        self.assertTrue((self.folder / "pip_called").exists())
        self.assertFalse((self.folder / ".venv" / ".incomplete").exists())

    def test_another_version_of_torch_is_replaced(self):
        self.have("torch-2.14.0", *CPU_SET[1:])
        info = self.site / f"{TORCH}.dist-info"
        self.pip(f"mkdir -p {info}; touch {info}/RECORD")
        result = self.run_script("--cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("556 MB to download", result.stdout)

    def test_an_environment_of_before_gets_only_what_it_lacks(self):
        self.have(*CPU_SET)
        info = self.site / "pyarrow-26.0.1.dist-info"
        self.pip(f"mkdir -p {info}; touch {info}/RECORD")
        result = self.run_script("--cpu", "--object-stores")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("setup: pip: installing pyarrow==26.0.1\n", result.stdout)

    def test_object_stores_are_named_where_they_are_missing_and_are_not_for_the_launcher(self):
        self.have(*CPU_SET)
        result = self.run_script("--cpu", "--object-stores", "--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("missing: pyarrow==26.0.1\n  tip: ./scripts/setup.sh --cpu --object-stores installs them", result.stderr)
        self.assertEqual(self.run_script("--launcher", "--object-stores").returncode, 2)

    def test_no_network_is_said(self):
        self.pip('echo "Failed to establish: Temporary failure in name resolution" >$log; exit 1')
        result = self.run_script("--cpu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: pip could not install torch 2.15.0", result.stderr)
        self.assertIn("network cannot be reached", result.stderr)
        self.assertTrue((self.folder / ".venv" / ".incomplete").exists())

    def test_an_untrusted_certificate_is_not_taken_for_a_missing_wheel(self):
        self.pip('echo "SSLError: CERTIFICATE_VERIFY_FAILED; No matching distribution found for torch" >$log; exit 1')
        self.assertIn("PIP_CERT", self.run_script("--cpu").stderr)

    def test_too_little_space_is_said_before_anything_is_downloaded(self):
        self.fake("df", "echo header; echo disk 1 1 1200 1 /\n")
        self.pip("touch pip_called")
        result = self.run_script("--cpu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("1200 MB free", result.stderr)

    def test_an_unsupported_machine_is_said(self):
        self.fake("uname", '[ "$1" = -s ] && echo Linux || echo riscv64\n')
        result = self.run_script("--cpu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no supported torch wheel for Linux on riscv64", result.stderr)

    LOCKED = ('echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (unattended-upgr)" >&2\n'
              "exit 100\n")

    def locked_lists(self, update):
        """apt-get whose `update` does UPDATE; sleeping takes no time."""
        self.have(*CPU_SET)
        self.fake("dpkg-query", '[ "${@: -1}" = ninja-build ] || echo installed\n')
        self.fake("id", "echo 0\n")
        self.fake("sleep", 'echo "sleep $1" >>calls\n')
        self.fake("apt-get", f'echo "$*" >>calls\n[ "${{@: -1}}" != update ] || {{ {update}\n}}\n')
        return self.run_script("--cpu")

    def test_the_lock_of_the_package_lists_is_waited_for(self):
        result = self.locked_lists(f"[ $(grep -c sleep calls) = 3 ] || {{ {self.LOCKED} }}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("another program is updating the package lists"), 1)
        self.assertIn("install -y --no-install-recommends ninja-build", (self.folder / "calls").read_text())

    def test_who_keeps_the_lock_of_the_package_lists_is_named(self):
        result = self.locked_lists(self.LOCKED)
        self.assertEqual(result.returncode, 1)
        self.assertEqual((self.folder / "calls").read_text().count("sleep"), 60)
        self.assertIn("another program holds apt's lock: /var/lib/apt/lists/lock. It is held by process 7 (unattended-upgr); run", result.stderr)

    def test_missing_packages_are_installed_by_name(self):
        self.have(*CPU_SET)
        self.fake("dpkg-query", '[ "${@: -1}" = ninja-build ] || echo installed\n')
        self.fake("id", "echo 0\n")
        self.fake("apt-get", 'echo "$*" >>calls\n')
        result = self.run_script("--cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(len(calls), 2)
        self.assertTrue(calls[1].endswith("install -y --no-install-recommends ninja-build"), calls)

    def test_without_root_and_sudo_the_command_to_type_is_said(self):
        self.fake("dpkg-query", '[ "${@: -1}" = ninja-build ] || echo installed\n')
        self.fake("id", "echo 1000\n")
        self.fake("sudo", "exit 1\n")
        result = self.run_script("--cpu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install -y --no-install-recommends ninja-build", result.stderr)

    def test_without_apt_one_message_lists_what_is_missing_by_role(self):
        (self.bin / "apt-get").unlink()
        (self.bin / "dpkg-query").unlink()
        for tool in ("bash", "dirname", "mkdir", "cat"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        result = self.run_script("--cpu", path=str(self.bin))
        self.assertEqual(result.returncode, 1)
        for role in ("C++20 compiler", "CMake", "Ninja", "yaml-cpp: configuration files", "gloo headers"):
            self.assertIn(role, result.stderr)
        self.assertEqual(result.stderr.count("error:"), 1)

    def test_an_existing_libtorch_needs_no_wheel(self):
        (self.folder / "libtorch" / "lib").mkdir(parents=True)
        (self.folder / "libtorch" / "lib" / "libtorch_cpu.so").touch()
        result = self.run_script(TORCH_ROOT=str(self.folder / "libtorch"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse((self.folder / ".venv").exists())

    def test_wrong_settings_are_usage_errors(self):
        self.assertEqual(self.run_script("--cup").returncode, 2)
        self.assertEqual(self.run_script(TORCH_VERSION="1.13.1").returncode, 2)
        self.assertEqual(self.run_script(TORCH_ROOT="/nowhere").returncode, 1)
