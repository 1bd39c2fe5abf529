// Image classification from files to predictions: the invariants of every task, and the mistakes
// that only images have.
#include <png.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/exact_runs.h"
#include "tests/e2e/pictures.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

void write_png(const std::string& path, const std::string& pixels) {
  fs::create_directories(fs::path(path).parent_path());
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = kSide;
  image.format = PNG_FORMAT_GRAY;
  REQUIRE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0);
}

/// A folder for each class: row0, row2, ...
struct FolderWorkspace : Workspace {
  FolderWorkspace() {
    write("config.yaml", tiny_config(kImageConfig, 24, 6, 2));
    for (int i = 0; i < kImages; ++i) {
      const int label = i % kClasses;
      write_png(
          *this / ("classes/row" + std::to_string(2 * label) + "/" + std::to_string(i) + ".png"),
          pixels_of(label, static_cast<std::uint32_t>(i)));
    }
  }
};
const Words kFolders = {"data_config.path=classes", "data_config.eval_path=null"};

Words also(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::string kLocalNorm = "image_config.batch_norm=local";

/// A run that has trained, to be used.
void train_images(const Workspace& place, const Words& overrides = {}) {
  succeed(alone(place, overrides));
}

nlohmann::json image_predictions(const Workspace& place, const std::string& input) {
  const auto run =
      succeed(trainer(place, {"predict", "--snapshot", "snapshot.pt", "--input", input, "--json"}));
  return nlohmann::json::parse(run.out)["predictions"];
}

}  // namespace

TEST_CASE("two ranks, one of them killed, learn images bit for bit as one process does") {
  check_exact<ImageWorkspace>({kLocalNorm}, 13);
}

TEST_CASE("two ranks learn images as one process does with every kind of network", "[long]") {
  for (const Words& how : {Words{}, Words{"image_config.network=dense"}})
    check_exact<ImageWorkspace>(how, 13);
}

TEST_CASE("synchronised normalization of two ranks is that of one process with the whole batch") {
  const ImageWorkspace two, one;
  const Words how = {"image_config.batch_norm=synchronized", "image_config.dropout=0",
                     "optimizer_config.name=sgd", "trainer_config.max_steps=5"};
  succeed(launched(two, 2, how));
  succeed(alone(one, also(how, {"trainer_config.batch_size=12"})));
  CHECK(largest_parameter_distance(two.snapshot(), one.snapshot()) < 1e-6);
  const ImageWorkspace local;
  succeed(launched(local, 2, also(how, {kLocalNorm})));
  CHECK(largest_parameter_distance(two.snapshot(), local.snapshot()) > 1e-5);
}

TEST_CASE("images are augmented, in another way with another seed") {
  const ImageWorkspace place, plain, seeded;
  const Words first = {"trainer_config.max_steps=1"};
  const auto changed = succeed(alone(place, first));
  const auto as_they_are = succeed(alone(
      plain, also(first, {"image_config.augment_shift=0", "image_config.augment_flip=false"})));
  const auto other = succeed(alone(seeded, also(first, {"trainer_config.seed=7"})));
  CHECK(steps_of(changed.out) != steps_of(as_they_are.out));
  CHECK(steps_of(changed.out) != steps_of(other.out));
}

TEST_CASE("trainer eval gives the metrics that training ended with, and those of another file") {
  const ImageWorkspace place;
  const auto run = succeed(alone(place));
  const Words eval = {"eval", "--snapshot", "snapshot.pt", "--json"};
  const auto report = nlohmann::json::parse(succeed(trainer(place, eval)).out);
  CHECK(report["images"] == 40);
  CHECK(report["confusion_matrix"]["labels"] == Words{"0", "1", "2", "3"});
  CHECK(report["confusion_matrix"]["counts"] == last_confusions(place));
  CHECK_THAT(run.out, Contains("images/s") && Contains("accuracy"));
  const auto again = nlohmann::json::parse(
      succeed(trainer(place, also(eval, {"--data", "test-images-idx3-ubyte"}))).out);
  CHECK(again["confusion_matrix"] == report["confusion_matrix"]);
  CHECK(again["accuracy"] == report["accuracy"]);
  CHECK(again["loss"] == report["loss"]);
}

