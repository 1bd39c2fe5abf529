#include "trainer/data/tokens/spilled_tokens.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>

#include "trainer/data/tokens/memory_tokens.h"
#include "trainer/data/tokens/shard_writer.h"
#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((fs::temp_directory_path() / "trainer-tokens-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw UserError(
          fmt::format("{}: cannot be made for the tokens: {}; set TMPDIR to a folder "
                      "with room",
                      path_, std::strerror(errno)));
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::unique_ptr<TokenSequence> spill_tokens(
    const Tokenizer& tokenizer, const std::function<bool(std::vector<int32_t>&)>& next) {
  const ShardUse use{tokenizer.size(), tokenizer_fingerprint(tokenizer)};
  const TemporaryFolder folder;
  ShardWriter writer({folder.path(), std::numeric_limits<int64_t>::max(), use.vocabulary_size,
                      use.tokenizer_fingerprint});
  for (std::vector<int32_t> tokens; next(tokens);) writer.write(tokens);
  writer.finish();
  if (writer.tokens() == 0)
    return std::make_unique<MemoryTokens>(std::vector<int32_t>{}, use.tokenizer_fingerprint);
  return std::make_unique<TokenShards>(find_shards(folder.path()), use);  // mapped: needs no name
}

}  // namespace ddp::train
