#include "trainer/task/image_classification.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/metrics/text.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/with_key.h"

namespace ddp::train {
namespace {

constexpr const char* kImageShape = "image_shape";  // metadata key: JSON [channels, height, width]

std::vector<std::string> known_labels(const std::map<std::string, std::string>* metadata) {
  return metadata == nullptr ? std::vector<std::string>() : ImageModelFacts::of(*metadata).labels;
}

std::unique_ptr<ImageSet> open_set(const char* key, const std::string& path,
                                   const std::vector<std::string>& known) {
  return with_key(key, [&] { return open_labelled_images(path, known); });
}

/// The shape of the model of `metadata`, else the one that the data have.
ImageShape shape_for(const ImageSet& images, const Config& config,
                     const std::map<std::string, std::string>* metadata) {
  if (metadata != nullptr) return ImageModelFacts::of(*metadata).shape;
  return with_key("data_config.path", [&] { return shape_of(images, config.image); });
}

/// All images of an idx file have one shape: a mismatch is not a broken image.
void check_first(const ImageSet& images, const char* key, const ImageShape& shape,
                 const Config& config) {
  if (images.may_be_broken() || images.size() == 0) return;
  try {
    image_of_shape(images, 0, shape, config.image);
  } catch (const BrokenImage& broken) {
    throw UserError(fmt::format("{}: {}: {}", key, images.name(0), broken.what()));
  }
}

std::vector<int64_t> all_of(const ImageSet& images) {
  std::vector<int64_t> indices(static_cast<std::size_t>(images.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

void refuse_too_few(const Config& config, int64_t images, int64_t training) {
  if (training >= config.trainer.batch_size || config.data.train_split == 0.0) return;
  throw UserError(fmt::format(
      "data_config.path: {}: {} images (truncate {}, train_split {}) leave {} for training, fewer "
      "than trainer_config.batch_size={}; lower that, or give more images",
      config.data.path, images, config.data.truncate, config.data.train_split, training,
      config.trainer.batch_size));
}

}  // namespace

std::map<std::string, std::string> ImageModelFacts::metadata() const {
  return {{kLabels, labels_json(labels)},
          {kImageShape, nlohmann::json{shape.channels, shape.height, shape.width}.dump()}};
}

ImageModelFacts ImageModelFacts::of(const std::map<std::string, std::string>& metadata) {
  try {
    ImageModelFacts facts;
    facts.labels = labels_of(metadata);
    const nlohmann::json shape = nlohmann::json::parse(metadata.at(kImageShape));
    facts.shape = {shape.at(0).get<int64_t>(), shape.at(1).get<int64_t>(),
                   shape.at(2).get<int64_t>()};
    return facts;
  } catch (const std::exception& error) {
    throw RunError(fmt::format("the snapshot's labels or image shape are damaged: {}",
                               plain_json_error(error.what())));
  }
}

ImageSizes sizes_of(const ImageModelFacts& facts) {
  return {facts.shape.channels, facts.shape.height, facts.shape.width,
          static_cast<int64_t>(facts.labels.size())};
}

ImageNetwork make_image_network(const Config& config, const ImageModelFacts& facts, uint64_t seed) {
  return ImageNetwork(config.image, sizes_of(facts), seed);
}

std::vector<Parameter> parameters_of(const ImageNetwork& network) {
  std::vector<Parameter> result;
  for (const auto& p : network->network_parameters()) result.push_back({p.name, p.tensor, p.role});
  return result;
}

std::vector<NamedTensor> buffers_of(const ImageNetwork& network) {
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < network->norms().size(); ++i) {
    const BatchNorm& norm = network->norms()[i];
    result.push_back({fmt::format("norm_{}.running_mean", i), norm->running_mean});
    result.push_back({fmt::format("norm_{}.running_var", i), norm->running_var});
  }
  return result;
}

ImageClassification::ImageClassification(const Config& config,
                                         const std::map<std::string, std::string>* metadata)
    : config_(config),
      bad_(config.data.on_bad_sample),
      images_(open_set("data_config.path", config.data.path, known_labels(metadata))),
      facts_{images_->label_names(), shape_for(*images_, config, metadata)} {
  check_first(*images_, "data_config.path", facts_.shape, config);
  const bool own_evaluation = !config.data.eval_path.empty();
  SampleSplit split = split_images(images_->size(), config.data.truncate,
                                   own_evaluation ? 1.0 : config.data.train_split);
  refuse_too_few(config, images_->size(), static_cast<int64_t>(split.training.size()));
  ImageSamples::Options options{facts_.shape, config.image,
                                static_cast<uint64_t>(config.trainer.seed), /*augmented=*/true};
  training_ = std::make_unique<ImageSamples>(*images_, std::move(split.training), options, bad_);
  options.augmented = false;
  open_evaluation(std::move(split.evaluation), options);
}

void ImageClassification::open_evaluation(std::vector<int64_t> rest,
                                          const ImageSamples::Options& options) {
  if (!config_.data.eval_path.empty()) {
    evaluation_images_ = open_set("data_config.eval_path", config_.data.eval_path, facts_.labels);
    check_first(*evaluation_images_, "data_config.eval_path", facts_.shape, config_);
    rest = all_of(*evaluation_images_);
  }
  const ImageSet& set = evaluation_images_ ? *evaluation_images_ : *images_;
  evaluation_ = std::make_unique<ImageSamples>(set, std::move(rest), options, bad_);
}

const SampleSource* ImageClassification::evaluation() const {
  return evaluation_->size() == 0 ? nullptr : evaluation_.get();
}

void ImageClassification::build_model(torch::Device device, std::optional<uint64_t> seed) {
  model_ = make_image_network(config_, facts_, seed.value_or(0));
  model_->to(device);
  model_->train();
}

std::vector<std::string> ImageClassification::shape_keys() const {
  return {"image_config.network",       "image_config.n_layer",    "image_config.width",
          "image_config.conv_channels", "image_config.batch_norm", "image_config.size",
          "image_config.channels"};
}

void ImageClassification::join(ProcessGroup& group, int64_t micro_batches) {
  if (config_.image.batch_norm != BatchNormKind::kSynchronized || group.size() == 1) return;
  if (micro_batches % group.size() != 0) {
    throw UserError(fmt::format(
        "image_config.batch_norm=synchronized: {} micro-batches on {} ranks: some would wait for "
        "others forever; set trainer_config.global_batch_size to a multiple of batch_size x ranks",
        micro_batches, group.size()));
  }
  for (auto& norm : model_->norms())
    norm->synchronise([&group](torch::Tensor sum) { group.all_reduce_sum(std::move(sum)); },
                      group.size());
}

torch::Tensor ImageClassification::mean_loss(const torch::Tensor& logits,
                                             const torch::Tensor& labels, int64_t images,
                                             double smoothing) const {
  const auto sum = at::cross_entropy_loss(logits.to(torch::kFloat32), labels, /*weight=*/{},
                                          at::Reduction::Sum, kLeftOut, smoothing);
  return sum / static_cast<double>(std::max<int64_t>(1, images));
}

torch::Tensor ImageClassification::loss(const Batch& batch) {
  return mean_loss(model_(batch[kInputs]), batch[kTargets], batch.target_count,
                   config_.trainer.label_smoothing);
}

torch::Tensor ImageClassification::smallest_loss() {
  const auto device = model_->parameters().front().device();
  const ImageShape& shape = facts_.shape;
  const auto image = torch::zeros({1, shape.channels, shape.height, shape.width},
                                  torch::TensorOptions().device(device));
  const auto label = torch::zeros({1}, torch::TensorOptions(torch::kInt64).device(device));
  std::vector<torch::Tensor> seen;
  for (auto& norm : model_->norms()) seen.push_back(norm->seen());
  const auto loss = mean_loss(model_(image), label, 1);
  for (std::size_t i = 0; i < seen.size(); ++i) model_->norms()[i]->set_seen(seen[i]);
  return loss;
}

void ImageClassification::end_step(ProcessGroup& group, const torch::Tensor& discard) {
  const auto sum = [&group](torch::Tensor tensor) { group.all_reduce_sum(std::move(tensor)); };
  for (auto& norm : model_->norms()) norm->end_step(sum, discard);
}

BatchSums ImageClassification::evaluate(const Batch& batch) {
  const auto logits = model_(batch[kInputs]);
  const auto loss = to_host(mean_loss(logits, batch[kTargets], 1));
  const auto answers = to_host(logits.argmax(1));
  const auto targets = to_host(batch[kTargets]);
  const auto there = targets != kLeftOut;
  const auto right = (answers == targets).logical_and(there);
  const auto numbers = torch::stack({right.sum(), there.sum()}).to(torch::kFloat32);
  return {torch::cat({loss.reshape({1}), numbers}),
          confusions(targets.index({there}), answers.index({there}), facts_.labels)};
}

Metrics ImageClassification::metrics(const std::vector<double>& sums) const {
  const double images = std::max(1.0, sums[2]);
  return {{"loss", sums[0] / images}, {"accuracy", sums[1] / images}, {"images", sums[2]}};
}

std::vector<ParameterPart> ImageClassification::parameter_parts() const {
  return image_parameter_parts(config_.image, sizes());
}

double ImageClassification::flops_per_unit() const { return image_flops(config_.image, sizes()); }

std::vector<MemoryItem> ImageClassification::memory_items(const Config& config,
                                                          const ComputePlace& place) const {
  return image_memory_items(config, sizes(), place);
}

void ImageClassification::check_resume(const std::map<std::string, std::string>& metadata,
                                       const std::string& snapshot) const {
  const ImageModelFacts theirs = ImageModelFacts::of(metadata);
  if (theirs.labels == facts_.labels && theirs.shape == facts_.shape) return;
  throw UserError(
      fmt::format("{} was trained on {} images with {} labels, these are {} with {}; set "
                  "trainer_config.snapshot_path to a new file to start afresh",
                  snapshot, theirs.shape.str(), theirs.labels.size(), facts_.shape.str(),
                  facts_.labels.size()));
}

std::vector<std::string> ImageClassification::describe() const {
  const ImageConfig& image = config_.image;
  const bool dense = image.network == ImageNetworkKind::kDense;
  const std::string network =
      dense ? fmt::format("dense, {} hidden layers of {}", image.n_layer, image.width)
            : fmt::format("convolutional, {} stages from {} channels, a hidden layer of {}",
                          image.n_layer, image.conv_channels, image.width);
  return {fmt::format("Model: {}; number of parameters: {} ({})", network,
                      short_number(static_cast<double>(model_->parameter_count())),
                      model_->parameter_count()),
          fmt::format("Data: {}: {} images; {} training samples, {} evaluation images{}",
                      config_.data.path, facts_.shape.str(), training_->size(), evaluation_->size(),
                      config_.data.eval_path.empty() ? "" : " of " + config_.data.eval_path),
          describe_labels(facts_.labels)};
}

}  // namespace ddp::train
