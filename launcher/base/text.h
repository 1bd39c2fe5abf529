// Small things done to texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::launch {

/// Without blanks around it, as Python reads numbers and lists.
std::string trimmed(const std::string& text);
/// nullopt when the text is anything but a whole number that an int holds.
std::optional<int> whole_number(std::string_view text);
/// As CUDA_VISIBLE_DEVICES names a GPU or a part of one: GPU-8932f937, MIG-...
bool is_gpu_uuid(std::string_view text);
/// Foreign text as a terminal may get it: `?` for each control character.
std::string printable(std::string_view text);

}  // namespace ddp::launch
