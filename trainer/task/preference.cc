#include "trainer/task/preference.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/data/chat/preference_samples.h"
#include "trainer/data/data_loader.h"
#include "trainer/model/blocks/chunked_loss.h"
#include "trainer/optim/amp.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/error.h"
#include "trainer/task/causal_lm.h"

namespace ddp::train {
namespace {

/// BatchSums::sums, over pairs but for the two of tokens.
enum Sum {
  kPairLoss,
  kRightOrder,
  kChosenReward,
  kRejectedReward,
  kChosenLogProb,
  kRejectedLogProb,
  kPairCount,
  // of orpo; zeros for others
  kTokenLoss,
  kTokenCount,
  kLogOddsRatio,
  kLogOdds,
  kPreferenceSums
};

/// log(1 - exp(x)) for x < 0.
torch::Tensor log1mexp(const torch::Tensor& x) {
  constexpr double kMinusLog2 = -0.6931471805599453;
  return torch::where(x < kMinusLog2, torch::log1p(-torch::exp(x)), torch::log(-torch::expm1(x)));
}

struct PairLosses {
  torch::Tensor mean;  ///< A scalar with a graph.
  torch::Tensor sums;  ///< float32 [kPreferenceSums], without one.
};

/// The answers of B pairs: [B] each.
struct PairValues {
  torch::Tensor chosen, rejected;

  static PairValues of(const torch::Tensor& rows_2B) {
    const auto halves = rows_2B.chunk(2);
    return {halves[0], halves[1]};
  }
  torch::Tensor difference() const { return chosen - rejected; }
};

/// BatchSums::sums. `scores`: what rewards are beta times of; `of_tokens`: the last four.
torch::Tensor pair_sums(double beta, const torch::Tensor& losses_B, const PairValues& scores,
                        const PairValues& log_probs, const torch::Tensor& of_tokens) {
  const auto right = scores.chosen.gt(scores.rejected).to(torch::kFloat32);
  const auto of_pairs = torch::stack({losses_B.sum(), right.sum(), beta * scores.chosen.sum(),
                                      beta * scores.rejected.sum(), log_probs.chosen.sum(),
                                      log_probs.rejected.sum(), torch::ones_like(right).sum()});
  return torch::cat({of_pairs, of_tokens}).detach();
}

/// `scores`: log-probabilities relative to the reference.
torch::Tensor pair_losses(const PreferenceConfig& config, const PairValues& scores,
                          const PairValues& lengths) {
  const double smoothing = config.label_smoothing;
  if (config.loss_type == PreferenceLoss::kIpo) {
    const auto margin = scores.chosen / lengths.chosen - scores.rejected / lengths.rejected;
    return (margin - 1.0 / (2.0 * config.beta)).square();
  }
  const auto margin = config.beta * scores.difference();
  const auto right = torch::log_sigmoid(margin);
  if (smoothing == 0.0) return -right;
  const auto wrong = torch::log_sigmoid(-margin);
  if (config.loss_type == PreferenceLoss::kRobust)
    return (smoothing * wrong - (1.0 - smoothing) * right) / (1.0 - 2.0 * smoothing);
  return -(1.0 - smoothing) * right - smoothing * wrong;
}

const PairSamples& pairs_of(const SampleSource& source) {
  return dynamic_cast<const PairSamples&>(source);  // open_preference_data() makes no others
}

class PreferenceTask : public CausalLm {
 public:
  PreferenceTask(const Config& config, const SnapshotMetadata* metadata)
      : CausalLm(config, metadata), resumed_(metadata != nullptr) {
    if (resumed_) check_reference(*metadata);
  }

  std::vector<NamedTensor> buffers() const override {
    std::vector<NamedTensor> result;
    for (const auto& [name, samples] : referred())
      result.push_back({name, pairs_of(*samples).reference()});
    return result;
  }
  void prepare(ProcessGroup& group, const std::function<void()>& alive) override;

  torch::Tensor loss(const Batch& batch) override;
  void end_step(ProcessGroup& /*group*/, const torch::Tensor& /*discard*/) override {
    last_sums_ = std::exchange(step_sums_, {});
  }
  Metrics step_metrics(ProcessGroup& group) override;
  BatchSums evaluate(const Batch& batch) override { return {losses(batch).sums, {}}; }
  int64_t sums() const override { return kPreferenceSums; }
  Metrics metrics(const std::vector<double>& sums) const override;
  std::vector<std::string> metric_names() const override;

  int64_t units_per_sample() const override {
    const LengthCounts lengths = this->lengths();
    return 2 * lengths.sum() / std::max<int64_t>(1, lengths.count());
  }

  std::map<std::string, std::string> metadata() const override {
    auto metadata = CausalLm::metadata();
    for (const auto& [name, samples] : referred()) metadata[name] = samples->fingerprint();
    return metadata;
  }
  std::vector<std::string> describe() const override;

