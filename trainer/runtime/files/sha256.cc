#include "trainer/runtime/files/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace ddp::train {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

namespace {
void check(int ok) {
  if (ok != 1) throw std::runtime_error("libcrypto: SHA-256 failed");
}
}  // namespace

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  check(context_->md != nullptr ? 1 : 0);
  check(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr));
}

Sha256::~Sha256() = default;

Sha256& Sha256::update(const void* data, std::size_t size) {
  check(EVP_DigestUpdate(context_->md, data, size));
  return *this;
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(context_->md, digest.data(), &size));
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(std::size_t{size} * 2);
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4U];
    text += kDigits[digest[i] & 15U];
  }
  return text;
}

}  // namespace ddp::train
