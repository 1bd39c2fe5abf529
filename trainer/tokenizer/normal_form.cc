#include "trainer/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

/// Appends the form of `text`, which is valid UTF-8.
void append_nfc(std::string_view text, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const auto bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(made, &std::free);
  if (bytes < 0) throw std::bad_alloc();  // the only way for valid UTF-8 to fail
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
}

}  // namespace

// Characters below U+0300 never take part in a pending composition.
bool is_surely_nfc(std::string_view text) {
  constexpr unsigned char kLeadOfU0300 = 0xCC;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < kLeadOfU0300; });
}

std::string nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = std::min(first_bad_byte(text), text.size());
    if (valid > 0) append_nfc(text.substr(0, valid), out);
    if (valid < text.size()) out.push_back(text[valid]);
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return out;
}

}  // namespace ddp::train
