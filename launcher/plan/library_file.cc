#include "launcher/plan/library_file.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>

namespace ddp::launch {
namespace {

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

}  // namespace

std::string library_fault(const std::filesystem::path& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
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

}  // namespace ddp::launch
