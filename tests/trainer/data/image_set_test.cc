#include "trainer/data/images/image_set.h"

#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/data/image_files.h"
#include "trainer/runtime/error.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using train::Image;
using train::open_images;
using train::open_labelled_images;
using train::UserError;

using Names = std::vector<std::string>;

/// Classes ham and spam with 2 and 1 images.
void write_classes(const TempFolder& folder) {
  folder.write("set/ham/1.png", png_of(some_image(4, 4, 1, 1)));
  folder.write("set/ham/2.JPG", jpeg_of(some_image(4, 4, 1, 2)));
  folder.write("set/spam/1.png", png_of(some_image(4, 4, 1, 3)));
}

std::string fingerprint_of(const std::string& path) {
  return open_labelled_images(path, {})->fingerprint();
}

void write_idx(const TempFolder& folder, const std::string& images, const std::string& labels) {
  folder.write("train-images-idx3-ubyte", images);
  folder.write("train-labels-idx1-ubyte", labels);
}

const std::string kTwoImages = idx_head({2, 1, 3}) + "abcdef";

TEST_CASE("the folders of a folder are the classes, whatever else lies there") {
  const TempFolder folder;
  write_classes(folder);
  folder.write("set/readme.txt", "no image");
  folder.write("set/ham/notes.txt", "no image");
  folder.write("set/ham/.hidden.png", "no image");
  folder.write("set/.cache/1.png", "no image");
  const auto set = open_labelled_images(folder / "set", {});
  CHECK(set->label_names() == Names{"ham", "spam"});
  CHECK(set->labels() == std::vector<int64_t>{0, 0, 1});
  CHECK(set->name(1) == folder / "set/ham/2.JPG");
  CHECK(set->image(2, 0).pixels == some_image(4, 4, 1, 3).pixels);
  CHECK(set->image(2, 3).channels == 3);
  CHECK(set->may_be_broken());
}

TEST_CASE("a model's classes give the numbers, and a class that it does not know is refused") {
  const TempFolder folder;
  write_classes(folder);
  const auto set = open_labelled_images(folder / "set", {"eggs", "spam", "ham"});
  CHECK(set->labels() == std::vector<int64_t>{2, 2, 1});
  CHECK_THROWS_WITH(open_labelled_images(folder / "set", {"eggs", "ham"}),
                    Contains("spam is not one of the model: eggs, ham; rename its folder"));
}

TEST_CASE("a folder without classes or with one, and a class without images, are refused by name") {
  const TempFolder folder;
  folder.write("flat/1.png", "");
  CHECK_THROWS_WITH(open_labelled_images(folder / "flat", {}), Contains("contains no folder"));
  folder.write("one/ham/1.png", "");
  CHECK_THROWS_WITH(open_labelled_images(folder / "one", {}),
                    Contains("one: contains the folder of one class, ham; a classifier needs two"));
  CHECK(open_labelled_images(folder / "one", {"ham", "spam"})->size() == 1);
  write_classes(folder);
  fs::create_directory(folder / "set/empty");
  CHECK_THROWS_WITH(open_labelled_images(folder / "set", {}),
                    Contains("set/empty: the folder of a class holds no PNG or JPEG file"));
  CHECK_THROWS_AS(open_labelled_images(folder / "nowhere", {}), UserError);
}

TEST_CASE("the fingerprint of folders is that of their copies, and changes with any pixel") {
  const TempFolder folder;
  write_classes(folder);
  const std::string before = fingerprint_of(folder / "set");
  fs::copy(folder / "set", folder / "copy", fs::copy_options::recursive);
  CHECK(fingerprint_of(folder / "copy") == before);
  fs::last_write_time(folder / "copy/ham/1.png", fs::file_time_type::clock::now());
  CHECK(fingerprint_of(folder / "copy") == before);
  fs::rename(folder / "copy/ham/1.png", folder / "copy/ham/3.png");
  CHECK(fingerprint_of(folder / "copy") != before);
}

