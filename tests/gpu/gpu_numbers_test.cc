// What ranks on GPUs compute: NCCL, the CUDA paths of the optimizer and of the loss.
#include <cmath>

#include "tests/support/catch.h"

#include "tests/e2e/conversations.h"
#include "tests/e2e/logged_losses.h"
#include "tests/e2e/masked_text.h"
#include "tests/e2e/pictures.h"
#include "tests/e2e/reviews.h"
#include "tests/e2e/saved_state.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

using Catch::Contains;

// A device draws other numbers than a CPU.
const Words kWithoutDropout = {"gpt_config.embd_pdrop=0", "gpt_config.resid_pdrop=0",
                               "gpt_config.attn_pdrop=0", "trainer_config.max_steps=16"};

const Words kInBfloat16 =
    joined(kWithoutDropout, {"trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16"});

void check_learned_alike(const std::vector<double>& some, const std::vector<double>& others,
                         double margin) {
  check_near(some, others, margin);
  CHECK(some.back() < some.front() - 0.5);  // it has learned something
}

double mean_distance(const std::vector<double>& some, const std::vector<double>& others) {
  double sum = 0.0;
  for (std::size_t i = 0; i < some.size(); ++i) sum += std::abs(some[i] - others[i]);
  return sum / static_cast<double>(some.size());
}

}  // namespace

// The same formulas in other kernels: attention's, the fused optimizer's.
TEST_CASE("two NCCL ranks on GPUs train as two ranks on CPUs") {
  if (!gpus_are_faked()) return;
  const Workspace gpus, cpus;
  const auto by_gpus = succeed(on_gpus(gpus, 2, launched(gpus, 2, kWithoutDropout)));
  const auto by_cpus = succeed(launched(cpus, 2, kWithoutDropout));
  CHECK_THAT(by_gpus.out, Contains("on 2 ranks") && Contains("Device: cuda:0, backend nccl"));
  check_learned_alike(logged_losses(by_gpus.out), logged_losses(by_cpus.out), 1e-5);
  for (const auto& ledger : ledgers_of(gpus)) {
    CHECK(ledger.at("nccl").at("all_reduce").at("calls") > 16);
    CHECK(ledger.at("missing").empty());
    CHECK(ledger.at("nccl").at("destroy").at("calls") == ledger.at("nccl").at("init").at("calls"));
    CHECK_FALSE(ledger.at("nccl").contains("abort"));
  }
  CHECK(ledgers_of(gpus).size() == 2);
}

TEST_CASE("conversations are learned on GPUs as on CPUs") {
  if (!gpus_are_faked()) return;
  for (const std::string& model : {kChatLlama}) {
    INFO(model);
    Words words = {"trainer_config.max_steps=16"};
    if (model.starts_with("model: gpt")) words = kWithoutDropout;
    const ChatPlace gpus(model), cpus(model);
    const auto by_gpus = succeed(on_gpus(gpus, 2, launched(gpus, 2, words)));
    const auto by_cpus = succeed(launched(cpus, 2, words));
    CHECK_THAT(by_gpus.out, Contains("Device: cuda:0, backend nccl"));
    check_learned_alike(logged_losses(by_gpus.out), logged_losses(by_cpus.out), 1e-5);
  }
}

TEST_CASE("masked words, reviews and pictures are learned on a GPU as on a CPU") {
  if (!gpus_are_faked()) return;
  const auto check = [](const Workspace& gpu, const Workspace& cpu, const Words& words) {
    const auto by_gpu = succeed(on_gpus(gpu, 1, alone(gpu, words)));
    const auto by_cpu = succeed(alone(cpu, words));
    CHECK_THAT(by_gpu.out, Contains("Device: cuda:0"));
    check_near(logged_losses(by_gpu.out), logged_losses(by_cpu.out), 1e-5);
  };
  const Words without_dropout = {"bert_config.hidden_pdrop=0", "bert_config.attn_pdrop=0"};
  check(MaskedWorkspace(), MaskedWorkspace(), without_dropout);
  check(ReviewWorkspace(), ReviewWorkspace(), without_dropout);
  check(ImageWorkspace(), ImageWorkspace(), {"image_config.dropout=0"});
}

