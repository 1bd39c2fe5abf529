// Files of multiple-choice questions, presented to a language model as in EleutherAI's
// lm-evaluation-harness (lm-eval): HellaSwag's and ARC's rows of JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

struct ChoiceItem {
  int64_t line = 0;  ///< In the file, from 1.
  std::string context;
  std::vector<std::string> choices;  ///< Each follows the context and a space.
  std::size_t answer = 0;            ///< The right one.
};

struct ChoiceSuite {
  std::string path;
  std::string layout;  ///< "hellaswag" or "arc"
  std::vector<ChoiceItem> items;
};

/// A row with `endings` is one of HellaSwag (activity_label, ctx_a, ctx_b, endings, label), one
/// with `question` and `answerKey` one of ARC, with the choices next to the question, as
/// transformers' datasets have them, or in it, as the authors' files do. Throws UserError with
/// file, line and reason.
ChoiceSuite read_choice_suite(const std::string& path);

/// Preprocesses a text of HellaSwag as lm-eval does: removes WikiHow's brackets.
std::string without_wikihow_marks(std::string text);

}  // namespace ddp::train
