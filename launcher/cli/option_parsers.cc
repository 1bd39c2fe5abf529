#include "launcher/cli/option_parsers.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <string_view>

#include "launcher/base/errors.h"
#include "launcher/base/signal_names.h"
#include "launcher/base/text.h"
#include "launcher/cli/option_values.h"

namespace ddp::launch {
namespace {

// More than this is a typo, and would take long to start.
constexpr int kMostWorkers = 4096;

// -1: anything else.
int number_up_to(int high, const std::string& text) {
  const int number = whole_number(text).value_or(-1);
  return number <= high ? number : -1;
}

// 4096, 64K, 10M; nullopt: anything else, or too little to be meant.
std::optional<std::uint64_t> bytes_of(const std::string& text) {
  constexpr std::uint64_t kSmallest = 4096;
  constexpr std::string_view kUnits = "KMGT";
  std::string digits = text;
  int shift = 0;
  if (const auto unit = digits.empty() ? std::string_view::npos : kUnits.find(digits.back());
      unit != std::string_view::npos) {
    shift = 10 * (static_cast<int>(unit) + 1);
    digits.pop_back();
  }
  const int number = number_up_to(1 << 30, digits);
  const std::uint64_t bytes = static_cast<std::uint64_t>(std::max(number, 0)) << shift;
  if (number < 0 || (bytes > 0 && bytes < kSmallest)) return std::nullopt;
  return bytes;
}

// HOST:PORT or [V6]:PORT; a port of -1: there is none, or not a valid one.
Endpoint split_port(const std::string& text) {
  const auto colon = text.rfind(':');
  const bool has_port = colon != std::string::npos;
  Endpoint endpoint{text.substr(0, colon),
                    has_port ? number_up_to(65535, text.substr(colon + 1)) : -1};
  std::string& host = endpoint.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return endpoint;
}

RestartPolicy policy_named(const std::string& name, const std::string& text) {
  const auto* const found = std::find(kRestartPolicies.begin(), kRestartPolicies.end(), name);
  if (found != kRestartPolicies.end())
    return static_cast<RestartPolicy>(found - kRestartPolicies.begin());
  value_error("restart-policy", text,
              "on-failure, on-crash or never, then final=CODE or retry=CODE, e.g. "
              "on-crash,final=2");
}

}  // namespace

std::optional<int> parse_local_world_size(const std::string& value) {
  if (value == "cpu" || value == "auto" || value == "gpu") return std::nullopt;
  const auto number = whole_number(value);
  if (!number || *number < 1 || *number > kMostWorkers) {
    value_error("nproc_per_node", value,
                fmt::format("a number from 1 to {}, gpu, cpu or auto", kMostWorkers));
  }
  return number;
}

NodeRange parse_nnodes(const std::string& value) {
  std::vector<int> numbers;
  for (const auto& part : split_list(value, ':')) {
    const int number = number_up_to(INT_MAX, trimmed(part));
    if (number < 1) numbers.assign(3, 0);
    numbers.push_back(number);
  }
  if (numbers.size() > 2 || numbers.front() > numbers.back()) {
    value_error("nnodes", value, "N or MIN:MAX, with 1 <= MIN <= MAX");
  }
  return {numbers.front(), numbers.back()};
}

std::vector<int> parse_signals(const std::string& list) {
  std::vector<int> signals;
  for (const auto& name : split_list(list, ',')) {
    const int signal = signal_number(trimmed(name));
    if (signal == 0) {
      usage_error(
          fmt::format("--signals-to-handle={}: '{}' is not a signal that can be handled; list "
                      "names, e.g. SIGTERM,SIGUSR1",
                      list, name));
    }
    signals.push_back(signal);
  }
  return signals;
}

std::map<std::string, std::string> parse_rdzv_conf(const std::string& text) {
  std::map<std::string, std::string> conf;
  if (text.empty()) return conf;
  for (const auto& pair : split_list(text, ',')) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size()) {
      usage_error(fmt::format("--rdzv-conf={}: '{}' is not KEY=VALUE", text, pair));
    }
    conf[trimmed(pair.substr(0, equals))] = trimmed(pair.substr(equals + 1));
  }
  return conf;
}