TEST_CASE("a run on GPUs reports the peak of its tensors, which fits into what was allocated") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  const auto run = succeed(on_gpus(place, 2, launched(place, 2, {"trainer_config.max_steps=2"})));
  CHECK_THAT(run.out, Contains("GPU memory: peak "));
  const auto summary = nlohmann::json::parse(read_bytes(place / "run_summary.json"));
  const auto& peaks = summary.at("peak_device_memory_bytes");
  REQUIRE(peaks.size() == 2);
  for (const auto& ledger : ledgers_of(place)) {
    const auto peak = peaks.at(ledger.at("rank").get<std::size_t>()).get<int64_t>();
    CHECK(peak > 1'000'000);
    CHECK(peak < ledger.at("peak_bytes").get<int64_t>());
  }
}

const Words kDeeper = {"gpt_config.n_layer=4", "trainer_config.grad_accumulation_steps=4",
                       "trainer_config.max_steps=8", "trainer_config.eval_every_steps=4",
                       "trainer_config.sample_every_steps=4"};

// Each boundary is crossed by sends of NCCL; a tied table and its gradient are, too.
TEST_CASE("a pipeline on GPUs learns bit for bit what one GPU learns") {
  if (!gpus_are_faked()) return;
  const Words untied = joined(kDeeper, {"gpt_config.tie_weights=false"});
  const Words pipeline = {"distributed_config.pipeline=2",
                          "distributed_config.pipeline_schedule=interleaved",
                          "distributed_config.pipeline_chunks=2"};
  const Workspace one, two;
  const auto by_one = succeed(on_gpus(one, 1, launched(one, 1, untied)));
  const auto by_two = succeed(on_gpus(two, 2, launched(two, 2, joined(untied, pipeline))));
  CHECK_THAT(by_two.out,
             Contains("backend nccl") && Contains("Pipeline: ") && Contains("interleaved"));
  CHECK(differences(two.snapshot(), one.snapshot()) == Words{});
  CHECK(steps_of(by_two.out) == steps_of(by_one.out));
  for (const auto& ledger : ledgers_of(two)) CHECK(ledger.at("nccl").at("send").at("calls") >= 32);
}

TEST_CASE("a tied table of a pipeline on GPUs is trained as on one GPU", "[long]") {
  if (!gpus_are_faked()) return;
  const Words pipeline = {"distributed_config.pipeline=2"};
  const Workspace tied, tied_one;
  succeed(on_gpus(tied_one, 1, launched(tied_one, 1, kDeeper)));
  succeed(on_gpus(tied, 2, launched(tied, 2, joined(kDeeper, pipeline))));
  CHECK(largest_parameter_distance(tied.snapshot(), tied_one.snapshot()) < 1e-4);
}

TEST_CASE(
    "two ranks that share a GPU, each with its part of the memory, train as two ranks on CPUs") {
  if (!gpus_are_faked()) return;
  Words sharing = kWithoutDropout;
  sharing.insert(sharing.end(), {"distributed_config.ranks_per_device=2",
                                 "distributed_config.memory_limit_mb=200"});
  const Workspace gpu, cpus;
  const auto by_gpu = succeed(on_gpus(gpu, 1, launched(gpu, 2, sharing)));
  const auto by_cpus = succeed(launched(cpus, 2, kWithoutDropout));
  CHECK_THAT(by_gpu.out, Contains("Device: cuda:0, backend gloo"));
  check_learned_alike(logged_losses(by_gpu.out), logged_losses(by_cpus.out), 1e-5);
}