 private:
  bool has_reference() const { return preference().loss_type != PreferenceLoss::kOrpo; }
  const PreferenceConfig& preference() const { return config().preference; }
  /// Every source of pairs, by the name of its reference; none with orpo.
  std::vector<NamedSource> referred() const;
  void check_reference(const SnapshotMetadata& metadata) const;
  void compute_reference(const PairSamples& samples, ProcessGroup& group,
                         const std::function<void()>& alive);
  torch::Tensor target_log_probs(const Batch& batch);
  torch::Tensor answer_log_probs(const Batch& batch, const torch::Tensor& of_targets_M) const;
  PairLosses losses(const Batch& batch);
  PairLosses with_reference(const Batch& batch, const torch::Tensor& sums_2B) const;
  PairLosses orpo(const Batch& batch, const torch::Tensor& of_targets_M,
                  const torch::Tensor& sums_2B) const;

  const bool resumed_;
  torch::Tensor step_sums_, last_sums_;  // of the step in progress, and of the last one
};

std::vector<NamedSource> PreferenceTask::referred() const {
  std::vector<NamedSource> all;
  if (!has_reference()) return all;
  const auto add = [&all](const std::string& name, const SampleSource* samples) {
    if (samples != nullptr && samples->size() > 0) all.push_back({"reference." + name, samples});
  };
  add("training", &training());
  add("evaluation", evaluation());
  for (const auto& [name, samples] : evaluation_sets()) add("set." + name, samples);
  add("test", test());
  return all;
}

void PreferenceTask::check_reference(const SnapshotMetadata& metadata) const {
  for (const auto& [name, samples] : referred()) {
    const auto known = metadata.find(name);
    if (known != metadata.end() && known->second == samples->fingerprint()) continue;
    throw UserError(fmt::format(
        "preference_config.loss_type={}: the snapshot has no reference log-probabilities of the "
        "{} pairs ({} of them), which are computed before the first step; use the pairs that the "
        "run began with, or begin one from this snapshot as init_from",
        name_of(preference().loss_type), name.substr(name.rfind('.') + 1), samples->size()));
  }
}

void PreferenceTask::prepare(ProcessGroup& group, const std::function<void()>& alive) {
  if (resumed_) return;
  const torch::NoGradGuard no_grad;
  const bool was_training = network().is_training();
  network().eval();
  for (const auto& [name, samples] : referred())
    compute_reference(pairs_of(*samples), group, alive);
  network().train(was_training);
}

// Batches as those of an evaluation: the same ones for any number of ranks, and each rank makes as
// many passes, as they may be collectives.
void PreferenceTask::compute_reference(const PairSamples& samples, ProcessGroup& group,
                                       const std::function<void()>& alive) {
  const int64_t rows = samples.size(), batch_size = config().trainer.batch_size;
  const int64_t batches = (rows + batch_size - 1) / batch_size;
  const auto device = network().parameters().front().device();
  auto known = torch::zeros({rows, 2}, torch::kFloat64);
  for (int64_t round = 0; round * group.size() < batches; ++round) {
    const int64_t batch = round * group.size() + group.rank();
    const int64_t first = batch < batches ? batch * batch_size : 0;
    const int64_t count = std::min(batch_size, rows - first);
    alive();
    const Autocast autocast(device.type(), autocast_dtype(config().trainer));
    const Batch pairs = batch_of(samples, first, count, device.is_cuda()).to(device);
    const auto log_probs = answer_log_probs(pairs, target_log_probs(pairs));
    if (batch < batches)
      known.narrow(0, first, count).copy_(to_host(log_probs).view({2, count}).t());
  }
  group.all_reduce_sum(known);  // each entry is non-zero on one rank only: exact
  samples.reference().copy_(known);
}

/// float32 [M]
torch::Tensor PreferenceTask::target_log_probs(const Batch& batch) {
  CausalModel& model = network();
  const auto x_BTC = model.stage({}, {0, model.layers()}, batch[kInputs], {});
  const auto x_MC = x_BTC.view({-1, x_BTC.size(2)}).index_select(0, batch[kTargetPositions]);
  const auto table_PC = padded_table(model.head_weight(), model.logits_padding());
  return -at::cross_entropy_loss(model.logits(x_MC, table_PC).to(torch::kFloat32), batch[kTargets],
                                 {}, at::Reduction::None);
}

/// [2B], sums over the answers' tokens.
torch::Tensor PreferenceTask::answer_log_probs(const Batch& batch,
                                               const torch::Tensor& of_targets_M) const {
  const auto of_answer_M = batch.find(kOfAnswer);
  const auto shape = batch[kInputs].sizes();
  return torch::zeros({shape[0] * shape[1]}, of_targets_M.options().requires_grad(false))
      .index_copy(0, batch[kTargetPositions],
                  of_answer_M.defined() ? of_targets_M * of_answer_M : of_targets_M)
      .view(shape)
      .sum(1);
}

PairLosses PreferenceTask::losses(const Batch& batch) {
  const auto of_targets_M = target_log_probs(batch);
  const auto sums_2B = answer_log_probs(batch, of_targets_M);
  return has_reference() ? with_reference(batch, sums_2B) : orpo(batch, of_targets_M, sums_2B);
}

PairLosses PreferenceTask::with_reference(const Batch& batch, const torch::Tensor& sums_2B) const {
  const auto scores = PairValues::of(sums_2B - batch[kReference].t().reshape({-1}));
  const auto losses_B = pair_losses(preference(), scores, PairValues::of(batch[kAnswerLengths]));
  return {losses_B.mean(), pair_sums(preference().beta, losses_B, scores, PairValues::of(sums_2B),
                                     torch::zeros({4}, sums_2B.options().requires_grad(false)))};
}

// The likelihood is a mean over the tokens of the batch, as TRL's.
PairLosses PreferenceTask::orpo(const Batch& batch, const torch::Tensor& of_targets_M,
                                const torch::Tensor& sums_2B) const {
  const auto log_probs = PairValues::of(sums_2B / batch[kAnswerLengths]);
  const auto log_odds_B =
      log_probs.difference() - (log1mexp(log_probs.chosen) - log1mexp(log_probs.rejected));
  const auto ratio_B = torch::log_sigmoid(log_odds_B);
  const auto losses_B = -preference().beta * ratio_B;
  const auto is_chosen_M =
      batch[kTargetPositions].lt(batch[kInputs].numel() / 2).to(torch::kFloat32);
  const auto token_loss = -(of_targets_M * is_chosen_M).sum();
  const auto tokens = is_chosen_M.sum();
  return {token_loss / tokens + losses_B.mean(),
          pair_sums(preference().beta, losses_B, log_probs, log_probs,
                    torch::stack({token_loss, tokens, ratio_B.sum(), log_odds_B.sum()}))};
}

torch::Tensor PreferenceTask::loss(const Batch& batch) {
  auto [mean, sums] = losses(batch);
  step_sums_ = step_sums_.defined() ? step_sums_ + sums : sums;
  return mean;  // without a load-balancing loss: its routers have counted the padding as well
}

Metrics PreferenceTask::step_metrics(ProcessGroup& group) {
  auto sums = torch::zeros({int64_t{kPreferenceSums}}, torch::kFloat64);
  if (last_sums_.defined()) sums += to_host(last_sums_).to(torch::kFloat64);
  group.all_reduce_sum(sums);
  const auto* first = sums.const_data_ptr<double>();
  Metrics all = metrics({first, first + kPreferenceSums});
  all.erase(all.begin());
  return all;
}

Metrics PreferenceTask::metrics(const std::vector<double>& sums) const {
  const auto mean = [&](Sum sum) { return sums[sum] / sums[kPairCount]; };
  Metrics all = {{"loss", mean(kPairLoss)},
                 {"rewards/accuracies", mean(kRightOrder)},
                 {"rewards/margins", mean(kChosenReward) - mean(kRejectedReward)},
                 {"rewards/chosen", mean(kChosenReward)},
                 {"rewards/rejected", mean(kRejectedReward)},
                 {"logps/chosen", mean(kChosenLogProb)},
                 {"logps/rejected", mean(kRejectedLogProb)}};
  if (has_reference()) return all;
  const double token_loss = sums[kTokenLoss] / sums[kTokenCount];
  all.front().second += token_loss;
  all.emplace_back("nll_loss", token_loss);
  all.emplace_back("log_odds_ratio", mean(kLogOddsRatio));
  all.emplace_back("log_odds_chosen", mean(kLogOdds));
  return all;
}

std::vector<std::string> PreferenceTask::metric_names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics(std::vector<double>(kPreferenceSums, 1.0)))
    names.push_back(name);
  return names;
}

std::vector<std::string> PreferenceTask::describe() const {
  auto lines = CausalLm::describe();
  const PreferenceConfig& preference = this->preference();
  std::string text =
      fmt::format("Preference: loss {}, beta {}", name_of(preference.loss_type), preference.beta);
  if (preference.label_smoothing > 0.0)
    text += fmt::format(", label smoothing {}", preference.label_smoothing);
  lines.push_back(text + (!has_reference() ? "; no reference"
                          : resumed_       ? "; reference: as the snapshot has it"
                                           : "; reference: this model, computed before step 1"));
  return lines;
}

}  // namespace

std::unique_ptr<Task> make_preference(const Config& config,
                                      const std::map<std::string, std::string>* metadata) {
  return std::make_unique<PreferenceTask>(config, metadata);
}

}  // namespace ddp::train
