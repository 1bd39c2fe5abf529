// trainer generate: prompts in, text out as it is produced.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "launcher/worker_contract.h"
#include "trainer/app/chosen_device.h"
#include "trainer/app/generation.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/interop/base_settings.h"
#include "trainer/model/causal_model.h"
#include "trainer/model/ops/gpu_kernels.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/runtime/seed.h"
#include "trainer/runtime/utf8.h"
#include "trainer/runtime/with_key.h"
#include "trainer/snapshot/open_model.h"
#include "trainer/snapshot/snapshot_meta.h"
#include "trainer/task/generate/generate.h"
#include "trainer/tokenizer/text_stream.h"

namespace ddp::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kBetweenSamples = "---------------\n";  // as nanoGPT's sample.py

constexpr uint64_t kMostPromptBytes = uint64_t{256} << 20U;

struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
};

std::string read_all(std::istream& stream) {
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

std::string prompt_text(const GenerateArgs& options) {
  if (!options.prompt_file) return options.prompt;
  const std::string& path = *options.prompt_file;
  if (path == "-") return read_all(std::cin);
  try {
    if (auto text = read_small_file(path, kMostPromptBytes)) return *std::move(text);
  } catch (const UserError& error) {
    throw UserError(fmt::format("--prompt_file: {}; --prompt_file - reads a pipe", error.what()));
  }
  throw UserError(fmt::format("--prompt_file: {}: {}; give a text file, or - for standard input",
                              path, std::strerror(errno)));
}

/// Turns the line ends of Windows into line feeds.
void remove_carriage_returns(std::string& text) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text.compare(i, 2, "\r\n") != 0) text[kept++] = text[i];
  text.resize(kept);
}

/// A file is without its byte order mark, and its last line end is not part of a prompt.
std::vector<std::string> prompt_texts(const GenerateArgs& options) {
  std::string text = prompt_text(options);
  if (options.prompt_file && text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (options.prompt_file) remove_carriage_returns(text);
  if (options.prompt_file && text.ends_with('\n')) text.pop_back();
  if (!options.prompt_per_line) return {text};
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// As transformers encodes a prompt: with the tokens that belong in front of a text, unless it
/// begins with them already.
std::vector<int32_t> encoded_with_beginning(const std::string& text, const Tokenizer& tokenizer) {
  const auto tokens = tokenizer.encode(text);
  auto all = tokenizer.beginning();
  if (std::equal(all.begin(), all.end(), tokens.begin(),
                 tokens.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), tokens.size()))))
    return tokens;
  all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

std::vector<Prompt> encode_prompts(const GenerateArgs& options, const Tokenizer& tokenizer) {
  const char* option = options.prompt_file ? "--prompt_file" : "--prompt";
  std::vector<Prompt> prompts;
  for (const std::string& text : prompt_texts(options)) {
    const std::string where = options.prompt_per_line
                                  ? fmt::format("{}: line {}", option, prompts.size() + 1)
                                  : std::string(option);
    if (text.empty()) {
      throw UserError(where +
                      " is empty; give at least one character to start from, such as --prompt ' '");
    }
    try {
      prompts.push_back({text, encoded_with_beginning(text, tokenizer)});
    } catch (const UserError& error) {
      const std::size_t bad = first_bad_byte(text);
      throw UserError(
          fmt::format("{}: {}", where,
                      bad == std::string::npos ? std::string(error.what()) : not_utf8(text, bad)));
    }
  }
  if (prompts.empty())
    throw UserError(std::string(option) + ": has no lines; write one prompt per line");
  return prompts;
}

void check_stops(const GenerateArgs& options, const Tokenizer& tokenizer, int64_t block_size) {
  for (const std::string& stop : options.stops) {
    const auto tokens = with_key("--stop", [&] { return tokenizer.encode(stop); });
    if (std::ssize(tokens) <= block_size) continue;
    throw UserError(fmt::format(
        "--stop: {} tokens are longer than the model's context of {}; give a shorter one",
        tokens.size(), block_size));
  }
}

/// One continuation that is being written.
struct Sample {
  const Prompt* prompt;
  std::size_t prompt_number;
  int64_t number;  // among those of its prompt
  TextStream stream;
  std::string text{};  // final, without the prompt
  int64_t tokens = 0;
  bool done = false;
  bool stopped = false;
};

/// Shows samples in their order: the first unfinished one as it grows, later ones after it.
class Output {
 public:
  explicit Output(const GenerateArgs& options) : options_(options) {}

  void show(const std::vector<Sample>& samples) {
    for (; current_ < samples.size(); next_sample()) {
      const Sample& sample = samples[current_];
      if (options_.json) {
        if (sample.done) print(as_json(sample));
      } else {
        print_further(sample);
      }
      if (!sample.done) return;
    }
  }
  /// The samples of the next call are others.
  void begin_batch() { current_ = 0; }

 private:
  void print_further(const Sample& sample) {
    if (!begun_ && !first_) print(std::string("\n") + kBetweenSamples);
    if (!begun_) print(sample.prompt->text);
    begun_ = true;
    first_ = false;
    if (shown_ < sample.text.size()) print(sample.text.substr(shown_));
    shown_ = sample.text.size();
  }
  void next_sample() {
    ++current_;
    shown_ = 0;
    begun_ = false;
  }
  static std::string as_json(const Sample& sample) {
    return json_output({{"prompt_index", sample.prompt_number},
                        {"sample", sample.number},
                        {"prompt", sample.prompt->text},
                        {"text", sample.text},
                        {"tokens", sample.tokens},
                        {"finish_reason", sample.stopped ? "stop" : "length"}});
  }