TEST_CASE("two stages that share a GPU train as two ranks on CPUs", "[long]") {
  if (!gpus_are_faked()) return;
  const Words cut =
      joined(kWithoutDropout,
             {"distributed_config.ranks_per_device=2", "distributed_config.memory_limit_mb=200",
              "distributed_config.pipeline=2", "trainer_config.global_batch_size=8"});
  const Workspace gpu, cpus;
  const auto by_gpu = succeed(on_gpus(gpu, 1, launched(gpu, 2, cut)));
  const auto by_cpus = succeed(launched(cpus, 2, kWithoutDropout));
  check_learned_alike(logged_losses(by_gpu.out), logged_losses(by_cpus.out), 1e-5);
}

namespace {

// The collectives of a step are one of each kind for each bucket. They are slow: who does not
// wait for weights that come in below the forward pass computes with old ones.
void check_zero_on_gpus(const std::vector<std::string>& strategies) {
  Words words = kWithoutDropout;
  words.insert(words.end(), {"gpt_config.n_embd=144", "trainer_config.max_steps=4",
                             "trainer_config.ema_decay=0.9", "trainer_config.use_amp=true",
                             "trainer_config.amp_dtype=fp16"});
  const Workspace ddp;
  succeed(on_gpus(ddp, 2, launched(ddp, 2, words)));
  for (const std::string& name : strategies) {
    INFO(name);
    const Workspace place;
    const Words sharded = joined(
        words, {"distributed_config.bucket_cap_mb=0.1", "distributed_config.strategy=" + name});
    auto options = on_gpus(place, 2, launched(place, 2, sharded));
    options.set["FAKENCCL_DELAY_US"] = "5000";
    succeed(options);
    CHECK(differences(place.snapshot(), ddp.snapshot()) == Words{});
    for (const auto& ledger : ledgers_of(place)) {
      const auto& nccl = ledger.at("nccl");
      CHECK(nccl.at("reduce_scatter").at("calls").get<int>() >= 4);
      CHECK(nccl.at("reduce_scatter").at("calls").get<int>() % 4 == 0);
      CHECK(nccl.at("all_gather").at("calls").get<int>() >
            nccl.at("reduce_scatter").at("calls").get<int>());
      CHECK(ledger.at("missing").empty());
    }
  }
}

}  // namespace

TEST_CASE("with zero3 two NCCL ranks learn what they learn with ddp") {
  if (!gpus_are_faked()) return;
  check_zero_on_gpus({"zero3"});
}

TEST_CASE("with zero1 and zero2 two NCCL ranks learn what they learn with ddp", "[long]") {
  if (!gpus_are_faked()) return;
  check_zero_on_gpus({"zero1", "zero2"});
}

TEST_CASE("two NCCL ranks that share layers train as one process on a CPU") {
  if (!gpus_are_faked()) return;
  const Workspace cpu, gpus;
  const auto by_cpu = succeed(alone(cpu, kWithoutDropout));
  const Words shared = joined(kWithoutDropout, {"distributed_config.tensor=2",
                                                "distributed_config.sequence_parallel=true"});
  const auto by_gpus = succeed(on_gpus(gpus, 2, launched(gpus, 2, shared)));
  CHECK_THAT(by_gpus.out, Contains("backend nccl") && Contains("2 ranks share each layer"));
  check_learned_alike(logged_losses(by_gpus.out), logged_losses(by_cpu.out), 1e-4);
  for (const auto& ledger : ledgers_of(gpus)) CHECK(ledger.at("missing").empty());
}

