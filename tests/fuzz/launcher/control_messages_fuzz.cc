// Any frame is parsed as a message or rejected; a message can be forwarded within a frame's size.
#include "launcher/rendezvous/wire/control_messages.h"

#include <cstdint>
#include <string_view>

#include "tests/fuzz/check.h"

using namespace ddp::launch;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = parse_control_message({reinterpret_cast<const char*>(data), size});
  if (!message) return 0;
  const std::string text = to_json_text(*message);
  FUZZ_CHECK(text.size() <= (1 << 20));
  const auto again = parse_control_message(text);
  FUZZ_CHECK(again && again->index() == message->index());
  FUZZ_CHECK(to_json_text(*again) == text);
  return 0;
}
