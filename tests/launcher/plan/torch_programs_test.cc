#include "launcher/plan/torch_programs.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/catch.h"

#include "launcher/base/errors.h"
#include "launcher/plan/program.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using test::TempFolder;

constexpr const char* kSite = "venv/lib/python3.11/site-packages";

#if defined(__aarch64__)
constexpr ElfW(Half) kOwnMachine = EM_AARCH64, kOtherMachine = EM_X86_64;
#else
constexpr ElfW(Half) kOwnMachine = EM_X86_64, kOtherMachine = EM_AARCH64;
#endif

// What the loader could map: a header and one part that is the whole file.
std::string library(ElfW(Half) machine = kOwnMachine) {
  ElfW(Ehdr) header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = machine;
  header.e_phoff = sizeof header;
  header.e_phnum = 1;
  ElfW(Phdr) part{};
  part.p_type = PT_LOAD;
  part.p_filesz = sizeof header + sizeof part + 100;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
         std::string(reinterpret_cast<const char*>(&part), sizeof part) + std::string(100, 'x');
}

void write_libraries(const TempFolder& folder, const std::string& torch) {
  folder.write(torch + "/lib/libtorch_cpu.so", library());
  folder.write(torch + "/lib/libc10.so", library());
}

// An environment with torch and a wheel whose trainer was linked with 2.15.
struct Installation {
  TempFolder folder;
  TorchPlaces places;
  std::string program;

  Installation() {
    program = folder.write(site("ddp_run/torch-2.15/trainer"), "", true);
    places.own_folder = folder / "venv/bin";
  }
  static std::string site(const std::string& name) { return std::string(kSite) + "/" + name; }
  std::string torch(const std::string& parent, const std::string& version) const {
    write_libraries(folder, parent + "/torch");
    folder.write(parent + "/torch/version.py",
                 "from typing import Optional\n__version__ = '" + version + "'\n");
    return folder / (parent + "/torch");
  }
  TorchProgram found() const { return find_torch_program("trainer", places).value(); }
};

TEST_CASE("a wheel's trainer finds the torch that is installed beside it by its own RUNPATH") {
  const Installation env;
  env.torch(kSite, "2.15.0+cu132");
  CHECK(env.found().path == env.program);
  CHECK(env.found().library_folders.empty());
}

TEST_CASE("a build tree holds no installed programs") {
  const TempFolder folder;
  folder.write("build/bin/trainer", "", true);
  TorchPlaces places;
  places.own_folder = folder / "build/bin";
  CHECK_FALSE(find_torch_program("trainer", places));
}

TEST_CASE("a torch of another version is named with the one to install") {
  const Installation env;
  const std::string torch = env.torch(kSite, "2.13.1");
  std::filesystem::create_directory_symlink("lib", env.folder / "venv/lib64");  // as venv makes it
  CHECK(env.found().path.empty());
  CHECK(
      env.found().why_not ==
      "this trainer needs torch 2.15, and " + torch +
          " is 2.13; pip install 'torch==2.15.*', or set TORCH_ROOT to the folder of such a torch");
}

