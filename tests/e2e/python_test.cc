// Beside Python: torchrun starts trainer, safetensors and torch read snapshots. Skipped where
// Python's side of torch is not installed: no program of the project needs it.
#include <cstdlib>
#include <filesystem>
#include "tests/support/catch.h"

#include <nlohmann/json.hpp>

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

constexpr ChildProgram::Time kSlowStart{100'000};

ChildOptions python(const Workspace& place, const Words& argv) {
  ChildOptions options = trainer(place, {});
  options.argv = argv;
  return options;
}

Finished finish_slowly(const ChildOptions& options) {
  ChildProgram child(options);
  child.wait_all_gone(kSlowStart);
  const int exit = child.wait_exit(kSlowStart);
  return {exit, child.out(), child.err()};
}

std::string beside_source(const std::string& program) {
  const std::string path = std::string(DDP_SOURCE_DIR) + "/.venv/bin/" + program;
  return std::filesystem::exists(path) ? path : "";
}

std::string torchrun_program() {
  const char* given = std::getenv("TORCHRUN");
  return given != nullptr ? given : beside_source("torchrun");
}

/// Looks only: importing torch takes seconds.
bool python_has(const Workspace& place, const Words& modules) {
  const std::string program = beside_source("python");
  const Words look = {program, "-c",
                      "import importlib.util as u, sys; sys.exit(None in map(u.find_spec, "
                      "sys.argv[1:]))"};
  return !program.empty() && finish_slowly(python(place, joined(look, modules))).exit == 0;
}

TEST_CASE("under the real torchrun two ranks learn what they learn under ddp-run") {
  const Workspace place, by_ddp_run;
  const std::string torchrun = torchrun_program();
  if (torchrun.empty()) return say_skipped("no torchrun (TORCHRUN=PATH names one)");
  Words argv = {torchrun, "--standalone", "--nproc_per_node=2", "--no-python"};
  const Words program = alone(place, {"trainer_config.max_steps=20"}).argv;
  argv.insert(argv.end(), program.begin(), program.end());
  const auto run = finish_slowly(python(place, argv));
  if (run.exit != 0 && finish_slowly(python(place, {torchrun, "--help"})).exit != 0) {
    return say_skipped(torchrun + " does not work here: " + run.err);
  }
  INFO(run.out << run.err);
  REQUIRE(run.exit == 0);
  succeed(launched(by_ddp_run, 2, {"trainer_config.max_steps=20"}));
  CHECK(content_sha256(place) == content_sha256(by_ddp_run));
  CHECK(differences(place.snapshot(), by_ddp_run.snapshot()) == Words{});
}

constexpr const char* kSums = R"(import hashlib, sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="numpy") as file:
    print(file.metadata()["step"])
    for name in file.keys():
        print(name, hashlib.sha256(file.get_tensor(name).tobytes()).hexdigest())
)";

TEST_CASE("Python's safetensors reads the bytes that inspect has summed") {
  const Workspace place;
  if (!python_has(place, {"safetensors", "numpy"}))
    return say_skipped("no Python with safetensors beside the source");
  succeed(alone(place, {"trainer_config.max_steps=3"}));
  const auto run =
      finish_slowly(python(place, {beside_source("python"), "-c", kSums, "snapshot.pt"}));
  INFO(run.err);
  REQUIRE(run.exit == 0);
  std::set<std::string> expected = {"3"};
  const auto report = inspect(place, place.snapshot());
  for (const auto& tensor : report.at("tensors")) {
    expected.insert(tensor.at("name").get<std::string>() + " " +
                    tensor.at("sha256").get<std::string>());
  }
  const auto lines = lines_of(run.out);
  CHECK(std::set<std::string>(lines.begin(), lines.end()) == expected);
}

// What torch.distributed.checkpoint asks of the folder: its reader takes files by their ending.
constexpr const char* kReadShards = R"(import glob, hashlib, json, os, sys, torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
os.mkdir("dcp")
for shard in glob.glob("snapshot.pt.step-3.*-of-3"):
    os.symlink(os.path.abspath(shard), f"dcp/{os.path.basename(shard)}.safetensors")
reader = HuggingFaceStorageReader("dcp")
tensors = reader.read_metadata().state_dict_metadata
state = {name: torch.zeros(t.size, dtype=t.properties.dtype) for name, t in tensors.items()}
dcp.load(state, storage_reader=HuggingFaceStorageReader("dcp"), no_dist=True)
print(json.dumps({name: [list(t.shape), hashlib.sha256(t.numpy().tobytes()).hexdigest()]
                  for name, t in state.items()}))
)";

TEST_CASE("torch.distributed.checkpoint reads the shards of a snapshot, bit for bit") {
  const Workspace place;
  if (!python_has(place, {"torch", "safetensors", "numpy"}))
    return say_skipped("no Python with torch, safetensors and numpy");
  succeed(launched(place, 3,
                   {"distributed_config.strategy=zero2", "trainer_config.max_steps=3",
                    "gpt_config.n_embd=144", "trainer_config.ema_decay=0.9"}));
  place.write("read.py", kReadShards);
  const auto read = finish_slowly(python(place, {beside_source("python"), "read.py"}));
  INFO(read.out << read.err);
  REQUIRE(read.exit == 0);
  const auto tensors = nlohmann::json::parse(read.out);
  const auto report = inspect(place, place.snapshot());
  CHECK(tensors.size() == report.at("tensors").size());
  for (const auto& tensor : report.at("tensors")) {
    const auto& loaded = tensors.at(tensor.at("name").get<std::string>());
    CHECK(loaded[0] == tensor.at("shape"));
    CHECK(loaded[1] == tensor.at("sha256"));
  }
}

}  // namespace
}  // namespace ddp::test
