#include "trainer/app/snapshot_model.h"

#include "trainer/config/keys/config_text.h"
#include "trainer/data/char_vocabulary.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"

namespace ddp::train {
namespace {

class VocabularyTokenizer final : public Tokenizer {
 public:
  explicit VocabularyTokenizer(CharVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  std::string_view kind() const override { return "char"; }
  int64_t size() const override { return vocabulary_.size(); }
  std::vector<int32_t> encode(std::string_view text) const override {
    return vocabulary_.encode(text);
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    return vocabulary_.decode({tokens.begin(), tokens.end()});
  }
  std::string state() const override { return ""; }

 private:
  CharVocabulary vocabulary_;
};

}  // namespace

std::vector<NamedTensor> SnapshotModel::weights() const {
  std::vector<NamedTensor> result;
  for (const auto& parameter : model->model_parameters())
    result.push_back({parameter.name, parameter.tensor});
  return result;
}

SnapshotModel load_snapshot_model(const std::string& path, torch::Device device) {
  const FetchedSnapshot fetched(path);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  SnapshotModel result;
  result.config = config_from_json(snapshot.meta.config_json);
  result.tokenizer = std::make_unique<VocabularyTokenizer>(
      CharVocabulary::from_characters(snapshot.meta.vocabulary));
  result.model = GPT(result.config.gpt, result.tokenizer->size(), result.config.data.block_size, 0);
  for (auto& p : result.model->model_parameters()) snapshot.load_into("model." + p.name, p.tensor);
  result.model->eval();
  result.model->to(device);
  return result;
}

}  // namespace ddp::train
