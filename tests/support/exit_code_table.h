// The table of exit codes of a README, to be compared with kExitCodeMeanings.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/worker_contract.h"

namespace ddp::test {

inline std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::stringstream parts(row.substr(1));
  for (std::string cell; std::getline(parts, cell, '|');) {
    const auto begin = cell.find_first_not_of(' ');
    const auto end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end + 1 - begin));
  }
  return cells;
}

/// Code -> the other cells of its row, of the table whose head begins with "| <head> |".
inline std::map<std::string, std::vector<std::string>> exit_code_table(const std::string& file,
                                                                       const std::string& head) {
  std::map<std::string, std::vector<std::string>> table;
  std::ifstream text(file);
  bool inside = false;
  for (std::string line; std::getline(text, line);) {
    const bool is_row = !line.empty() && line[0] == '|';
    if (inside && !is_row) break;
    if (inside && line.rfind("|---", 0) != 0) {
      auto cells = cells_of(line);
      const std::string code = cells.at(0);
      cells.erase(cells.begin());
      table[code] = cells;
    }
    inside = inside || line.rfind("| " + head + " |", 0) == 0;
  }
  return table;
}

inline std::string exit_code_name(int code) {
  return code == launch::kExitSignalBase ? "128+N" : std::to_string(code);
}

}  // namespace ddp::test
