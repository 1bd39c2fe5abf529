// What the label column of a table holds where a row's label is not one of several classes.
#pragma once

#include <string>
#include <vector>

namespace ddp::train {

/// The labels of a text: a JSON list of names or numbers, else names with `separator` between them;
/// an empty cell has none. Throws UserError with the reason alone.
std::vector<std::string> labels_in_cell(const std::string& cell, const std::string& separator);

/// Throws UserError with the reason alone: not a number that a float holds.
float number_in_cell(const std::string& cell);

}  // namespace ddp::train
