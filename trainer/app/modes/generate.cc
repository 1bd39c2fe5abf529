#include <unistd.h>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/data/char_vocabulary.h"
#include "trainer/model/generate.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"

namespace ddp::train {

int run_generate(const TrainerArgs& args) {
  const auto& options = args.generate;
  const FetchedSnapshot fetched(options.snapshot);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  const Config config = config_from_json(snapshot.meta.config_json);
  const auto vocabulary = CharVocabulary::from_characters(snapshot.meta.vocabulary);
  const auto prompt = vocabulary.encode(options.prompt);
  if (prompt.empty())
    throw UserError(
        "--prompt is empty; give at least one character to start from, such as --prompt ' '");
  GPT model(config.gpt, vocabulary.size(), config.data.block_size, 0);
  for (auto& p : model->model_parameters()) snapshot.load_into("model." + p.name, p.tensor);

  SamplingOptions sampling;
  sampling.max_new_tokens = options.max_new_tokens;
  sampling.temperature = options.temperature;
  sampling.top_k = options.top_k;
  sampling.greedy = options.greedy;
  sampling.seed = static_cast<uint64_t>(options.seed);
  print(options.prompt);
  generate(model, prompt, sampling, [&](int64_t token) { print(vocabulary.decode(token)); });
  if (::isatty(STDOUT_FILENO) != 0) print("\n");
  return launch::kExitDone;
}

}  // namespace ddp::train