TEST_CASE("a damaged torch is named with its fault, before the loader stumbles over it") {
  Installation env;
  const std::string torch = env.torch(kSite, "2.15.0");
  const std::string cpu = Installation::site("torch/lib/libtorch_cpu.so");
  const auto fault = [&](const std::string& content) {
    env.folder.write(cpu, content);
    CHECK(env.found().path.empty());
    return env.found().why_not;
  };
  CHECK(fault("") == "this trainer needs torch 2.15, and " + torch +
                         "/lib/libtorch_cpu.so is empty; pip install --force-reinstall --no-deps "
                         "'torch==2.15.*', or set TORCH_ROOT to the folder of such a torch");
  CHECK_THAT(
      fault("version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(90, '0')),
      Catch::Contains("libtorch_cpu.so is not a library;"));
  CHECK_THAT(fault(library(kOtherMachine)), Catch::Contains("is for another processor;"));
  for (const std::size_t kept : {63, 100, 200})
    CHECK_THAT(fault(library().substr(0, kept)), Catch::Contains("is "));
  CHECK_THAT(fault(library().substr(0, 200)), Catch::Contains("is cut off;"));
  SECTION("another torch is taken instead") {
    const std::string other = env.torch("other/lib/python3.12/site-packages", "2.15.1");
    env.places.prefixes = {env.folder / "other"};
    CHECK(env.found().library_folders == other + "/lib");
  }
  SECTION("its other library counts as well") {
    env.folder.write(cpu, library() + "symbols");
    CHECK(env.found().path == env.program);
    std::filesystem::remove(torch + "/lib/libc10.so");
    CHECK_THAT(env.found().why_not, Catch::Contains("lib/libc10.so is missing;"));
  }
}

TEST_CASE("no torch at all is one line, too") {
  const Installation env;
  CHECK(
      env.found().why_not ==
      "this trainer needs torch 2.15, and no torch was found; pip install 'torch==2.15.*', or set "
      "TORCH_ROOT to the folder of such a torch");
}

TEST_CASE("among programs for several versions of torch the fitting one is taken") {
  Installation env;
  const auto older = env.folder.write(Installation::site("ddp_run/torch-2.11/trainer"), "", true);
  env.torch(kSite, "2.11.0");
  CHECK(env.found().path == older);
  env.places.torch_root = env.torch("zip", "2.12.0");
  CHECK(env.found().why_not.find("this trainer needs torch 2.15 or 2.11, and ") == 0);
}

TEST_CASE("TORCH_ROOT is taken and no other torch") {
  Installation env;
  env.torch(kSite, "2.15.0");
  env.places.torch_root = env.folder / "nothing";
  CHECK(env.found().why_not == "TORCH_ROOT=" + (env.folder / "nothing") +
                                   " holds no lib/libtorch_cpu.so; this trainer needs torch 2.15");
  write_libraries(env.folder, "zip");
  env.folder.write("zip/build-version", "2.15.0+cpu\n");
  env.places.torch_root = env.folder / "zip";
  CHECK(env.found().path == env.program);
  CHECK(env.found().library_folders == env.folder / "zip/lib");
}

TEST_CASE("a torch outside the environment is found, and the loader is told where it lies") {
  Installation env;
  SECTION("in the system's Python, which the virtual environment includes") {
    const std::string torch = env.torch("base/lib/python3.11/dist-packages", "2.15.0");
    env.folder.write("venv/pyvenv.cfg", "home = " + (env.folder / "base/bin") +
                                            "\ninclude-system-site-packages = true\n");
    CHECK(env.found().library_folders == torch + "/lib");
    env.folder.write("venv/pyvenv.cfg", "home = " + (env.folder / "base/bin") +
                                            "\ninclude-system-site-packages = false\n");
    CHECK(env.found().path.empty());
  }
  SECTION("in PYTHONPATH") {
    const std::string torch = env.torch("more", "2.15.0");
    env.folder.write("more/pyarrow/libarrow.so.2600", "");
    env.places.python_path = {env.folder / "nothing", env.folder / "more"};
    CHECK(env.found().library_folders == torch + "/lib:" + (env.folder / "more/pyarrow"));
  }
  SECTION("in the active environment, unless that one's does not fit") {
    env.torch("first/lib/python3.12/site-packages", "2.13.0");
    const std::string torch = env.torch("second/lib/python3.12/site-packages", "2.15.0");
    env.places.prefixes = {env.folder / "first", env.folder / "second"};
    CHECK(env.found().library_folders == torch + "/lib");
  }
  SECTION("a torch that says its version in a header only") {
    write_libraries(env.folder, "conda");
    env.folder.write("conda/include/torch/headeronly/version.h",
                     "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 15\n");
    env.places.torch_root = env.folder / "conda";
    CHECK(env.found().path == env.program);
  }
}

TEST_CASE("programs installed by cmake --install or from a package lie in PREFIX/lib/ddp_run") {
  const TempFolder folder;
  const auto program = folder.write("usr/lib/ddp_run/torch-2.15/trainer", "", true);
  write_libraries(folder, "usr/lib/torch");
  folder.write("usr/lib/torch/version.py", "__version__ = '2.15.1'\n");
  TorchPlaces places;
  places.own_folder = folder / "usr/bin";
  CHECK(find_torch_program("trainer", places)->path == program);
}

TEST_CASE("a ddp-run in a virtual environment runs scripts with that environment's Python") {
  const TempFolder folder;
  const auto own = folder.write("venv/bin/python3", "", true);
  const auto on_path = folder.write("bin/python3", "", true);
  LaunchConfig config;
  config.program = folder.write("train.py", "");
  const ProgramPlaces places{folder / "bin", folder / "venv/bin", ""};
  CHECK(resolve_program(config, places).executable == on_path);  // /usr/bin is not an environment
  folder.write("venv/pyvenv.cfg", "");
  CHECK(resolve_program(config, places).executable == own);
}

}  // namespace
}  // namespace ddp::launch
