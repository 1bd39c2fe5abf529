// metrics.jsonl, samples.jsonl and confusion.jsonl: one JSON object a line, in the order of the
// steps.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "trainer/metrics/append_file.h"
#include "trainer/metrics/metric_sink.h"

namespace ddp::train {

/// metrics.jsonl: {"step":20,"epoch":0.5,"split":"train","loss":2.5,...,"time":1732170000.123}. A
/// number that JSON does not have (NaN, Inf) is null. The first line of an attempt that continues
/// from step S > 0 has "resumed_from": S. samples.jsonl:
/// {"step":20,"tag":"sample","text":"...","time":...}; confusion.jsonl:
/// {"step":20,"split":"eval","labels":["a","b"],"counts":[[3,0],[1,2]],"time":...}, rows true,
/// columns predicted. The last two are created with their first line.
class JsonlSink : public MetricSink {
 public:
  static constexpr const char* kMetricsFile = "metrics.jsonl";
  static constexpr const char* kSamplesFile = "samples.jsonl";
  static constexpr const char* kConfusionFile = "confusion.jsonl";

  /// `folder` exists. Opens nothing yet.
  explicit JsonlSink(std::string folder);

  /// Truncates the files before the first line of a later step, and removes an incomplete last
  /// line. A new run keeps an existing file as metrics.jsonl.old.
  void begin_after(int64_t step) override;
  void write(const MetricRecord& record) override;
  void write_text(const TextRecord& record) override;
  void write_confusion(const ConfusionRecord& record) override;

 private:
  void append(const char* name, const std::string& line);

  std::string folder_;
  std::map<std::string, std::unique_ptr<AppendFile>> files_;  // by name
  int64_t resumed_from_ = 0;  // 0: the next line is not an attempt's first, or of the first attempt
};

/// Returns the step of a line, -1 if it has none: not JSON, or another kind of object.
int64_t step_of_line(const std::string& line);

}  // namespace ddp::train