TEST_CASE("predictions of PNG files and of an idx file with the same pixels are equal") {
  const ImageWorkspace place;
  train_images(place);
  for (int i = 0; i < 3; ++i)
    write_png(place / ("scans/" + std::to_string(i) + ".png"),
              pixels_of((i * 5 + i / 7) % kClasses, 1000U + static_cast<std::uint32_t>(i)));
  const auto of_idx = image_predictions(place, "test-images-idx3-ubyte");
  const auto of_png = image_predictions(place, "scans");
  REQUIRE(of_idx.size() == 40);
  REQUIRE(of_png.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(of_png[i]["label"] == of_idx[i]["label"]);
    for (std::size_t k = 0; k < kClasses; ++k)
      CHECK(of_png[i]["answers"][k]["probability"].get<double>() ==
            Approx(of_idx[i]["answers"][k]["probability"].get<double>()).epsilon(1e-5));
  }
  succeed(trainer(
      place, {"predict", "--snapshot", "snapshot.pt", "--input", "scans", "--output", "out.csv"}));
  const std::string csv = read_bytes(place / "out.csv");
  CHECK_THAT(csv, Catch::StartsWith("input,label,probability,probability of 0,"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 4);
}

TEST_CASE("folders of classes give the labels their names") {
  const FolderWorkspace place;
  const auto run = succeed(alone(place, kFolders));
  CHECK_THAT(run.out, Contains("Labels: 4: row0, row2, row4, row6"));
  const auto names = image_predictions(place, "classes/row4/2.png")[0]["answers"];
  CHECK(names[2]["answer"] == "row4");
}

TEST_CASE("a resumed run notices other pixels, and copies of the files do not matter") {
  const FolderWorkspace place;
  const std::string differs = "The training data differs from the snapshot's";
  succeed(alone(place, also(kFolders, {"trainer_config.max_steps=2"})));
  fs::copy(place / "classes", place / "copies", fs::copy_options::recursive);
  const Words on = {"data_config.path=copies", "data_config.eval_path=null"};
  const auto same = succeed(alone(place, also(on, {"trainer_config.max_steps=3"})));
  CHECK_THAT(same.out, !Contains(differs));
  write_png(place / "copies/row0/0.png", pixels_of(0, 77));
  const auto changed = succeed(alone(place, also(on, {"trainer_config.max_steps=4"})));
  CHECK_THAT(changed.out, Contains(differs));
}

TEST_CASE("a broken image is named and left out, or ends the run when that is asked for") {
  const FolderWorkspace place;
  const std::string png = read_bytes(place / "classes/row0/0.png");
  std::ofstream(place / "classes/row0/0.png", std::ios::binary) << png.substr(0, png.size() / 2);
  const Words two = also(kFolders, {"trainer_config.max_epochs=1", "trainer_config.max_steps=null",
                                    "data_config.train_split=0.9"});
  const auto stopped = finish(alone(place, two));
  CHECK(stopped.exit == 76);
  CHECK_THAT(stopped.err, Contains("classes/row0/0.png: cannot be used: ") &&
                              Contains("data_config.on_bad_sample=skip"));
  const auto skipped = succeed(alone(place, also(two, {"data_config.on_bad_sample=skip"})));
  CHECK_THAT(skipped.err,
             Contains("classes/row0/0.png: left out: ") && Contains("1 so far on this rank"));
}

/// Nine of its files cannot be read.
struct BrokenWorkspace : FolderWorkspace {
  BrokenWorkspace() {
    for (int i = 0; i < 9; ++i)
      write("classes/row" + std::to_string(2 * (i % kClasses)) + "/" + std::to_string(i) + ".png",
            "no image");
  }
};

TEST_CASE("with broken images two ranks still learn as one process with two micro-batches",
          "[long]") {
  check_exact<BrokenWorkspace>(also(kFolders, {"data_config.on_bad_sample=skip"}), 13);
}

}  // namespace ddp::test
