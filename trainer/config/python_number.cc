#include "trainer/config/python_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "trainer/config/yaml_text.h"

namespace ddp::train {
namespace {

constexpr std::size_t kMostDigits = 4300;  // Python's own limit of decimal digits

/// The zeros of Unicode's decimal digits; nine more follow each.
constexpr std::array<char32_t, 65> kZeros = {
    0x660,   0x6f0,   0x7c0,   0x966,   0x9e6,   0xa66,   0xae6,   0xb66,   0xbe6,   0xc66,
    0xce6,   0xd66,   0xde6,   0xe50,   0xed0,   0xf20,   0x1040,  0x1090,  0x17e0,  0x1810,
    0x1946,  0x19d0,  0x1a80,  0x1a90,  0x1b50,  0x1bb0,  0x1c40,  0x1c50,  0xa620,  0xa8d0,
    0xa900,  0xa9d0,  0xa9f0,  0xaa50,  0xabf0,  0xff10,  0x104a0, 0x10d30, 0x11066, 0x110f0,
    0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950,
    0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec,
    0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

/// Digits of other scripts become 0 to 9, spaces ' ', anything else beyond ASCII '?'.
std::string as_ascii(std::string_view raw) {
  const bool plain = std::all_of(raw.begin(), raw.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  std::string out;
  for (const char32_t c : plain ? std::u32string(raw.begin(), raw.end()) : utf8_characters(raw)) {
    const auto* const after = std::upper_bound(kZeros.begin(), kZeros.end(), c);
    if (is_python_space(c)) {
      out += ' ';
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (after != kZeros.begin() && c - *(after - 1) < 10) {
      out += static_cast<char>('0' + (c - *(after - 1)));
    } else {
      out += '?';
    }
  }
  const std::size_t begin = out.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return out.substr(begin, out.find_last_not_of(' ') - begin + 1);
}

bool take_sign(std::string& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  return negative;
}

/// The value of a digit, or 99.
unsigned digit_value(char c) {
  if (is_digit(c)) return static_cast<unsigned>(c - '0');
  const int low = c | 0x20;
  return low >= 'a' && low <= 'z' ? static_cast<unsigned>(low - 'a') + 10 : 99;
}

/// 0x and the like, in front of the digits; an underscore may follow it.
void drop_prefix(std::string& text, unsigned base) {
  const char letter = base == 2 ? 'b' : base == 8 ? 'o' : 'x';
  if (base == 10 || text.size() < 3 || text[0] != '0' || (text[1] | 0x20) != letter) return;
  text.erase(0, text[2] == '_' ? 3 : 2);
}

/// Single underscores between digits are taken out; false where one stands elsewhere.
bool drop_underscores(std::string& text, unsigned base) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') continue;
    const bool between = i > 0 && i + 1 < text.size() && digit_value(text[i - 1]) < base &&
                         digit_value(text[i + 1]) < base;
    if (!between) return false;
  }
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  return true;
}

/// Decimal digits, nine to a limb, the lowest first.
class BigNumber {
 public:
  void multiply_add(uint64_t factor, uint64_t addend) {
    uint64_t carry = addend;
    for (uint64_t& limb : limbs_) {
      carry += limb * factor;
      limb = carry % kLimb;
      carry /= kLimb;
    }
    for (; carry > 0; carry /= kLimb) limbs_.push_back(carry % kLimb);
  }

  void add(const BigNumber& other) {
    limbs_.resize(std::max(limbs_.size(), other.limbs_.size()));
    for (std::size_t i = 0; i < other.limbs_.size(); ++i) limbs_[i] += other.limbs_[i];
    multiply_add(1, 0);
  }

  std::string text() const {
    if (limbs_.empty()) return "0";
    std::string out = std::to_string(limbs_.back());
    for (std::size_t i = limbs_.size() - 1; i > 0; --i) out += fmt::format("{:09}", limbs_[i - 1]);
    return out;
  }

 private:
  static constexpr uint64_t kLimb = 1'000'000'000;
  std::vector<uint64_t> limbs_;
};

BigNumber big_number(const std::string& digits) {
  BigNumber number;
  for (const char c : digits) number.multiply_add(10, digit_value(c));
  return number;
}

/// An int from its sign and its decimal digits, which do not begin with a 0.
Node int_node(bool negative, const std::string& digits) {
  const std::string text = (negative && digits != "0" ? "-" : "") + digits;
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? Node::of(value) : Node::big_int(text);
}

std::string int_text(const Node& node) {
  if (node.kind == Kind::kBool) return node.boolean ? "1" : "0";
  return node.text.empty() ? std::to_string(node.integer) : node.text;
}

std::partial_ordering compare_ints(const std::string& a, const std::string& b) {
  const bool a_negative = a.starts_with('-');
  const bool b_negative = b.starts_with('-');
  if (a_negative != b_negative)
    return a_negative ? std::partial_ordering::less : std::partial_ordering::greater;
  const auto by_size = a.size() <=> b.size();
  const auto order = by_size != 0 ? by_size : a.compare(b) <=> 0;
  return a_negative ? 0 <=> order : order;
}

std::partial_ordering compare_int_float(const std::string& a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (std::isinf(b)) return b < 0 ? std::partial_ordering::greater : std::partial_ordering::less;
  const double whole = std::trunc(b);
  const auto order = compare_ints(a, int_text(int_of_float(whole)));
  return order != 0 ? order : 0.0 <=> b - whole;
}

}  // namespace

std::optional<Node> python_int(std::string_view raw, unsigned base) {
  std::string text = as_ascii(raw);
  const bool negative = take_sign(text);
  drop_prefix(text, base);
  if (!drop_underscores(text, base) || text.empty()) return std::nullopt;
  const bool digits =
      std::all_of(text.begin(), text.end(), [base](char c) { return digit_value(c) < base; });
  if (!digits || text.size() > kMostDigits * 4) return std::nullopt;
  if (base == 10 && text.size() > kMostDigits) return std::nullopt;
  text.erase(0, std::min(text.find_first_not_of('0'), text.size() - 1));
  if (base == 10) return int_node(negative, text);
  BigNumber number;
  for (const char c : text) number.multiply_add(base, digit_value(c));
  const std::string decimal = number.text();
  if (decimal.size() > kMostDigits) return std::nullopt;  // Python cannot print it
  return int_node(negative, decimal);
}

std::optional<double> python_float_from(std::string_view raw) {
  std::string text = as_ascii(raw);
  if (!drop_underscores(text, 10)) return std::nullopt;
  const double sign = take_sign(text) ? -1.0 : 1.0;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  if (text == "inf" || text == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text.empty() || !(is_digit(text.front()) || text.front() == '.')) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ptr != text.data() + text.size()) return std::nullopt;
  // from_chars leaves the value alone; strtod knows whether it is too large or too small.
  if (result.ec == std::errc::result_out_of_range) value = std::strtod(text.c_str(), nullptr);
  if (result.ec == std::errc::invalid_argument) return std::nullopt;
  return sign * value;
}

Node int_of_float(double value) {
  const std::string digits = fmt::format("{:.0f}", std::fabs(std::trunc(value)));
  return int_node(std::signbit(value), digits);
}

std::optional<Node> sixty_times(const Node& a, const Node& b) {
  int64_t small = 0;
  const bool fits = a.text.empty() && b.text.empty() &&
                    !__builtin_mul_overflow(a.integer, int64_t{60}, &small) &&
                    !__builtin_add_overflow(small, b.integer, &small);
  if (fits) return Node::of(small);
  if (int_text(a).starts_with('-') || int_text(b).starts_with('-')) return std::nullopt;
  BigNumber sum = big_number(int_text(a));
  sum.multiply_add(60, 0);
  sum.add(big_number(int_text(b)));
  return int_node(false, sum.text());
}

bool is_number(const Node& node) {
  return node.kind == Kind::kBool || node.kind == Kind::kInt || node.kind == Kind::kFloat;
}

std::partial_ordering compare_numbers(const Node& a, const Node& b) {
  const bool a_float = a.kind == Kind::kFloat;
  const bool b_float = b.kind == Kind::kFloat;
  if (a_float && b_float) return a.real <=> b.real;
  if (a_float) return 0 <=> compare_int_float(int_text(b), a.real);
  if (b_float) return compare_int_float(int_text(a), b.real);
  return compare_ints(int_text(a), int_text(b));
}

bool python_equal(const Node& a, const Node& b) {
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.kind != b.kind || a.quoted != b.quoted) return false;
  if (a.kind == Kind::kList) {
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), python_equal);
  }
  if (a.kind != Kind::kMap) return same_value(a, b);
  const auto has_equal = [&b](const Entry& entry) {
    return std::any_of(b.entries.begin(), b.entries.end(), [&entry](const Entry& other) {
      return same_key(entry.key, other.key) && python_equal(entry.value, other.value);
    });
  };
  return a.entries.size() == b.entries.size() &&
         std::all_of(a.entries.begin(), a.entries.end(), has_equal);
}

bool python_less(const Node& a, const Node& b) {
  const bool texts = a.kind == Kind::kString && b.kind == Kind::kString && !a.quoted && !b.quoted;
  if (texts) return a.text < b.text;
  if (a.kind == Kind::kList && b.kind == Kind::kList) {
    const auto [x, y] =
        std::mismatch(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), python_equal);
    return y != b.items.end() && (x == a.items.end() || python_less(*x, *y));
  }
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) < 0;
  const auto name = [](const Node& node) {
    return node.quoted ? std::string_view("QuotedString") : python_type(node);
  };
  throw std::invalid_argument(
      fmt::format("'<' not supported between instances of '{}' and '{}'", name(a), name(b)));
}

}  // namespace ddp::train
