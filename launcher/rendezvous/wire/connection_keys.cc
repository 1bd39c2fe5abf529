#include "launcher/rendezvous/wire/connection_keys.h"

#include <nettle/hmac.h>
#include <nettle/memops.h>

#include <array>

namespace ddp::launch {
namespace {

static_assert(kTagSize == SHA256_DIGEST_SIZE);

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

std::string hmac(std::string_view key, std::string_view first, std::string_view second) {
  hmac_sha256_ctx context;
  ::hmac_sha256_set_key(&context, key.size(), bytes_of(key));
  ::hmac_sha256_update(&context, first.size(), bytes_of(first));
  ::hmac_sha256_update(&context, second.size(), bytes_of(second));
  std::array<std::uint8_t, kTagSize> digest;
  ::hmac_sha256_digest(&context, digest.size(), digest.data());
  return {digest.begin(), digest.end()};
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::memeql_sec(a.data(), b.data(), a.size()) != 0;
}

void put_big_endian(std::string& text, std::uint64_t number, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    text += static_cast<char>((number >> static_cast<unsigned>(shift)) & 0xffU);
}

}  // namespace

std::string FrameSeal::next_tag(std::string_view body) {
  std::string head;
  put_big_endian(head, frames_++, 8);
  put_big_endian(head, body.size(), 4);
  return hmac(key_, head, body);
}

bool FrameSeal::accepts(std::string_view body, std::string_view tag) {
  return equal_in_constant_time(next_tag(body), tag);
}

ConnectionKeys::ConnectionKeys(std::string_view token, std::string_view agent_greeting,
                               std::string_view host_greeting)
    : token_(token), greetings_(agent_greeting) {
  greetings_ += host_greeting;
}

// Greetings have a fixed length and purposes end with a zero byte: no two inputs coincide.
std::string ConnectionKeys::derived(std::string_view purpose) const {
  return hmac(token_, std::string(purpose) + '\0', greetings_);
}

std::string ConnectionKeys::proof(From from) const {
  return derived(from == From::kAgent ? "agent proof" : "host proof");
}

bool ConnectionKeys::accepts_proof(From from, std::string_view proof) const {
  return equal_in_constant_time(this->proof(from), proof);
}

FrameSeal ConnectionKeys::seal(From from) const {
  return FrameSeal(derived(from == From::kAgent ? "agent frames" : "host frames"));
}

}  // namespace ddp::launch
