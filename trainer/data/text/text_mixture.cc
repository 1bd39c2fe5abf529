#include "trainer/data/text/text_mixture.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/data/weighted_order.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {
namespace {

constexpr const char* kPath = "data_config.path";
constexpr const char* kSources = "data_config.sources";

std::unique_ptr<TextDataset> open_source(const DataConfig& config,
                                         std::unique_ptr<Tokenizer> tokenizer) {
  try {
    return std::make_unique<TextDataset>(config, std::move(tokenizer));
  } catch (const UserError& error) {
    throw named_as(error, kPath, kSources);
  }
}

/// A vocabulary of characters would be the first source's.
void check_vocabulary(const DataConfig& config, bool of_snapshot, const TextDataset& first) {
  if (of_snapshot || first.tokenizer().kind() != "char") return;
  throw UserError(
      fmt::format("{}: {}: texts of several sources need a tokenizer that was made "
                  "before; set data_config.tokenizer to byte or to its folder",
                  kSources, config.sources.front().path));
}

/// The evaluation windows of several sources, one source after the other. Each of them outlives it.
class JoinedWindows : public SampleSource {
 public:
  explicit JoinedWindows(std::vector<const TokenWindows*> parts)
      : parts_(std::move(parts)), starts_({0}) {
    Sha256 sum;
    for (const TokenWindows* part : parts_) {
      starts_.push_back(starts_.back() + part->size());
      sum.update(part->fingerprint() + "\n");
    }
    fingerprint_ = sum.hex();
  }

  int64_t size() const override { return starts_.back(); }
  Batch collate(const BatchRequest& request) const override {
    WindowRows rows = parts_.front()->rows(request);
    for (std::size_t row = 0; row < request.samples.size(); ++row) {
      const std::size_t part = part_of(starts_, request.samples[row]);
      parts_[part]->fill(rows, row, request.samples[row] - starts_[part]);
    }
    return rows.batch();
  }
  TargetCount targets() const override { return parts_.front()->targets(); }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  std::vector<const TokenWindows*> parts_;
  std::vector<int64_t> starts_;
  std::string fingerprint_;
};

}  // namespace

TextMixture::TextMixture(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                         int64_t batch_size, uint64_t seed) {
  if (config.sources.empty()) {
    parts_.push_back(std::make_unique<TextDataset>(config, std::move(tokenizer), batch_size));
    return;
  }
  open_sources(config, std::move(tokenizer));
  mix(config, seed);
}

void TextMixture::open_sources(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer) {
  const bool of_snapshot = tokenizer != nullptr;
  DataConfig data = config;
  data.sources.clear();
  if (!data.eval_path.empty()) data.train_split = 1.0;
  for (const WeightedSource& source : config.sources) {
    data.path = source.path;
    parts_.push_back(open_source(data, std::move(tokenizer)));
    if (parts_.size() == 1) check_vocabulary(config, of_snapshot, *parts_.front());
    data.eval_path.clear();  // the first one's are for all
    data.tokenizer.clear();  // likewise
    tokenizer = tokenizer_from_state(this->tokenizer().state());
  }
}

void TextMixture::mix(const DataConfig& config, uint64_t seed) {
  std::vector<MixedSamples<TokenWindows>::Part> training;
  std::vector<const TokenWindows*> evaluation;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    training.push_back({&parts_[i]->training(), config.sources[i].weight});
    if (parts_[i]->evaluation().size() > 0) evaluation.push_back(&parts_[i]->evaluation());
  }
  mixed_ = std::make_unique<MixedSamples<TokenWindows>>(std::move(training), seed);
  if (config.eval_path.empty() && !evaluation.empty())
    joined_ = std::make_unique<JoinedWindows>(std::move(evaluation));
}

const SampleSource& TextMixture::training() const {
  if (mixed_) return *mixed_;
  return parts_.front()->training();
}

const SampleSource& TextMixture::evaluation() const {
  if (joined_) return *joined_;
  return parts_.front()->evaluation();
}

int64_t TextMixture::evaluation_tokens() const {
  int64_t tokens = 0;
  for (const auto& part : parts_) {
    if (!joined_ && part != parts_.front()) break;
    tokens += std::max<int64_t>(0, part->evaluation_range().size() - 1);
  }
  return tokens;
}

}  // namespace ddp::train
