#include "trainer/data/text/choice_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trainer/data/data_source.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/with_key.h"
#include "trainer/tokenizer/letter_case.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kLayouts =
    "expected a row of HellaSwag (activity_label, ctx_a, ctx_b, endings, label) or of ARC "
    "(question, choices, answerKey)";

[[noreturn]] void refuse_row(const std::string& what) { throw UserError(what); }

const Json& value_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null())
    refuse_row(fmt::format("has no {}; {}", key, kLayouts));
  return *found;
}

std::string text_of(const Json& object, const char* key) {
  const Json& value = value_of(object, key);
  if (!value.is_string()) refuse_row(fmt::format("{} is not a string; write a text", key));
  return value.get<std::string>();
}

std::vector<std::string> texts_of(const Json& list, const char* key) {
  std::vector<std::string> texts;
  for (const Json& text : list) {
    if (!text.is_string() || text.get<std::string>().empty())
      refuse_row(fmt::format("{}: choice {} is not a text", key, texts.size() + 1));
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

/// A number, which HellaSwag's files have and its data sets write as a string.
int64_t label_of(const Json& row) {
  const Json& label = value_of(row, "label");
  if (label.is_number_integer()) return label.get<int64_t>();
  const std::string text = label.is_string() ? label.get<std::string>() : "";
  const bool digits =
      !text.empty() && text.size() < 3 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) {
    refuse_row(
        fmt::format("label is {}, not the number of an ending; a test set without labels "
                    "cannot be scored",
                    label.dump()));
  }
  return std::stoll(text);
}

ChoiceItem hellaswag_item(const Json& row) {
  ChoiceItem item;
  item.context =
      without_wikihow_marks(text_of(row, "activity_label") + ": " + text_of(row, "ctx_a") + " " +
                            capitalized(text_of(row, "ctx_b")));
  for (const std::string& ending : texts_of(value_of(row, "endings"), "endings"))
    item.choices.push_back(without_wikihow_marks(ending));
  const int64_t label = label_of(row);
  if (label < 0 || label >= std::ssize(item.choices)) {
    refuse_row(fmt::format("label is {}, and the endings are 0 to {}", label,
                           std::ssize(item.choices) - 1));
  }
  item.answer = static_cast<std::size_t>(label);
  return item;
}

/// The choices' texts and labels: two lists, or a list of pairs.
std::pair<std::vector<std::string>, std::vector<std::string>> arc_choices(const Json& choices) {
  if (choices.is_object()) {
    return {texts_of(value_of(choices, "text"), "choices.text"),
            texts_of(value_of(choices, "label"), "choices.label")};
  }
  std::pair<std::vector<std::string>, std::vector<std::string>> result;
  if (!choices.is_array()) refuse_row(fmt::format("choices is no list; {}", kLayouts));
  for (const Json& choice : choices) {
    if (!choice.is_object()) refuse_row("a choice is no object with text and label");
    result.first.push_back(text_of(choice, "text"));
    result.second.push_back(text_of(choice, "label"));
  }
  return result;
}

ChoiceItem arc_item(const Json& row) {
  const Json& question = value_of(row, "question");
  const bool nested = question.is_object();
  ChoiceItem item;
  item.context = fmt::format("Question: {}\nAnswer:",
                             nested ? text_of(question, "stem") : text_of(row, "question"));
  auto [texts, labels] = arc_choices(value_of(nested ? question : row, "choices"));
  const std::string key = text_of(row, "answerKey");
  const auto found = std::find(labels.begin(), labels.end(), key);
  if (found == labels.end() || texts.size() != labels.size())
    refuse_row(fmt::format("answerKey is '{}', which is no label of a choice", key));
  item.answer = static_cast<std::size_t>(found - labels.begin());
  item.choices = std::move(texts);
  return item;
}

void add_row(ChoiceSuite& suite, std::string_view source, int64_t line) {
  const auto row = nests_too_deeply(source) ? Json() : Json::parse(source, nullptr, false);
  if (!row.is_object()) refuse_row("is not a JSON object; write one per line");
  const std::string layout = row.contains("endings")     ? "hellaswag"
                             : row.contains("answerKey") ? "arc"
                                                         : "";
  if (layout.empty()) refuse_row(kLayouts);
  if (suite.layout.empty()) suite.layout = layout;
  if (layout != suite.layout)
    refuse_row(fmt::format("is a row of {}, the ones before are of {}; use a file for each", layout,
                           suite.layout));
  ChoiceItem item = layout == "arc" ? arc_item(row) : hellaswag_item(row);
  if (item.choices.size() < 2) refuse_row("has fewer than two choices");
  item.line = line;
  suite.items.push_back(std::move(item));
}

void replace_all(std::string& text, std::string_view old, std::string_view now) {
  std::string result;
  std::size_t from = 0;
  for (std::size_t at = text.find(old); at != std::string::npos; at = text.find(old, from)) {
    result.append(text, from, at - from).append(now);
    from = at + old.size();
  }
  text = result.append(text, from);
}

}  // namespace

std::string without_wikihow_marks(std::string text) {
  constexpr const char* kSpaces = " \t\n\r\f\v";
  text.erase(0, std::min(text.find_first_not_of(kSpaces), text.size()));
  text.erase(text.find_last_not_of(kSpaces) + 1);
  replace_all(text, " [title]", ". ");
  // re.sub(r"\[.*?\]", "", text): what is in brackets, on one line.
  for (std::size_t open = text.find('['); open != std::string::npos;) {
    const std::size_t close = text.find_first_of("]\n", open);
    const bool closed = close != std::string::npos && text[close] == ']';
    if (closed) text.erase(open, close + 1 - open);
    open = text.find('[', closed ? open : open + 1);
  }
  replace_all(text, "  ", " ");
  return text;
}

ChoiceSuite read_choice_suite(const std::string& path) {
  const std::string whole = read_utf8_text("--suite", path);
  ChoiceSuite suite{path, "", {}};
  std::string_view text = whole;
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view source = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (source.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    with_key(fmt::format("--suite: {}:{}", path, line), [&] { add_row(suite, source, line); });
  }
  if (suite.items.empty())
    throw UserError(fmt::format("--suite: {}: has no rows; {}", path, kLayouts));
  return suite;
}

}  // namespace ddp::train
