#include "trainer/tokenizer/bounded_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/json_depth.h"
#include "trainer/runtime/files/json_error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {

namespace {

template <typename Json>
Json parse_bounded(std::string_view text, const std::string& name) {
  constexpr int kDeepest = 17;
  if (nests_too_deeply(text, kDeepest))
    throw UserError(name + ": is nested too deeply for a tokenizer file; is it the right file?");
  try {
    return Json::parse(text);
  } catch (const typename Json::parse_error& error) {
    if (std::string_view(error.what()).find("surrogate") != std::string_view::npos)
      throw UserError(name +
                      ": half a character, an escape such as \\ud83d without its other half, "
                      "ends at byte " +
                      std::to_string(error.byte) + "; remove it");
    throw UserError(name + ": is incomplete or malformed JSON (at byte " +
                    std::to_string(std::min(error.byte, text.size())) + " of " +
                    std::to_string(text.size()) + "); is it truncated?");
  } catch (const typename Json::exception& error) {
    throw UserError(name + ": " + plain_json_error(error.what()));
  }
}

}  // namespace

nlohmann::json parse_bounded_json(std::string_view text, const std::string& name) {
  return parse_bounded<nlohmann::json>(text, name);
}

nlohmann::ordered_json parse_bounded_ordered_json(std::string_view text, const std::string& name) {
  return parse_bounded<nlohmann::ordered_json>(text, name);
}

std::string quoted_part(std::string_view text) { return fmt::format("'{}'", shown(text)); }

}  // namespace ddp::train
