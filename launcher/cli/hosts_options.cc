#include "launcher/cli/node_options.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>

#include "launcher/base/errors.h"
#include "launcher/cli/option_parsers.h"
#include "launcher/cli/option_table.h"

namespace ddp::launch {
namespace {

// Dealt with here.
const std::set<std::string_view> kOfThisMachine{"hosts", "export", "nnodes", "dry-run",
                                                "scheduler"};
const std::set<std::string_view> kOfFirstHost{"result-json", "events"};

void refuse_conflicts(const OptionValues& values) {
  const std::string& scheduler = values.text("scheduler");
  const std::string source =
      scheduler == "none" ? "--hosts" : fmt::format("--scheduler={}", scheduler);
  for (const char* other : {"standalone", "node-rank", "local-addr", "lifeline"}) {
    if (!values.given(other)) continue;
    usage_error(fmt::format("--{} is for one node, {} for a whole job: drop one", other, source));
  }
  if (values.given("stdin-rank")) {
    usage_error(fmt::format(
        "--stdin-rank and {} cannot be combined: hosts have no terminal; drop one", source));
  }
  if (values.text("hosts").empty()) usage_error("--hosts=: is empty; name at least one host");
  if (values.text("hosts") == "@") usage_error("--hosts=@: names no file; write --hosts=@FILE");
}

void share_out(HostsRequest& request, const OptionValues& values) {
  for (const OptionSpec& option : option_table()) {
    if (!values.given(option.name) || kOfThisMachine.count(option.name) > 0) continue;
    auto& list = kOfFirstHost.count(option.name) > 0 ? request.first_options : request.options;
    list.push_back(option.value ? fmt::format("--{}={}", option.name, values.text(option.name))
                                : fmt::format("--{}", option.name));
  }
}

}  // namespace

std::optional<HostsRequest> take_hosts(const OptionValues& values) {
  if (!values.given("hosts")) return std::nullopt;
  refuse_conflicts(values);
  HostsRequest request;
  const std::string& hosts = values.text("hosts");
  (hosts.starts_with('@') ? request.file : request.hosts) =
      hosts.substr(hosts.starts_with('@') ? 1 : 0);
  if (values.text("scheduler") != "none") {
    request.starts_on_first = true;
    // A remote shell may pass on the job's variables.
    request.options.emplace_back("--scheduler=none");
  }
  request.slots_count = !request.starts_on_first || !values.given("nproc-per-node");
  request.exports = values.text("export");
  if (values.given("nproc-per-node")) request.nproc = values.text("nproc-per-node");
  if (values.given("nnodes")) {
    const NodeRange nodes = parse_nnodes(values.text("nnodes"));
    request.nnodes = values.text("nnodes");
    request.min_nodes = nodes.min;
    request.max_nodes = nodes.max;
  }
  request.dynamic = rdzv_backend(values) != "static";
  if (rdzv_backend(values) == "etcd" && !values.given("rdzv-endpoint"))
    usage_error("--rdzv-backend=etcd: --rdzv-endpoint is needed: HOST[:PORT],... of etcd");
  request.has_address = values.given("rdzv-endpoint") || values.given("master-addr");
  request.has_port = values.given("rdzv-endpoint") || values.given("master-port");
  request.has_run_id = values.given("rdzv-id");
  request.has_token = values.given("rdzv-token-file");
  share_out(request, values);
  request.program = values.program();
  return request;
}

}  // namespace ddp::launch
