#include "launcher/launch_config.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cxxopts.hpp>

#include "launcher/console.h"
#include "launcher/option_table.h"
#include "launcher/raw_options.h"
#include "launcher/signal_mailbox.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

cxxopts::ParseResult parse_options(const std::vector<std::string>& options) {
  cxxopts::Options parser("ddp-run");
  for (const auto& option : option_table()) {
    if (option.value) {
      parser.add_options()(option.name, "",
                           cxxopts::value<std::string>()->default_value(option.fallback));
    } else {
      parser.add_options()(option.name, "", cxxopts::value<bool>()->default_value("false"));
    }
  }
  std::vector<const char*> argv{"ddp-run"};
  for (const auto& option : options) argv.push_back(option.c_str());
  return parser.parse(static_cast<int>(argv.size()), argv.data());
}

// Typed access, with the name of the option in every complaint.
class Values {
 public:
  explicit Values(const cxxopts::ParseResult& result) : result_(result) {}

  bool flag(const char* name) const { return result_[name].as<bool>(); }
  std::string text(const char* name) const { return result_[name].as<std::string>(); }
  bool given(const char* name) const { return result_.count(name) > 0; }

  int integer(const char* name, int low, int high) const {
    const std::string value = text(name);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < low ||
        number > high) {
      usage_error(
          high == INT_MAX
              ? fmt::format("--{}={}: not a whole number of at least {}", name, value, low)
              : fmt::format("--{}={}: not a whole number from {} to {}", name, value, low, high));
    }
    return number;
  }

  double seconds(const char* name) const {
    const std::string value = text(name);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || !(number >= 0) ||
        number > 1e9) {
      usage_error(fmt::format("--{}={}: not a number of seconds", name, value));
    }
    return number;
  }

  std::string one_of(const char* name, const std::vector<std::string>& choices) const {
    const std::string value = text(name);
    if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
      usage_error(fmt::format("--{}={}: must be one of {}", name, value, fmt::join(choices, ", ")));
    }
    return value;
  }

 private:
  cxxopts::ParseResult result_;
};

std::vector<std::string> split_list(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

void check_nnodes(const std::string& value) {
  std::vector<int> numbers;
  for (const auto& part : split_list(value, ':')) {
    int number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc{} || end != part.data() + part.size() || number < 1)
      numbers.assign(3, 0);
    numbers.push_back(number);
  }
  if (numbers.size() > 2 || numbers.front() > numbers.back()) {
    usage_error(fmt::format("--nnodes={}: must be N or MIN:MAX, with 1 <= MIN <= MAX", value));
  }
  if (numbers.back() > 1) {
    usage_error(
        fmt::format("--nnodes={}: several nodes are not supported yet; use --nnodes=1", value));
  }
}

std::vector<int> parse_signals(const std::string& list) {
  std::vector<int> signals;
  for (const auto& name : split_list(list, ',')) {
    const int signal = signal_number(name);
    if (signal == 0) {
      usage_error(fmt::format(
          "--signals-to-handle={}: '{}' is no signal that can be handled; write names as in "
          "SIGTERM,SIGUSR1",
          list, name));
    }
    signals.push_back(signal);
  }
  return signals;
}

void check_rdzv_conf(const std::string& text) {
  if (text.empty()) return;
  for (const auto& pair : split_list(text, ',')) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      usage_error(fmt::format("--rdzv-conf={}: '{}' is not KEY=VALUE", text, pair));
    }
  }
}

// HOST, HOST:PORT or [V6]:PORT; without a port the endpoint means nothing on a single node.
void apply_endpoint(LaunchConfig& config, const std::string& endpoint) {
  const auto colon = endpoint.rfind(':');
  const auto bracket = endpoint.rfind(']');
  if (colon == std::string::npos || (bracket != std::string::npos && colon < bracket)) return;
  const std::string port_text = endpoint.substr(colon + 1);
  int port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc{} || end != port_text.data() + port_text.size() || port < 0 ||
      port > 65535) {
    usage_error(fmt::format("--rdzv-endpoint={}: must be HOST or HOST:PORT", endpoint));
  }
  if (port == 0) return;
  std::string host = endpoint.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (!host.empty()) config.master_addr = host;
  config.master_port = port;
}

void take_addresses(LaunchConfig& config, const Values& values) {
  if (values.integer("node-rank", 0, INT_MAX) != 0) {
    usage_error(fmt::format("--node-rank={}: a single node has rank 0", values.text("node-rank")));
  }
  values.one_of("rdzv-backend", {"static", "c10d"});
  check_rdzv_conf(values.text("rdzv-conf"));
  config.master_addr = values.text("master-addr");
  config.master_port = values.integer("master-port", 0, 65535);
  if (!values.flag("standalone") && !values.given("master-port")) {
    apply_endpoint(config, values.text("rdzv-endpoint"));
  }
  if (values.given("local-addr")) config.master_addr = values.text("local-addr");
  if (config.master_addr.empty()) usage_error("--master-addr=: needs a host name or an address");
  config.rdzv_id = values.text("rdzv-id");
}

int whole_number(const std::string& text, int high) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool good = error == std::errc{} && end == text.data() + text.size() && number <= high;
  return good ? number : -1;
}

