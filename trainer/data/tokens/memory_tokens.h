// Tokens of a text small enough to be tokenized at each start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/tokens/token_sequence.h"

namespace ddp::train {

class MemoryTokens : public TokenSequence {
 public:
  MemoryTokens(std::vector<int32_t> tokens, std::string fingerprint)
      : tokens_(std::move(tokens)), fingerprint_(std::move(fingerprint)) {}

  int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }
  void copy(int64_t first, std::span<int64_t> out) const override {
    std::copy_n(tokens_.begin() + first, out.size(), out.begin());
  }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  std::vector<int32_t> tokens_;
  std::string fingerprint_;
};

}  // namespace ddp::train
