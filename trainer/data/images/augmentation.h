// Random changes of an image that preserve its class.
#pragma once

#include <cstdint>

#include "trainer/config/model_config.h"
#include "trainer/data/images/image_decoder.h"

namespace ddp::train {

/// The same image for the same seed: moved by up to image_config.augment_shift pixels up or down
/// and left or right, all moves equally likely, the border continued outwards; then, with
/// image_config.augment_flip, mirrored left to right every other time.
Image augmented(const Image& image, const ImageConfig& config, uint64_t seed);

}  // namespace ddp::train
