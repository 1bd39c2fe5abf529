// Files of images for the tests, written by the libraries that all the world writes them with.
#pragma once

#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/data/images/image_decoder.h"

namespace ddp::test {

/// `height` x `width`, each value a function of its place and of `seed`.
inline train::Image some_image(int64_t height, int64_t width, int64_t channels, uint32_t seed = 1) {
  train::Image image{height, width, channels, {}};
  for (int64_t i = 0; i < height * width * channels; ++i) {
    seed = seed * 1664525U + 1013904223U;
    image.pixels.push_back(static_cast<uint8_t>(seed >> 24U));
  }
  return image;
}

/// The bytes of a PNG; `format` as libpng names them, such as PNG_FORMAT_GRAY.
inline std::string png_of(const std::vector<uint8_t>& pixels, int64_t height, int64_t width,
                          png_uint_32 format) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(width);
  png.height = static_cast<png_uint_32>(height);
  png.format = format;
  png_alloc_size_t size = 0;
  if (png_image_write_get_memory_size(png, size, 0, pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error(png.message);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error(png.message);
  bytes.resize(size);
  return bytes;
}

inline std::string png_of(const train::Image& image) {
  return png_of(image.pixels, image.height, image.width,
                image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY);
}

inline std::string jpeg_of(const train::Image& image, int quality = 95) {
  const tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): turbojpeg's own type
  const bool gray = image.channels == 1;
  const int failed = tjCompress2(encoder, image.pixels.data(), static_cast<int>(image.width), 0,
                                 static_cast<int>(image.height), gray ? TJPF_GRAY : TJPF_RGB,
                                 &bytes, &size, gray ? TJSAMP_GRAY : TJSAMP_444, quality, 0);
  std::string result(reinterpret_cast<const char*>(bytes), failed == 0 ? size : 0);
  tjFree(bytes);
  tjDestroy(encoder);
  if (failed != 0) throw std::runtime_error("no JPEG could be written");
  return result;
}

inline std::string gzipped(const std::string& bytes) {
  constexpr int kGzip = 15 + 16;  // the largest window; a gzip header
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("no gzip stream could be begun");
  std::string result(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int code = deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END) throw std::runtime_error("no gzip stream could be ended");
  return result;
}

/// The head of an idx file of such a shape.
inline std::string idx_head(const std::vector<uint32_t>& shape, char type = '\x08') {
  std::string head = {'\0', '\0', type, static_cast<char>(shape.size())};
  for (const uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) head += static_cast<char>(size >> shift & 255U);
  }
  return head;
}

}  // namespace ddp::test
