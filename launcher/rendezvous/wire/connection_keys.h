// Mutual authentication of two connected agents, and of the frames between them: HMAC-SHA256 under
// the job's token and under keys derived from it. docs/wire-protocol.md has the formulas. Without a
// token an empty one is used: then anybody can compute them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::launch {

inline constexpr std::size_t kTagSize = 32;

/// Authenticates the frames of one direction: a tag covers its frame's number and length, so that
/// frames cannot be altered, reordered, repeated, left out or sent back.
class FrameSeal {
 public:
  explicit FrameSeal(std::string key = {}) : key_(std::move(key)) {}
  /// Returns the next frame's tag.
  std::string next_tag(std::string_view body);
  /// Whether `tag` is the next frame's. Compares in constant time.
  bool accepts(std::string_view body, std::string_view tag);

 private:
  std::string key_;
  std::uint64_t frames_ = 0;
};

/// The keys of one connection, derived from both ends' greetings, sent in clear with a nonce.
class ConnectionKeys {
 public:
  enum class From { kAgent, kHost };

  ConnectionKeys(std::string_view token, std::string_view agent_greeting,
                 std::string_view host_greeting);
  /// Returns the proof that `from` knows the token.
  std::string proof(From from) const;
  bool accepts_proof(From from, std::string_view proof) const;
  FrameSeal seal(From from) const;

 private:
  std::string derived(std::string_view purpose) const;

  std::string token_;
  std::string greetings_;
};

}  // namespace ddp::launch