namespace {

struct AxesPair {
  int ranks;
  Words some;
  int others;
  Words other;
};

void check_axes_on_gpus(const std::vector<AxesPair>& pairs) {
  const Words model =
      joined(kWithoutDropout, {"gpt_config.n_layer=4", "gpt_config.tie_weights=false",
                               "trainer_config.global_batch_size=8", "trainer_config.batch_size=2",
                               "trainer_config.max_steps=4", "trainer_config.eval_every_steps=2"});
  for (const auto& [ranks, some, others, other] : pairs) {
    INFO(some.back());
    const Workspace one, two;
    const auto by_one = succeed(on_gpus(one, ranks, launched(one, ranks, joined(model, some))));
    const auto by_two = succeed(on_gpus(two, others, launched(two, others, joined(model, other))));
    CHECK_THAT(by_one.out, Contains("backend nccl"));
    CHECK(differences(one.snapshot(), two.snapshot()) == Words{});
    CHECK(steps_of(by_one.out) == steps_of(by_two.out));
    for (const auto& ledger : ledgers_of(one)) CHECK(ledger.at("missing").empty());
  }
}

const Words kTwoStages = {"distributed_config.pipeline=2"};
const Words kTwoShare = {"distributed_config.tensor=2"};

}  // namespace

TEST_CASE("on four NCCL GPUs stages whose layers are shared learn what shared layers learn",
          "[long]") {
  if (!gpus_are_faked()) return;
  check_axes_on_gpus({{4, joined(kTwoStages, kTwoShare), 2, kTwoShare}});
}

TEST_CASE("on four NCCL GPUs zero learns with stages or shared layers what these learn", "[long]") {
  if (!gpus_are_faked()) return;
  check_axes_on_gpus(
      {{4, joined(kTwoStages, {"distributed_config.strategy=zero1"}), 4, kTwoStages},
       {4, joined(kTwoShare, {"distributed_config.strategy=zero3", "trainer_config.batch_size=4"}),
        4, joined(kTwoShare, {"trainer_config.batch_size=4"})}});
}

TEST_CASE("two ranks that share a GPU learn with zero1 what they learn with ddp", "[long]") {
  if (!gpus_are_faked()) return;
  Words sharing = kWithoutDropout;
  sharing.insert(sharing.end(),
                 {"distributed_config.ranks_per_device=2", "trainer_config.max_steps=6"});
  const Workspace ddp, place;
  succeed(on_gpus(ddp, 1, launched(ddp, 2, sharing)));
  sharing.push_back("distributed_config.strategy=zero1");
  succeed(on_gpus(place, 1, launched(place, 2, sharing)));
  CHECK(differences(place.snapshot(), ddp.snapshot()) == Words{});
}

TEST_CASE("in bfloat16 on a GPU a loss in chunks trains as the loss in one piece") {
  if (!gpus_are_faked()) return;
  Words whole = kWithoutDropout;
  whole.insert(whole.end(), {"trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16",
                             "gpt_config.loss_chunk_size=0"});
  Words chunked = whole;
  chunked.back() = "gpt_config.loss_chunk_size=50";
  const Workspace one, many;
  const auto by_one = succeed(on_gpus(one, 1, alone(one, whole)));
  const auto by_many = succeed(on_gpus(many, 1, alone(many, chunked)));
  CHECK(ledgers_of(many).at(0).at("launches") > ledgers_of(one).at(0).at("launches"));
  check_learned_alike(logged_losses(by_one.out), logged_losses(by_many.out), 5e-3);
}

