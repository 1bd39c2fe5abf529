// Small pictures to train a classifier on, as files in MNIST's format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/e2e/job.h"

namespace ddp::test {

inline constexpr int kSide = 8;
inline constexpr int kClasses = 4;
inline constexpr int kImages = 120;

inline constexpr const char* kImageConfig = R"(task: image_classification
data_config:
  path: train-images-idx3-ubyte
  eval_path: test-images-idx3-ubyte
image_config: {conv_channels: 4, width: 16, dropout: 0.1, augment_shift: 1, augment_flip: true}
)";

/// Class k has a bright row 2k between faint dots of a linear congruence.
inline std::string pixels_of(int label, std::uint32_t state) {
  std::string pixels;
  for (int i = 0; i < kSide * kSide; ++i) {
    state = state * 1664525U + 1013904223U;
    pixels += static_cast<char>(i / kSide == 2 * label ? 200 + (state >> 27U) : state >> 26U);
  }
  return pixels;
}

inline std::string idx_head(const std::vector<std::uint32_t>& shape) {
  std::string head = {0, 0, 8, static_cast<char>(shape.size())};
  for (const std::uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) head += static_cast<char>(size >> shift);
  }
  return head;
}

inline void write_idx(const Workspace& place, const std::string& part, int images,
                      std::uint32_t seed) {
  std::string pixels = idx_head({static_cast<std::uint32_t>(images), kSide, kSide});
  std::string labels = idx_head({static_cast<std::uint32_t>(images)});
  for (int i = 0; i < images; ++i) {
    const int label = (i * 5 + i / 7) % kClasses;
    pixels += pixels_of(label, seed + static_cast<std::uint32_t>(i));
    labels += static_cast<char>(label);
  }
  place.write(part + "-images-idx3-ubyte", pixels);
  place.write(part + "-labels-idx1-ubyte", labels);
}

struct ImageWorkspace : Workspace {
  ImageWorkspace() {
    write("config.yaml", tiny_config(kImageConfig, 24, 6, 2));
    write_idx(*this, "train", kImages, 1);
    write_idx(*this, "test", 40, 1000);
  }
};

}  // namespace ddp::test
