#include "trainer/health/fault_plan.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <thread>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

struct KindName {
  std::string_view name;
  FaultKind kind;
  Phase usual;  // where it happens when no phase is given
};

constexpr KindName kKinds[] = {{"kill", FaultKind::kKill, Phase::kForward},
                               {"abort", FaultKind::kAbort, Phase::kForward},
                               {"exit", FaultKind::kExit, Phase::kForward},
                               {"stop", FaultKind::kStop, Phase::kForward},
                               {"hang", FaultKind::kHang, Phase::kData},
                               {"slow", FaultKind::kSlow, Phase::kForward},
                               {"nan", FaultKind::kNan, Phase::kBackward},
                               {"nan_here", FaultKind::kNanHere, Phase::kOptimizer},
                               {"disk_full", FaultKind::kDiskFull, Phase::kWriting},
                               {"corrupt", FaultKind::kCorrupt, Phase::kPublished},
                               {"drift", FaultKind::kDrift, Phase::kOptimizer}};

constexpr const char* kEnvironment = "DDP_FAULT_PLAN";

template <class Names>
std::string names_of(const Names& names) {
  std::string out;
  for (const auto& entry : names) out += (out.empty() ? "" : ", ") + std::string(entry.name);
  return out;
}

[[noreturn]] void bad_plan(const std::string& text, const std::string& why) {
  throw UserError(fmt::format(
      "trainer_config.fault_plan: '{}': {}; a fault reads rank=1 step=12 phase=backward kind=kill",
      text, why));
}

int64_t whole_number_in(const std::string& text, const std::string& word,
                        const std::string& value) {
  int64_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc{} || end != value.data() + value.size() || parsed < 0)
    bad_plan(text, fmt::format("{} is not a whole number from 0 on", word));
  return parsed;
}

template <class Names>
const auto& entry_named(const Names& names, const char* what, const std::string& text,
                        const std::string& name) {
  for (const auto& entry : names) {
    if (entry.name == name) return entry;
  }
  bad_plan(text, fmt::format("unknown {} '{}', known are {}", what, name, names_of(names)));
}

const KindName& kind_name_of(FaultKind kind) {
  for (const auto& entry : kKinds) {
    if (entry.kind == kind) return entry;
  }
  return kKinds[0];
}

void commit(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kKill:
      ::kill(::getpid(), SIGKILL);
      break;
    case FaultKind::kAbort:
      std::abort();
    case FaultKind::kExit:
      ::_exit(fault.value == 0 ? 1 : static_cast<int>(fault.value));
    case FaultKind::kStop:
      ::kill(::getpid(), SIGSTOP);
      break;
    case FaultKind::kHang:
      while (true) ::pause();
    case FaultKind::kSlow:
      std::this_thread::sleep_for(std::chrono::milliseconds(fault.value));
      break;
    case FaultKind::kNan:
    case FaultKind::kNanHere:
    case FaultKind::kDiskFull:
    case FaultKind::kCorrupt:
    case FaultKind::kDrift:
      break;  // others ask plans()
  }
}

}  // namespace

Fault parse_fault(const std::string& text) {
  Fault fault;
  std::optional<Phase> phase;
  const KindName* kind = nullptr;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "rank")
      fault.rank = static_cast<int>(whole_number_in(text, word, value));
    else if (key == "step")
      fault.step = whole_number_in(text, word, value);
    else if (key == "attempt")
      fault.attempt = static_cast<int>(whole_number_in(text, word, value));
    else if (key == "value")
      fault.value = whole_number_in(text, word, value);
    else if (key == "phase")
      phase = entry_named(kPhaseNames, "phase", text, value).phase;
    else if (key == "kind")
      kind = &entry_named(kKinds, "kind", text, value);
    else
      bad_plan(text,
               fmt::format("unknown word '{}', known are rank, step, phase, kind, attempt, value",
                           word));
  }
  if (kind == nullptr) bad_plan(text, "no kind");
  fault.kind = kind->kind;
  fault.phase = phase.value_or(kind->usual);
  return fault;
}

FaultPlan::FaultPlan(const std::vector<std::string>& texts, int rank, int attempt) {
  std::vector<std::string> all = texts;
  if (const char* more = std::getenv(kEnvironment); more != nullptr) {
    std::istringstream stream(more);
    for (std::string one; std::getline(stream, one, ';');) {
      if (one.find_first_not_of(" \t") != std::string::npos) all.push_back(one);
    }
  }
  for (const auto& text : all) {
    const Fault fault = parse_fault(text);
    if (fault.rank == rank && fault.attempt == attempt) faults_.push_back(fault);
  }
}

std::vector<std::string> FaultPlan::descriptions() const {
  std::vector<std::string> lines;
  for (const auto& fault : faults_) {
    lines.push_back(fmt::format("FAULT INJECTION: {} on rank {} in step {}, phase {}",
                                kind_name_of(fault.kind).name, fault.rank, fault.step,
                                name_of(fault.phase)));
  }
  return lines;
}

void FaultPlan::at(Phase phase, int64_t step) const {
  for (const auto& fault : faults_) {
    const bool now = fault.kind == FaultKind::kSlow ? step >= fault.step : step == fault.step;
    if (now && fault.phase == phase) commit(fault);
  }
}

bool FaultPlan::plans(FaultKind kind, int64_t step) const {
  for (const auto& fault : faults_) {
    if (fault.kind == kind && fault.step == step) return true;
  }
  return false;
}

}  // namespace ddp::train
