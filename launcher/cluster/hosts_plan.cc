#include "launcher/cluster/hosts_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "launcher/base/errors.h"
#include "launcher/base/random_hex.h"
#include "launcher/base/system/path_search.h"
#include "launcher/base/text.h"
#include "launcher/cluster/host_list.h"
#include "launcher/cluster/ssh_command.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// No password prompts, as the hosts' output shares the terminal; a lost host must not hang the job.
constexpr const char* kDefaultSsh =
    "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15";

std::vector<std::string> ssh_words(const Environment& environment) {
  const std::string given = value_of(environment, "DDP_SSH");
  std::istringstream stream(trimmed(given).empty() ? kDefaultSsh : given);
  return {std::istream_iterator<std::string>(stream), {}};
}

Command ssh_command(const Environment& environment) {
  Command command{"", ssh_words(environment)};
  const std::string& name = command.argv.front();
  command.executable = name.find('/') != std::string::npos || environment.count("PATH") == 0
                           ? name
                           : find_on_path(name, value_of(environment, "PATH"));
  if (command.executable.empty()) {
    throw LaunchError(kExitNotFound,
                      fmt::format("--hosts: '{}' was not found; install it (openssh-client), or "
                                  "name another program in DDP_SSH",
                                  name));
  }
  return command;
}

