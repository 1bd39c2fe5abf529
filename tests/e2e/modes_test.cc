// generate, inspect, doctor, and what a run loads.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>
#include "tests/support/catch.h"

#include "tests/e2e/masked_text.h"
#include "tests/e2e/pictures.h"
#include "tests/e2e/reviews.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::StartsWith;

auto characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](unsigned char c) { return (c & 0xC0U) != 0x80U; });
}

std::string generate(const Workspace& place, const Words& options) {
  Words arguments = {"generate", "--snapshot", "snapshot.pt", "--prompt", "the \u00e4"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return succeed(trainer(place, arguments)).out;
}

TEST_CASE("a run's folder leads to its snapshots elsewhere, by links or by the run's records") {
  const Workspace place;
  const std::string snapshot = place / "far/s.pt", list = snapshot + ".manifest.json";
  succeed(alone(place, {"trainer_config.max_steps=1", "trainer_config.snapshot_path=far/s.pt",
                        "hydra.run.dir=records"}));
  for (const char* folder : {"index", "list", "copy"})
    std::filesystem::create_directory(place / folder);
  std::filesystem::create_symlink(snapshot, place / "index/mine.pt");
  std::filesystem::create_symlink(list, place / "list/s.pt.manifest.json");
  std::filesystem::create_symlink("../far/s.pt", place / "copy/s.pt");
  std::filesystem::copy_file(list, place / "copy/s.pt.manifest.json");
  for (const char* folder : {"records", "index", "list", "copy"}) {
    INFO(folder);
    const auto run = succeed(trainer(
        place, {"generate", "--snapshot", folder, "--prompt", "the", "--max_new_tokens", "0"}));
    CHECK_THAT(run.err, Contains("far/s.pt, the newest snapshot of its run\n"));
    succeed(alone(place,
                  {"~gpt_config", std::string("init_from=") + folder, "trainer_config.max_steps=1",
                   std::string("trainer_config.snapshot_path=of_") + folder}));
  }
}

TEST_CASE("a folder of records leads neither to another run's snapshots nor past its own export") {
  const Workspace place;
  const auto train = [&](const std::string& folder, const std::string& seed) {
    std::filesystem::remove_all(place / "far");
    succeed(alone(place, {"trainer_config.max_steps=1", "trainer_config.snapshot_path=far/s.pt",
                          "hydra.run.dir=" + folder, "trainer_config.seed=" + seed}));
  };
  const auto use = [&](const std::string& folder) {
    return finish(trainer(
        place, {"generate", "--snapshot", folder, "--prompt", "the", "--max_new_tokens", "0"}));
  };
  train("first", "1");
  train("second", "2");
  CHECK_THAT(use("second").err, Contains("far/s.pt, the newest snapshot of its run\n"));
  const auto refused = use("first");
  CHECK(refused.exit == 2);
  CHECK_THAT(refused.err, !Contains("far/s.pt"));
  succeed(trainer(place, {"export", "--snapshot", "far/s.pt", "--output", "second"}));
  CHECK_THAT(use("second").err, !Contains("far/s.pt"));
}

TEST_CASE("a prompt file may have the line ends of Windows") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=1"}));
  place.write("windows.txt", "the brook\r\nthe\r\n");
  const Words words = {
      "generate",         "--snapshot", "snapshot.pt", "--prompt_file", "windows.txt",
      "--max_new_tokens", "0"};
  CHECK(succeed(trainer(place, words)).out == "the brook\nthe");
}

