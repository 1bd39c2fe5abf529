#include "trainer/tensorfile/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/files/descriptor.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/xxh3.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr std::size_t kChecksumDigits = 32;
constexpr std::size_t kMostDimensions = 64;  // as in LibTorch
using Json = nlohmann::ordered_json;

using TakeEntry = std::function<void(const std::string&, const nlohmann::json&)>;

/// Takes the members of a header as they are parsed. Rejects, before it takes memory, what no
/// header contains: deep nesting, long lists, and fractions, which are undefined as lengths.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, const TakeEntry& take) : path_(path), take_(take) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    constexpr int kDepthOfLists = 2;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (event == Event::array_start) length_ = 0;
    if (event == Event::value && depth > kDepthOfLists) ++length_;
    if ((opens && depth > kDepthOfLists) || length_ > kMostDimensions ||
        (event == Event::value && value.is_number_float())) {
      throw RunError(path_ + ": damaged header: not a safetensors file");
    }
    if (event == Event::key && depth == 1) name_ = value.get<std::string>();
    if (event != Event::object_end || depth != 1) return true;
    take_(name_, value);
    return false;  // whenever an object ends, the library goes through all that was kept before it
  }

 private:
  const std::string& path_;
  const TakeEntry& take_;
  std::string name_;
  std::size_t length_ = 0;
};

/// `"name":value,`: an ordered object would compare each name with all before.
void add_member(std::string& members, const std::string& name, const Json& value) {
  members += Json(name).dump() + ":" + value.dump() + ",";
}

std::string object_of(std::string members) {
  if (members.ends_with(',')) members.pop_back();
  return "{" + members + "}";
}

std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::string header_text(const Metadata& metadata, const std::vector<TensorBytes>& tensors,
                        std::size_t capacity) {
  std::string members;
  add_member(members, "__metadata__", metadata);
  std::size_t offset = 0;
  for (const auto& tensor : tensors) {
    add_member(members, tensor.name,
               {{"dtype", tensor.dtype},
                {"shape", tensor.shape},
                {"data_offsets", {offset, offset + tensor.size}}});
    offset += tensor.size;
  }
  std::string text = object_of(std::move(members));
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() + kLengthBytes < capacity) text.resize(capacity - kLengthBytes, ' ');
  return text;
}

// `"<kChecksumKey>":"`
constexpr std::string_view kChecksumNeedle = "\"checksum\":\"";

// Position of the checksum's digits in a header that header_text() wrote. Metadata is an ordered
// map of plain strings at the front; quotes inside values are escaped, so the needle cannot occur
// earlier as part of a value.
std::optional<std::size_t> find_checksum(std::string_view header) {
  const auto at = header.find(kChecksumNeedle);
  if (at == std::string_view::npos) return std::nullopt;
  const auto digits = at + kChecksumNeedle.size();
  if (digits + kChecksumDigits > header.size()) return std::nullopt;
  return digits;
}

}  // namespace

std::size_t element_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

std::optional<std::size_t> bytes_of_shape(const std::vector<int64_t>& shape,
                                          std::string_view dtype) {
  std::size_t bytes = element_bytes(dtype);
  if (bytes == 0) return std::nullopt;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(dim), &bytes))
      return std::nullopt;
  }
  return bytes;
}

std::string safetensors_front(Metadata metadata, const std::vector<TensorBytes>& tensors,
                              std::size_t capacity) {
  std::string digests;
  for (const auto& tensor : tensors)
    add_member(digests, tensor.name, xxh3_hex(tensor.data, tensor.size));
  metadata[kDigestsKey] = object_of(std::move(digests));
  metadata[kChecksumKey] = std::string(kChecksumDigits, '0');
  const std::string header = header_text(metadata, tensors, capacity);
  const uint64_t length = header.size();
  std::string front(reinterpret_cast<const char*>(&length), sizeof length);
  front += header;
  const auto digits = find_checksum(header);
  if (!digits) throw std::logic_error("safetensors: no place for the checksum");
  return front.replace(kLengthBytes + *digits, kChecksumDigits,
                       xxh3_hex(front.data(), front.size()));
}

void publish_safetensors(const std::string& path, const std::string& keep_previous_as,
                         Metadata metadata, const std::vector<TensorBytes>& tensors,
                         const PublishObserver& at, const PublishCheck& check) {
  const std::string front = safetensors_front(std::move(metadata), tensors);
  AtomicFile file(path);
  file.write(front.data(), front.size());
  at(PublishPhase::kWriting);
  for (const auto& tensor : tensors) file.write(tensor.data, tensor.size);
  file.sync();
  at(PublishPhase::kBeforeRename);
  const SafetensorsFile written(file.temporary());
  file.commit(keep_previous_as, [&] { check(written); });
  at(PublishPhase::kPublished);
}

bool begins_as_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t length = 0;
  char brace = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length).get(brace);
  return file && length <= kMaxHeaderBytes && brace == '{';
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  map_file();
  try {
    parse_header();
  } catch (...) {
    ::munmap(const_cast<std::byte*>(mapping_), size_);
    throw;
  }
}

// If the system refuses access, the content is unknown: never treat that as damage.
void SafetensorsFile::map_file() {
  const auto refused = [this] { return UnreadableError(path_, errno); };
  const Descriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd < 0) throw refused();
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw refused();
  if (!S_ISREG(info.st_mode)) throw UserError(path_ + ": not a regular file; give a snapshot");
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ <= kLengthBytes) {
    throw RunError(path_ + ": not a snapshot: " + std::to_string(size_) + " bytes");
  }
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED) throw refused();
  mapping_ = static_cast<const std::byte*>(mapped);
}

