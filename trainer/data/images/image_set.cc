#include "trainer/data/images/image_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "trainer/data/images/idx_file.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/runtime/log/message.h"
#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.rfind(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// "train-images-idx3-ubyte.gz" -> "train-labels-idx1-ubyte.gz"; compressed or not, as it is there.
std::string label_file_of(const std::string& images) {
  const fs::path path(images);
  std::string name = replaced(path.filename().string(), "images", "labels");
  for (const char* kind : {"idx3", "idx4"}) name = replaced(name, kind, "idx1");
  std::string found = (path.parent_path() / name).string();
  if (name == path.filename().string()) {
    throw UserError(fmt::format(
        "{}: its name does not contain 'images', so its file of labels cannot be found; "
        "use MNIST's names: train-images-idx3-ubyte and train-labels-idx1-ubyte",
        images));
  }
  if (fs::exists(found)) return found;
  const std::string other =
      found.ends_with(".gz") ? found.substr(0, found.size() - 3) : found + ".gz";
  if (fs::exists(other)) return other;
  throw UserError(fmt::format("{}: its file of labels, {}, is missing", images, found));
}

class IdxImages : public ImageSet {
 public:
  explicit IdxImages(const std::string& path) : path_(path), images_(read_idx(path)) {
    const auto& shape = images_.shape;
    const bool fits = shape.size() == 3 || (shape.size() == 4 && (shape[3] == 1 || shape[3] == 3));
    if (!fits) {
      throw UserError(
          fmt::format("{}: its shape is {}; images are count x height x width, optionally "
                      "followed by 1 or 3 channels",
                      path, fmt::join(shape, "x")));
    }
    fingerprint_ = Sha256()
                       .update(fmt::format("{}\n", fmt::join(shape, "x")))
                       .update(images_.elements.data(), images_.elements.size())
                       .hex();
  }

  void read_labels(const std::vector<std::string>& known) {
    const std::string file = label_file_of(path_);
    const IdxArray array = read_idx(file);
    if (array.shape.size() != 1 || array.shape[0] != size()) {
      throw UserError(fmt::format("{}: its shape is {}; the labels of {} need {}", file,
                                  fmt::join(array.shape, "x"), path_, size()));
    }
    labels_.assign(array.elements.begin(), array.elements.end());
    std::vector<std::string> names;
    const int64_t most = *std::max_element(labels_.begin(), labels_.end());
    for (int64_t i = 0; i <= most; ++i) names.push_back(fmt::to_string(i));
    if (known.empty()) {
      if (most == *std::min_element(labels_.begin(), labels_.end()))
        throw UserError(fmt::format("{}: all labels are {}; a classifier needs two", file, most));
      label_names_ = std::move(names);
    } else if (most >= static_cast<int64_t>(known.size())) {
      throw UserError(fmt::format("{}: has label {}, but the model has {} labels, from 0", file,
                                  most, known.size()));
    } else {
      label_names_ = known;
    }
    fingerprint_ = sha256_hex(fingerprint_ +
                              Sha256().update(array.elements.data(), array.elements.size()).hex());
  }

  int64_t size() const override { return images_.shape[0]; }
  bool may_be_broken() const override { return false; }
  std::string name(int64_t index) const override { return fmt::format("{}[{}]", path_, index); }
  Image image(int64_t index, int64_t channels) const override {
    const auto& shape = images_.shape;
    Image image{shape[1], shape[2], shape.size() == 4 ? shape[3] : 1, {}};
    const int64_t bytes = image.height * image.width * image.channels;
    const auto first = images_.elements.begin() + index * bytes;
    image.pixels.assign(first, first + bytes);
    return with_channels(std::move(image), channels);
  }

 private:
  std::string path_;
  IdxArray images_;
};

