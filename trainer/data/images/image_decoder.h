// Decodes PNG and JPEG files to pixels, using libpng and libjpeg-turbo.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::train {

/// Rows from the top, channels of a pixel side by side, 8 bits each.
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 1;  ///< 1: gray, 3: red, green, blue.
  std::vector<uint8_t> pixels;
};

/// An image that cannot be used; the message gives the reason, without the file's name.
class BrokenImage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Decodes a file, recognized by its first bytes; `channels` 0 keeps those of the file. Colour
/// becomes gray by ITU-R BT.601's weights; transparent parts lie over black. Throws BrokenImage.
Image read_image(const std::string& path, int64_t channels);

/// Gray from colour and back, as read_image() does.
Image with_channels(Image image, int64_t channels);

/// Resizes: each pixel is the mean of source pixels under a triangle around it, i.e. bilinear
/// interpolation where the image grows and an average where it shrinks (Pillow's BILINEAR, within 1
/// of 255).
Image resized(const Image& image, int64_t height, int64_t width);

}  // namespace ddp::train
