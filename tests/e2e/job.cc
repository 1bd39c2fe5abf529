#include "tests/e2e/job.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <regex>
#include "tests/support/catch.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTextLength = 5000;

// Words of a small vocabulary in an order that a linear congruence chooses: the same on every
// machine.
std::string sample_text() {
  constexpr const char* kWords[] = {"the",   "brook",    "ran",  "high",      "and",   "Anna",
                                    "baked", "bread.\n", "Karl", "looked",    "below", "an",
                                    "old",   "oak,",     "but",  "\u00e4pfel"};
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < kTextLength) {
    state = state * 1664525U + 1013904223U;
    text += kWords[state >> 28U];
    text += ' ';
  }
  return text;
}

// 4 rows per micro-batch, windows without overlap: an epoch ends within 40 steps.
constexpr const char* kConfig = R"(data_config:
  path: text.txt
  block_size: 32
  train_split: 0.9
  stride: 32
gpt_config: {n_layer: 2, n_head: 2, n_embd: 32, embd_pdrop: 0.1, resid_pdrop: 0.1, attn_pdrop: 0.1}
trainer_config:
  max_steps: 40
  batch_size: 4
  data_loader_workers: 1
  grad_norm_clip: 0.5
  snapshot_path: snapshot.pt
  save_every_steps: 5
  snapshot_every: null
  log_every_steps: 1
optimizer_config: {learning_rate: 0.003, weight_decay: 0.1}
distributed_config: {timeout_s: 30}
hydra: {run: {dir: .}}
)";

/// What the tiny runs of other tasks share.
constexpr const char* kShortRun = R"(  snapshot_path: snapshot.pt
  save_every_steps: 5
  snapshot_every: null
  log_every_steps: 1
distributed_config: {timeout_s: 30}
hydra: {run: {dir: .}}
)";

const char* from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// On machines with GPUs, too, the tests run on CPUs: the same digits everywhere.
ChildOptions in_place(const Workspace& place, Words argv) {
  ChildOptions child;
  child.argv = std::move(argv);
  child.folder = place.path();
  child.set = {{"OMP_NUM_THREADS", "1"},
               {"CUDA_VISIBLE_DEVICES", ""},
               {"TMPDIR", place / "tmp"},
               {"DDP_E2E_FOLDER", place.path()}};
  child.unset = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                 "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH", "TORCHELASTIC_ERROR_FILE"};
  return child;
}

}  // namespace

std::string tiny_config(const std::string& task, int max_steps, int batch_size, int workers,
                        const std::string& learning_rate) {
  return task + "trainer_config:\n  max_steps: " + std::to_string(max_steps) +
         "\n  batch_size: " + std::to_string(batch_size) +
         "\n  data_loader_workers: " + std::to_string(workers) + "\n" + kShortRun +
         "optimizer_config: {learning_rate: " + learning_rate + "}\n";
}

std::string tiny_text_config(const std::string& model, const std::string& learning_rate) {
  return tiny_config(
      model + "data_config: {path: text.txt, block_size: 32, train_split: 0.9, stride: 32}\n", 20,
      4, 1, learning_rate);
}

std::string ddp_run_program() { return from_environment("DDP_RUN_BIN", DDP_RUN); }
std::string trainer_program() { return from_environment("TRAINER_BIN", DDP_TRAINER); }

Workspace::Workspace() {
  write("text.txt", sample_text());
  write("config.yaml", kConfig);
  fs::create_directory(*this / "tmp");
}

std::set<std::string> Workspace::new_files() const {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path())) names.insert(entry.path().filename());
  for (const char* known :
       {"text.txt", "config.yaml", "tmp", "main.log", ".hydra", "run_summary.json", "run_info.json",
        "metrics.jsonl", "snapshot.pt.manifest.json"})
    names.erase(known);
  return names;
}

ChildOptions trainer(const Workspace& place, const Words& arguments) {
  Words argv = {trainer_program()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return in_place(place, std::move(argv));
}

ChildOptions alone(const Workspace& place, const Words& overrides) {
  Words arguments = {"--config", "config.yaml"};
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  return trainer(place, arguments);
}

ChildOptions launched(const Workspace& place, int ranks, const Words& overrides,
                      const Words& launcher_options) {
  Words argv = {ddp_run_program(), "--nproc_per_node=" + std::to_string(ranks)};
  argv.insert(argv.end(), launcher_options.begin(), launcher_options.end());
  const Words program = alone(place, overrides).argv;
  argv.insert(argv.end(), program.begin(), program.end());
  return in_place(place, std::move(argv));
}

Finished finish(const ChildOptions& options) {
  ChildProgram child(options);
  child.wait_all_gone(kPatience);
  const int exit = child.wait_exit(kPatience);
  return {exit, child.out(), child.err()};
}

Finished succeed(const ChildOptions& options) {
  Finished finished = finish(options);
  INFO(finished.out << finished.err);
  REQUIRE(finished.exit == 0);
  return finished;
}

Steps steps_of(const std::string& output) {
  static const std::regex line(
      R"(\| Step (\d+) \| (Train Loss .*) \| \S+ (?:tok|images)/s(.*) \| \d+/\d+)");
  Steps steps;
  for (const auto& text : lines_of(output)) {
    std::smatch match;
    if (std::regex_search(text, match, line))
      steps[std::stoi(match[1])].insert(match[2].str() + match[3].str());
  }
  return steps;
}

std::string log_of(const Workspace& place) {
  std::ifstream file(place / "main.log", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<int> order_of_steps(const std::string& output) {
  static const std::regex line(R"(\| Step (\d+) \| Train Loss )");
  std::vector<int> steps;
  for (const auto& text : lines_of(output)) {
    std::smatch match;
    if (std::regex_search(text, match, line)) steps.push_back(std::stoi(match[1]));
  }
  return steps;
}

std::map<int, double> losses_by_step(const std::string& output) {
  static const std::regex line(R"(\| Step (\d+) \| Train Loss ([0-9.]+))");
  std::map<int, double> losses;
  for (std::sregex_iterator it(output.begin(), output.end(), line), end; it != end; ++it)
    losses[std::stoi((*it)[1])] = std::stod((*it)[2]);
  return losses;
}

Words evaluations_of(const std::string& output) {
  Words found;
  for (const auto& text : lines_of(output)) {
    if (const auto at = text.find("Eval Loss "); at != std::string::npos)
      found.push_back(text.substr(at));
  }
  return found;
}

Words errors_of(const std::string& err) {
  Words found;
  for (const auto& line : lines_of(err)) {
    if (line.rfind("error:", 0) == 0) found.push_back(line);
  }
  return found;
}

std::vector<int> range_of(int first, int last) {
  std::vector<int> steps(static_cast<std::size_t>(last - first + 1));
  std::iota(steps.begin(), steps.end(), first);
  return steps;
}

}  // namespace ddp::test