// Otherwise an unreadable sector would end the process with SIGBUS on first use.
void SafetensorsFile::require_readable(const std::byte* begin, std::size_t bytes) const {
#ifdef MADV_POPULATE_READ
  const std::size_t before = static_cast<std::size_t>(begin - mapping_) % page_size();
  if (::madvise(const_cast<std::byte*>(begin - before), before + bytes, MADV_POPULATE_READ) == 0)
    return;
  if (errno == EFAULT || errno == EIO || errno == EHWPOISON)
    throw RunError(path_ + ": read error: the file or the disk is damaged");
#endif
}

SafetensorsFile::~SafetensorsFile() { ::munmap(const_cast<std::byte*>(mapping_), size_); }

void SafetensorsFile::parse_header() {
  const std::string_view begin(reinterpret_cast<const char*>(mapping_), 4);
  if (begin == "PK\3\4" || begin == "\x80\2\x8a\n") {
    throw UserError(
        path_ +
        ": is a file of PyTorch, not a snapshot of trainer; turn its weights into a folder "
        "for init_from with scripts/convert_checkpoint.py, and give "
        "trainer_config.snapshot_path another name");
  }
  uint64_t length = 0;
  require_readable(mapping_, sizeof length);
  std::memcpy(&length, mapping_, sizeof length);
  if (length > kMaxHeaderBytes || length > size_ - kLengthBytes) {
    throw RunError(path_ + ": truncated or not a safetensors file: header length " +
                   std::to_string(length) + ", file size " + std::to_string(size_));
  }
  header_size_ = static_cast<std::size_t>(length);
  require_readable(mapping_, kLengthBytes + header_size_);
  const auto* text = reinterpret_cast<const char*>(mapping_ + kLengthBytes);
  const TakeEntry take = [this](const std::string& name, const nlohmann::json& entry) {
    name == "__metadata__" ? take_metadata(entry) : take_tensor(name, entry);
  };
  try {
    const auto rest = nlohmann::json::parse(text, text + header_size_, HeaderReader(path_, take));
    if (!rest.is_object() || !rest.empty())
      throw RunError(path_ + ": damaged header: not a JSON object of tensors");
  } catch (const nlohmann::json::exception& error) {
    throw RunError(path_ + ": damaged header: " + plain_json_error(error.what()));
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const auto& a, const auto& b) { return a.data < b.data; });
  for (const TensorBytes& tensor : tensors_) {
    if (!by_name_.emplace(tensor.name, &tensor).second)
      throw RunError(path_ + ": damaged header: two tensors are called " + shown(tensor.name));
  }
}

void SafetensorsFile::take_metadata(const nlohmann::json& entry) {
  metadata_ = entry.get<Metadata>();
  for (const auto& [key, value] : metadata_) {
    if (nests_too_deeply(value)) {
      throw RunError(path_ + ": " + shown(key) +
                     " in its metadata nests too deeply: the file is damaged");
    }
  }
}

void SafetensorsFile::take_tensor(const std::string& name, const nlohmann::json& entry) {
  const std::size_t data_size = size_ - kLengthBytes - header_size_;
  TensorBytes tensor{name, entry.at("dtype").get<std::string>(),
                     entry.at("shape").get<std::vector<int64_t>>()};
  const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_size ||
      bytes_of_shape(tensor.shape, tensor.dtype) != offsets[1] - offsets[0]) {
    throw RunError(path_ + ": tensor " + shown(name) +
                   " lies outside the file: truncated or damaged");
  }
  tensor.data = mapping_ + kLengthBytes + header_size_ + offsets[0];
  tensor.size = offsets[1] - offsets[0];
  tensors_.push_back(std::move(tensor));
}

void drop_pages(const TensorBytes& tensor) {
  const std::uintptr_t page = page_size();
  const auto begin = (reinterpret_cast<std::uintptr_t>(tensor.data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.size) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const TensorBytes* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const std::string& SafetensorsFile::require_metadata(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end())
    throw RunError(path_ + ": no '" + key + "' in its metadata: not a trainer snapshot");
  return found->second;
}

std::string SafetensorsFile::front_without_checksum() const {
  std::string front(reinterpret_cast<const char*>(mapping_), kLengthBytes + header_size_);
  const auto at = find_checksum(std::string_view(front).substr(kLengthBytes));
  if (!at) throw RunError(path_ + ": malformed checksum");
  return front.replace(kLengthBytes + *at, kChecksumDigits, kChecksumDigits, '0');
}

void SafetensorsFile::verify_checksum() const {
  require_readable(mapping_, kLengthBytes + header_size_);
  verify_header();
  verify_digests();
}

void SafetensorsFile::verify_header() const {
  const std::string& stored = require_metadata(kChecksumKey);
  const std::string front = front_without_checksum();
  if (xxh3_hex(front.data(), front.size()) != stored)
    throw RunError(path_ + ": header checksum mismatch: the file is damaged");
}

// The header is known to be right here.
void SafetensorsFile::verify_digests() const {
  const auto digests = nlohmann::json::parse(require_metadata(kDigestsKey), nullptr, false);
  const std::byte* expected = mapping_ + kLengthBytes + header_size_;
  for (const auto& tensor : tensors_) {
    const bool next = tensor.data == expected || tensor.size == 0;
    if (tensor.size > 0) require_readable(tensor.data, tensor.size);
    if (!next || !digests.is_object() || !digests.contains(tensor.name) ||
        digests[tensor.name] != xxh3_hex(tensor.data, tensor.size)) {
      throw RunError(path_ + ": the checksum of tensor " + shown(tensor.name) +
                     " does not match: the file is damaged");
    }
    expected += tensor.size;
    drop_pages(tensor);  // or the memory of a start would hold the whole file
  }
  if (expected != mapping_ + size_) throw RunError(path_ + ": extra bytes after the last tensor");
}

}  // namespace ddp::train
