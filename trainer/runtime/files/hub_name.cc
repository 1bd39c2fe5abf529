#include "trainer/runtime/files/hub_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

namespace ddp::train {
namespace {

bool is_hub_word(std::string_view word) {
  const auto letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  return !word.empty() && letter(word.front()) &&
         std::all_of(word.begin(), word.end(),
                     [&](char c) { return letter(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

std::string how_to_fetch_model(const std::string& path) {
  const std::string_view whole = path;
  const std::size_t slash = whole.find('/');
  // A name without an owner, such as gpt2, has no dot; that of a file does.
  const bool has_form = slash == std::string_view::npos
                            ? is_hub_word(whole) && whole.find('.') == std::string_view::npos
                            : is_hub_word(whole.substr(0, slash)) &&
                                  is_hub_word(whole.substr(slash + 1)) && !whole.ends_with(".pt");
  if (!has_form) return "";
  std::error_code ignored;
  // In a folder that is there it is a path with a mistake.
  if (std::filesystem::exists(whole.substr(0, slash), ignored)) return "";
  return fmt::format(
      "{}: no such folder; if it is a model on the Hugging Face Hub, fetch it with hf download {} "
      "--local-dir FOLDER (older: huggingface-cli download), and give that FOLDER",
      path, path);
}

}  // namespace ddp::train