bool is_image_name(const fs::path& path) {
  const std::string end = lower_extension(path);
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

/// What `wanted` says yes to, sorted by name.
template <typename Wanted>
std::vector<fs::path> entries_of(const std::string& folder, const Wanted& wanted) {
  std::vector<fs::path> found;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!is_hidden(entry.path()) && wanted(entry)) found.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw UserError(fmt::format("{}: {}", folder, error.code().message()));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> images_in(const fs::path& folder) {
  return entries_of(folder.string(), [](const fs::directory_entry& entry) {
    return entry.is_regular_file() && is_image_name(entry.path());
  });
}

/// Size, first and last KiB: other pixels show there, as a PNG ends with a checksum of them, and in
/// a JPEG all bits after a change move. A file that cannot be read is found out later.
void digest_of_ends(const fs::path& path, Sha256& sum) {
  constexpr std::streamoff kEnd = 1024;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  sum.update(fmt::format("{}\n", size));
  char bytes[kEnd] = {};
  for (const std::streamoff from : {std::streamoff{0}, std::max<std::streamoff>(0, size - kEnd)}) {
    file.seekg(from);
    file.read(bytes, kEnd);
    sum.update(bytes, static_cast<std::size_t>(file.gcount()));
    file.clear();
  }
}

class ImageFiles : public ImageSet {
 public:
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  bool may_be_broken() const override { return true; }
  std::string name(int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].string();
  }
  Image image(int64_t index, int64_t channels) const override {
    return read_image(name(index), channels);
  }

  void add_classes(const std::string& path, const std::vector<std::string>& known) {
    const auto folders =
        entries_of(path, [](const fs::directory_entry& entry) { return entry.is_directory(); });
    if (folders.empty()) {
      throw UserError(
          fmt::format("{}: contains no folder; give a folder with one folder of PNG or JPEG files "
                      "per class, or "
                      "an idx file of images",
                      path));
    }
    for (const auto& folder : folders) label_names_.push_back(folder.filename().string());
    for (const std::string& name : label_names_) {
      if (first_bad_byte(name) != std::string::npos)
        throw UserError(fmt::format("{}: the name of the folder {} is not valid UTF-8; rename it",
                                    path, shown(name)));
    }
    const std::vector<std::string> own = label_names_;
    if (!known.empty()) label_names_ = known;
    Sha256 sum;
    for (std::size_t i = 0; i < folders.size(); ++i)
      add_class(folders[i], label_of(path, own[i]), sum);
    if (known.empty() && folders.size() == 1) {
      throw UserError(
          fmt::format("{}: contains the folder of one class, {}; a classifier needs two", path,
                      shown(own.front())));
    }
    fingerprint_ = sum.hex();
  }

  void add_tree(const fs::path& path) {
    for (auto& file : images_in(path)) files_.push_back(std::move(file));
    for (const auto& folder : entries_of(path.string(), [](const fs::directory_entry& entry) {
           return entry.is_directory() && !entry.is_symlink();
         })) {
      add_tree(folder);
    }
  }
  void add_file(const fs::path& path) { files_.push_back(path); }

 private:
  int64_t label_of(const std::string& path, const std::string& name) const {
    const auto found = std::find(label_names_.begin(), label_names_.end(), name);
    if (found != label_names_.end()) return found - label_names_.begin();
    throw UserError(
        fmt::format("{}: class {} is not one of the model: {}; rename its "
                    "folder, or train a new model with this class",
                    path, shown(name), shown_list(label_names_)));
  }

  void add_class(const fs::path& folder, int64_t label, Sha256& sum) {
    const auto files = images_in(folder);
    if (files.empty()) {
      throw UserError(
          fmt::format("{}: the folder of a class holds no PNG or JPEG file; fill it or remove it",
                      folder.string()));
    }
    for (const auto& file : files) {
      sum.update(fmt::format("{}\n{}\n", label_names_[static_cast<std::size_t>(label)],
                             file.filename().string()));
      digest_of_ends(file, sum);
      files_.push_back(file);
      labels_.push_back(label);
    }
  }

  std::vector<fs::path> files_;
};

}  // namespace

std::unique_ptr<ImageSet> open_labelled_images(const std::string& path,
                                               const std::vector<std::string>& known) {
  if (fs::is_directory(path)) {
    auto files = std::make_unique<ImageFiles>();
    files->add_classes(path, known);
    return files;
  }
  auto images = std::make_unique<IdxImages>(path);
  images->read_labels(known);
  return images;
}

std::unique_ptr<ImageSet> open_images(const std::string& path) {
  const bool folder = fs::is_directory(path);
  if (!folder && !is_image_name(path)) return std::make_unique<IdxImages>(path);
  auto files = std::make_unique<ImageFiles>();
  if (!folder) {
    files->add_file(path);
  } else {
    files->add_tree(path);
  }
  if (files->size() == 0)
    throw UserError(fmt::format("{}: contains no PNG or JPEG file, nor do its subfolders", path));
  return files;
}

}  // namespace ddp::train
