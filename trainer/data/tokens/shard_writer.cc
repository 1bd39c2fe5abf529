#include "trainer/data/tokens/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace ddp::train {

ShardWriter::ShardWriter(Options options) : options_(std::move(options)) {}

void ShardWriter::write(std::span<const int32_t> tokens) {
  while (!tokens.empty()) {
    if (!file_) open_next();
    const auto room = static_cast<std::size_t>(options_.tokens_per_shard - layout_.tokens);
    const auto part = tokens.first(std::min(room, tokens.size()));
    append(part);
    tokens = tokens.subspan(part.size());
    if (part.size() == room) publish();
  }
}

void ShardWriter::finish() {
  if (file_) publish();
}

void ShardWriter::open_next() {
  layout_ = {kShardHeaderBytes, token_bytes_for(options_.vocabulary_size), 0,
             options_.vocabulary_size, options_.tokenizer_fingerprint};
  file_ = std::make_unique<AtomicFile>(fmt::format("{}/tokens_{:06}.bin", options_.folder, shards_),
                                       options_.durable);
  const std::string header = shard_header(layout_);
  file_->write(header.data(), header.size());
}

void ShardWriter::append(std::span<const int32_t> tokens) {
  buffer_.resize(tokens.size() * layout_.token_bytes);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto wide = static_cast<uint32_t>(tokens[i]);
    const auto narrow = static_cast<uint16_t>(tokens[i]);
    char* to = buffer_.data() + i * layout_.token_bytes;
    if (layout_.token_bytes == sizeof narrow) {
      std::memcpy(to, &narrow, sizeof narrow);
    } else {
      std::memcpy(to, &wide, sizeof wide);
    }
  }
  file_->write(buffer_.data(), buffer_.size());
  layout_.tokens += static_cast<int64_t>(tokens.size());
  all_tokens_ += static_cast<int64_t>(tokens.size());
}

void ShardWriter::publish() {
  const std::string header = shard_header(layout_);
  file_->overwrite(0, header.data(), header.size());
  file_->commit();
  file_.reset();
  ++shards_;
}

}  // namespace ddp::train
