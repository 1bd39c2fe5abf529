// Records what its standard input says, as one attempt of a run:
//   begin 0 | train STEP LOSS [NAME VALUE ...] | eval STEP LOSS | text STEP TAG TEXT
//   histogram STEP TAG VALUE ...
//   confusion SPLIT STEP LABELS,BY,COMMA COUNT ...
//   metrics_probe FOLDER < SCRIPT                 writes metrics.jsonl and FOLDER/tensorboard
//   metrics_probe --report FILE.html FOLDER ...
//   metrics_probe --scores < LINES        CLASSES TRUTH ANSWER [TRUTH ANSWER ...]: precision,
//   recall
//                                         and F1 of each class, then macro, then micro
#include <cstdio>
#include <iostream>
#include <sstream>

#include "trainer/metrics/class_scores.h"
#include "trainer/metrics/event_file_sink.h"
#include "trainer/metrics/jsonl_sink.h"
#include "trainer/metrics/metric_recorder.h"
#include "trainer/report/report_page.h"

namespace ddp::train {
namespace {

constexpr double kFirstTime = 1.7e9;

void record_numbers(const std::string& split, std::istringstream& words, MetricRecorder& recorder) {
  MetricRecord record;
  record.split = split;
  words >> record.step;
  record.time = kFirstTime + static_cast<double>(record.step);
  std::string name = "loss", value;  // a stream does not read nan
  for (; words >> value; words >> name) record.values.emplace_back(name, std::stod(value));
  recorder.write(record);
}

void record_text(std::istringstream& words, MetricRecorder& recorder) {
  TextRecord record;
  words >> record.step >> record.tag >> std::ws;
  std::getline(words, record.text);
  recorder.write_text(record);
}

void record_histogram(std::istringstream& words, MetricRecorder& recorder) {
  HistogramRecord record;
  words >> record.step >> record.tag;
  std::vector<float> values;
  for (float value = 0; words >> value;) values.push_back(value);
  record.histogram = Histogram::of(values);
  recorder.write_histogram(record);
}

void record_confusion(std::istringstream& words, MetricRecorder& recorder) {
  ConfusionRecord record;
  std::string labels;
  words >> record.split >> record.step >> labels;
  std::istringstream names(labels);
  for (std::string name; std::getline(names, name, ',');) record.matrix.labels.push_back(name);
  for (int64_t count = 0; words >> count;) record.matrix.counts.push_back(count);
  recorder.write_confusion(record);
}

void play(std::istream& script, MetricRecorder& recorder) {
  for (std::string line; std::getline(script, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    int64_t step = 0;
    if (verb == "begin" && words >> step) recorder.begin_after(step);
    if (verb == "train" || verb == "eval") record_numbers(verb, words, recorder);
    if (verb == "text") record_text(words, recorder);
    if (verb == "confusion") record_confusion(words, recorder);
    if (verb == "histogram") record_histogram(words, recorder);
    recorder.flush();  // a script is faster than any run
  }
}

void print_scores(const ClassScores& scores) {
  std::cout << scores.precision << " " << scores.recall << " " << scores.f1 << " ";
}

void score_lines(std::istream& lines) {
  std::cout.precision(17);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::size_t count = 0, truth = 0, answer = 0;
    words >> count;
    std::vector<ClassCounts> classes(count);
    while (words >> truth >> answer) {
      classes.at(truth).actual += 1;
      classes.at(answer).answered += 1;
      if (truth == answer) classes.at(truth).right += 1;
    }
    for (const ClassCounts& counts : classes) print_scores(scores_of(counts));
    print_scores(macro_scores(classes));
    print_scores(micro_scores(classes));
    std::cout << matthews_correlation(classes) << "\n";
  }
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "--scores") {
    score_lines(std::cin);
    return 0;
  }
  if (words.size() >= 3 && words[0] == "--report") {
    write_report({words.begin() + 2, words.end()}, words[1], "metrics_probe");
    return 0;
  }
  std::vector<std::unique_ptr<MetricSink>> sinks;
  sinks.push_back(std::make_unique<JsonlSink>(words.at(0)));
  sinks.push_back(std::make_unique<EventFileSink>(words.at(0) + "/tensorboard"));
  MetricRecorder recorder(std::move(sinks));
  play(std::cin, recorder);
  const auto troubles = recorder.take_troubles();
  for (const auto& trouble : troubles) std::cerr << trouble << "\n";
  return troubles.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ddp::train

int main(int argc, char** argv) {
  try {
    return ddp::train::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  }
}
