#include "tests/support/catch.h"

#include "tests/support/exit_code_table.h"
#include "tests/trainer/config/test_files.h"
#include "trainer/app/arguments/trainer_args.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Words = std::vector<std::string>;

TrainerArgs parse(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"trainer"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_trainer_args(static_cast<int>(argv.size()), argv.data());
}

std::string error(const std::vector<std::string>& words) {
  return test::error_of<UserError>([&] { parse(words); });
}

TEST_CASE("training takes a config file and overrides in any order") {
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"--config", "c.yaml", "a.b=1", "~c"},
                                             {"-c", "c.yaml", "a.b=1", "~c"},
                                             {"a.b=1", "--config=c.yaml", "~c"},
                                             {"--config=c.yaml", "--", "a.b=1", "~c"}}) {
    const TrainerArgs args = parse(words);
    CHECK(args.mode == Mode::kTrain);
    CHECK(args.config.file == "c.yaml");
    CHECK(args.overrides == std::vector<std::string>{"a.b=1", "~c"});
  }
}

TEST_CASE("Hydra's short options are read, and - for _ in the long ones") {
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"-cn", "x", "-cp", "d", "-cd", "more", "-m"},
           {"--config-name=x", "--config_path", "d", "--config-dir", "more", "--multirun"}}) {
    const TrainerArgs args = parse(words);
    CHECK(args.config.file == "d/x.yaml");
    CHECK(args.config.further == std::vector<std::string>{"more"});
    CHECK(args.multirun);
  }
  CHECK(parse({"-c", "c.yaml", "--cfg", "job", "-p", "a.b"}).show.package == "a.b");
}

TEST_CASE("generate reads its options in both spellings") {
  const TrainerArgs args =
      parse({"generate", "--snapshot", "s.pt", "--prompt", "-- a,b\n\"c\"", "--max-new-tokens=5",
             "--temperature", "0.5", "--top_k", "3", "--seed=9", "--greedy"});
  CHECK(args.mode == Mode::kGenerate);
  CHECK(args.generate.snapshot == "s.pt");
  CHECK(args.generate.prompt == "-- a,b\n\"c\"");
  CHECK(args.generate.sampling.max_new_tokens == 5);
  CHECK(args.generate.sampling.temperature == 0.5);
  CHECK(args.generate.sampling.top_k == 3);
  CHECK(args.generate.sampling.seed == 9);
  CHECK(args.generate.sampling.greedy);
}

TEST_CASE("generate takes temperature 0 as greedy, whichever zero it is") {
  for (const char* zero : {"--temperature=0", "--temperature=0.0"}) {
    const TrainerArgs args = parse({"generate", "--prompt=a", "--snapshot=s.pt", zero});
    CHECK(args.generate.sampling.greedy);
    CHECK(args.generate.sampling.temperature == 1.0);
  }
}

TEST_CASE("generate has the documented defaults and takes an empty or a very long prompt") {
  const TrainerArgs args = parse({"generate", "--prompt=", "--snapshot=s.pt"});
  CHECK(args.generate.prompt.empty());
  CHECK(args.generate.sampling.max_new_tokens == 200);
  CHECK(args.generate.sampling.temperature == 1.0);
  CHECK_FALSE(args.generate.sampling.top_k.has_value());
  CHECK_FALSE(
      parse({"generate", "--prompt=a", "--snapshot=s", "--top_k=0"}).generate.sampling.top_k);
  CHECK(args.generate.sampling.seed == 1337);
  CHECK_FALSE(args.generate.sampling.greedy);
  const std::string novel(300000, 'x');
  CHECK(parse({"generate", "--snapshot", "s", "--prompt", novel}).generate.prompt == novel);
}

TEST_CASE("generate reads prompts from files, stop strings, samples and filters") {
  const GenerateArgs args =
      parse({"generate", "--snapshot=s.pt", "--prompt_file", "-", "--prompt-per-line",
             "--top-p=0.9", "--min_p=0", "--repetition_penalty", "1.2", "--stop", "a,b",
             "--stop=\n", "--num_samples=3", "--batch_size=2", "--device=cpu", "--json"})
          .generate;
  CHECK(args.prompt_file == "-");
  CHECK(args.prompt_per_line);
  CHECK(args.sampling.top_p == 0.9);
  CHECK(args.sampling.min_p == 0.0);
  CHECK(args.sampling.repetition_penalty == 1.2);
  CHECK(args.stops == std::vector<std::string>{"a,b", "\n"});
  CHECK(args.num_samples == 3);
  CHECK(args.batch_size == 2);
  CHECK(args.device == DeviceChoice::kCpu);
  CHECK(args.json);
}

