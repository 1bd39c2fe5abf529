#include "trainer/snapshot/ram_snapshots.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/descriptor.h"
#include "trainer/runtime/files/xxh3.h"
#include "trainer/runtime/log/message.h"
#include "trainer/snapshot/shard_file.h"

namespace ddp::train {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLength = sizeof(uint64_t);
constexpr std::size_t kSpare = 65536;  // for counters that grow, and the guard's history

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::string name_in_memory(const std::string& snapshot_path) {
  constexpr std::size_t kDigits = 16;
  return "snapshot-" + xxh3_hex(snapshot_path.data(), snapshot_path.size()).substr(0, kDigits);
}

std::vector<std::string> files_in_memory(const std::string& folder,
                                         const std::string& snapshot_path) {
  const std::string prefix = name_in_memory(snapshot_path) + ".";
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) files.push_back(it->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Nothing for a file that is incomplete.
std::optional<ShardId> shard_in(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    file.verify_header();
    return shard_id(file, path);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

[[noreturn]] void cannot_reserve(const std::string& path, std::size_t bytes, int error) {
  throw RunError(fmt::format("cannot reserve {} for {}: {}", size_text(static_cast<double>(bytes)),
                             path, std::strerror(error)));
}

}  // namespace

/// A mapped file: the front of a safetensors file, padded to a fixed size, then the data.
struct RamSnapshots::Slot {
  Slot(const std::string& path, const NamedTensors& like, std::size_t front) : front_size(front) {
    size = front_size + StateBuffer::bytes_of(like);
    const Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd < 0) cannot_reserve(path, size, errno);
    int error = ::ftruncate(fd, static_cast<off_t>(size)) == 0
                    ? ::posix_fallocate(fd, 0, static_cast<off_t>(size))  // or SIGBUS later
                    : errno;
    void* mapped =
        error == 0 ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (error == 0 && mapped == MAP_FAILED) error = errno;
    if (error != 0) {
      ::unlink(path.c_str());
      cannot_reserve(path, size, error);
    }
    memory = static_cast<std::byte*>(mapped);
    buffer = std::make_unique<StateBuffer>(like, memory + front_size);
  }
  ~Slot() {
    buffer.reset();  // it may have locked the pages
    ::munmap(memory, size);
  }

  std::size_t front_size;
  std::size_t size = 0;
  std::byte* memory = nullptr;
  std::unique_ptr<StateBuffer> buffer;
};

std::vector<std::string> ram_snapshot_files(const std::string& folder,
                                            const std::string& snapshot_path,
                                            const std::optional<ShardRank>& shard) {
  if (folder.empty()) return {};
  const std::string name =
      name_in_memory(snapshot_path) +
      (shard ? fmt::format(".{}-of-{}", shard->rank, shard->ranks) : std::string());
  return {fmt::format("{}/{}.0", folder, name), fmt::format("{}/{}.1", folder, name)};
}

std::vector<std::vector<std::string>> ram_snapshot_copies(const std::string& folder,
                                                          const std::string& snapshot_path) {
  if (folder.empty()) return {};
  std::vector<std::vector<std::string>> copies;
  std::map<std::tuple<std::string, int64_t, int64_t, int>, std::map<int, std::string>> saves;
  const auto single = ram_snapshot_files(folder, snapshot_path);
  for (const auto& path : files_in_memory(folder, snapshot_path)) {
    if (std::find(single.begin(), single.end(), path) != single.end()) {
      copies.push_back({path});
    } else if (const auto id = shard_in(path)) {
      saves[{id->run_id, id->attempt, id->step, id->ranks}][id->rank] = path;
    }
  }
  for (const auto& [save, files] : saves) {
    if (static_cast<int>(files.size()) != std::get<3>(save)) continue;
    auto& shards = copies.emplace_back();
    for (const auto& [rank, file] : files) shards.push_back(file);
  }
  return copies;
}

RamSnapshots::RamSnapshots(const std::string& folder, const std::string& snapshot_path,
                           const std::string& resumed_from)
    : files_(ram_snapshot_files(folder, snapshot_path)),
      next_(files_.front() == resumed_from ? 1 : 0) {}

RamSnapshots::RamSnapshots(const std::string& folder, const std::string& snapshot_path,
                           const ShardRank& shard, int64_t resumed_step)
    : files_(ram_snapshot_files(folder, snapshot_path, shard)) {
  const auto first = shard_in(files_.front());
  if (first && first->step == resumed_step) next_ = 1;
}

RamSnapshots::~RamSnapshots() = default;

// Opened only when about to be overwritten: opening may change the file's size, and until then the
// other one is the only complete copy.
RamSnapshots::Slot& RamSnapshots::slot_for(const Metadata& metadata, const NamedTensors& tensors) {
  auto& slot = slots_[next_];
  if (slot) return *slot;
  constexpr std::size_t kPerTensor = 256;  // its entry in the header, and its digest
  std::size_t front = kSpare + kPerTensor * tensors.size();
  for (const auto& [key, value] : metadata) front += 2 * (key.size() + value.size());
  for (const auto& [name, tensor] : tensors) front += 2 * name.size();
  slot = std::make_unique<Slot>(files_[next_], tensors, whole_pages(front));
  return *slot;
}

void RamSnapshots::reserve(const Metadata& metadata, const NamedTensors& tensors) {
  slot_for(metadata, tensors);
}

// The length is cleared first and restored last: in between the file is not a valid snapshot.
void RamSnapshots::begin(const Metadata& metadata, const NamedTensors& tensors,
                         const ReadyEvent& ready) {
  Slot& slot = slot_for(metadata, tensors);
  std::memset(slot.memory, 0, kLength);
  slot.buffer->begin_copy(tensors, ready);
  copied_ = slot.buffer->copied();
}

bool RamSnapshots::finish(const Metadata& metadata, const std::vector<StatePiece>& pieces) {
  Slot& slot = *slots_[next_];
  if (!slot.buffer->finish_copy()) return false;
  if (!first_non_finite(slot.buffer->tensors()).empty()) return false;
  const auto& copied = slot.buffer->tensors();
  const std::string front = safetensors_front(
      metadata, pieces.empty() ? copied : bytes_of_pieces(pieces, copied), slot.front_size);
  if (front.size() != slot.front_size)
    throw std::logic_error("ram snapshot: the header does not fit its place");
  std::memcpy(slot.memory + kLength, front.data() + kLength, front.size() - kLength);
  std::memcpy(slot.memory, front.data(), kLength);
  next_ = 1 - next_;
  return true;
}

void remove_ram_snapshots(const std::string& folder, const std::string& snapshot_path) {
  if (folder.empty()) return;
  for (const auto& file : files_in_memory(folder, snapshot_path)) ::unlink(file.c_str());
}

}  // namespace ddp::train
