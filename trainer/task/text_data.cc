// Texts and tokens as the data of a language model.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "trainer/config/add_tokens.h"
#include "trainer/data/data_source.h"
#include "trainer/data/text/text_dataset.h"
#include "trainer/data/text/text_mixture.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/runtime/error.h"
#include "trainer/task/causal_data.h"
#include "trainer/task/generate/text_sample.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/with_added_tokens.h"

namespace ddp::train {
namespace {

class TextData : public CausalData {
 public:
  TextData(const Config& config, const DataConfig& data, std::unique_ptr<Tokenizer> of_snapshot)
      : config_(config),
        data_(data, std::move(of_snapshot), config.trainer.batch_size,
              static_cast<uint64_t>(config.trainer.seed)) {}

  const Tokenizer& tokenizer() const override { return data_.tokenizer(); }
  const SampleSource& training() const override { return data_.training(); }
  const SampleSource& evaluation() const override { return data_.evaluation(); }
  std::shared_ptr<const SampleSource> open_whole(const std::string& path,
                                                 const std::string& key) const override;
  std::vector<int32_t> sample_prompt(const std::string& text) const override;
  std::optional<int32_t> sample_end() const override { return tokenizer().end_of_text(); }
  std::vector<std::string> describe() const override;
  LengthCounts lengths() const override {
    LengthCounts all;
    for (const auto& part : data_.parts()) all.add(part->lengths());
    return all;
  }
  std::string prompt_options() const override { return "--prompt TEXT"; }

 private:
  std::string describe_used(const TextDataset& part) const;
  std::vector<std::string> describe_sources() const;
  std::vector<std::string> describe_windows() const;