TEST_CASE("a suite of questions is evaluated instead of data") {
  CHECK(parse({"eval", "--snapshot=s", "--suite", "q.jsonl"}).eval.suite == "q.jsonl");
  CHECK(parse({"eval", "--snapshot=s"}).eval.suite.empty());
  CHECK(error({"eval", "--snapshot=s", "--suite=q", "--data=d"}) ==
        "--suite: conflicts with --data; keep one");
}

TEST_CASE("export and estimate are modes of their own") {
  const TrainerArgs exporting = parse({"export", "--snapshot=s", "--output=o", "--format=torch"});
  CHECK(exporting.mode == Mode::kExport);
  CHECK(exporting.exporting.format == ExportFormat::kTorch);
  CHECK(parse({"export", "--snapshot=s", "--output=o"}).exporting.format ==
        ExportFormat::kHuggingFace);
  CHECK_FALSE(exporting.exporting.dtype);
  const TrainerArgs half =
      parse({"export", "--snapshot=s", "--output=o", "--dtype=bf16", "--base", "b"});
  CHECK(half.exporting.dtype == ExportDtype::kBFloat16);
  CHECK(half.exporting.base == "b");
  CHECK(error({"export", "--snapshot=s", "--output=o", "--dtype=int8"})
            .find("--dtype: 'int8' is not one of fp32, bf16, fp16, q8_0, f32, f16") == 0);
  const TrainerArgs gguf =
      parse({"export", "--snapshot=s", "--output=o", "--format=gguf", "--dtype=q8_0"});
  CHECK(gguf.exporting.format == ExportFormat::kGguf);
  CHECK(gguf.exporting.dtype == ExportDtype::kQ8_0);
  CHECK(parse({"export", "--snapshot=s", "--output=o", "--dtype=f16"}).exporting.dtype ==
        ExportDtype::kFloat16);
  CHECK(parse({"export", "--snapshot=s", "--output=o", "--format=snapshot"})
            .exporting.whole_snapshot);
  CHECK(error({"eval", "--snapshot=s", "--base="}).find("--base: is empty") == 0);
  const TrainerArgs merged = parse({"export", "--snapshot=s", "--output=o", "--merge"});
  CHECK(merged.exporting.merge);
  CHECK_FALSE(exporting.exporting.merge);
  CHECK(parse({"export", "--snapshot=s", "--output=o", "--format=peft"}).exporting.format ==
        ExportFormat::kPeft);
  const TrainerArgs estimate =
      parse({"estimate", "--config", "c.yaml", "a.b=1", "--world_size=4", "--json"});
  CHECK(estimate.mode == Mode::kEstimate);
  CHECK(estimate.config.file == "c.yaml");
  CHECK(estimate.overrides == std::vector<std::string>{"a.b=1"});
  CHECK(estimate.estimate.world_size == 4);
  CHECK(estimate.estimate.json);
  CHECK(error({"export", "--snapshot=s"}) == "--output: is required; see trainer export --help");
  CHECK(error({"export", "--snapshot=s", "--output="}) == "--output: is empty; give a folder");
  CHECK(error({"export", "--snapshot=s", "--output=o", "--format=hf"})
            .find("--format: 'hf' is not one of huggingface, torch, safetensors") == 0);
  CHECK(error({"estimate"}).find("--config: is required") == 0);
  CHECK(error({"-c", "a.yaml", "--config=b.yaml"}).find("--config: given twice; keep one") == 0);
}

