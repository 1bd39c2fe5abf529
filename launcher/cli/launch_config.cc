#include "launcher/cli/launch_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <optional>
#include <tuple>

#include "launcher/base/build_commit.h"
#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/base/text.h"
#include "launcher/cli/node_options.h"
#include "launcher/cli/option_help.h"
#include "launcher/cli/option_parsers.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/other_launchers.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// On a single node an endpoint without a port means nothing. Nor does a c10d endpoint: agents meet
// there, workers do not, as in torchrun.
void apply_endpoint(LaunchConfig& config, const std::string& text, const std::string& backend) {
  if (backend != "static") return;
  const auto endpoint = parse_endpoint(text);
  if (!endpoint || endpoint->port == 0) return;
  if (!endpoint->host.empty()) config.master_addr = endpoint->host;
  config.master_port = endpoint->port;
}

void take_addresses(LaunchConfig& config, const OptionValues& values) {
  const bool alone = values.flag("standalone");  // whatever backend is named, as with torchrun
  const std::string backend = alone ? "c10d" : rdzv_backend(values);
  config.master_addr = values.text("master-addr");
  config.master_port = values.integer("master-port", 0, 65535);
  if (!alone && !values.given("master-port")) {
    apply_endpoint(config, values.text("rdzv-endpoint"), backend);
  }
  if (!values.text("local-addr").empty()) config.master_addr = values.text("local-addr");
  if (config.master_addr.empty())
    usage_error("--master-addr=: is empty; give a host name or an address");
  config.rdzv_id = values.text("rdzv-id");
}

// A job of one node, whatever the options say of others.
void take_single_node(const OptionValues& values, NodeRange nodes) {
  if (nodes.min > 1) {
    usage_error(fmt::format("--nnodes={} with --standalone, which is for one node: drop one",
                            values.text("nnodes")));
  }
  const bool counts = !values.flag("standalone");  // a cluster may set PET_NODE_RANK
  if (values.integer("node-rank", 0, INT_MAX) != 0 && counts) {
    usage_error(fmt::format("--node-rank={}: a single node has rank 0; omit the option",
                            values.text("node-rank")));
  }
}

// Whoever forgets --nnodes on each of several nodes would start as many jobs.
bool names_other_nodes(const OptionValues& values) {
  const std::string& text = values.text("rdzv-endpoint");
  if (text.empty() || rdzv_backend(values) != "c10d" || values.given("nnodes") ||
      values.flag("standalone"))
    return false;
  const auto endpoint = parse_endpoint(text);
  return !endpoint || !(is_loopback(endpoint->host) || is_localhost(endpoint->host));
}

void hint_at_group_options(LaunchConfig& config, const OptionValues& values) {
  const bool by_etcd = rdzv_backend(values) == "etcd" && !values.text("rdzv-endpoint").empty();
  for (const auto& [given, option] :
       {std::pair(values.given("rdzv-token-file"), "--rdzv-token-file"),
        std::pair(values.given("rank-order"), "--rank-order"),
        std::pair(by_etcd, "--rdzv-backend=etcd"),
        std::pair(names_other_nodes(values), "--rdzv-endpoint without --nnodes")}) {
    if (given) config.hints.push_back(fmt::format("{} has no effect on a single node", option));
  }
}

