// Numbers in JSON that may be NaN or infinite, which JSON cannot represent.
#pragma once

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ddp::train {

/// Finite numbers as numbers, the others as "nan", "inf" and "-inf".
inline nlohmann::json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/// Reads what json_number() wrote. Throws nlohmann::json::exception on anything else.
inline double number_from_json(const nlohmann::json& json) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return kInfinity;
  return json == "-inf" ? -kInfinity : json.get<double>();
}

}  // namespace ddp::train
