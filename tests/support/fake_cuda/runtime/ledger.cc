#include "tests/support/fake_cuda/runtime/ledger.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/runtime/memory.h"
#include "tests/support/fake_cuda/runtime/settings.h"

namespace fake_cuda {
namespace {

using Frames = std::vector<void*>;

struct Counter {
  uint64_t calls = 0;
  uint64_t bytes = 0;
};

struct Ledger {
  std::mutex mutex;
  std::map<std::string, Counter> counters;
  std::map<std::string, uint64_t> kernels;
  std::map<std::pair<std::string, Frames>, uint64_t> host_waits;
};

// Never destroyed: worker threads count until the process has ended.
Ledger& ledger() {
  static auto* value = new Ledger;
  return *value;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  const std::string full = status == 0 ? text.get() : name;
  return full.substr(0, full.find('('));
}

Frames frames_of_caller() {
  std::array<void*, 32> frames{};
  const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  constexpr int kOwn = 2;
  return depth > kOwn ? Frames(frames.begin() + kOwn, frames.begin() + depth) : Frames();
}

/// Where the program's file is loaded.
const void* program_base() {
  Dl_info info;
  const auto* headers = reinterpret_cast<const void*>(::getauxval(AT_PHDR));
  return ::dladdr(headers, &info) != 0 ? info.dli_fbase : nullptr;
}

/// "file.cc:12" of the program's frames, by addr2line; nothing for those without debug information.
std::map<void*, std::string> source_lines(const std::set<void*>& frames) {
  const auto* base = static_cast<const char*>(program_base());
  std::vector<void*> own;
  std::string command = "addr2line -s -e /proc/" + std::to_string(::getpid()) + "/exe";
  for (void* frame : frames) {
    Dl_info info;
    if (::dladdr(frame, &info) == 0 || info.dli_fbase != base) continue;
    own.push_back(frame);
    std::array<char, 32> offset{};
    // Before the address to return to: the call itself.
    std::snprintf(offset.data(), offset.size(), " %#tx",
                  static_cast<const char*>(frame) - base - 1);
    command += offset.data();
  }
  std::map<void*, std::string> lines;
  if (own.empty()) return lines;
  FILE* output = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (output == nullptr) return lines;
  std::array<char, 512> text{};
  for (void* frame : own) {
    if (std::fgets(text.data(), static_cast<int>(text.size()), output) == nullptr) break;
    const std::string line(text.data(), std::strcspn(text.data(), "\n ("));
    if (!line.starts_with("??")) lines[frame] = line;
  }
  ::pclose(output);
  return lines;
}

/// The named functions above the CUDA call, innermost first, with their lines where those are
/// known.
std::string call_site(const std::string& what, const Frames& frames,
                      const std::map<void*, std::string>& lines) {
  std::string site = what;
  int shown = 0;
  for (void* const frame : frames) {
    Dl_info info;
    if (shown == 10) break;
    const auto line = lines.find(frame);
    const bool named = ::dladdr(frame, &info) != 0 && info.dli_sname != nullptr;
    if (!named && line == lines.end()) continue;
    const std::string name = named ? demangled(info.dli_sname).substr(0, 90) : "";
    if (name.starts_with("cuda") || name.starts_with("fakecuda")) continue;
    site += " < " + name;
    if (line != lines.end()) site += (named ? " (" : "(") + line->second + ")";
    ++shown;
  }
  return site;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

std::string json(const Counter& counter) {
  return "{\"calls\": " + std::to_string(counter.calls) +
         ", \"bytes\": " + std::to_string(counter.bytes) + "}";
}
std::string json(uint64_t value) { return std::to_string(value); }

template <typename Value>
std::string json(const std::map<std::string, Value>& map) {
  std::string text = "{";
  for (const auto& [name, value] : map) {
    if (text.size() > 1) text += ", ";
    text += quoted(name) + ": " + json(value);
  }
  return text + "}";
}

Counter counter_of(const Ledger& book, const std::string& name) {
  const auto at = book.counters.find(name);
  return at == book.counters.end() ? Counter{} : at->second;
}

/// The counters "<prefix>:<name>" by name.
std::map<std::string, Counter> with_prefix(const Ledger& book, std::string_view prefix) {
  std::map<std::string, Counter> result;
  for (const auto& [name, counter] : book.counters) {
    if (name.starts_with(prefix)) result[name.substr(prefix.size())] = counter;
  }
  return result;
}

std::map<std::string, uint64_t> sync_sites(const Ledger& book) {
  std::set<void*> frames;
  for (const auto& [place, calls] : book.host_waits)
    frames.insert(place.second.begin(), place.second.end());
  const auto lines = source_lines(frames);
  std::map<std::string, uint64_t> result;
  for (const auto& [place, calls] : book.host_waits)
    result[call_site(place.first, place.second, lines)] += calls;
  return result;
}

std::map<std::string, Counter> collectives(const Ledger& book) {
  auto result = with_prefix(book, "nccl:");
  for (const char* name :
       {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "send", "recv"})
    result.try_emplace(name);
  return result;
}

const struct AtExit {
  AtExit() { std::atexit(write_ledger); }
} at_exit;

}  // namespace

void count(const std::string& name, uint64_t bytes) {
  auto& book = ledger();
  const std::lock_guard lock(book.mutex);
  auto& counter = book.counters[name];
  ++counter.calls;
  counter.bytes += bytes;
}

void count_launch(const std::string& name) {
  count("launch");
  count_kernel(name);
}

void count_kernel(const std::string& name) {
  auto& book = ledger();
  const std::lock_guard lock(book.mutex);
  ++book.kernels[name];
}

void count_host_sync(const char* what) {
  count("host_sync");
  const Frames frames = settings().sync_sites ? frames_of_caller() : Frames();
  auto& book = ledger();
  const std::lock_guard lock(book.mutex);
  ++book.host_waits[{what, frames}];
}

void trace(const char* format, ...) {
  if (!settings().trace) return;
  std::array<char, 1024> line{};
  va_list args;
  va_start(args, format);
  std::vsnprintf(line.data(), line.size(), format, args);
  va_end(args);
  std::fprintf(stderr, "fake CUDA[%d] %s\n", ::getpid(), line.data());
}

std::string ledger_json() {
  const MemoryUse memory = device_memory_use();
  const char* rank = std::getenv("RANK");
  auto& book = ledger();
  const std::lock_guard lock(book.mutex);
  std::string text = "{\"pid\": " + std::to_string(::getpid());
  text += ", \"rank\": " + std::to_string(rank == nullptr ? 0 : std::atoi(rank));
  text += ", \"launches\": " + json(counter_of(book, "launch").calls);
  text += ", \"host_syncs\": " + json(counter_of(book, "host_sync").calls);
  text += ", \"sync_sites\": " + json(sync_sites(book));
  for (const char* way : {"h2d", "d2h", "d2d", "pageable"})
    text += std::string(", \"") + way + "\": " + json(counter_of(book, std::string("copy:") + way));
  text += ", \"peak_bytes\": " + json(memory.peak) + ", \"used_bytes\": " + json(memory.used);
  text += ", \"alloc_calls\": " + json(counter_of(book, "cudaMalloc").calls);
  text += ", \"nccl\": " + json(collectives(book));
  text += ", \"missing\": " + json(with_prefix(book, "missing:"));
  text += ", \"kernels\": " + json(book.kernels);
  text += ", \"operators\": " + json(with_prefix(book, "op:"));
  text += ", \"flops\": " + json(with_prefix(book, "flop:"));
  text += ", \"counters\": " + json(book.counters) + "}\n";
  return text;
}

void write_ledger() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (settings().report.empty()) return;
    const std::string text = ledger_json();
    const int file =
        ::open(settings().report.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    // One write: the lines of several processes do not mix.
    if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      std::fprintf(stderr, "fake CUDA: cannot write %s\n", settings().report.c_str());
    if (file >= 0) ::close(file);
  });
}

}  // namespace fake_cuda