// Several nodes: what they must agree on, and how they find each other.
void take_group(LaunchConfig& config, const OptionValues& values) {
  const NodeRange nodes = parse_nnodes(values.text("nnodes"));
  auto conf = parse_rdzv_conf(values.text("rdzv-conf"));
  if (nodes.max == 1 || values.flag("standalone")) {
    take_single_node(values, nodes);
    GroupSettings unused;
    unused.rules.fixed_ranks = true;
    // A wrong value is refused, as by torchrun; etcd has more keys.
    const auto hints = apply_rdzv_conf(conf, unused);
    if (rdzv_backend(values) != "etcd") config.hints = hints;
    return hint_at_group_options(config, values);
  }
  GroupSettings group;
  MembershipRules& rules = group.rules;
  rules.fixed_ranks = rdzv_backend(values) == "static";
  rules.min_nodes = rules.fixed_ranks ? nodes.max : nodes.min;
  rules.max_nodes = nodes.max;
  rules.run_id = config.rdzv_id.empty() ? "none" : config.rdzv_id;  // torchrun's default
  rules.own_id = !config.rdzv_id.empty();
  group.role = config.role;
  group.local_addr = values.text("local-addr");
  const bool by_etcd = rdzv_backend(values) == "etcd";
  if (by_etcd) config.etcd = take_etcd(values, conf);
  const auto endpoints =
      by_etcd ? config.etcd->endpoints : take_endpoints(values, rules.fixed_ranks);
  group.host = endpoints.front().host;
  group.port = endpoints.front().port;
  group.more_endpoints.assign(endpoints.begin() + 1, endpoints.end());
  rules.reach_note = note_on_reach(values, endpoints.front(), rules.fixed_ranks);
  if (rules.fixed_ranks) {
    group.node_rank = values.integer("node-rank", 0, nodes.max - 1);
    rules.master_addr = group.host;
    rules.master_port = group.port;
  }
  config.hints = apply_rdzv_conf(conf, group);
  if (by_etcd) config.etcd->first_contact = group.connect_timeout;
  if (rules.fixed_ranks && nodes.min != nodes.max) {
    config.hints.push_back(
        fmt::format("--nnodes={}: without --rdzv-backend=c10d the job waits for all {} nodes",
                    values.text("nnodes"), nodes.max));
  }
  config.rdzv_token_file = values.file("rdzv-token-file");
  config.scheduled = values.text("scheduler") != "none";
  config.group = std::move(group);
}

// torchrun's own switch; its static rendezvous ignores it.
bool store_sharing_disabled(const OptionValues& values, const Environment& environment) {
  const bool is_static = values.text("rdzv-backend") == "static" && !values.flag("standalone") &&
                         (values.given("master-port") || !values.text("rdzv-endpoint").empty());
  return !is_static && value_of(environment, kDisableShareStore) == "1";
}

void take_hangs(LaunchConfig& config, const OptionValues& values) {
  const std::string& limit = values.text("hang-timeout");
  if (limit == "auto") return;
  constexpr std::chrono::milliseconds kShortest(100);
  const auto timeout = values.milliseconds("hang-timeout");
  if (timeout.count() > 0 && timeout < kShortest)
    usage_error(fmt::format("--hang-timeout={}: must be 0 (never) or at least 0.1 s", limit));
  config.hangs.heed_promises = config.logs.watched = timeout.count() > 0;
  if (timeout.count() > 0) config.hangs.timeout = timeout;
}

// As torchrun's, which reads anything but a number as 0.
constexpr const char* kUninterruptibleTimeout = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";

std::optional<std::chrono::milliseconds> uninterruptible_timeout(const Environment& environment) {
  const std::string value = trimmed(value_of(environment, kUninterruptibleTimeout));
  if (value.empty()) return std::nullopt;
  const auto seconds = number_in<double>(value);
  if (!seconds || !(*seconds <= 1e9)) {
    usage_error(
        fmt::format("{}={}: must be a number of seconds, e.g. 600, or 0 (never); unset it "
                    "or correct it",
                    kUninterruptibleTimeout, value));
  }
  if (*seconds <= 0) return std::nullopt;
  return std::chrono::milliseconds(std::max(1LL, std::llround(*seconds * 1000)));
}

void take_placement(LaunchConfig& config, const OptionValues& values) {
  config.virtual_local_rank = values.flag("virtual-local-rank");
  config.one_device_per_rank = values.flag("one-device-per-rank");
  if (!values.given("numa-binding")) return;
  const auto mode = values.one_of("numa-binding", {"node", "socket", "exclusive", "core-complex"});
  config.numa_binding = mode == "node"        ? NumaBinding::kNode
                        : mode == "socket"    ? NumaBinding::kSocket
                        : mode == "exclusive" ? NumaBinding::kExclusive
                                              : NumaBinding::kCoreComplex;
}

