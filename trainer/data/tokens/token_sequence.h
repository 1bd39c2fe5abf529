// The interface to tokens by position, wherever they are stored.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ddp::train {

/// Immutable; every member may be called by several threads at a time.
class TokenSequence {
 public:
  virtual ~TokenSequence() = default;

  virtual int64_t size() const = 0;
  /// Copies tokens [first, first + out.size()), all of them below size().
  virtual void copy(int64_t first, std::span<int64_t> out) const = 0;
  /// Equal for equal tokens and tokenizers, independent of file names.
  virtual const std::string& fingerprint() const = 0;
};

}  // namespace ddp::train
