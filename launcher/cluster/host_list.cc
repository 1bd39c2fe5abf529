#include "launcher/cluster/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cluster/node_list.h"

namespace ddp::launch {
namespace {

// What the messages begin with, e.g. "--hosts=a,b" or "hosts.txt:3".
[[noreturn]] void fail(const std::string& origin, const std::string& what) {
  usage_error(fmt::format("{}: {}; expected HOST or HOST:SLOTS, e.g. gpu1:4", origin, what));
}

int slots_of(const std::string& origin, std::string_view text, const std::string& host = "") {
  const auto number = whole_number(text);
  if (number == 0 && !host.empty()) {
    fail(origin, fmt::format("'0' is not a number of workers; for GPU 0 alone write {} gpus=0 in "
                             "the file of --hosts=@FILE",
                             host));
  }
  if (!number || *number < 1)
    fail(origin, fmt::format("'{}' is not a number of workers", printable(text)));
  return *number;
}

// Numbers or UUIDs, as in CUDA_VISIBLE_DEVICES.
std::string gpus_of(const std::string& origin, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == ',' || c == '/';
  });
  if (!plain || text.empty() || text.front() == ',' || text.back() == ',' ||
      text.find(",,") != std::string_view::npos)
    fail(origin, fmt::format("gpus='{}' is not a list such as 0,2,3", printable(text)));
  return std::string(text);
}

// Anything else might be taken for an option by ssh, or be split by it.
bool is_host_name(std::string_view name) {
  constexpr std::string_view kSigns = ".-_:%";
  const bool plain = std::all_of(name.begin(), name.end(), [&](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || kSigns.find(c) != std::string_view::npos;
  });
  return plain && !name.empty() && name.front() != '-';
}

// Splits "name:4", "[v6]:4" or a bare IPv6 address.
Host without_user(const std::string& origin, std::string_view text) {
  Host host;
  std::string_view slots;
  if (text.starts_with('[')) {
    const auto end = std::min(text.find(']'), text.size());
    host.name = text.substr(1, end - 1);
    slots = text.substr(std::min(end + 1, text.size()));
    if (!slots.empty() && slots.front() != ':') fail(origin, "wrong text behind ']'");
  } else {
    const auto colon = text.find(':');
    const bool has_slots = colon != std::string_view::npos && text.rfind(':') == colon;
    host.name = text.substr(0, has_slots ? colon : text.size());
    slots = has_slots ? text.substr(colon) : "";
  }
  if (!is_host_name(host.name))
    fail(origin, fmt::format("'{}' is not a host name", printable(host.name)));
  if (!slots.empty()) host.slots = slots_of(origin, slots.substr(1), host.name);
  return host;
}

Host one_host(const std::string& origin, std::string_view text) {
  const auto at = text.rfind('@');
  const std::string_view user = at == std::string_view::npos ? "" : text.substr(0, at);
  Host host = without_user(origin, at == std::string_view::npos ? text : text.substr(at + 1));
  if (at != std::string_view::npos && !is_host_name(user))
    fail(origin, fmt::format("'{}' is not a user name", printable(user)));
  host.destination = user.empty() ? host.name : fmt::format("{}@{}", user, host.name);
  return host;
}

bool is_numeric_v6(std::string_view entry) {
  return entry.find(':', entry.find('[')) < entry.find(']') && entry.find('[') < entry.find(']') &&
         entry.find(']') != std::string_view::npos;
}

std::size_t end_of_entry(std::string_view text, std::size_t begin) {
  int depth = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (text[i] == ',' && depth <= 0) return i;
  }
  return text.size();
}

// "0,2,3" of "gpu1:0,2,3": moves `next` past the numbers, as no host is called 2, and removes ":0".
std::string take_gpus(std::string& entry, std::string_view text, std::size_t& next) {
  const std::size_t colon = entry.rfind(':');
  const bool has_number = colon != std::string::npos && colon > 0 &&
                          whole_number(entry.substr(colon + 1)) &&
                          (entry.find(':') == colon || entry[colon - 1] == ']');
  std::string gpus = has_number ? entry.substr(colon + 1) : "";
  const std::size_t first = next;
  while (has_number && next <= text.size()) {
    const std::size_t end = std::min(text.find(',', next), text.size());
    const std::string number = trimmed(std::string(text.substr(next, end - next)));
    if (!whole_number(number)) break;
    gpus += ',' + number;
    next = end + 1;
  }
  if (next == first) return "";
  entry.resize(colon);
  return gpus;
}

