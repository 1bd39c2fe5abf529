// The configuration half of trainer alone, for the conformance test: --cfg needs no LibTorch.
//
//   ddp_config_show ARGUMENT...   as trainer
//   ddp_config_show --batch       one run for each line of stdin: the JSON list [folder, argument,
//                                 ...]; answers with {"code": 0, "text": "..."} a line
//
// --any-keys as the first argument takes keys that trainer does not know.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/app/arguments/trainer_args.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/runtime/error.h"

namespace {

struct Shown {
  int code = 0;
  std::string text;
};

Shown show(std::vector<const char*> arguments) {
  try {
    const bool any_keys = arguments.size() > 1 && std::string(arguments[1]) == "--any-keys";
    if (any_keys) arguments.erase(arguments.begin() + 1);
    ddp::train::TrainerArgs args =
        ddp::train::parse_trainer_args(static_cast<int>(arguments.size()), arguments.data());
    args.config.any_keys = any_keys;
    return {0, args.mode == ddp::train::Mode::kShow ? ddp::train::show_text(args) : args.help_text};
  } catch (const ddp::train::UserError& error) {
    return {2, error.what()};
  }
}

int run_batch() {
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> words = nlohmann::json::parse(line);
    std::vector<const char*> arguments = {"trainer"};
    for (std::size_t i = 1; i < words.size(); ++i) arguments.push_back(words[i].c_str());
    const Shown shown = ::chdir(words.at(0).c_str()) == 0 ? show(arguments) : Shown{3, "no folder"};
    const nlohmann::json answer = {{"code", shown.code}, {"text", shown.text}};
    std::cout << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ddp::train::add_model_keys();
  if (argc == 2 && std::string(argv[1]) == "--batch") return run_batch();
  const Shown shown = show(std::vector<const char*>(argv, argv + argc));
  if (shown.code == 0) return std::fputs(shown.text.c_str(), stdout) < 0 ? 1 : 0;
  std::fprintf(stderr, "error: %s\n", shown.text.c_str());
  return shown.code;
}
