// SHA-256 (FIPS 180-4) of bytes, by OpenSSL's libcrypto.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ddp::train {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& update(const void* data, std::size_t size);
  Sha256& update(std::string_view text) { return update(text.data(), text.size()); }

  /// 64 lower-case hexadecimal digits. Call once, last.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

inline std::string sha256_hex(std::string_view text) { return Sha256().update(text).hex(); }

}  // namespace ddp::train