TEST_CASE("generate writes prompt and continuation, nothing else, to stdout") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=20"}));
  const std::string text = generate(place, {"--max_new_tokens", "60", "--seed", "7"});
  CHECK_THAT(text, StartsWith("the \u00e4"));
  CHECK(characters(text) == 5 + 60);
  CHECK(generate(place, {"--max_new_tokens", "60", "--seed", "7"}) == text);
  CHECK(generate(place, {"--max_new_tokens", "60", "--seed", "8"}) != text);
  CHECK(generate(place, {"--max_new_tokens", "0"}) == "the \u00e4");
  const std::string greedy = generate(place, {"--max_new_tokens", "60", "--greedy"});
  CHECK(characters(greedy) == 5 + 60);
  CHECK(generate(place, {"--max_new_tokens", "60", "--greedy", "--seed", "8"}) == greedy);
  CHECK(generate(place, {"--max_new_tokens", "60", "--top_k", "1"}) == greedy);
}

TEST_CASE("inspect tells step, position, configuration and the sums of all tensors") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=36"}));
  const auto report = inspect(place, place.snapshot());
  CHECK(report.at("step") == 36);
  CHECK(report.at("epoch") == 36 / kStepsPerEpochOfFour);
  CHECK(report.at("position") == (36 % kStepsPerEpochOfFour) * 4);
  CHECK(report.at("config").at("gpt_config").at("n_embd") == 32);
  CHECK(report.at("content_sha256").get<std::string>().size() == 64);
  Words names;
  for (const auto& tensor : report.at("tensors")) {
    names.push_back(tensor.at("name"));
    CHECK(tensor.at("sha256").get<std::string>().size() == 64);
  }
  for (const char* name :
       {"model.transformer.wte.weight", "model.transformer.wpe.weight",
        "model.transformer.h.0.attn.c_attn.weight", "model.transformer.h.1.mlp.c_proj.bias",
        "model.transformer.ln_f.weight", "model.lm_head.weight",
        "optimizer.transformer.h.0.attn.c_attn.weight.exp_avg",
        "optimizer.transformer.h.0.attn.c_attn.weight.exp_avg_sq"}) {
    CHECK_THAT(names, Catch::VectorContains(std::string(name)));
  }
  // The text alone says the same.
  const auto text = succeed(trainer(place, {"inspect", "snapshot.pt"}));
  CHECK_THAT(text.out, Contains(report.at("content_sha256").get<std::string>()));
  CHECK(text.err.empty());
}

TEST_CASE("content_sha256 changes with the state of training, not with names and paths") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=10"}));
  const std::string sum = content_sha256(place);
  CHECK(inspect(place, place.older(5)).at("content_sha256") != sum);
  const Workspace elsewhere;
  succeed(alone(elsewhere,
                {"trainer_config.max_steps=10", "trainer_config.save_every_steps=3",
                 "trainer_config.data_loader_workers=0", "trainer_config.eval_every_steps=2"}));
  CHECK(content_sha256(elsewhere) == sum);
  rewrite_metadata(place.snapshot(), "step", "11");
  CHECK(content_sha256(place) != sum);
}

template <class Place>
void check_estimate(const std::string& unit, int in_a_step) {
  INFO(unit);
  const Place place;
  const auto run = succeed(alone(place, {"trainer_config.max_steps=1"}));
  const Words words = {"estimate", "--config", "config.yaml"};
  const auto report = nlohmann::json::parse(succeed(trainer(place, joined(words, {"--json"}))).out);
  CHECK_THAT(run.out, Contains("(" + report["parameters"]["total"].dump() + ")"));
  CHECK(report[unit + "_per_step"] == in_a_step);
  CHECK(report["flops_per_step"] > 0.0);
  CHECK(report["fits"] == true);
  CHECK_THAT(succeed(trainer(place, words)).out,
             Contains(std::to_string(in_a_step) + " " + unit + " each") && Contains("activations"));
}

TEST_CASE("an estimate of every task counts the parameters that are trained") {
  check_estimate<ImageWorkspace>("images", 6);
  check_estimate<MaskedWorkspace>("lines", 4);
  check_estimate<ReviewWorkspace>("texts", 4);
}

