// Images with labels, from an idx file or from one folder per class.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/images/image_decoder.h"

namespace ddp::train {

/// Immutable; every member may be called by several threads at a time.
class ImageSet {
 public:
  virtual ~ImageSet() = default;

  virtual int64_t size() const = 0;
  /// Returns the image as stored, with `channels` channels; 0 keeps them. Throws BrokenImage.
  virtual Image image(int64_t index, int64_t channels) const = 0;
  /// A file, or a file and the image's number in it.
  virtual std::string name(int64_t index) const = 0;
  /// Whether an image may turn out to be broken when it is read.
  virtual bool may_be_broken() const = 0;

  /// Index into label_names() of each image; empty: no labels are known.
  const std::vector<int64_t>& labels() const { return labels_; }
  const std::vector<std::string>& label_names() const { return label_names_; }
  /// Equal for equal images. Covers the bytes of an idx file; in folders the class, name, size and
  /// both ends of each file, as reading them all would take longer than some trainings.
  const std::string& fingerprint() const { return fingerprint_; }

 protected:
  std::vector<int64_t> labels_;
  std::vector<std::string> label_names_;
  std::string fingerprint_;
};

/// `path` is an idx file of images (the file of labels is next to it: "labels" and "idx1" in its
/// name for "images" and "idx3"), or a folder with one of PNG and JPEG files for each class.
/// `known`: the classes of the model; empty: those of the data. Throws UserError with the file or
/// folder and what is wrong with it.
std::unique_ptr<ImageSet> open_labelled_images(const std::string& path,
                                               const std::vector<std::string>& known);

/// Without labels: an idx file, a PNG or JPEG, or a folder of those at any depth.
std::unique_ptr<ImageSet> open_images(const std::string& path);

}  // namespace ddp::train
