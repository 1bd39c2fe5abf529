// Reads the records in a run's folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/metrics/metric_sink.h"
#include "trainer/report/pipeline_trace.h"
#include "trainer/report/series.h"

namespace ddp::train {

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