// A shell could not export other names.
bool is_variable(const std::string& name) {
  const auto is_letter = [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return !name.empty() && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

bool matches(const std::string& pattern, const std::string& name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

// --export NAME, NAME=VALUE, PREFIX*. A comma cannot be part of a value.
std::vector<std::string> settings_for(const std::string& list, const Environment& environment) {
  std::vector<std::string> settings;
  std::istringstream stream(list);
  for (std::string entry; std::getline(stream, entry, ',');) {
    entry = trimmed(entry);
    const std::string name = entry.substr(0, entry.find('='));
    if (!is_variable(name.ends_with('*') ? name.substr(0, name.size() - 1) : name))
      usage_error(fmt::format("--export={}: expected NAME, NAME=VALUE or PREFIX*", list));
    if (entry.find('=') != std::string::npos) {
      settings.push_back(entry);
      continue;
    }
    for (const auto& [variable, value] : environment) {
      if (matches(entry, variable) && is_variable(variable))
        settings.push_back(variable + "=" + value);
    }
  }
  return settings;
}

bool is_this_machine(const std::string& name) {
  return name == "localhost" || name == "::1" || name.starts_with("127.");
}

void check_numbers(const HostsRequest& request, const std::vector<Host>& hosts) {
  const int count = static_cast<int>(hosts.size());
  const bool fits = request.dynamic ? request.min_nodes <= count : request.max_nodes == count;
  if (request.nnodes.empty() || fits) return;
  usage_error(fmt::format("--nnodes={} with {} hosts: {}", request.nnodes, count,
                          request.dynamic ? "there are too few hosts"
                                          : "omit it, or use --rdzv-backend=c10d for MIN:MAX"));
}

void check_first_host(const HostsRequest& request, const std::vector<Host>& hosts) {
  if (request.has_address || !is_this_machine(hosts.front().name)) return;
  const auto other = std::find_if(hosts.begin(), hosts.end(),
                                  [](const Host& host) { return !is_this_machine(host.name); });
  if (other == hosts.end()) return;
  usage_error(
      fmt::format("the first host is '{}', where {} cannot reach it: name it as the others know "
                  "it, or give --master-addr",
                  hosts.front().name, other->name));
}

// With CUDA_VISIBLE_DEVICES=0,2,3 torchrun starts as many workers as --nproc-per-node says.
void check_gpus(const HostsRequest& request, const std::vector<Host>& hosts) {
  const auto workers = whole_number(request.nproc);
  if (!workers) return;
  for (const Host& host : hosts) {
    if (host.gpus.empty() || host.slots == *workers) continue;
    usage_error(
        fmt::format("--nproc-per-node={0}, but host '{1}' has {2} for its GPUs {3}: omit it, or "
                    "write {1} slots={0} gpus={3} in the file of --hosts=@FILE",
                    *workers, host.name, plural(host.slots, "worker"), host.gpus));
  }
}

bool is_several(const HostsRequest& request, const std::vector<Host>& hosts) {
  return hosts.size() > 1 || request.max_nodes > 1;
}

bool wants_token(const HostsRequest& request, const std::vector<Host>& hosts) {
  return is_several(request, hosts) && !request.has_token;
}

// Options of ddp-run on the host at `index`, in addition to the user's.
std::vector<std::string> own_options(const HostsRequest& request, const HostsPlace& place,
                                     const std::vector<Host>& hosts, std::size_t index) {
  const bool several = is_several(request, hosts);
  std::vector<std::string> options{"--lifeline=" + place.version};
  const auto nodes = request.nnodes.empty() ? std::to_string(hosts.size()) : request.nnodes;
  if (several) options.push_back("--nnodes=" + nodes);
  if (several && !request.dynamic) options.push_back(fmt::format("--node-rank={}", index));
  const std::string& first = hosts.front().name;
  if (several && !request.has_address && request.dynamic) {
    const bool v6 = first.find(':') != std::string::npos;
    const std::string host = v6 ? fmt::format("[{}]", first) : first;
    options.push_back(fmt::format("--rdzv-endpoint={}:{}", host, place.port));
  } else if (several) {
    if (!request.has_address) options.push_back("--master-addr=" + first);
    if (!request.has_port) options.push_back(fmt::format("--master-port={}", place.port));
  }
  if (!request.has_run_id) options.push_back("--rdzv-id=" + place.run_id);
  if (wants_token(request, hosts)) options.emplace_back("--rdzv-token-file=-");
  if (hosts[index].slots > 0 && request.slots_count)
    options.push_back(fmt::format("--nproc-per-node={}", hosts[index].slots));
  return options;
}

std::string label_of(const std::vector<Host>& hosts, std::size_t index) {
  const std::string& name = hosts[index].name;
  const auto same = std::count_if(hosts.begin(), hosts.end(),
                                  [&](const Host& host) { return host.name == name; });
  return same > 1 ? fmt::format("{}/{}", name, index) : name;
}

}  // namespace

HostsPlace HostsPlace::of_this_process() {
  std::error_code error;
  HostsPlace place;
  place.folder = std::filesystem::current_path(error).string();
  place.ddp_run = std::filesystem::read_symlink("/proc/self/exe", error).string();
  place.version = DDP_VERSION;
  place.run_id = random_hex(4);
  // Below the ports given to clients.
  place.port = 20000 + static_cast<int>(std::stoul(random_hex(4), nullptr, 16) % 10000);
  place.token = random_hex(32);
  place.environment = inherited_environment();
  return place;
}

HostsPlan plan_hosts(const HostsRequest& request, const std::string& contents,
                     const HostsPlace& place) {
  const auto hosts =
      request.file.empty() ? parse_hosts(request.hosts) : parse_hostfile(request.file, contents);
  check_numbers(request, hosts);
  check_first_host(request, hosts);
  check_gpus(request, hosts);
  const auto settings = settings_for(request.exports, place.environment);
  RemoteCommand remote{place.folder, place.ddp_run, {}, {}};
  HostsPlan plan;
  plan.environment = place.environment;
  if (wants_token(request, hosts)) plan.token = place.token;
  plan.min_nodes =
      request.min_nodes > 0 && request.dynamic ? request.min_nodes : static_cast<int>(hosts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    remote.arguments = request.options;
    const auto add = [&](const std::vector<std::string>& words) {
      remote.arguments.insert(remote.arguments.end(), words.begin(), words.end());
    };
    if (i == 0) add(request.first_options);
    add(own_options(request, place, hosts, i));
    add({"--"});
    add(request.program);
    remote.settings = settings;
    if (!hosts[i].gpus.empty()) remote.settings.push_back("CUDA_VISIBLE_DEVICES=" + hosts[i].gpus);
    HostCommand host{label_of(hosts, i), hosts[i].destination, {}};
    if (i == 0 && request.starts_on_first) {
      host.command = {"/bin/sh", {"sh", "-c"}};
    } else {
      host.command = ssh_command(place.environment);
      host.command.argv.push_back(host.destination);
    }
    host.command.argv.push_back(remote_command_line(remote));
    plan.hosts.push_back(std::move(host));
  }
  return plan;
}

std::string shell_lines(const HostsPlan& plan) {
  std::string lines;
  for (const HostCommand& host : plan.hosts) {
    for (std::size_t i = 0; i < host.command.argv.size(); ++i)
      lines.append(i == 0 ? "" : " ").append(quoted_for_any_shell(host.command.argv[i]));
    lines.push_back('\n');
  }
  return lines;
}

}  // namespace ddp::launch
