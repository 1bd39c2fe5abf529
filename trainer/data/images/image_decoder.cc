#include "trainer/data/images/image_decoder.h"

#include <fmt/format.h>
#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/small_file.h"

namespace ddp::train {
namespace {

using Bytes = std::vector<uint8_t>;

/// Anything larger is not a sample for a classifier but a mistake or an attack.
constexpr int64_t kMostPixels = int64_t{1} << 26;
constexpr uint64_t kMostFileBytes = 8 * kMostPixels;  // four channels of 16 bits, not compressed

Bytes read_bytes(const std::string& path) {
  std::optional<std::string> bytes;
  try {
    bytes = read_small_file(path, kMostFileBytes);
  } catch (const UserError& error) {
    const std::string what = error.what(), place = path + ": ";
    throw BrokenImage(what.starts_with(place) ? what.substr(place.size()) : what);
  }
  if (!bytes) throw BrokenImage(std::strerror(errno));
  if (bytes->empty()) throw BrokenImage("is empty");
  return {bytes->begin(), bytes->end()};
}

bool begins_with(const Bytes& bytes, std::string_view signature) {
  return bytes.size() >= signature.size() &&
         std::memcmp(bytes.data(), signature.data(), signature.size()) == 0;
}

Image empty_image(int64_t height, int64_t width, int64_t channels) {
  if (height * width > kMostPixels)
    throw BrokenImage(fmt::format("{}x{} pixels, more than 2^26", width, height));
  Image image{height, width, channels, {}};
  image.pixels.resize(static_cast<std::size_t>(height * width * channels));
  return image;
}

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24U | uint32_t{bytes[1]} << 16U | uint32_t{bytes[2]} << 8U |
         uint32_t{bytes[3]};
}

/// The file without the chunks that define how its numbers look on a screen: libpng would convert
/// the pixels to sRGB, where Pillow, torchvision and OpenCV return them as they are.
Bytes without_colour_space(const Bytes& png) {
  constexpr std::size_t kSignature = 8, kAroundData = 12;
  constexpr std::string_view kColourSpaces[] = {"gAMA", "cHRM", "sRGB", "iCCP", "cICP"};
  Bytes result(png.begin(), png.begin() + kSignature);
  std::size_t at = kSignature;
  while (png.size() - at >= kAroundData) {
    const std::string_view type(reinterpret_cast<const char*>(&png[at + 4]), 4);
    const std::size_t bytes = kAroundData + big_endian(&png[at]);
    if (type == "IDAT" || bytes > png.size() - at) break;  // all that follows stays
    const bool kept = std::find(std::begin(kColourSpaces), std::end(kColourSpaces), type) ==
                      std::end(kColourSpaces);
    const auto chunk = png.begin() + static_cast<std::ptrdiff_t>(at);
    if (kept) result.insert(result.end(), chunk, chunk + static_cast<std::ptrdiff_t>(bytes));
    at += bytes;
  }
  result.insert(result.end(), png.begin() + static_cast<std::ptrdiff_t>(at), png.end());
  return result;
}

Image decode_png(const Bytes& file) {
  const Bytes bytes = without_colour_space(file);
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> freed(&png, &png_image_free);
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0)
    throw BrokenImage(fmt::format("is a broken PNG: {}", png.message));
  const bool colour = (png.format & PNG_FORMAT_FLAG_COLOR) != 0;
  png.format = colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // or 16-bit samples would be taken for linear ones
  Image image = empty_image(png.height, png.width, colour ? 3 : 1);
  const png_color black = {};
  const bool whole = png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) != 0;
  if (!whole || (png.warning_or_error & PNG_IMAGE_WARNING) != 0)
    throw BrokenImage(fmt::format("is a broken PNG: {}", png.message));
  return image;
}

/// A few bytes too many between segments harm nothing, and are frequent.
bool is_harmless(std::string_view warning) {
  return warning.find("extraneous bytes") != std::string_view::npos;
}