std::optional<Endpoint> parse_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  const auto bracket = text.rfind(']');
  if (colon == std::string::npos || (bracket != std::string::npos && colon < bracket)) {
    return std::nullopt;
  }
  const Endpoint endpoint = split_port(text);
  if (endpoint.port < 0 || endpoint.host.find('/') != std::string::npos)  // tcp://HOST:PORT
    usage_error(fmt::format("--rdzv-endpoint={}: must be HOST or HOST:PORT", text));
  return endpoint;
}

RankStreams parse_streams(const char* name, const std::string& text) {
  RankStreams streams;
  if (const int all = number_up_to(3, text); all >= 0) {
    streams.all = all;
    return streams;
  }
  for (const auto& pair : split_list(text, ',')) {
    const auto colon = pair.find(':');
    const int rank = number_up_to(INT_MAX, pair.substr(0, colon));
    const int value = colon == std::string::npos ? -1 : number_up_to(3, pair.substr(colon + 1));
    if (rank < 0 || value < 0) {
      value_error(name, text,
                  "0, 1 (stdout), 2 (stderr), 3 (both), or RANK:VALUE,..., e.g. 0:3,1:1");
    }
    streams.by_rank[rank] = value;
  }
  return streams;
}

std::set<int> parse_ranks(const std::string& text) {
  std::set<int> ranks;
  if (text.empty()) return ranks;
  for (const auto& part : split_list(text, ',')) {
    const int rank = number_up_to(INT_MAX, trimmed(part));
    if (rank < 0)
      usage_error(
          fmt::format("--local-ranks-filter={}: must be a list of local ranks, e.g. 0,1,12", text));
    ranks.insert(rank);
  }
  return ranks;
}

// `,,` is a literal comma.
std::vector<std::string> parse_filters(const std::string& text) {
  std::vector<std::string> filters;
  if (text.empty()) return filters;
  filters.emplace_back();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      filters.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      filters.back() += text[i++];
    } else {
      filters.emplace_back();
    }
  }
  return filters;
}

Rotation parse_rotation(const std::string& text) {
  const auto colon = text.find(':');
  const auto size = bytes_of(text.substr(0, colon));
  const int keep = colon == std::string::npos ? 3 : number_up_to(1000, text.substr(colon + 1));
  if (!size || keep < 0) {
    value_error("log-max-size", text,
                "SIZE or SIZE:KEEP, where SIZE is 0 or at least 4K and KEEP at most 1000 files, "
                "e.g. 64M or 2G:5");
  }
  return {*size, keep};
}

Endpoint parse_health(const std::string& text) {
  if (const int port = number_up_to(65535, text); port >= 0) return {"127.0.0.1", port};
  const Endpoint endpoint = split_port(text);
  if (endpoint.port < 0 || endpoint.host.empty())
    value_error("health-port", text, "PORT or HOST:PORT");
  return endpoint;
}

RestartRules parse_restart_policy(const std::string& text) {
  const auto refuse = [&](const std::string& problem) {
    usage_error(fmt::format("--restart-policy={}: {}", text, problem));
  };
  const auto entries = split_list(text, ',');
  RestartRules rules;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string entry = trimmed(entries[i]);
    const auto equals = std::min(entry.find('='), entry.size());
    const std::string key = entry.substr(0, equals);
    if (i == 0 && equals == entry.size()) {
      rules.policy = policy_named(entry, text);
      continue;
    }
    if (key != "final" && key != "retry") {
      refuse(fmt::format("'{}' must be final=CODE or retry=CODE, e.g. on-crash,final=2,final=64",
                         entry));
    }
    const int code = number_up_to(255, entry.substr(std::min(equals + 1, entry.size())));
    if (code < 1) refuse(fmt::format("'{}' must name an exit code from 1 to 255", entry));
    (key == "final" ? rules.final_codes : rules.retry_codes).insert(code);
    if (rules.final_codes.count(code) + rules.retry_codes.count(code) > 1)
      refuse(fmt::format("exit code {} is both final and retry; drop one", code));
  }
  return rules;
}

}  // namespace ddp::launch