  const GenerateArgs& options_;
  std::size_t current_ = 0;
  std::size_t shown_ = 0;
  bool begun_ = false;
  bool first_ = true;
};

/// The same text for a sample, whatever is generated with it; the first one's seed is the user's.
uint64_t sample_seed(const GenerateArgs& options, const Sample& sample) {
  const uint64_t seed = options.sampling.seed;
  if (sample.prompt_number == 0 && sample.number == 0) return seed;
  return mix64(mix64(seed, sample.prompt_number), static_cast<uint64_t>(sample.number));
}

void take_token(Sample& sample, int32_t token, const Tokenizer& tokenizer,
                const std::vector<int32_t>& ends, int64_t most) {
  ++sample.tokens;
  if (std::ranges::count(ends, token) > 0) {
    sample.stopped = true;
  } else {
    sample.text += sample.stream.add(tokenizer.decode(token));
    sample.stopped = sample.stream.stopped();
  }
  sample.done = sample.stopped || sample.tokens == most;
  if (sample.done) sample.text += sample.stream.finish();
}

/// Returns how many tokens it has drawn.
int64_t run_batch(const ModelBundle& loaded, const GenerateArgs& options,
                  std::vector<Sample>& samples, Output& output, GraphUse& graphs) {
  std::vector<BatchGenerator::Row> rows;
  for (Sample& sample : samples) {
    rows.push_back({sample.prompt->tokens, sample_seed(options, sample)});
    sample.done = options.sampling.max_new_tokens == 0;
  }
  const auto ends = stop_tokens(loaded.metadata, *loaded.tokenizer);
  BatchGenerator generator(loaded.as<CausalModel>(), std::move(rows), options.sampling);
  output.begin_batch();
  output.show(samples);
  int64_t drawn = 0;
  const auto going_on = [](const Sample& sample) { return !sample.done; };
  while (std::any_of(samples.begin(), samples.end(), going_on)) {
    const auto tokens = generator.next();
    for (std::size_t row = 0; row < samples.size(); ++row) {
      if (samples[row].done) continue;
      take_token(samples[row], tokens[row], *loaded.tokenizer, ends,
                 options.sampling.max_new_tokens);
      ++drawn;
    }
    output.show(samples);
  }
  graphs.add(generator.graph_use());
  return drawn;
}

/// Prints how the model's folder asks to sample, unless the user has chosen.
void show_sampling_of_base(const ModelBundle& loaded, const SamplingOptions& chosen) {
  if (chosen.greedy || chosen.top_k || chosen.temperature != 1.0 || chosen.top_p != 1.0 ||
      chosen.min_p != 0.0 || chosen.repetition_penalty != 1.0)
    return;
  if (const std::string options = sampling_of_base(loaded.metadata); !options.empty())
    fmt::print(stderr,
               "generate: the model's generation_config.json is not applied; to sample as it does, "
               "add{}\n",
               options);
}

}  // namespace

int run_generate(const TrainerArgs& args) {
  const GenerateArgs& options = args.generate;
  const torch::Device device = chosen_device(options.device);
  const ModelBundle loaded = open_model(options.snapshot, device, options.base);
  if (device.is_cuda() && loaded.config.quantize.enabled() &&
      loaded.config.trainer.fused_gpu_kernels) {
    if (const std::string why = gpu::load_kernels(); !why.empty())
      fmt::print(stderr, "warning: torch's slower operations are used: {}\n", why);
  }
  std::optional<SideQueue> queue;  // CUDA's default one cannot be recorded
  if (device.is_cuda()) queue.emplace(device);
  check_base_is_needed(loaded.config, options.snapshot, options.base);
  check_snapshot_task(task_name(loaded.config.task), TaskKind::kCausalLm, loaded.path,
                      fmt::format("trainer generate is for {}", task_name(TaskKind::kCausalLm)));
  show_sampling_of_base(loaded, options.sampling);
  if (options.chat) {
    chat(loaded, options, device);
    return launch::kExitDone;
  }
  const auto prompts = encode_prompts(options, *loaded.tokenizer);
  check_stops(options, *loaded.tokenizer, loaded.config.data.block_size);
  const int64_t total = static_cast<int64_t>(prompts.size()) * options.num_samples;
  Output output(options);
  int64_t drawn = 0;
  GraphUse graphs;
  const auto begin = Clock::now();
  for (int64_t first = 0; first < total; first += options.batch_size) {
    std::vector<Sample> samples;
    for (int64_t i = first; i < std::min(total, first + options.batch_size); ++i) {
      const auto prompt = static_cast<std::size_t>(i / options.num_samples);
      samples.push_back(
          {&prompts[prompt], prompt, i % options.num_samples, TextStream(options.stops)});
    }
    drawn += run_batch(loaded, options, samples, output, graphs);
  }
  if (!options.json && ::isatty(STDOUT_FILENO) != 0) print("\n");
  report_speed(drawn, Clock::now() - begin, device, graphs);
  return launch::kExitDone;
}

}  // namespace ddp::train
