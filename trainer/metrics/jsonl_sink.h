// metrics.jsonl, samples.jsonl and confusion.jsonl: one JSON object a line, in the order of the
// steps.
#pragma once

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
/// columns predicted. These two are made with their first line.
class JsonlSink : public MetricSink {
 public:
  static constexpr const char* kMetricsFile = "metrics.jsonl";
  static constexpr const char* kSamplesFile = "samples.jsonl";
  static constexpr const char* kConfusionFile = "confusion.jsonl";

  /// `folder` exists. Opens nothing yet.
  explicit JsonlSink(std::string folder);

  /// Cuts the files off before the first line of a later step, and a last line that is not whole.
  /// A run that begins anew keeps what is there as metrics.jsonl.old.
  void begin_after(int64_t step) override;
  void write(const MetricRecord& record) override;
  void write_text(const TextRecord& record) override;
  void write_confusion(const ConfusionRecord& record) override;

 private:
  std::string path(const char* name) const { return folder_ + "/" + name; }

  std::string folder_;
  std::unique_ptr<AppendFile> metrics_;
  std::unique_ptr<AppendFile> samples_;
  std::unique_ptr<AppendFile> confusion_;
  int64_t resumed_from_ = 0;  // 0: the next line is not an attempt's first, or of the first attempt
};

/// The step of a line, -1 when it has none: not JSON, an object of another kind.
int64_t step_of_line(const std::string& line);

}  // namespace ddp::train