// Against float32, of which both are roundings. Without graphs, whose kernels the ledger counts
// once.
TEST_CASE("in bfloat16 trainer's kernels lose no more than torch's do, and are compiled once") {
  if (!gpus_are_faked()) return;
  const Words plain = joined(kInBfloat16, {"trainer_config.fused_gpu_kernels=false"});
  const Words launched = joined(kInBfloat16, {"trainer_config.cuda_graphs=false"});
  const Workspace ours, torchs, exact;
  const auto by_ours = logged_losses(succeed(on_gpus(ours, 1, alone(ours, launched))).out);
  const auto by_torchs = logged_losses(succeed(on_gpus(torchs, 1, alone(torchs, plain))).out);
  const auto in_float32 =
      logged_losses(succeed(on_gpus(exact, 1, alone(exact, kWithoutDropout))).out);
  check_learned_alike(by_ours, in_float32, 5e-3);
  // Roundings of 16 steps: a kernel that lost a bit would double it.
  CHECK(mean_distance(by_ours, in_float32) <= 1.5 * mean_distance(by_torchs, in_float32));

  const auto ledger = ledgers_of(ours).at(0);
  constexpr int kSteps = 16, kLayers = 2;
  const auto& kernels = ledger.at("kernels");
  CHECK(kernels.at("ddp_cross_entropy") == kSteps);
  CHECK(kernels.at("ddp_add_norm_backward") == kSteps * (2 * kLayers + 1));
  CHECK(kernels.at("ddp_gelu") > kSteps * kLayers);  // evaluations, too
  CHECK(kernels.at("ddp_gelu_backward") == kSteps * kLayers);
  CHECK(kernels.at("ddp_sums_of_squares") == kSteps);
  constexpr int kGroups = 2;  // with and without weight decay
  CHECK(kernels.at("ddp_adam") == kSteps * kGroups);
  CHECK(ledger.at("counters").at("nvrtc:compile").at("calls") == 1);
  CHECK(ledger.at("missing").empty());
  const auto torchs_kernels = ledgers_of(torchs).at(0).at("kernels");
  for (const auto& [name, count] : torchs_kernels.items()) CHECK_FALSE(name.starts_with("ddp_"));

  succeed(on_gpus(ours, 1, alone(ours, joined(kInBfloat16, {"trainer_config.max_steps=17"}))));
  CHECK_FALSE(ledgers_of(ours).at(1).at("counters").contains("nvrtc:compile"));
}

// The kernels stay in the process.
TEST_CASE("a job of a sweep that leaves trainer's kernels out has none of the job before it") {
  if (!gpus_are_faked()) return;
  const Words words = joined(kInBfloat16, {"trainer_config.cuda_graphs=false"});
  const Workspace swept, single;
  succeed(
      on_gpus(swept, 1,
              alone(swept, joined({"--multirun", "trainer_config.fused_gpu_kernels=true,false,true",
                                   "hydra.sweep.dir=sweep"},
                                  words))));
  succeed(
      on_gpus(single, 1, alone(single, joined(words, {"trainer_config.fused_gpu_kernels=false"}))));
  CHECK(differences(swept / "sweep/1/snapshot.pt", single.snapshot()) == Words{});
  CHECK(differences(swept / "sweep/2/snapshot.pt", swept / "sweep/0/snapshot.pt") == Words{});
  const auto kernels = ledgers_of(swept).at(0).at("kernels");
  constexpr int kSteps = 16, kGroups = 2, kJobs = 2;
  CHECK(kernels.at("ddp_adam") == kJobs * kSteps * kGroups);
  CHECK(kernels.at("ddp_sums_of_squares") == kJobs * kSteps);
}

TEST_CASE("in bfloat16 a Llama trains with trainer's kernels as with torch's") {
  if (!gpus_are_faked()) return;
  const Words words = {"trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16",
                       "trainer_config.cuda_graphs=false"};
  const Workspace ours, torchs;
  for (const Workspace* place : {&ours, &torchs}) {
    place->write(
        "config.yaml",
        tiny_text_config("model: llama\nllama_config: {n_layer: 2, n_head: 2, n_kv_head: 1, "
                         "n_embd: 32}\n",
                         "0.01"));
  }
  const auto plain = joined(words, {"trainer_config.fused_gpu_kernels=false"});
  const auto by_ours = succeed(on_gpus(ours, 1, alone(ours, words)));
  const auto by_torchs = succeed(on_gpus(torchs, 1, alone(torchs, plain)));
  check_learned_alike(logged_losses(by_ours.out), logged_losses(by_torchs.out), 2e-2);
  constexpr int kSteps = 20, kLayers = 2;
  const auto kernels = ledgers_of(ours).at(0).at("kernels");
  CHECK(kernels.at("ddp_add_norm_backward") == kSteps * (2 * kLayers + 1));
  CHECK(kernels.at("ddp_swiglu") > kSteps * kLayers);  // evaluations, too
  CHECK(kernels.at("ddp_swiglu_backward") == kSteps * kLayers);
  CHECK(kernels.at("ddp_rotate") > 2 * kSteps * kLayers);  // and gradients

  // The kernels take heads of a multiple of 16 and rows of a multiple of 8.
  succeed(
      on_gpus(ours, 1,
              alone(ours, joined(words, {"llama_config.n_head=4", "llama_config.intermediate=44",
                                         "trainer_config.snapshot_path=other.pt",
                                         "trainer_config.max_steps=2"}))));
  const auto others = ledgers_of(ours).back().at("kernels");
  CHECK(others.contains("ddp_add_norm_backward"));
  CHECK_FALSE(others.contains("ddp_rotate"));
  CHECK_FALSE(others.contains("ddp_swiglu"));
}