TEST_CASE("plan reads GPUs, their memory and speeds, and refuses what no GPU has") {
  const Words words = {"plan", "--config", "c.yaml", "a.b=1", "--gpus", "16", "--memory", "80"};
  const auto with = [&words](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const TrainerArgs args =
      parse(with({"--nodes=2", "--link", "12.5", "--tflops=312", "--efficiency", "0.5", "--json"}));
  CHECK(args.mode == Mode::kPlan);
  CHECK(args.config.file == "c.yaml");
  CHECK(args.overrides == Words{"a.b=1"});
  CHECK(args.plan.gpus == 16);
  CHECK(args.plan.nodes == 2);
  CHECK(args.plan.memory_gb == 80);
  CHECK(args.plan.link_gb_s == 12.5);
  CHECK(args.plan.tflops == 312);
  CHECK(args.plan.efficiency == 0.5);
  CHECK(args.plan.json);
  const PlanArgs defaults = parse(words).plan;
  CHECK(defaults.nodes == 1);
  CHECK_FALSE((defaults.link_gb_s || defaults.tflops || defaults.efficiency));
  CHECK(error({"plan", "--gpus=1", "--memory=1"}).find("--config: is required") == 0);
  CHECK(error({"plan", "-c", "c.yaml", "--memory=1"}) ==
        "--gpus: is required; see trainer plan --help");
  for (const char* wrong : {"--gpus=0", "--gpus=-1", "--gpus=2.5", "--gpus=1000001", "--memory=0",
                            "--memory=-80", "--memory=nan", "--link=0", "--link=inf", "--nodes=0",
                            "--tflops=0", "--efficiency=0", "--efficiency=1.1"}) {
    const std::string name = std::string(wrong).substr(0, std::string(wrong).find('='));
    CAPTURE(wrong);
    CHECK(error(with({wrong})).find(name + ": ") == 0);
  }
}

TEST_CASE("inspect, doctor and report are modes of their own") {
  CHECK(parse({"inspect", "s.pt", "--json"}).inspect_json);
  CHECK(parse({"inspect", "s.pt"}).inspect_snapshot == "s.pt");
  CHECK(parse({"doctor"}).mode == Mode::kDoctor);
  CHECK_FALSE(parse({"doctor"}).doctor_quick);
  CHECK(parse({"doctor", "--quick"}).doctor_quick);
  const TrainerArgs report = parse({"report", "runs/a", "runs/b", "--output", "page.html"});
  CHECK(report.mode == Mode::kReport);
  CHECK(report.report_folders == std::vector<std::string>{"runs/a", "runs/b"});
  CHECK(report.report_output == "page.html");
  CHECK(parse({"report", "."}).report_output == "report.html");
  CHECK(parse({"--version"}).mode == Mode::kVersion);
}

TEST_CASE("a command line that cannot be understood says what to write instead") {
  CHECK(
      error({}) ==
      "--config: is required; write trainer --config FILE [key=value ...], or see trainer --help");
  CHECK(error({"--confg", "x"}) == "--confg: no such option; did you mean '--config'?");
  CHECK(error({"-x"}) == "-x: no such option; see trainer --help");
  CHECK(error({"--config"}) == "--config: needs a value; write --config FILE, see trainer --help");
  CHECK(error({"generate", "--prompt", "a", "--top-k"}) ==
        "--top_k: needs a value; write --top_k K, see trainer generate --help");
  CHECK(error({"generate", "--zzz"}) == "--zzz: no such option; see trainer generate --help");
  CHECK(error({"generate", "--greedy=foo"}) ==
        "--greedy: takes no value, got 'foo'; write --greedy alone");
  CHECK(error({"--version=1"}) == "--version: takes no value, got '1'; write --version alone");
  CHECK(error({"--config", "f", "--", "a=1", "--cfg", "job"}) ==
        "--cfg: only KEY=VALUE may follow --; put options before it");
  CHECK(error({"--config", "f", "--trainer_config.batch_size=3"}) ==
        "--trainer_config.batch_size: not an option; to override a key, write "
        "trainer_config.batch_size=3");
  CHECK(error({"--config="}) == "--config: is empty; give a YAML file");
  CHECK(error({"--config", "c", "foo"}) ==
        "foo: not an override; write KEY=VALUE to override a value");
  CHECK(error({"train", "--config", "c"}) ==
        "train: not an override; omit 'train': training is what trainer does without a mode");
  CHECK(error({"cfg.yaml"}) == "cfg.yaml: not an override; did you mean --config cfg.yaml?");
  CHECK(error({"generat"}) ==
        "generat: not an override; did you mean 'trainer generate'? The mode comes first");
  CHECK(error({"--help=3"}) == "--help: takes no value, got '3'; write --help alone");
  CHECK(error({"generate", "--snapshot", "s"}) ==
        "--prompt: is required; see trainer generate --help");
  CHECK(error({"generate", "--promt", "s"}) == "--promt: no such option; did you mean '--prompt'?");
  CHECK(error({"generate", "--prompt=a", "--snapshot=s", "b"}).find("b: unexpected argument") == 0);
  CHECK(error({"inspect"}) == "inspect: no snapshot given; write trainer inspect SNAPSHOT");
  CHECK(error({"inspect", "a", "b"}).find("b: unexpected argument") == 0);
  CHECK(error({"report"}) ==
        "report: needs the folder of a run; write trainer report RUN_DIR --output FILE.html");
  CHECK(error({"report", ".", "--output="}).find("--output: is empty") == 0);
  CHECK(error({"report", ".", "--outptu=x"}) ==
        "--outptu: no such option; did you mean '--output'?");
  CHECK(error({"doctor", "now"}).find("now: unexpected argument") == 0);
}

TEST_CASE("numbers of generate are checked") {
  const auto with = [](const std::string& option) {
    return error({"generate", "--prompt=a", "--snapshot=s", option});
  };
  CHECK(with("--max_new_tokens=x").find("--max_new_tokens: 'x' is not an integer >= 0") == 0);
  CHECK(with("--max_new_tokens=-1").find("--max_new_tokens: '-1'") == 0);
  CHECK(with("--top_k=-1").find("--top_k: '-1' is not an integer >= 0") == 0);
  CHECK(with("--temperature=-1").find("--temperature: '-1' is not a number >= 0") == 0);
  CHECK(with("--temperature=nan").find("--temperature: 'nan'") == 0);
  CHECK(with("--seed=1.5").find("--seed: '1.5'") == 0);
  CHECK(with("--top_p=0").find("--top_p: '0' is not a number > 0 and <= 1") == 0);
  CHECK(with("--min_p=1.5").find("--min_p: '1.5' is not a number >= 0 and <= 1") == 0);
  CHECK(with("--repetition_penalty=-1").find("--repetition_penalty: '-1'") == 0);
  CHECK(with("--num_samples=0").find("--num_samples: '0' is not an integer >= 1") == 0);
  CHECK(with("--device=gpu").find("--device: 'gpu' is not one of auto, cpu, cuda") == 0);
  CHECK(with("--stop=") == "--stop: is empty; give the text to stop before");
  CHECK(with("--prompt_file=x") == "--prompt_file: conflicts with --prompt; keep one");
  CHECK(with("--prompt_per_line").find("--prompt_per_line: belongs to --prompt_file") == 0);
}

TEST_CASE("help and READMEs of trainer have the exit codes of the contract, in its words") {
  auto both = ddp::test::exit_code_table(DDP_SOURCE_DIR "/README.md", "exit code");
  auto own = ddp::test::exit_code_table(DDP_SOURCE_DIR "/trainer/README.md", "code");
  const std::string help = parse({"--help"}).help_text;
  for (const launch::ExitCodeMeaning& meaning : launch::kExitCodeMeanings) {
    const std::string name = ddp::test::exit_code_name(meaning.code);
    const std::string words = meaning.of_trainer ? meaning.of_trainer : "";
    INFO(name);
    REQUIRE(both[name].size() == 2);
    CHECK(both[name][0] == words);
    if (words.empty()) continue;
    REQUIRE(own[name].size() == 1);
    CHECK_THAT(own[name][0], Catch::StartsWith(words));
    own.erase(name);
    CHECK_THAT(help,
               Catch::Contains("\n  " + name + std::string(7 - name.size(), ' ') + words + "\n"));
  }
  CHECK(own.empty());
}

TEST_CASE("the help pages are frozen") {
  std::string pages;
  for (const char* mode : {"", "generate", "eval", "predict", "export", "estimate", "plan",
                           "inspect", "doctor", "tokenize", "report", "data"}) {
    std::vector<std::string> words;
    if (*mode != '\0') words.emplace_back(mode);
    words.emplace_back(*mode == '\0' ? "--help" : "-h");
    const TrainerArgs args = parse(words);
    CHECK(args.mode == Mode::kHelp);
    pages += std::string("$ trainer ") + mode + (*mode == '\0' ? "" : " ") + "--help\n" +
             args.help_text + "\n";
  }
  CHECK(pages == test::read_file(DDP_SOURCE_DIR "/tests/trainer/config/help.golden"));
}

}  // namespace
}  // namespace ddp::train
