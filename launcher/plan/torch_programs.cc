#include "launcher/plan/torch_programs.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

#if defined(__x86_64__)
constexpr ElfW(Half) kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr ElfW(Half) kMachine = EM_AARCH64;
#else
constexpr ElfW(Half) kMachine = EM_NONE;  // any
#endif

template <typename Record>
bool read_at(std::ifstream& file, std::uintmax_t offset, Record& record) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&record), sizeof record));
}

// Only what the loader maps must be in the file; what follows, such as symbols, may be missing.
bool is_whole(std::ifstream& file, const ElfW(Ehdr) & header, std::uintmax_t size) {
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part;
    if (!read_at(file, header.e_phoff + static_cast<std::uintmax_t>(i) * sizeof part, part))
      return false;
    if (part.p_type == PT_LOAD && (part.p_offset > size || part.p_filesz > size - part.p_offset))
      return false;
  }
  return header.e_phnum > 0;
}

// What is wrong with a shared library by its ELF header; empty: the loader would map it.
std::string library_fault(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error) return "is missing";
  if (size == 0) return "is empty";
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return "cannot be read";
  ElfW(Ehdr) header;
  if (!read_at(stream, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "is not a library";
  const bool width = header.e_ident[EI_CLASS] == (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32);
  if (!width || (kMachine != EM_NONE && header.e_machine != kMachine))
    return "is for another processor";
  return is_whole(stream, header, size) ? "" : "is cut off";
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Sorted, the newest version first.
Paths entries(const fs::path& folder, const std::string& name_begins) {
  Paths found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(name_begins)) found.push_back(entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::string content(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A setting of pyvenv.cfg.
std::string setting(const std::string& text, const std::string& key) {
  const auto begin = text.starts_with(key + " =") ? 0 : text.find("\n" + key + " =");
  if (begin == std::string::npos) return "";
  const auto value = text.find('=', begin) + 1;
  return trimmed(text.substr(value, text.find('\n', value) - value));
}

// Where the Python environment in that prefix imports packages from.
void add_site_folders(const fs::path& prefix, Paths& folders) {
  std::error_code ignored;
  for (const char* lib : {"lib", "lib64"}) {
    if (fs::is_symlink(prefix / lib, ignored)) continue;  // lib64 of a virtual environment
    for (const fs::path& python : entries(prefix / lib, "python3")) {
      folders.push_back(python / "site-packages");
      folders.push_back(python / "dist-packages");
    }
  }
  if (prefix == "/usr") add_site_folders("/usr/local", folders);
  const std::string environment = content(prefix / "pyvenv.cfg");
  const fs::path home = setting(environment, "home");
  if (setting(environment, "include-system-site-packages") == "true" &&
      home.parent_path() != prefix) {
    add_site_folders(home.parent_path(), folders);
  }
}

// Folders ddp_run/ of the installation that own_folder belongs to.
Paths program_folders(const fs::path& own_folder) {
  const fs::path prefix = own_folder.parent_path();
  Paths parents{prefix / "lib", prefix};  // the latter: pip install --target PREFIX
  add_site_folders(prefix, parents);
  Paths found;
  for (const fs::path& parent : parents) {
    if (is_there(parent / "ddp_run")) found.push_back(parent / "ddp_run");
  }
  return found;
}

// "2.15" from "2.15.0+cu132".
std::string minor_version(const std::string& text) {
  const auto end = text.find('.', text.find('.') + 1);
  return end == std::string::npos ? "" : text.substr(0, end);
}

std::string header_number(const std::string& header, const std::string& name) {
  const auto begin = header.find("#define " + name + " ");
  if (begin == std::string::npos) return "";
  const auto value = begin + name.size() + 9;
  return trimmed(header.substr(value, header.find('\n', value) - value));
}

// A wheel has it in version.py, a zip of LibTorch in build-version, others in a header. "": none.
std::string torch_version(const fs::path& torch) {
  const std::string python = content(torch / "version.py");
  constexpr std::string_view kKey = "__version__ = '";
  if (const auto begin = python.find(kKey); begin != std::string::npos)
    return minor_version(python.substr(begin + kKey.size()));
  if (const std::string zip = content(torch / "build-version"); !zip.empty())
    return minor_version(zip);
  const std::string header = content(torch / "include/torch/headeronly/version.h");
  const std::string major = header_number(header, "TORCH_VERSION_MAJOR");
  return major.empty() ? "" : major + "." + header_number(header, "TORCH_VERSION_MINOR");
}

Paths torch_folders(const TorchPlaces& places, const Paths& program_folders) {
  if (!places.torch_root.empty()) return {places.torch_root, fs::path(places.torch_root) / "torch"};
  Paths parents;
  for (const fs::path& folder : program_folders) parents.push_back(folder.parent_path());
  add_site_folders(fs::path(places.own_folder).parent_path(), parents);
  parents.insert(parents.end(), places.python_path.begin(), places.python_path.end());
  for (const std::string& prefix : places.prefixes) add_site_folders(prefix, parents);
  for (fs::path& parent : parents) parent /= "torch";
  return parents;
}

struct Choice {
  fs::path program;
  std::string version;  // of torch
};

// The newest first.
std::vector<Choice> choices(const std::string& name, const Paths& folders) {
  std::vector<Choice> found;
  constexpr std::string_view kBegin = "torch-";
  for (const fs::path& folder : folders) {
    for (const fs::path& entry : entries(folder, std::string(kBegin))) {
      if (is_there(entry / name))
        found.push_back({entry / name, entry.filename().string().substr(kBegin.size())});
    }
  }
  return found;
}

// RUNPATH is $ORIGIN/../../torch/lib; pyarrow is what the module for object stores is linked with.
std::string library_folders(const fs::path& torch, const fs::path& program) {
  std::error_code ignored;
  if (fs::equivalent(program.parent_path() / "../../torch", torch, ignored)) return "";
  const fs::path arrow = torch.parent_path() / "pyarrow";
  return (torch / "lib").string() + (is_there(arrow) ? ":" + arrow.string() : "");
}

// Checks the libraries that the programs are linked with, before the loader fails on them.
std::string damage(const fs::path& torch) {
  for (const char* library : {"lib/libtorch_cpu.so", "lib/libc10.so"}) {
    if (const std::string fault = library_fault(torch / library); !fault.empty())
      return fmt::format("{}/{} {}", torch.string(), library, fault);
  }
  return "";
}

struct Unfit {
  std::string what;  // empty: there was no torch
  std::string pip_option;
};

std::string why_none(const std::string& name, const TorchPlaces& places,
                     const std::vector<Choice>& programs, const Unfit& unfit) {
  std::string versions;
  for (const Choice& choice : programs)
    versions += (versions.empty() ? "" : " or ") + choice.version;
  const std::string remedy =
      fmt::format("pip install {}'torch=={}.*', or set TORCH_ROOT to the folder of such a torch",
                  unfit.pip_option, programs.front().version);
  if (!unfit.what.empty())
    return fmt::format("this {} needs torch {}, and {}; {}", name, versions, unfit.what, remedy);
  if (!places.torch_root.empty())
    return fmt::format("TORCH_ROOT={} holds no lib/libtorch_cpu.so; this {} needs torch {}",
                       places.torch_root, name, versions);
  return fmt::format("this {} needs torch {}, and no torch was found; {}", name, versions, remedy);
}

std::vector<std::string> split(const char* list) {
  auto parts = split_list(list ? list : "", ':');
  std::erase(parts, "");
  return parts;
}

}  // namespace

TorchPlaces TorchPlaces::of_this_process() {
  TorchPlaces places;
  std::error_code ignored;
  places.own_folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  if (const char* root = std::getenv("TORCH_ROOT")) places.torch_root = root;
  places.python_path = split(std::getenv("PYTHONPATH"));
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* prefix = std::getenv(name);
    if (prefix && *prefix) places.prefixes.emplace_back(prefix);
  }
  for (const std::string& folder : split(std::getenv("PATH"))) {
    if (!is_there(fs::path(folder) / "python3")) continue;
    places.prefixes.push_back(fs::path(folder).parent_path());
    break;
  }
  if (const char* home = std::getenv("HOME"))
    places.prefixes.push_back(std::string(home) + "/.local");
  return places;
}

std::optional<TorchProgram> find_torch_program(const std::string& name, const TorchPlaces& places) {
  const Paths folders = program_folders(places.own_folder);
  const std::vector<Choice> programs = choices(name, folders);
  if (programs.empty()) return std::nullopt;
  Unfit unfit;  // the first
  for (const fs::path& torch : torch_folders(places, folders)) {
    if (!is_there(torch / "lib/libtorch_cpu.so")) continue;
    const std::string version = torch_version(torch);
    const auto fits = std::find_if(programs.begin(), programs.end(),
                                   [&](const Choice& choice) { return choice.version == version; });
    const std::string fault = fits == programs.end() ? "" : damage(torch);
    if (fits != programs.end() && fault.empty())
      return TorchProgram{fits->program, library_folders(torch, fits->program), ""};
    if (!unfit.what.empty()) continue;
    unfit = !fault.empty()    ? Unfit{fault, "--force-reinstall --no-deps "}
            : version.empty() ? Unfit{torch.string() + " does not say its version", ""}
                              : Unfit{fmt::format("{} is {}", torch.string(), version), ""};
  }
  return TorchProgram{"", "", why_none(name, places, programs, unfit)};
}

}  // namespace ddp::launch
