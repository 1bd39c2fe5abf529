#include "trainer/app/prediction_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace ddp::train {
namespace {

char separator_of(const std::string& path) {
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return 0;
  return path.ends_with(".tsv") ? '\t' : ',';
}

/// RFC 4180: quotes where the field has a separator, a quote or a line end.
std::string quoted_field(const std::string& text, char separator) {
  if (text.find_first_of(std::string("\"\r\n") + separator) == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

const TableCell& no_value() {
  static const TableCell null{"null", /*is_json=*/true};
  return null;
}

TableCell number(double value) {
  return std::isfinite(value) ? TableCell{fmt::to_string(value), /*is_json=*/true} : no_value();
}

std::string separated_row(const std::vector<TableCell>& cells, char separator) {
  std::string row;
  for (const TableCell& cell : cells) {
    const bool empty = cell.is_json && cell.text == "null";
    row += (empty ? "" : quoted_field(cell.text, separator)) + separator;
  }
  row.back() = '\n';
  return row;
}

std::string json_row(const std::vector<std::string>& names, const std::vector<TableCell>& cells) {
  nlohmann::ordered_json row;
  for (std::size_t i = 0; i < names.size(); ++i) {
    row[names[i]] = cells[i].is_json ? nlohmann::ordered_json::parse(cells[i].text)
                                     : nlohmann::ordered_json(cells[i].text);
  }
  return row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// The input's, and those of its answers.
std::vector<std::string> answer_columns(const Predictor& predictor) {
  std::vector<std::string> names = {"input"};
  if (predictor.problem_type() == ProblemType::kRegression) {
    names.emplace_back("value");
    return names;
  }
  const bool several = predictor.problem_type() == ProblemType::kMultiLabel;
  names.emplace_back(several ? "labels" : "label");
  if (!several) names.emplace_back("probability");
  for (const std::string& label : predictor.labels()) names.push_back("probability of " + label);
  return names;
}

void append_answers(std::vector<TableCell>& cells, const Prediction& prediction, ProblemType type) {
  if (type == ProblemType::kMultiLabel)
    cells.push_back({nlohmann::json(prediction.labels).dump(), /*is_json=*/true});
  if (type == ProblemType::kSingleLabel) {
    cells.push_back({prediction.label});
    cells.push_back(number(prediction.probability));
  }
  for (const auto& [label, value] : prediction.answers) cells.push_back(number(value));
}

}  // namespace

PredictionFile::PredictionFile(const std::string& path, const Predictor& predictor)
    : file_(path),
      separator_(separator_of(path)),
      type_(predictor.problem_type()),
      names_(answer_columns(predictor)),
      answers_(names_.size() - 1) {
  names_.emplace_back("error");
  for (std::string name : predictor.columns()) {
    while (std::find(names_.begin(), names_.end(), name) != names_.end()) name = "input." + name;
    names_.push_back(std::move(name));
  }
  if (separator_ == 0) return;
  std::vector<TableCell> header;
  for (const std::string& name : names_) header.push_back({name});
  write_row(header);
}

void PredictionFile::write(const Prediction& prediction) {
  const bool answered = prediction.problem.empty();
  std::vector<TableCell> cells = {{prediction.input}};
  if (answered) append_answers(cells, prediction, type_);
  cells.resize(1 + answers_, no_value());
  cells.push_back(answered ? no_value() : TableCell{prediction.problem});
  cells.insert(cells.end(), prediction.cells.begin(), prediction.cells.end());
  write_row(cells);
}

void PredictionFile::write_row(const std::vector<TableCell>& cells) {
  const std::string row =
      separator_ == 0 ? json_row(names_, cells) : separated_row(cells, separator_);
  file_.write(row.data(), row.size());
}

}  // namespace ddp::train