TEST_CASE("one pixel in the middle of a large PNG of equal size changes the fingerprint") {
  const TempFolder folder;
  Image image = some_image(200, 200, 1, 5);
  const std::string first = png_of(image);
  REQUIRE(first.size() > 10'000);
  folder.write("set/a/1.png", first);
  folder.write("set/b/1.png", first);
  const std::string before = fingerprint_of(folder / "set");
  int of_equal_size = 0;
  for (std::size_t at = 20'000; at < 20'050; ++at) {
    image.pixels[at] ^= 1U;
    const std::string second = png_of(image);
    image.pixels[at] ^= 1U;
    folder.write("set/a/1.png", second);
    CHECK(fingerprint_of(folder / "set") != before);
    of_equal_size += second.size() == first.size() ? 1 : 0;
  }
  CHECK(of_equal_size > 0);
}

TEST_CASE("an idx file has the labels of the file beside it, compressed or not") {
  const TempFolder folder;
  write_idx(folder, kTwoImages, idx_head({2}) + std::string("\x02\x00", 2));
  const auto set = open_labelled_images(folder / "train-images-idx3-ubyte", {});
  CHECK(set->label_names() == Names{"0", "1", "2"});
  CHECK(set->labels() == std::vector<int64_t>{2, 0});
  CHECK(set->image(1, 0).pixels == std::vector<uint8_t>{'d', 'e', 'f'});
  CHECK(set->name(1) == folder / "train-images-idx3-ubyte[1]");
  fs::remove(folder / "train-labels-idx1-ubyte");
  folder.write("train-labels-idx1-ubyte.gz", gzipped(idx_head({2}) + std::string("\x02\x00", 2)));
  const auto again = open_labelled_images(folder / "train-images-idx3-ubyte", {});
  CHECK(again->fingerprint() == set->fingerprint());
}

TEST_CASE("labels that are missing, of another number or unknown to the model are refused") {
  const TempFolder folder;
  const std::string path = folder.write("train-images-idx3-ubyte", kTwoImages);
  CHECK_THROWS_WITH(open_labelled_images(path, {}),
                    Contains("train-labels-idx1-ubyte, is missing"));
  write_idx(folder, kTwoImages, idx_head({3}) + "abc");
  CHECK_THROWS_WITH(open_labelled_images(path, {}), Contains("its shape is 3; the labels"));
  write_idx(folder, kTwoImages, idx_head({2}) + std::string("\x00\x00", 2));
  CHECK_THROWS_WITH(open_labelled_images(path, {}), Contains("all labels are 0"));
  write_idx(folder, kTwoImages, idx_head({2}) + std::string("\x01\x05", 2));
  CHECK_THROWS_WITH(open_labelled_images(path, {"0", "1"}),
                    Contains("has label 5, but the model has 2 labels"));
  const std::string nameless = folder.write("digits", kTwoImages);
  CHECK_THROWS_WITH(open_labelled_images(nameless, {}), Contains("does not contain 'images'"));
}

TEST_CASE("an idx file whose shape is none of images is refused") {
  const TempFolder folder;
  CHECK_THROWS_WITH(open_images(folder.write("images", idx_head({6}) + "abcdef")),
                    Contains("its shape is 6; images are"));
  CHECK_THROWS_WITH(open_images(folder.write("images", idx_head({1, 1, 3, 2}) + "abcdef")),
                    Contains("its shape is 1x1x3x2"));
  CHECK(open_images(folder.write("images", idx_head({1, 1, 2, 3}) + "abcdef"))
            ->image(0, 0)
            .channels == 3);
}

TEST_CASE("images without labels are found at any depth, in the order of their names") {
  const TempFolder folder;
  write_classes(folder);
  folder.write("set/0.png", png_of(some_image(4, 4, 1)));
  const auto set = open_images(folder / "set");
  CHECK(set->size() == 4);
  CHECK(set->name(0) == folder / "set/0.png");
  CHECK(set->name(3) == folder / "set/spam/1.png");
  CHECK(open_images(folder / "set/0.png")->size() == 1);
  fs::create_directory(folder / "empty");
  CHECK_THROWS_WITH(open_images(folder / "empty"), Contains("contains no PNG or JPEG file"));
}

}  // namespace
}  // namespace ddp::test