  const Config& config_;
  TextMixture data_;
};

std::shared_ptr<const SampleSource> TextData::open_whole(const std::string& path,
                                                         const std::string& key) const {
  DataConfig data = config_.data;
  data.path = path;
  data.sources.clear();
  data.eval_path.clear();
  data.tokenizer.clear();  // the training text's
  data.truncate = 1.0;
  data.train_split = 0.0;
  std::shared_ptr<TextDataset> whole;
  try {
    whole = std::make_shared<TextDataset>(data, tokenizer_from_state(tokenizer().state()),
                                          config_.trainer.batch_size);
  } catch (const UserError& error) {
    throw named_as(error, "data_config.path", key);
  }
  if (whole->evaluation().size() > 0) return {whole, &whole->evaluation()};
  throw UserError(fmt::format("{}: {}: has fewer than two tokens; give a longer text", key, path));
}

std::vector<int32_t> TextData::sample_prompt(const std::string& text) const {
  return text.empty() ? beginning_of(evaluation().size() > 0 ? evaluation() : training())
                      : tokenizer().encode(text);
}

std::string TextData::describe_used(const TextDataset& part) const {
  const int64_t used = part.used_tokens();
  const bool characters = part.is_text() && tokenizer().kind() == "char";
  int64_t all = part.is_text() ? part.characters_in_file() : part.tokens().size();
  if (characters) all = std::max(all, part.tokens().size());  // of rows, with their line ends
  const std::string note =
      config_.data.truncate < 1
          ? fmt::format(" (data_config.truncate={}; 1 uses all)", config_.data.truncate)
          : "";
  if (part.is_text() && !characters)
    return fmt::format("{} tokens of {} characters{}", used, all, note);
  const std::string unit = characters ? "characters" : "tokens";
  return note.empty() ? fmt::format("{} {}", used, unit)
                      : fmt::format("{} of {} {}{}", used, all, unit, note);
}

std::vector<std::string> TextData::describe_windows() const {
  const DataConfig& data = config_.data;
  const auto end = tokenizer().end_of_text();
  std::vector<std::string> lines;
  const TextDataset& first = *data_.parts().front();
  if (!first.is_text() || tokenizer().kind() != "char") {
    lines.push_back(
        end ? fmt::format("Documents: packed; token {} ends one where the data has it{}", *end,
                          data.mask_documents ? ", and none sees another" : "")
            : "Documents: packed, without a token between them");
  }
  const int64_t stride = first.training().stride();
  if (stride < data.block_size) {
    lines.push_back(fmt::format(
        "Windows: data_config.stride={} is less than block_size={}: an epoch visits each token "
        "about {} times; stride={} visits it once",
        data.stride.automatic ? fmt::format("auto, here {},", stride) : fmt::to_string(stride),
        data.block_size, data.block_size / stride, data.block_size));
  }
  return lines;
}

std::vector<std::string> TextData::describe_sources() const {
  const std::string counts =
      fmt::format("{} unique; {} training samples, {} evaluation tokens{}", tokenizer().size(),
                  training().size(), data_.evaluation_tokens(),
                  config_.data.eval_path.empty() ? "" : " of " + config_.data.eval_path);
  const auto* mixed = data_.mixed();
  if (mixed == nullptr) {
    return {fmt::format("Data: {}: {}, {}", config_.data.path,
                        describe_used(*data_.parts().front()), counts)};
  }
  std::vector<std::string> lines = {
      fmt::format("Data: {} sources, {}", data_.parts().size(), counts)};
  for (std::size_t i = 0; i < data_.parts().size(); ++i) {
    const auto& [path, weight] = config_.data.sources[i];
    lines.push_back(fmt::format("Source: {}: {}; weight {}: {} samples of {} in an epoch", path,
                                describe_used(*data_.parts()[i]), weight, mixed->samples_of(i),
                                data_.parts()[i]->training().size()));
  }
  return lines;
}

std::vector<std::string> TextData::describe() const {
  auto lines = describe_sources();
  for (std::string& line : describe_windows()) lines.push_back(std::move(line));
  for (const auto& part : data_.parts())
    if (!part->left_out().empty()) lines.push_back("Left out: " + part->left_out());
  return lines;
}

/// A snapshot given as a tokenizer as well is not a tokenizer's folder.
DataConfig without_snapshot_as_tokenizer(const Config& config) {
  namespace fs = std::filesystem;
  DataConfig data = config.data;
  std::error_code ignored;
  const std::string pretrained = causal_architecture(config).pretrained(config);
  if (data.tokenizer.empty() || pretrained.empty()) return data;
  const bool same = fs::absolute(data.tokenizer).lexically_normal() == pretrained;
  if (same && !fs::is_directory(pretrained, ignored)) data.tokenizer.clear();
  return data;
}

}  // namespace

std::unique_ptr<CausalData> open_text_data(const Config& config,
                                           std::unique_ptr<Tokenizer> of_snapshot, bool resumes) {
  DataConfig data = without_snapshot_as_tokenizer(config);
  const bool has_them = resumes && data.tokenizer.empty();
  if (!add_tokens(config).empty() && !has_them) {
    DataConfig first = data;
    if (!first.sources.empty()) first.path = first.sources.front().path;
    if (holds_tokens(first)) {
      throw UserError(fmt::format(
          "data_config.add_tokens: {} holds tokens already, of the tokenizer that made them; name "
          "the text instead, or remove the key and make them with a tokenizer that has the new "
          "ones, named as data_config.tokenizer (docs/fine-tune.md)",
          first.path));
    }
    std::error_code ignored;
    if (std::filesystem::exists(data.tokenizer, ignored)) {
      of_snapshot = load_tokenizer("data_config.tokenizer", data.tokenizer);
      data.tokenizer.clear();
    }
    if (!of_snapshot || !data.tokenizer.empty())
      throw UserError(
          "data_config.add_tokens: needs a tokenizer to add them to; name the folder of one as "
          "data_config.tokenizer, or of a model as init_from");
    of_snapshot = with_added_tokens(std::move(of_snapshot), add_tokens(config));
  }
  return std::make_unique<TextData>(config, data, std::move(of_snapshot));
}

}  // namespace ddp::train
