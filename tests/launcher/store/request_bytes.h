// The requests of torch's TCPStore as a client sends them.
#pragma once

#include <string>
#include <string_view>

#include "launcher/store/tcp_store_protocol.h"

namespace ddp::launch {

inline std::string encode(const Request& request) {
  std::string out(1, static_cast<char>(request.type));
  std::size_t key = 0, value = 0;
  std::string_view fields = kRequestFields.at(static_cast<std::size_t>(request.type));
  std::size_t rounds = fields.empty() ? 0 : 1;
  if (rounds == 1 && fields[0] == '#') {
    rounds = request.keys.size();
    put_number(out, static_cast<std::uint64_t>(rounds));
    fields.remove_prefix(1);
  }
  for (; rounds > 0; --rounds) {
    for (const char field : fields) {
      if (field == 'k') put_text(out, request.keys.at(key++));
      if (field == 'v') put_text(out, request.values.at(value++));
      if (field == 'i') put_number(out, request.number);
      if (field == 'u') put_number(out, static_cast<std::uint32_t>(request.number));
    }
  }
  return out;
}

}  // namespace ddp::launch