void take_reports(LaunchConfig& config, const OptionValues& values) {
  config.summary = values.flag("summary");
  config.result_json = values.file("result-json");
  const auto handler =
      values.one_of("event-log-handler", {"null", "console", "dynamic_rendezvous"});
  const std::string& events = values.file("events");
  config.events_on_console = events == "console" || handler == "console";
  if (events != "console") config.event_log = events;
  if (values.given("health-port")) config.health = parse_health(values.text("health-port"));
}

void take_restarts(LaunchConfig& config, const OptionValues& values) {
  config.restarts = parse_restart_policy(values.text("restart-policy"));
  config.restarts.max_restarts = values.integer("max-restarts", 0, INT_MAX);
  config.restarts.healthy_after = values.milliseconds("healthy-after");
  config.standby_workers = values.flag("warm-spares");
  config.preflight = values.file("preflight");
}

void take_logs(LaunchConfig& config, const OptionValues& values) {
  config.log_dir = values.text("log-dir");
  LogOptions& logs = config.logs;
  logs.redirects = parse_streams("redirects", values.text("redirects"));
  logs.tee = parse_streams("tee", values.text("tee"));
  logs.prefix_template = values.text("log-line-prefix-template");
  logs.console_ranks = parse_ranks(values.text("local-ranks-filter"));
  logs.stdout_filters = parse_filters(values.text("duplicate-stdout-filters"));
  logs.stderr_filters = parse_filters(values.text("duplicate-stderr-filters"));
  logs.fold = std::chrono::milliseconds(values.integer("fold-lines", 0, 10'000));
  logs.rotation = parse_rotation(values.text("log-max-size"));
  logs.report_lines = values.integer("report-lines", 0, 18);
}

// With --hosts each host's ddp-run has the options, and notes them.
void note_useless_options(LaunchConfig& config, const OptionValues& values) {
  if (config.hosts) return;
  const bool elastic = config.group && !config.group->rules.fixed_ranks;
  const bool restarts = config.restarts.max_restarts > 0;
  const bool quarantine = values.integer("quarantine-after", 0, INT_MAX) > 0;
  const bool files = config.logs.tee.any() || config.logs.redirects.any();
  for (const auto& [useless, option, lacks] :
       {std::tuple(config.standby_workers && !restarts && !elastic, "warm-spares",
                   "--max-restarts"),
        std::tuple(values.given("healthy-after") && !restarts, "healthy-after", "--max-restarts"),
        std::tuple(config.logs.rotation.max_bytes > 0 && !files, "log-max-size",
                   "--tee or --redirects"),
        std::tuple(values.given("export"), "export", "--hosts"),
        std::tuple(quarantine && !elastic, "quarantine-after",
                   "--rdzv-backend=c10d: no node can be left out"),
        std::tuple(quarantine && elastic && !restarts, "quarantine-after", "--max-restarts"),
        std::tuple(config.group && !elastic && values.given("rank-order"), "rank-order",
                   "--rdzv-backend=c10d: --node-rank decides")}) {
    if (useless)
      config.hints.push_back(fmt::format("--{} has no effect without {}", option, lacks));
  }
}

// Entry points of Python packages for torchrun.
void refuse_plugins(const OptionValues& values) {
  const std::string& name = values.text("logs-specs");
  if (name == "default") return;
  usage_error(
      fmt::format("--logs-specs={}: there are no log plug-ins here; omit it, and choose with "
                  "--log-dir, --tee and --redirects",
                  name));
}

LaunchConfig to_config(const OptionValues& values) {
  LaunchConfig config;
  config.hosts = take_hosts(values);
  config.lifeline = values.text("lifeline");
  config.nproc_per_node = trimmed(values.text("nproc-per-node"));
  parse_local_world_size(config.nproc_per_node);
  config.standalone = values.flag("standalone");
  config.role = values.text("role");
  take_placement(config, values);
  take_restarts(config, values);
  take_hangs(config, values);
  values.seconds("monitor-interval");  // torchrun takes 0 as well
  config.shutdown_timeout = values.milliseconds("shutdown-timeout");
  config.exit_grace = values.milliseconds("exit-grace");
  config.stdin_rank = values.integer("stdin-rank", 0, INT_MAX);
  config.stop_signals = parse_signals(values.text("signals-to-handle"));
  config.module = values.flag("module");
  config.no_python = values.flag("no-python");
  config.run_path = values.flag("run-path");
  take_reports(config, values);
  refuse_plugins(values);
  if (values.flag("dry-run")) config.action = LaunchAction::kDryRun;
  values.one_of("start-method", {"spawn", "fork", "forkserver"});
  take_logs(config, values);
  take_addresses(config, values);
  if (!config.hosts) take_group(config, values);
  const int quarantine_after = values.integer("quarantine-after", 0, INT_MAX);
  if (config.group) config.group->rules.quarantine_after = quarantine_after;
  note_useless_options(config, values);
  return config;
}

std::string version_line() {
  const std::string_view commit = kBuildCommit;
  return commit.empty() ? "ddp-run " DDP_VERSION "\n"
                        : fmt::format("ddp-run {} (commit {})\n", DDP_VERSION, commit);
}

// Help, version and the like; empty if a job is to be run.
std::string asked_text(const OptionValues& values, bool short_help) {
  if (values.flag("help")) return short_help ? short_help_text() : help_text();
  if (values.flag("version")) return version_line();
  if (!values.given("print-completion")) return "";
  return completion_script(values.one_of("print-completion", {"bash", "zsh", "fish"}));
}

std::string named_run(const OptionValues& values, const std::string& option) {
  if (!values.program().empty()) {
    usage_error(
        fmt::format("--{} starts nothing: leave out '{}'", option, values.program().front()));
  }
  return values.file(option.c_str());
}

// The option that replaces a job; empty: none.
std::string asked_question(const OptionValues& values) {
  std::string asked;
  for (const char* question : {"explain", "status", "stacks"}) {
    if (!values.given(question)) continue;
    if (!asked.empty())
      usage_error(fmt::format("--{} and --{} cannot be combined; drop one", asked, question));
    asked = question;
  }
  return asked;
}

// Otherwise a user who set the variable long ago would look for the value on the command line.
[[noreturn]] void name_source(const LaunchError& error, const RawOptions& raw,
                              const OptionValues& values) {
  const std::string what = error.what();
  std::string name = what.starts_with("--") ? what.substr(2, what.find('=') - 2) : "";
  std::replace(name.begin(), name.end(), '_', '-');
  const auto source = raw.defaults.find(name);
  if (source == raw.defaults.end() || values.on_command_line(name)) throw error;
  usage_error(fmt::format("{} (set by {})", what, source->second.variable));
}

}  // namespace

LaunchConfig parse_launch_args(int argc, const char* const* argv, const Environment& environment) {
  RawOptions raw = gather_options(argc, argv, environment);
  LaunchConfig config;
  const OptionValues asked(raw);
  config.printed = asked_text(asked, raw.short_help);
  if (!config.printed.empty()) {
    config.action = LaunchAction::kPrint;
    return config;
  }
  if (config.question = asked_question(asked); !config.question.empty()) {
    config.action = config.question == "explain" ? LaunchAction::kExplain : LaunchAction::kInspect;
    config.explained = named_run(asked, config.question);
    return config;
  }
  add_scheduler_options(raw, environment);
  const OptionValues values(raw);
  try {
    config = to_config(values);
    config.rank0_store = store_sharing_disabled(values, environment);
    config.hangs.uninterruptible = uninterruptible_timeout(environment);
    if (config.group && !config.group->rules.fixed_ranks)
      take_rank_order(*config.group, values, environment);
  } catch (const LaunchError& error) {
    name_source(error, raw, values);
  }
  config.hints.insert(config.hints.begin(), raw.hints.begin(), raw.hints.end());
  const std::vector<std::string>& program = values.program();
  if (program.empty() || program.front().empty()) {
    usage_error(
        "no program given; usage: ddp-run [options] PROGRAM [arguments], see ddp-run --help");
  }
  if (config.module && config.no_python) {
    usage_error("-m and --no-python cannot be combined; drop one");
  }
  if (const std::string hint = hint_for_launcher(program, config.module); !hint.empty())
    config.hints.push_back(hint);
  config.program = program.front();
  config.program_args.assign(program.begin() + 1, program.end());
  return config;
}

}  // namespace ddp::launch
