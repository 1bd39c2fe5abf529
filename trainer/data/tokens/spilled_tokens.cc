#include "trainer/data/tokens/spilled_tokens.h"

#include <fmt/format.h>

#include <limits>

#include "trainer/data/tokens/memory_tokens.h"
#include "trainer/data/tokens/shard_writer.h"
#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/runtime/files/temporary_folder.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::train {

std::unique_ptr<TokenSequence> spill_tokens(
    const Tokenizer& tokenizer, const std::function<bool(std::vector<int32_t>&)>& next) {
  ShardUse use{tokenizer.size(), tokenizer_fingerprint(tokenizer)};
  const TemporaryFolder folder("the tokens");
  ShardWriter writer({folder.path(), std::numeric_limits<int64_t>::max(), use.vocabulary_size,
                      use.tokenizer_fingerprint, /*durable=*/false});
  Sha256 sum;
  sum.update(fmt::format("tokens {} {}\n", use.vocabulary_size, use.tokenizer_fingerprint));
  try {
    for (std::vector<int32_t> tokens; next(tokens);) {
      sum.update(tokens.data(), tokens.size() * sizeof(int32_t));
      writer.write(tokens);
    }
    writer.finish();
  } catch (const NoSpaceError& error) {
    throw NoSpaceError(fmt::format("{}; set TMPDIR to a folder with more room", error.what()));
  }
  if (writer.tokens() == 0)
    return std::make_unique<MemoryTokens>(std::vector<int32_t>{}, use.tokenizer_fingerprint);
  use.fingerprint = sum.hex();
  return std::make_unique<TokenShards>(find_shards(folder.path()), use);  // mapped: needs no name
}

}  // namespace ddp::train
