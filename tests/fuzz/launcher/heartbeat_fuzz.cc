// Whatever workers say in their heartbeats, one line each, those that are overdue are named, each
// once, in text that a terminal may show.
#include "launcher/hang/heartbeat.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "launcher/base/run_result.h"
#include "launcher/hang/hang_rules.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/run_record.h"
#include "launcher/worker_contract.h"
#include "tests/fuzz/check.h"

using namespace ddp::launch;

namespace {

bool is_plain(const std::string& text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// The first character selects who is overdue and the state of its process.
Suspect suspect_from(const std::string& line) {
  Suspect suspect;
  suspect.sign = parse_heartbeat(line);
  suspect.overdue = !line.empty() && line.front() != ' ';
  suspect.state = line.empty() ? '?' : line.front();
  FUZZ_CHECK(is_plain(suspect.sign.text) && suspect.sign.text.size() <= 300);
  FUZZ_CHECK(is_plain(suspect.sign.progress.phase + suspect.sign.progress.waiting));
  FUZZ_CHECK(is_plain(suspect.sign.progress.collective));
  FUZZ_CHECK(!suspect.sign.promise || *suspect.sign.promise >= Clock::duration::zero());
  return suspect;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string rest(reinterpret_cast<const char*>(data), size);
  rest += '\n';
  std::vector<Suspect> suspects;
  for (std::size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
    suspects.push_back(suspect_from(rest.substr(0, end)));
  }
  auto hung = find_hung(suspects);
  RunResult result;
  result.outcome = Outcome::kFailed;
  for (const std::size_t i : hung) {
    ProcessFailure failure;
    failure.exit.code = kExitHang;
    failure.hang = "silent for";
    failure.heartbeat = suspects.at(i).sign.text;
    failure.progress = suspects.at(i).sign.progress;
    result.failures.push_back(failure);
  }
  std::sort(hung.begin(), hung.end());
  FUZZ_CHECK(std::adjacent_find(hung.begin(), hung.end()) == hung.end());
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    FUZZ_CHECK(!suspects[i].overdue || std::binary_search(hung.begin(), hung.end(), i));
  }
  if (hung.empty()) return 0;
  const std::string report = failure_report(result, {"host", 1, 18, ""});
  FUZZ_CHECK(std::count(report.begin(), report.end(), '\n') <= 30);
  FUZZ_CHECK(!result_json(result, "id", "host", 1).empty());
  return 0;
}