RankStreams parse_streams(const char* name, const std::string& text) {
  RankStreams streams;
  if (const int all = whole_number(text, 3); all >= 0) {
    streams.all = all;
    return streams;
  }
  for (const auto& pair : split_list(text, ',')) {
    const auto colon = pair.find(':');
    const int rank = whole_number(pair.substr(0, colon), INT_MAX);
    const int value = colon == std::string::npos ? -1 : whole_number(pair.substr(colon + 1), 3);
    if (rank < 0 || value < 0) {
      usage_error(fmt::format(
          "--{}={}: must be 0, 1 (stdout), 2 (stderr), 3 (both), or RANK:VALUE,... as in 0:3,1:1",
          name, text));
    }
    streams.by_rank[rank] = value;
  }
  return streams;
}

std::set<int> parse_ranks(const std::string& text) {
  std::set<int> ranks;
  if (text.empty()) return ranks;
  for (const auto& part : split_list(text, ',')) {
    const int rank = whole_number(part, INT_MAX);
    if (rank < 0)
      usage_error(fmt::format("--local-ranks-filter={}: must be local ranks as in 0,1,12", text));
    ranks.insert(rank);
  }
  return ranks;
}

// `,,` stands for a comma.
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

std::set<int> parse_codes(const std::string& text) {
  std::set<int> codes;
  if (text.empty()) return codes;
  for (const auto& part : split_list(text, ',')) {
    const int code = whole_number(part, 255);
    if (code < 1)
      usage_error(
          fmt::format("--final-exit-codes={}: must be exit codes from 1 to 255, as in 2,64", text));
    codes.insert(code);
  }
  return codes;
}

std::chrono::milliseconds milliseconds(const Values& values, const char* name) {
  return std::chrono::milliseconds(std::llround(values.seconds(name) * 1000));
}

void take_restarts(LaunchConfig& config, const Values& values) {
  config.restarts.max_restarts = values.integer("max-restarts", 0, INT_MAX);
  config.restarts.delay = milliseconds(values, "restart-delay");
  config.restarts.crash_loop = values.integer("crash-loop", 0, INT_MAX);
  config.restarts.final_codes = parse_codes(values.text("final-exit-codes"));
  config.restarts.healthy_after = milliseconds(values, "healthy-after");
}

void take_logs(LaunchConfig& config, const Values& values) {
  config.log_dir = values.text("log-dir");
  LogOptions& logs = config.logs;
  logs.redirects = parse_streams("redirects", values.text("redirects"));
  logs.tee = parse_streams("tee", values.text("tee"));
  logs.prefix_template = values.text("log-line-prefix-template");
  logs.console_ranks = parse_ranks(values.text("local-ranks-filter"));
  logs.stdout_filters = parse_filters(values.text("duplicate-stdout-filters"));
  logs.stderr_filters = parse_filters(values.text("duplicate-stderr-filters"));
  logs.report_lines = values.integer("report-lines", 0, 18);
  if (config.log_dir == "/dev/null" && logs.wants_files()) {
    usage_error(
        "--log-dir=/dev/null keeps no files, but --redirects and --tee write some; name a folder");
  }
  if (!logs.tee.any() && !(logs.stdout_filters.empty() && logs.stderr_filters.empty())) {
    usage_error(
        "--duplicate-stdout-filters and --duplicate-stderr-filters copy lines of teed streams; add "
        "--tee=3");
  }
}

LaunchConfig to_config(const Values& values) {
  LaunchConfig config;
  check_nnodes(values.text("nnodes"));
  config.nproc_per_node = values.text("nproc-per-node");
  config.standalone = values.flag("standalone");
  config.role = values.text("role");
  config.virtual_local_rank = values.flag("virtual-local-rank");
  take_restarts(config, values);
  if (values.seconds("monitor-interval") <= 0) {
    usage_error(
        fmt::format("--monitor-interval={}: must be more than 0", values.text("monitor-interval")));
  }
  config.shutdown_timeout = milliseconds(values, "shutdown-timeout");
  config.stop_signals = parse_signals(values.text("signals-to-handle"));
  config.module = values.flag("module");
  config.no_python = values.flag("no-python");
  config.run_path = values.flag("run-path");
  config.devices = values.text("devices");
  config.summary = values.flag("summary");
  config.result_json = values.text("result-json");
  values.one_of("event-log-handler", {"null"});
  values.one_of("logs-specs", {"default"});
  if (values.flag("dry-run")) config.action = LaunchAction::DryRun;
  values.one_of("start-method", {"spawn", "fork", "forkserver"});
  take_logs(config, values);
  take_addresses(config, values);
  return config;
}

}  // namespace

LaunchConfig parse_launch_args(int argc, const char* const* argv, const Environment& environment) {
  const RawOptions raw = gather_options(argc, argv, environment);
  const Values values(parse_options(raw.options));
  LaunchConfig config;
  if (values.flag("help")) {
    config.action = LaunchAction::ShowHelp;
    return config;
  }
  if (values.flag("version")) {
    config.action = LaunchAction::ShowVersion;
    return config;
  }
  config = to_config(values);
  config.hints = raw.hints;
  if (raw.program.empty() || raw.program.front().empty()) {
    usage_error(
        "no program given; write ddp-run [options] PROGRAM [arguments], see ddp-run --help");
  }
  if (config.module && config.no_python) {
    usage_error("-m and --no-python exclude each other; leave one of them out");
  }
  config.program = raw.program.front();
  config.program_args.assign(raw.program.begin() + 1, raw.program.end());
  return config;
}

}  // namespace ddp::launch
