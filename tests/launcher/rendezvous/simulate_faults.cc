// The nodes of one elastic job in this process, with the real rendezvous of ddp-run and without
// workers, under random faults: cut and reset connections, pauses, kills, returns. In half of the
// schedules there are several endpoints, in half of them nodes that return have their file of
// members, and in a fifth of them there are more nodes than places. The same seed makes the same
// faults. Ends with 1 if a schedule breaks a rule:
//   - at most one round of the job runs at a time, with a greater epoch than all that ran before
//   - once nothing fails any more, all nodes that are left, but for spares, form one job again; in
//   half of the schedules with files all nodes return, and form it within 120 s
//   - no node ends as if the job had succeeded before all workers of one round have
//   - nothing happens to a node that its stage does not allow (group_policy.h)
//   - a node that waits sleeps: it does not ask again and again to be woken at a time that has
//   passed
// The nodes' sockets are in a network namespace of this process, where that is permitted.
//   simulate_faults [--schedules=N] [--seconds=N] [--seed=N] [--nodes=N|LEAST..MOST]
//   [--min-nodes=N]
//                   [--endpoints=N] [--files=0|1] [--spares=N] [--returns=0|1] [--lost-rack]
//                   [--found] [--verbose]
// --seconds: begins no further schedule after so long. --lost-rack: 130 nodes, of which half of the
// first ones are lost at once, the host among them, silently and by being killed. --found: the
// schedules that have found a defect.
#include <fmt/format.h>
#include <time.h>

#include <array>
#include <stdexcept>
#include <string>

#include "tests/launcher/rendezvous/fault_schedule.h"
#include "tests/launcher/rendezvous/own_network.h"

namespace ddp::test {
namespace {

struct Options : ScheduleOptions {
  int schedules = 100;
  unsigned long seed = 1;
  int seconds = 0;  // 0: as long as it takes
  bool lost_rack = false;
  bool found = false;
};

struct Found {
  unsigned long seed;
  int nodes = 0;  // as in ScheduleOptions
  int spares = 0;
  int returns = 0;
};

constexpr std::array kFound{
    Found{8},        // a node that was held by the next host did not sleep
    Found{32},       // nor did a host that waited for more nodes
    Found{401'347},  // a node reconnected to its host, which had stepped down and waited for it
    Found{402'910},  // the same with more nodes
    Found{402'351},  // a host stepped down again and again: a node had accepted a round of nobody
    Found{403'120},  // a node that was to join while it reconnected did not
    // A host continued from a round that it alone had accepted, the others from the one before.
    Found{9'000'130, 4, 1},
    // A host that continued alone, and was started anew, waited for one that waited for it.
    Found{20'000'136, 0, 0, 1},
    Found{20'000'262, 0, 0, 1},
    Found{20'000'268, 0, 0, 1},
    Found{20'000'555, 0, 0, 1},
    // The only place was its host's, which had had no part in the last round.
    Found{21'001'269, 0, -1, 1},
    // A host stepped down without the round that it had proposed, and that others had accepted.
    Found{291'126'230, 0, 0, -1},
    // A host that had gone on alone, and was started anew, asked none of the others, and one had
    // gone on.
    Found{292'001'174},
};

void set_nodes(Options& options, const std::string& text) {
  const auto dots = text.find("..");
  if (dots == std::string::npos) {
    options.nodes = std::stoi(text);
  } else {
    options.least_nodes = std::stoi(text);
    options.most_nodes = std::stoi(text.substr(dots + 2));
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return std::stoul(arg.substr(arg.find('=') + 1)); };
    if (arg.starts_with("--schedules="))
      options.schedules = static_cast<int>(value());
    else if (arg.starts_with("--seed="))
      options.seed = value();
    else if (arg.starts_with("--nodes="))
      set_nodes(options, arg.substr(8));
    else if (arg.starts_with("--min-nodes="))
      options.min_nodes = static_cast<int>(value());
    else if (arg.starts_with("--endpoints="))
      options.endpoints = static_cast<int>(value());
    else if (arg.starts_with("--files="))
      options.files = static_cast<int>(value());
    else if (arg.starts_with("--spares="))
      options.spares = static_cast<int>(value());
    else if (arg.starts_with("--returns="))
      options.returns = static_cast<int>(value());
    else if (arg.starts_with("--seconds="))
      options.seconds = static_cast<int>(value());
    else if (arg == "--lost-rack")
      options.lost_rack = true;
    else if (arg == "--found")
      options.found = true;
    else if (arg == "--verbose")
      options.verbose = true;
    else
      throw std::runtime_error("unknown option " + arg);
  }
  return options;
}

int lose_racks(Options options) {
  options.nodes = options.nodes > 0 ? options.nodes : 130;
  options.min_nodes = 1;
  try {
    for (const bool silently : {true, false})
      FaultSchedule(options, options.seed + (silently ? 0 : 1)).lose_rack(silently);
    return 0;
  } catch (const BrokenRule& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

int simulate(const Options& options) {
  int broken = 0, without_job = 0, i = 0;
  timespec began{}, now{};  // the machine's time, not the nodes'
  ::clock_gettime(CLOCK_MONOTONIC, &began);
  for (; i < options.schedules; ++i) {
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    if (options.seconds > 0 && now.tv_sec - began.tv_sec >= options.seconds) break;
    const unsigned long seed = options.seed + static_cast<unsigned long>(i);
    try {
      FaultSchedule schedule(options, seed);
      schedule.run();
      without_job += schedule.went_on() ? 0 : 1;
    } catch (const BrokenRule& error) {
      ++broken;
      fmt::print(stderr, "--seed={}: {}\n", seed, error.what());
    }
  }
  fmt::print(
      "{} of {} schedules broke a rule; {} ended because nodes that were needed did not "
      "return\n",
      broken, i, without_job);
  return broken == 0 ? 0 : 1;
}

int repeat_found(Options options) {
  options.schedules = 1;
  int broken = 0;
  for (const Found& found : kFound) {
    options.seed = found.seed;
    options.nodes = found.nodes;
    options.spares = found.spares;
    options.returns = found.returns;
    options.files = found.returns == 1 ? 1 : -1;
    broken += simulate(options);
  }
  options.nodes = 5;
  options.min_nodes = options.endpoints = 1;
  options.files = options.spares = options.returns = 0;
  try {
    FaultSchedule(options, 1).wake_at_former_host();
    options.nodes = 3;
    FaultSchedule(options, 1).lose_host_before_its_round();
    options.nodes = 4;
    options.files = 1;
    FaultSchedule(options, 1).return_with_older_files();
    options.nodes = 5;
    options.spares = 2;
    options.files = 0;
    FaultSchedule(options, 1).hear_of_a_host_of_strangers();
  } catch (const BrokenRule& error) {
    ++broken;
    fmt::print(stderr, "{}\n", error.what());
  }
  return broken == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ddp::test

int main(int argc, char** argv) {
  try {
    const auto options = ddp::test::parse(argc, argv);
    ddp::test::enter_own_network();
    ddp::test::keep_files_in_memory();
    if (options.lost_rack) return ddp::test::lose_racks(options);
    return options.found ? ddp::test::repeat_found(options) : ddp::test::simulate(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulate_faults: {}\n", error.what());
    return 1;
  }
}
