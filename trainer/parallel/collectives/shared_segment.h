// Memory that processes of one machine share. It has no name in any file system: whatever way its
// processes end, nothing is left behind. No LibTorch in it.
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
  /// How another process finds a segment, and knows it for the one that was meant.
  struct Offer {
    pid_t process = 0;
    int file = -1;
    std::array<uint64_t, 2> nonce{};

    /// One line; of() returns nullopt for "" and any other text.
    std::string text() const;
    static std::optional<Offer> of(const std::string& text);
  };

  /// `bytes` of zeros of which every page is there: writing to them never fails later. None where
  /// the system gives no such memory.
  static std::optional<SharedSegment> create(std::size_t bytes);
  /// The segment of another process, or of this one, of the same size. None where it cannot be
  /// seen, is not the offered one, or might become shorter.
  static std::optional<SharedSegment> open(const Offer& offer, std::size_t bytes);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  /// Aligned to pages.
  std::byte* data() const { return mapped_ + kHeaderBytes; }
  /// Of a created segment, until withdraw().
  const Offer& offer() const { return offer_; }
  /// Nobody else can open it from now on; those who have keep it.
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
