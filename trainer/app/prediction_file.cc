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

}  // namespace

PredictionFile::PredictionFile(const std::string& path, const std::vector<std::string>& labels,
                               const std::vector<std::string>& table_columns)
    : file_(path),
      separator_(separator_of(path)),
      labels_(labels.size()),
      names_({"input", "label", "probability"}) {
  for (const std::string& label : labels) names_.push_back("probability of " + label);
  names_.emplace_back("error");
  for (std::string name : table_columns) {
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
  cells.push_back(answered ? TableCell{prediction.label} : no_value());
  cells.push_back(answered ? number(prediction.probability) : no_value());
  for (std::size_t i = 0; i < labels_; ++i)
    cells.push_back(answered ? number(prediction.answers[i].second) : no_value());
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
