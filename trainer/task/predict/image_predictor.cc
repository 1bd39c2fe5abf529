// Labels for images that have none.
#include <fmt/format.h>

#include <algorithm>

#include "trainer/data/images/image_samples.h"
#include "trainer/runtime/error.h"
#include "trainer/task/image_classification.h"
#include "trainer/task/model_bundle.h"
#include "trainer/task/predict/predictor.h"

namespace ddp::train {
namespace {

class ImagePredictor : public Predictor {
 public:
  explicit ImagePredictor(const PredictRequest& request)
      : config_(request.model.config.image),
        device_(request.device),
        facts_(ImageModelFacts::of(request.model.metadata)),
        images_(open_images(request.input)),
        network_(request.model.as<ImageNetworkImpl>()) {
    if (!images_->may_be_broken()) check_all();
  }

  const std::vector<std::string>& labels() const override { return facts_.labels; }

  std::vector<Prediction> next(int64_t most) override {
    const torch::NoGradGuard no_grad;
    const int64_t count = std::min(most, images_->size() - next_);
    if (count <= 0) return {};
    const ImageShape& shape = facts_.shape;
    const auto pixels = torch::zeros({count, shape.channels, shape.height, shape.width});
    std::vector<Prediction> predictions;
    for (int64_t i = 0; i < count; ++i) predictions.push_back(read(next_ + i, pixels[i]));
    next_ += count;
    const auto probabilities =
        network_.forward(pixels.to(device_)).to(torch::kCPU, torch::kFloat64).softmax(1);
    for (int64_t i = 0; i < count; ++i) {
      Prediction& prediction = predictions[static_cast<std::size_t>(i)];
      if (prediction.problem.empty()) answer_with(prediction, facts_.labels, probabilities[i]);
    }
    return predictions;
  }

 private:
  /// Images of one file have one shape: none of them fits when the first does not.
  void check_all() const {
    try {
      image_of_shape(*images_, 0, facts_.shape, config_);
    } catch (const BrokenImage& broken) {
      throw UserError(fmt::format("--input: {}: {}", images_->name(0), broken.what()));
    }
  }

  Prediction read(int64_t index, const torch::Tensor& pixels) const {
    Prediction prediction;
    prediction.input = images_->name(index);
    try {
      write_pixels(image_of_shape(*images_, index, facts_.shape, config_), facts_.shape, config_,
                   pixels.mutable_data_ptr<float>());
    } catch (const BrokenImage& broken) {
      prediction.problem = broken.what();
    }
    return prediction;
  }

  const ImageConfig config_;
  const torch::Device device_;
  const ImageModelFacts facts_;
  const std::unique_ptr<ImageSet> images_;
  ImageNetworkImpl& network_;
  int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Predictor> make_image_predictor(const PredictRequest& request) {
  if (request.input.empty())
    throw UserError(
        "predict: task image_classification takes --input FILE, an image, a folder of them or an "
        "idx file");
  return std::make_unique<ImagePredictor>(request);
}

}  // namespace ddp::train
