#include "trainer/parallel/collectives/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "trainer/runtime/files/descriptor.h"

namespace ddp::train {
namespace {

constexpr uint64_t kMagic = 0x3174'6e65'6d67'6573;  // "segment1"
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// Asks before: the kernel would end the process by SIGXFSZ.
bool may_write(std::size_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes);
}

/// A file in memory whose pages are all there and whose length stays; negative: there is none.
Descriptor sealed_file(std::size_t bytes) {
  if (!may_write(bytes)) return Descriptor();
  Descriptor file(::memfd_create("ddp-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file < 0) return file;
  int failed = 0;
  do {
    failed = ::fallocate(file, 0, 0, static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0 || ::fcntl(file, F_ADD_SEALS, kSeals) != 0) return Descriptor();
  return file;
}

bool is_sealed(int file, std::size_t bytes) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_size == static_cast<off_t>(bytes) && ::fcntl(file, F_GET_SEALS) >= 0 &&
         (::fcntl(file, F_GET_SEALS) & F_SEAL_SHRINK) != 0;
}

}  // namespace

struct SharedSegment::Header {
  uint64_t magic;
  std::array<uint64_t, 2> nonce;
};

std::string SharedSegment::Offer::text() const {
  std::ostringstream out;
  out << process << ' ' << file << ' ' << nonce[0] << ' ' << nonce[1];
  return out.str();
}

std::optional<SharedSegment::Offer> SharedSegment::Offer::of(const std::string& text) {
  Offer offer;
  std::istringstream in(text);
  if (in >> offer.process >> offer.file >> offer.nonce[0] >> offer.nonce[1] && offer.process > 0 &&
      offer.file >= 0)
    return offer;
  return std::nullopt;
}

std::optional<SharedSegment> SharedSegment::mapped(int file, std::size_t bytes) {
  void* const place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (place == MAP_FAILED) return std::nullopt;
  SharedSegment segment;
  segment.mapped_ = static_cast<std::byte*>(place);
  segment.bytes_ = bytes;
  return segment;
}

std::optional<SharedSegment> SharedSegment::create(std::size_t bytes) {
  Header header{kMagic, {}};
  if (::getrandom(header.nonce.data(), sizeof header.nonce, 0) != sizeof header.nonce)
    return std::nullopt;
  Descriptor file = sealed_file(kHeaderBytes + bytes);
  if (file < 0) return std::nullopt;
  auto segment = mapped(file, kHeaderBytes + bytes);
  if (!segment) return std::nullopt;
  std::memcpy(segment->mapped_, &header, sizeof header);
  segment->offer_ = {::getpid(), file.release(), header.nonce};
  return segment;
}

std::optional<SharedSegment> SharedSegment::open(const Offer& offer, std::size_t bytes) {
  const std::string path =
      "/proc/" + std::to_string(offer.process) + "/fd/" + std::to_string(offer.file);
  // Whatever is there, if it is not the segment: opening a terminal or a pipe must do nothing.
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file < 0) return std::nullopt;
  std::optional<SharedSegment> segment;
  if (is_sealed(file, kHeaderBytes + bytes)) segment = mapped(file, kHeaderBytes + bytes);
  if (!segment) return std::nullopt;
  Header header{};
  std::memcpy(&header, segment->mapped_, sizeof header);
  if (header.magic != kMagic || header.nonce != offer.nonce) return std::nullopt;
  return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)),
      bytes_(other.bytes_),
      offer_(std::exchange(other.offer_, {})) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(bytes_, other.bytes_);
  std::swap(offer_, other.offer_);
  return *this;
}

SharedSegment::~SharedSegment() {
  withdraw();
  if (mapped_ != nullptr) ::munmap(mapped_, bytes_);
}

void SharedSegment::withdraw() {
  if (offer_.file >= 0) ::close(offer_.file);
  offer_ = {};
}

}  // namespace ddp::train
