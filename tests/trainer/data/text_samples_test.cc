// Which texts are trained on, and in which order.
#include "trainer/data/text/text_samples.h"

#include <algorithm>
#include <set>

#include "tests/support/catch.h"

#include "trainer/data/data_loader.h"
#include "trainer/data/rows.h"

namespace ddp::train {
namespace {

/// Sample i holds the number i; a hash of i determines its length.
class SamplesOfLengths : public SampleSource {
 public:
  SamplesOfLengths(int64_t size, int64_t buckets) : size_(size), buckets_(buckets) {}
  int64_t size() const override { return size_; }
  Batch collate(const BatchRequest& request) const override {
    return {{{kInputs, tensor_of<int64_t>(request.samples, request.pinned)}}, 0};
  }
  TargetCount targets() const override { return {}; }
  int64_t length(int64_t index) const override { return index * 7919 % 101; }
  int64_t bucket_batches() const override { return buckets_; }
  const std::string& fingerprint() const override { return name_; }

 private:
  int64_t size_;
  int64_t buckets_;
  std::string name_ = "lengths";
};

constexpr int64_t kBatch = 4;

/// The samples of `steps` steps on so many ranks, in the order of the micro-batches.
std::vector<int64_t> samples_of_steps(const SampleSource& source, int ranks, int64_t micro_batches,
                                      int64_t steps) {
  const DistributedSampler sampler(source.size(), kBatch, ranks * micro_batches, 5);
  std::vector<std::unique_ptr<DataLoader>> loaders;
  for (int rank = 0; rank < ranks; ++rank) {
    loaders.push_back(std::make_unique<DataLoader>(
        source, sampler, DataCursor{},
        DataLoader::Options{kBatch, micro_batches, rank, ranks, 0, false}));
  }
  std::vector<int64_t> samples;
  for (int64_t micro = 0; micro < steps * micro_batches; ++micro) {
    for (const auto& loader : loaders) {
      const Batch batch = loader->next();
      const auto* first = batch[kInputs].const_data_ptr<int64_t>();
      samples.insert(samples.end(), first, first + kBatch);
    }
  }
  return samples;
}

int64_t padding_of(const SampleSource& source, const std::vector<int64_t>& samples) {
  int64_t padding = 0;
  for (std::size_t at = 0; at < samples.size(); at += kBatch) {
    int64_t longest = 0, sum = 0;
    for (std::size_t i = at; i < at + kBatch; ++i) {
      longest = std::max(longest, source.length(samples[i]));
      sum += source.length(samples[i]);
    }
    padding += kBatch * longest - sum;
  }
  return padding;
}

}  // namespace

TEST_CASE("buckets give each sample once in an epoch, and batches of like lengths") {
  const SamplesOfLengths random(1003, 0), sorted(1003, 16);
  const auto samples = samples_of_steps(sorted, 1, 1, 250);
  CHECK(std::set<int64_t>(samples.begin(), samples.end()).size() == 1000);
  CHECK(padding_of(sorted, samples) * 4 < padding_of(random, samples_of_steps(random, 1, 1, 250)));
  std::vector<int64_t> lengths;
  for (std::size_t at = 0; at < samples.size(); at += kBatch)
    lengths.push_back(sorted.length(samples[at]));
  CHECK(!std::is_sorted(lengths.begin(), lengths.begin() + 16));
}

TEST_CASE("with buckets two ranks share a step as one process with two micro-batches sees it") {
  const SamplesOfLengths source(203, 5);
  CHECK(samples_of_steps(source, 2, 1, 25) == samples_of_steps(source, 1, 2, 25));
}

TEST_CASE("a split gives each class its share, and none with two samples goes without") {
  std::vector<int64_t> labels(60, 0);
  labels.insert(labels.end(), 30, 1);
  labels.insert(labels.end(), {2, 2, 3});
  const SampleSplit split = split_by_label(labels, 5, 0.9, 1);
  const auto count = [&](const std::vector<int64_t>& part, int64_t label) {
    return std::count_if(part.begin(), part.end(),
                         [&](int64_t i) { return labels[static_cast<std::size_t>(i)] == label; });
  };
  CHECK(count(split.training, 0) == 54);
  CHECK(count(split.training, 1) == 27);
  CHECK(count(split.training, 2) == 1);
  CHECK(count(split.evaluation, 2) == 1);
  CHECK(count(split.training, 3) == 1);
  CHECK(split.training.size() + split.evaluation.size() == labels.size());
  std::vector<int64_t> all = split.training;
  all.insert(all.end(), split.evaluation.begin(), split.evaluation.end());
  CHECK(std::set<int64_t>(all.begin(), all.end()).size() == labels.size());
  CHECK(split_by_label(labels, 5, 0.9, 1).training == split.training);
  CHECK(split_by_label(labels, 5, 0.9, 2).training != split.training);
  CHECK(split_by_label(labels, 5, 1.0, 1).evaluation.empty());
  CHECK(split_by_label(labels, 5, 0.0, 1).training.empty());
}

}  // namespace ddp::train