// The copies of the weights follow them through everything that changes them between steps.
TEST_CASE(
    "in bfloat16 a run with averaged weights that is killed and resumes ends in the same bits") {
  if (!gpus_are_faked()) return;
  const Words words =
      joined(kInBfloat16,
             {"trainer_config.ema_decay=0.9", "trainer_config.eval_every_steps=3",
              "trainer_config.grad_accumulation_steps=2", "trainer_config.save_every_steps=2"});
  const Workspace whole, killed;
  succeed(on_gpus(whole, 1, launched(whole, 1, words)));
  const auto job = succeed(on_gpus(
      killed, 1,
      launched(killed, 1,
               joined(words,
                      {R"(trainer_config.fault_plan=["rank=0 step=9 phase=backward kind=kill"])"}),
               {"--max_restarts=1"})));
  CHECK_THAT(job.err, Contains("FAULT INJECTION: kill"));
  CHECK(differences(whole.snapshot(), killed.snapshot()) == Words{});
}

TEST_CASE("in bfloat16 a recomputed block gives the bits of one that was kept") {
  if (!gpus_are_faked()) return;
  const Workspace kept, recomputed;
  succeed(on_gpus(kept, 1, alone(kept, kInBfloat16)));
  succeed(on_gpus(
      recomputed, 1,
      alone(recomputed, joined(kInBfloat16, {"gpt_config.activation_checkpointing=true"}))));
  CHECK(differences(kept.snapshot(), recomputed.snapshot()) == Words{});
}

namespace {

// Divided weights are converted at each use.
void check_zero_in_bfloat16(const std::vector<std::string>& strategies) {
  const Words words = joined(kInBfloat16, {"trainer_config.max_steps=4"});
  const Workspace ddp;
  succeed(on_gpus(ddp, 2, launched(ddp, 2, words)));
  for (const std::string& name : strategies) {
    INFO(name);
    const Workspace place;
    const Words sharded = joined(
        words, {"distributed_config.bucket_cap_mb=0.1", "distributed_config.strategy=" + name});
    auto options = on_gpus(place, 2, launched(place, 2, sharded));
    options.set["FAKENCCL_DELAY_US"] = "5000";
    succeed(options);
    CHECK(differences(place.snapshot(), ddp.snapshot()) == Words{});
    CHECK(ledgers_of(place).at(0).at("kernels").contains("ddp_add_norm"));
  }
}

}  // namespace

TEST_CASE("in bfloat16 two ranks learn with zero3 what they learn with ddp", "[long]") {
  if (!gpus_are_faked()) return;
  check_zero_in_bfloat16({"zero3"});
}

TEST_CASE("in bfloat16 two ranks learn with zero1 and zero2 what they learn with ddp", "[long]") {
  if (!gpus_are_faked()) return;
  check_zero_in_bfloat16({"zero1", "zero2"});
}

}  // namespace ddp::test
