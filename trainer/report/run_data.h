// Reads the records in a run's folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/metrics/metric_sink.h"
#include "trainer/report/pipeline_trace.h"

namespace ddp::train {

/// A curve: values over steps.
struct Series {
  std::vector<int64_t> steps;  ///< Never decreasing.
  std::vector<double> values;  ///< NaN: not a number, or not recorded.

  void add(int64_t step, double value);
  std::size_t size() const { return steps.size(); }
};

/// At most `most` points (at least 4): the first and the last, and of each of (most - 2) / 2 equal
/// stretches of points the least and the greatest; a value that is not finite comes before both.
Series thinned(const Series& series, std::size_t most);

/// Differences of the steps as unsigned LEB128, in base64.
std::string packed_steps(const Series& series);
/// Values as float32, little-endian, in base64.
std::string packed_values(const Series& series);

/// The largest size that all series may have for their sum to be at most `budget`.
std::size_t fair_size(std::vector<std::size_t> sizes, std::size_t budget);

struct RunData {
  std::string name;                                   ///< Its name on the page.
  std::string folder;                                 ///< Absolute.
  std::map<std::string, Series> series;               ///< By "split/value".
  std::vector<int64_t> resumed;                       ///< Steps that an attempt resumed from.
  std::vector<TextRecord> samples;                    ///< The last ones.
  std::map<std::string, ConfusionRecord> confusions;  ///< By split, the last of each.
  PipelineTrace pipeline;  ///< A profiled step; no ranks: none was profiled.
  int64_t records = 0;
  int64_t last_step = 0;
  double first_time = 0.0;  ///< Unix seconds.
  double last_time = 0.0;
  std::string info_json;     ///< run_info.json, or "{}".
  std::string summary_json;  ///< run_summary.json, or "{}".
};

/// Reads metrics.jsonl, samples.jsonl, confusion.jsonl, run_info.json, run_summary.json and, of
/// a pipeline, traces; only the first must exist. Incomplete lines and lines of another kind are
/// skipped. Throws UserError for a folder without it.
RunData read_run(const std::string& folder, std::size_t most_samples);

}  // namespace ddp::train
