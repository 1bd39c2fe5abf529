// Image classification: one of several labels for each image.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/images/bad_samples.h"
#include "trainer/data/images/image_samples.h"
#include "trainer/data/images/image_set.h"
#include "trainer/model/image_network.h"
#include "trainer/task/class_labels.h"
#include "trainer/task/task.h"

namespace ddp::train {

struct Config;

/// What a model of images was trained on: its part of a snapshot's metadata.
struct ImageModelFacts {
  std::vector<std::string> labels;
  ImageShape shape;

  std::map<std::string, std::string> metadata() const;
  /// Throws RunError when the metadata are not of such a model, or damaged.
  static ImageModelFacts of(const std::map<std::string, std::string>& metadata);
};

ImageSizes sizes_of(const ImageModelFacts& facts);
ImageNetwork make_image_network(const Config& config, const ImageModelFacts& facts, uint64_t seed);
std::vector<Parameter> parameters_of(const ImageNetwork& network);
std::vector<NamedTensor> buffers_of(const ImageNetwork& network);

class ImageClassification : public Task {
 public:
  ImageClassification(const Config& config, const std::map<std::string, std::string>* metadata);

  const SampleSource& training() const override { return *training_; }
  const SampleSource* evaluation() const override;

  void build_model(torch::Device device, std::optional<uint64_t> seed) override;
  torch::nn::Module& model() override { return *model_; }
  std::vector<Parameter> parameters() const override { return parameters_of(model_); }
  std::vector<NamedTensor> buffers() const override { return buffers_of(model_); }
  std::vector<std::string> shape_keys() const override;
  void join(ProcessGroup& group, int64_t micro_batches) override;

  torch::Tensor loss(const Batch& batch) override;
  torch::Tensor smallest_loss() override;
  void end_step(ProcessGroup& group, const torch::Tensor& discard) override;
  /// Negative log-likelihood in nats, images whose label was the most likely one, images.
  BatchSums evaluate(const Batch& batch) override;
  int64_t sums() const override { return 3; }
  std::vector<std::string> classes() const override { return confusable(facts_.labels); }
  /// loss (nats per image), accuracy, images: those that could be read.
  Metrics metrics(const std::vector<double>& sums) const override;
  std::vector<std::string> metric_names() const override { return {"loss", "accuracy", "images"}; }

  int64_t units_per_sample() const override { return 1; }
  std::string_view unit() const override { return "images"; }
  std::vector<ParameterPart> parameter_parts() const override;
  double flops_per_unit() const override;
  std::string_view flops_formula() const override {
    return "6 for each weight at each pixel that it is used at";
  }
  std::vector<MemoryItem> memory_items(const Config& config,
                                       const ComputePlace& place) const override;

  std::map<std::string, std::string> metadata() const override { return facts_.metadata(); }
  void check_resume(const std::map<std::string, std::string>& metadata,
                    const std::string& snapshot) const override;
  std::vector<std::string> take_warnings() override { return bad_.take_lines(); }
  std::vector<std::string> describe() const override;
  std::string next_command(const std::string& snapshot) const override {
    return "trainer predict --snapshot " + snapshot + " --input FILE";
  }

 private:
  torch::Tensor mean_loss(const torch::Tensor& logits, const torch::Tensor& labels, int64_t images,
                          double smoothing = 0.0) const;
  ImageSizes sizes() const { return sizes_of(facts_); }
  void open_evaluation(std::vector<int64_t> rest, const ImageSamples::Options& options);

  const Config& config_;
  BadSamples bad_;
  std::unique_ptr<ImageSet> images_;
  std::unique_ptr<ImageSet> evaluation_images_;  // null: a part of images_
  ImageModelFacts facts_;
  std::unique_ptr<ImageSamples> training_;
  std::unique_ptr<ImageSamples> evaluation_;
  ImageNetwork model_{nullptr};
};

}  // namespace ddp::train
