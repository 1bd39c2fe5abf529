#include "trainer/tokenizer/bounded_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {

using Json = nlohmann::json;

Json parse_bounded_json(std::string_view text, const std::string& name) {
  constexpr int kDeepest = 16;
  const auto within_bounds = [&name](int depth, Json::parse_event_t event, const Json&) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth > kDeepest)
      throw UserError(name + ": is nested too deeply for a tokenizer file; is it the right file?");
    return true;
  };
  try {
    return Json::parse(text, within_bounds);
  } catch (const Json::parse_error& error) {
    throw UserError(name + ": is incomplete or malformed JSON (at byte " +
                    std::to_string(std::min(error.byte, text.size())) + " of " +
                    std::to_string(text.size()) + "); is it truncated?");
  } catch (const Json::exception& error) {
    throw UserError(name + ": " + error.what());
  }
}

std::string quoted_part(std::string_view text) { return fmt::format("'{}'", shown(text)); }

}  // namespace ddp::train