void choose_gpus(Host& host, const std::string& origin, const std::string& gpus) {
  if (gpus.empty()) return;
  if (!host.gpus.empty())
    fail(origin, fmt::format("'{}' names its GPUs twice; keep one list", printable(host.name)));
  std::set<std::string> numbers;
  std::istringstream stream(gpus);
  for (std::string number; std::getline(stream, number, ',');) {
    if (!numbers.insert(number).second)
      fail(origin, fmt::format("'{}' names GPU {} twice", printable(host.name), number));
    if (number.starts_with('-')) {
      fail(origin, fmt::format("'{}': there is no GPU {}, and CUDA would hide all that follow",
                               printable(host.name), number));
    }
  }
  host.gpus = gpus;
  if (host.slots == 0) host.slots = static_cast<int>(numbers.size());
}

void add_hosts(std::vector<Host>& hosts, const std::string& origin, const std::string& entry,
               const std::string& gpus) {
  if (entry.empty()) fail(origin, "has an empty host name");
  if (entry.find("gpus=") != std::string::npos) {
    fail(origin, fmt::format("'{}' is not a host; GPUs are given as gpu1:0,2 or, in the lines of "
                             "--hosts=@FILE, as gpu1 gpus=0,2",
                             printable(entry)));
  }
  const auto names = is_numeric_v6(entry) ? std::vector{entry} : expand_node_list(origin, entry);
  for (const auto& name : names) {
    hosts.push_back(one_host(origin, name));
    choose_gpus(hosts.back(), origin, gpus);
  }
}

// Splits at commas outside brackets, and writes out ranges.
std::vector<Host> hosts_in(const std::string& origin, std::string_view text) {
  std::vector<Host> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = end_of_entry(text, begin);
    std::string entry = trimmed(std::string(text.substr(begin, end - begin)));
    begin = end + 1;
    const std::string gpus = take_gpus(entry, text, begin);
    add_hosts(hosts, origin, entry, gpus);
  }
  return hosts;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<Host> hosts_of_line(const std::string& origin, const std::vector<std::string>& words) {
  std::vector<Host> hosts = hosts_in(origin, words.front());
  int slots = 0;
  std::string gpus;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;
    if (word.starts_with("gpus=")) {
      gpus = gpus_of(origin, word.substr(5));
    } else if (word.starts_with("slots=")) {
      slots = slots_of(origin, word.substr(6));
    } else if (i == 1 && whole_number(words[i])) {
      slots = slots_of(origin, word);
      break;  // SGE: the queue and the CPUs
    } else {
      fail(origin, fmt::format("'{}' is not known here", printable(word)));
    }
  }
  for (Host& host : hosts) {
    if (slots > 0) host.slots = slots;
    choose_gpus(host, origin, gpus);
  }
  return hosts;
}

// "host slots queue CPUs": a line per queue.
bool is_sge_line(const std::vector<std::string>& words) {
  return words.size() > 2 && whole_number(words[1]);
}

// PBS writes one line per slot.
void add_line(std::vector<Host>& hosts, Host host, bool is_sge) {
  const auto same = std::find_if(hosts.begin(), hosts.end(), [&](const Host& other) {
    return other.destination == host.destination;
  });
  if (same != hosts.end() && is_sge) {
    same->slots += host.slots;
  } else if (same == hosts.end() || host.slots > 0 || !host.gpus.empty()) {
    hosts.push_back(std::move(host));
  } else {
    same->slots = std::max(same->slots, 1) + 1;
  }
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  return hosts_in(fmt::format("--hosts={}", printable(text)), text);
}

std::vector<Host> parse_hostfile(const std::string& file, std::string_view text) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto words = words_of(line);
    if (words.empty()) continue;
    for (Host& host : hosts_of_line(fmt::format("{}:{}", file, number), words))
      add_line(hosts, std::move(host), is_sge_line(words));
  }
  if (hosts.empty()) usage_error(fmt::format("--hosts=@{}: names no host", file));
  return hosts;
}

}  // namespace ddp::launch