Image decode_jpeg(const Bytes& bytes) {
  const std::unique_ptr<void, int (*)(void*)> decoder(tjInitDecompress(), &tjDestroy);
  if (!decoder) throw BrokenImage("no memory for a decoder");
  const auto check = [&decoder](int result) {
    const std::string problem = result == 0 ? "" : tjGetErrorStr2(decoder.get());
    if (result != 0 && !is_harmless(problem)) throw BrokenImage("is a broken JPEG: " + problem);
  };
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colours = 0;
  check(tjDecompressHeader3(decoder.get(), bytes.data(), bytes.size(), &width, &height,
                            &subsampling, &colours));
  const bool gray = colours == TJCS_GRAY;
  Image image = empty_image(height, width, gray ? 1 : 3);
  check(tjDecompress2(decoder.get(), bytes.data(), bytes.size(), image.pixels.data(), width, 0,
                      height, gray ? TJPF_GRAY : TJPF_RGB, 0));
  return image;
}

/// Weights of ITU-R BT.601 in 16 bits, rounded as Pillow's convert("L") does.
uint8_t luma(const uint8_t* rgb) {
  constexpr uint32_t kRed = 19595, kGreen = 38470, kBlue = 7471, kHalf = 0x8000;
  return static_cast<uint8_t>((rgb[0] * kRed + rgb[1] * kGreen + rgb[2] * kBlue + kHalf) >> 16U);
}

/// The pixels of a line that make up one of the result, and how much each counts.
struct Footprint {
  int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Footprint> footprints(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(1.0, scale);
  std::vector<Footprint> all;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, std::llround(std::floor(centre - reach + 0.5)));
    const auto last = std::min<int64_t>(from, std::llround(std::floor(centre + reach + 0.5)));
    Footprint footprint{first, {}};
    double sum = 0.0;
    for (int64_t k = first; k < last; ++k) {
      const double distance = std::fabs((static_cast<double>(k) + 0.5 - centre) / reach);
      footprint.weights.push_back(static_cast<float>(std::max(0.0, 1.0 - distance)));
      sum += footprint.weights.back();
    }
    for (float& weight : footprint.weights) weight /= static_cast<float>(sum);
    all.push_back(std::move(footprint));
  }
  return all;
}

/// The weighted sum over `line`, whose pixels are `stride` apart.
float weighted_sum(const Footprint& footprint, const float* line, int64_t stride) {
  float sum = 0.0F;
  for (std::size_t k = 0; k < footprint.weights.size(); ++k)
    sum += footprint.weights[k] * line[(footprint.first + static_cast<int64_t>(k)) * stride];
  return sum;
}

}  // namespace

Image with_channels(Image image, int64_t channels) {
  if (channels == 0 || channels == image.channels) return image;
  Image other = empty_image(image.height, image.width, channels);
  const auto pixels = static_cast<std::size_t>(image.height * image.width);
  for (std::size_t i = 0; i < pixels; ++i) {
    if (channels == 1) {
      other.pixels[i] = luma(&image.pixels[3 * i]);
    } else {
      std::fill_n(&other.pixels[3 * i], 3, image.pixels[i]);
    }
  }
  return other;
}

Image read_image(const std::string& path, int64_t channels) {
  const Bytes bytes = read_bytes(path);
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) return with_channels(decode_png(bytes), channels);
  if (begins_with(bytes, "\xff\xd8\xff")) return with_channels(decode_jpeg(bytes), channels);
  throw BrokenImage("is neither PNG nor JPEG");
}

Image resized(const Image& image, int64_t height, int64_t width) {
  if (image.height == height && image.width == width) return image;
  const int64_t channels = image.channels;
  const std::vector<float> from(image.pixels.begin(), image.pixels.end());
  std::vector<float> narrow(static_cast<std::size_t>(image.height * width * channels));
  const auto columns = footprints(image.width, width);
  for (int64_t i = 0; i < static_cast<int64_t>(narrow.size()); ++i) {
    const int64_t row = i / (width * channels);
    const auto& column = columns[static_cast<std::size_t>(i / channels % width)];
    const float* line = from.data() + row * image.width * channels + i % channels;
    narrow[static_cast<std::size_t>(i)] = weighted_sum(column, line, channels);
  }
  Image result = empty_image(height, width, channels);
  const auto rows = footprints(image.height, height);
  const int64_t stride = width * channels;
  for (int64_t i = 0; i < height * stride; ++i) {
    const auto& row = rows[static_cast<std::size_t>(i / stride)];
    const float value = weighted_sum(row, narrow.data() + i % stride, stride);
    result.pixels[static_cast<std::size_t>(i)] =
        static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F));
  }
  return result;
}

}  // namespace ddp::train
