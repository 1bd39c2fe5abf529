// Memory shared by processes of one machine. It has no name in any file system, so nothing is left
// behind however its processes end. Does not use LibTorch.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp::train {

class SharedSegment {
 public:
  /// What another process needs to find a segment and to verify that it is the right one.
  struct Offer {
    pid_t process = 0;
    int file = -1;
    std::array<uint64_t, 2> nonce{};

    /// One line; of() returns nullopt for "" and any other text.
    std::string text() const;
    static std::optional<Offer> of(const std::string& text);
  };

  /// Creates a segment of `bytes` zeros with every page allocated, so that writes never fail later.
  /// Returns nullopt if the system has no such memory.
  static std::optional<SharedSegment> create(std::size_t bytes);
  /// Opens the segment of another process, or of this one, of the same size. Returns nullopt if it
  /// is not accessible, is not the offered one, or might be truncated.
  static std::optional<SharedSegment> open(const Offer& offer, std::size_t bytes);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  /// Page-aligned.
  std::byte* data() const { return mapped_ + kHeaderBytes; }
  /// The offer of a created segment, until withdraw().
  const Offer& offer() const { return offer_; }
  /// Prevents further open() calls; existing mappings stay valid.
  void withdraw();

 private:
  static constexpr std::size_t kHeaderBytes = 4096;
  struct Header;
  SharedSegment() = default;
  static std::optional<SharedSegment> mapped(int file, std::size_t bytes);

  std::byte* mapped_ = nullptr;
  std::size_t bytes_ = 0;
  Offer offer_;
};

}  // namespace ddp::train
