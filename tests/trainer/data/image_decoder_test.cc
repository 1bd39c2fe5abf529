#include "trainer/data/images/image_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/data/image_files.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using train::BrokenImage;
using train::Image;
using train::read_image;

Image decoded(const std::string& bytes, int64_t channels = 0) {
  const TempFolder folder;
  return read_image(folder.write("image", bytes), channels);
}

std::string why_broken(const std::string& bytes) {
  try {
    decoded(bytes);
  } catch (const BrokenImage& broken) {
    return broken.what();
  }
  return "";
}

/// Big-endian at `at`.
std::string with_number(std::string bytes, std::size_t at, uint32_t number) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(number >> (24 - 8 * i));
  return bytes;
}

TEST_CASE("a PNG is decoded to the pixels that were written, gray and in colour") {
  for (const int64_t channels : {1, 3}) {
    const Image image = some_image(5, 7, channels);
    const Image read = decoded(png_of(image));
    CHECK(read.height == 5);
    CHECK(read.width == 7);
    CHECK(read.channels == channels);
    CHECK(read.pixels == image.pixels);
  }
}

/// A chunk of that type in front of the pixels.
std::string with_chunk(std::string png, const std::string& type, const std::string& data) {
  constexpr std::size_t kBehindHeader = 33;
  const std::string named = type + data;
  const auto sum =
      crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()));
  const std::string zeros(4, '\0');
  const std::string chunk = with_number(zeros, 0, static_cast<uint32_t>(data.size())) + named +
                            with_number(zeros, 0, static_cast<uint32_t>(sum));
  return png.insert(kBehindHeader, chunk);
}

TEST_CASE("a PNG's pixels are those in the file, whatever gamma it names") {
  const std::string gamma = with_number(std::string(4, '\0'), 0, 100000);  // linear
  for (const int64_t channels : {1, 3}) {
    const Image image = some_image(5, 7, channels);
    CHECK(decoded(with_chunk(png_of(image), "gAMA", gamma)).pixels == image.pixels);
  }
}

TEST_CASE("a PNG of 16 bits gives the upper 8 of each sample") {
  // One row of the gray samples 0x0000, 0x4040, 0xffff.
  std::string header = with_number(std::string(13, '\0'), 0, 3);
  header = with_number(header, 4, 1);
  header[8] = 16;
  const std::string row("\0\0\0\x40\x40\xff\xff", 7);
  uLongf size = 100;
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(row.data()), static_cast<uLong>(row.size()));
  packed.resize(size);
  std::string png = "\x89PNG\r\n\x1a\n";
  for (const auto& [type, data] :
       {std::pair{"IHDR", header}, {"IDAT", packed}, {"IEND", std::string()}}) {
    const std::string chunk = with_chunk(std::string(33, ' '), type, data).substr(33);
    png += chunk;
  }
  CHECK(decoded(png).pixels == std::vector<uint8_t>{0, 0x40, 0xff});
}

TEST_CASE("transparent parts of a PNG lie on black") {
  const std::vector<uint8_t> pixels = {200, 100, 50, 255, 200, 100, 50, 0};
  CHECK(decoded(png_of(pixels, 1, 2, PNG_FORMAT_RGBA)).pixels ==
        std::vector<uint8_t>{200, 100, 50, 0, 0, 0});
}

TEST_CASE("a JPEG is decoded to pixels near those that were written") {
  Image image = some_image(16, 24, 1);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{120});
  const Image read = decoded(jpeg_of(image));
  REQUIRE(read.pixels.size() == image.pixels.size());
  for (const uint8_t pixel : read.pixels) CHECK(std::abs(pixel - 120) <= 1);
  CHECK(decoded(jpeg_of(some_image(16, 24, 3))).channels == 3);
}

TEST_CASE("gray is made of colour by the weights of BT.601, and colour of gray by repetition") {
  const Image colour{1, 3, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255}};
  CHECK(train::with_channels(colour, 1).pixels == std::vector<uint8_t>{76, 150, 29});
  const Image gray{1, 2, 1, {7, 9}};
  CHECK(train::with_channels(gray, 3).pixels == std::vector<uint8_t>{7, 7, 7, 9, 9, 9});
  CHECK(decoded(png_of(colour), 1).pixels == std::vector<uint8_t>{76, 150, 29});
}

TEST_CASE("what is no image, or an empty or missing file, is broken") {
  CHECK(why_broken("GIF89a and more") == "is neither PNG nor JPEG");
  CHECK(why_broken("\x89P") == "is neither PNG nor JPEG");
  CHECK(why_broken("") == "is empty");
  const TempFolder folder;
  const std::string large = folder.write("large.png", "");
  std::filesystem::resize_file(large, 600'000'000);
  CHECK_THROWS_WITH(read_image(large, 0), Contains("has 600 MB, more than the 537 MB"));
  CHECK_THROWS_WITH(read_image("/nowhere/image.png", 0), Contains("No such file"));
}

TEST_CASE("a PNG that is cut anywhere is broken") {
  const std::string whole = png_of(some_image(9, 9, 3));
  for (std::size_t size = 8; size + 12 < whole.size(); size += 7) {  // 12: the empty last chunk
    INFO(size);
    CHECK(!why_broken(whole.substr(0, size)).empty());
  }
}

TEST_CASE("a PNG with a changed byte in its pixels is broken") {
  const std::string whole = png_of(some_image(9, 9, 1));
  const std::size_t pixels = whole.find("IDAT") + 4;
  for (std::size_t at = pixels; at < pixels + 40; at += 9) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    INFO(at - pixels);
    CHECK(!why_broken(damaged).empty());
  }
}

TEST_CASE("an image of absurd size is broken before memory is taken for it") {
  // Width and height follow the signature, a length and IHDR; its checksum is behind 13 bytes.
  std::string huge = with_number(png_of(some_image(2, 2, 1)), 16, 100'000);
  huge = with_number(huge, 20, 100'000);
  const auto* const head = reinterpret_cast<const Bytef*>(huge.data()) + 12;
  huge = with_number(huge, 29, static_cast<uint32_t>(crc32(0, head, 17)));
  CHECK(why_broken(huge) == "100000x100000 pixels, more than 2^26");
}

TEST_CASE("a JPEG that is cut or has no picture is broken") {
  const std::string whole = jpeg_of(some_image(64, 64, 3));
  CHECK(!why_broken(whole.substr(0, whole.size() / 2)).empty());
  CHECK(!why_broken(whole.substr(0, 30)).empty());
  CHECK(!why_broken("\xff\xd8\xff\xd9").empty());
}

TEST_CASE("resizing keeps a plain image plain, and a shrunk one is the mean of what it covers") {
  Image plain = some_image(5, 9, 3);
  std::fill(plain.pixels.begin(), plain.pixels.end(), uint8_t{77});
  for (const auto& [height, width] : {std::pair{3, 4}, {11, 30}, {1, 1}}) {
    const Image resized = train::resized(plain, height, width);
    CHECK(resized.height == height);
    CHECK(resized.width == width);
    CHECK(resized.pixels == std::vector<uint8_t>(static_cast<std::size_t>(height * width * 3), 77));
  }
  const Image stripes{1, 4, 1, {0, 0, 200, 200}};
  const Image half = train::resized(stripes, 1, 2);
  CHECK(half.pixels.front() < 50);
  CHECK(half.pixels.back() > 150);
  CHECK(half.pixels.front() + half.pixels.back() == 200);
}

}  // namespace
}  // namespace ddp::test