// Name, bytes, time, rate, result.
void check_doctor(const std::string& report) {
  static const std::regex line(R"(\s+(\w+)\s+\d+\s+\d+\s+[\d.]+\s+(\w+))");
  std::map<std::string, std::set<std::string>> results;
  for (const auto& text : lines_of(report)) {
    std::smatch match;
    if (std::regex_match(text, match, line)) results[match[1]].insert(match[2]);
  }
  INFO(report);
  const Words names = {"broadcast",      "scatter",         "gather",
                       "reduce",         "all_reduce",      "all_gather",
                       "reduce_scatter", "all_gather_rows", "send_receive"};
  CHECK(results.size() == names.size());
  for (const auto& name : names) CHECK(results[name] == std::set<std::string>{"correct"});
  CHECK_THAT(report, Contains("LibTorch") && Contains("gloo") && Contains("All checks passed."));
}

TEST_CASE("doctor --json prints one object") {
  const Workspace place;
  const auto report = nlohmann::json::parse(succeed(trainer(place, {"doctor", "--json"})).out);
  CHECK(report["problems"].empty());
  CHECK_FALSE(report["Versions"]["LibTorch"].get<std::string>().empty());
  CHECK(report["Devices"].contains("CPU"));
  CHECK(report["Collectives"]["ranks"] == 1);
  std::set<std::string> names;
  for (const auto& run : report["Collectives"]["runs"]) {
    CHECK(run["correct"] == true);
    names.insert(run["name"]);
  }
  CHECK(names.size() == 8);
}

TEST_CASE("doctor finds the collectives correct between two ranks") {
  const Workspace place;
  auto options = launched(place, 2);
  options.argv = {ddp_run_program(), "--standalone", "--nproc_per_node=2", trainer_program(),
                  "doctor"};
  const auto run = succeed(options);
  check_doctor(run.out);
  CHECK_THAT(run.out, Contains("gloo with shared memory, 2 ranks"));
}

TEST_CASE("doctor --quick is silent when all is well, and one error per problem otherwise") {
  const Workspace place;
  auto options = launched(place, 2);
  options.argv = {ddp_run_program(), "--standalone", "--nproc_per_node=2",
                  trainer_program(), "doctor",       "--quick"};
  options.set["OMP_NUM_THREADS"] = "1";
  const auto well = succeed(options);
  CHECK(well.out.empty());
  options.set["OMP_NUM_THREADS"] = std::to_string(std::thread::hardware_concurrency());
  const auto crowded = finish(options);
  CHECK(crowded.exit == 1);
  CHECK_THAT(crowded.err, Contains("error: 2 ranks x ") && Contains(" threads share ") &&
                              Contains("; set OMP_NUM_THREADS="));
}

TEST_CASE("doctor has nothing against more ranks than CPUs, a thread each", "[long]") {
  const Workspace place;
  const auto more = std::thread::hardware_concurrency() < 4 ? "4" : "2";
  auto options = launched(place, 2);
  options.argv = {ddp_run_program(), "--standalone", "--nproc_per_node",   more,
                  trainer_program(), "doctor",       "--ranks_per_device", "4"};
  CHECK_THAT(succeed(options).out, Contains("1 thread,") && Contains("All checks passed."));
}

TEST_CASE("a run on CPUs maps no library of the GPU") {
  const Workspace place;
  ChildProgram job(launched(
      place, 2, {"trainer_config.max_steps=100000", "trainer_config.save_every_steps=100000"}));
  job.wait_for("Step 2 | Train", 1, kPatience);
  for (const int rank : {0, 1}) {
    const pid_t pid = worker_pid(place, rank);
    REQUIRE(pid != 0);
    const std::string maps = read_bytes("/proc/" + std::to_string(pid) + "/maps");
    CHECK_THAT(maps, Contains("libtorch_cpu"));
    for (const char* library : {"libtorch_cuda", "libc10_cuda", "libnccl", "libcublas", "libcudnn",
                                "libcuda.so", "trainer_cuda", "libpython"}) {
      INFO(library);
      CHECK(maps.find(library) == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ddp::test
