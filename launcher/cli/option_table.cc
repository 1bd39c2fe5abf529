#include "launcher/cli/option_table.h"

#include <algorithm>
#include <iterator>

namespace ddp::launch {
namespace {

using enum OptionGroup;

// An option that torchrun does not have.
constexpr OptionSpec own(const char* name, char letter, const char* value, const char* fallback,
                         OptionGroup group, const char* help) {
  return {name, letter, value, fallback, group, help, true};
}

constexpr OptionSpec kOptions[] = {
    {"standalone", 0, nullptr, "", kWorkers,
     "Run a single-node job on a free port (what one node does anyway)."},
    {"nproc-per-node", 0, "N|gpu|cpu|auto", "1", kWorkers,
     "Workers to start: a number, one per GPU (gpu), one per CPU (cpu), or one per GPU if there "
     "are any, else one per CPU (auto)."},
    {"nnodes", 0, "N|MIN:MAX", "1", kWorkers, "Number of nodes; MIN:MAX with c10d or etcd."},
    {"role", 0, "NAME", "default", kWorkers, "Role of the workers (ROLE_NAME)."},
    {"virtual-local-rank", 0, nullptr, "", kWorkers,
     "Show each worker only its own GPU (CUDA_VISIBLE_DEVICES) and set LOCAL_RANK=0."},
    own("one-device-per-rank", 0, nullptr, "", kWorkers,
        "Show each worker only its own GPU (CUDA_VISIBLE_DEVICES); LOCAL_RANK is unchanged."),
    {"numa-binding", 0, "node|socket|exclusive|core-complex", "", kWorkers,
     "Bind each worker to CPUs near its GPU: the NUMA node, the socket, an exclusive share of the "
     "node's cores, or the cores that share a last-level cache."},

    {"max-restarts", 0, "N", "0", kRestarts,
     "Restart the whole group up to N times when a worker fails. The first restart is immediate; "
     "while rounds fail within 10 s the next ones wait 1, 2, 4, ... up to 60 s, and 10 identical "
     "failures of one rank in a row end the job."},
    own("restart-policy", 0, "on-failure|on-crash|never[,...]", "on-failure", kRestarts,
        "Failures that trigger a restart: any, only crashes (fatal signals and hangs), or none. "
        "Add final=CODE for an exit code that is never retried and retry=CODE for one that always "
        "is, e.g. on-crash,final=2,retry=75; 128+N for signal N."),
    own("hang-timeout", 0, "SECONDS", "auto", kRestarts,
        "Treat a worker as hung after this long without a heartbeat or output: dump its stacks and "
        "restart the group. auto: the timeout announced in its heartbeats; 0: never."),
    own("exit-grace", 0, "SECONDS", "0", kRestarts,
        "Treat workers as hung that still run this long after another one of their node, or all of "
        "another node, exited with 0; 0: never, one line after 60 s."),
    own("healthy-after", 0, "SECONDS", "0", kRestarts,
        "Reset the restart count after a round has run this long; 0: never."),
    own("preflight", 0, "PROGRAM|auto", "", kRestarts,
        "Run this check on each node before the first round, and for at most 10 s on a node whose "
        "worker crashed. A node that fails it is excluded; auto: trainer doctor."),
    own("quarantine-after", 0, "N", "0", kRestarts,
        "Exclude a node whose workers were the first to fail in N rounds; 0: never."),
    own("warm-spares", 0, nullptr, "", kRestarts,
        "Keep a second set of workers started, with their libraries loaded, for faster restarts. "
        "The program must support it, as trainer does. Doubles the number of processes in memory."),

    {"module", 'm', nullptr, "", kProgram,
     "Run PROGRAM as a Python module (python3 -u -m PROGRAM)."},
    own("stdin-rank", 0, "N", "0", kProgram,
        "Rank that reads ddp-run's standard input, for a debugger; the others read end-of-file."),
    {"no-python", 0, nullptr, "", kProgram,
     "Execute PROGRAM directly, even if its name ends in .py."},

    {"master-addr", 0, "HOST", "127.0.0.1", kRendezvous, "Address of rank 0 (MASTER_ADDR)."},
    {"master-port", 0, "PORT", "0", kRendezvous,
     "Port of rank 0 (MASTER_PORT); 0: a free port, chosen anew for each restart."},
    {"node-rank", 0, "N", "0", kRendezvous,
     "Rank of this node with the static backend; node 0 hosts the rendezvous."},
    {"local-addr", 0, "HOST", "", kRendezvous,
     "Address at which other nodes reach this one; default: as seen by the rendezvous host."},
    {"rdzv-backend", 0, "static|c10d|etcd", "static", kRendezvous,
     "Rendezvous of several nodes. static: a fixed set, each with its --node-rank. c10d: MIN to "
     "MAX nodes, which may join and leave. etcd: the same, decided by etcd."},
    {"rdzv-endpoint", 0, "HOST[:PORT],...", "", kRendezvous,
     "Addresses of the rendezvous [port 29400, static: 29500, etcd: 2379]; static: one, also "
     "MASTER_ADDR, MASTER_PORT."},
    {"rdzv-id", 0, "ID", "", kRendezvous,
     "Job ID (TORCHELASTIC_RUN_ID). Default: random; several nodes: none."},
    {"rdzv-conf", 0, "K=V,...", "", kRendezvous,
     "Rendezvous settings: join_timeout, last_call_timeout, keep_alive_interval, "
     "keep_alive_max_attempt, read_timeout, timeout, is_host; with etcd also protocol, cacert, "
     "cert, key, user, password_file, etcd_prefix, lease_ttl, outage_timeout."},
    own("rank-order", 0, "host|arrival|NAME", "host", kRendezvous,
        "Order of the nodes' ranks with the c10d backend: by host name, gpu2 before gpu10, or "
        "Slurm's topology; as they arrive; or by the environment variable NAME. The node of rank 0 "
        "keeps it while it stays."),
    own("rdzv-token-file", 0, "FILE|auto", "", kRendezvous,
        "File with a secret of at least 16 bytes, the same on all nodes, readable for its owner "
        "only; agents without it are rejected. auto: ~/.config/ddp-run/rdzv-token, created if "
        "needed. Default: none; with --hosts a random secret; with --scheduler auto if the home "
        "folder is shared."),
    own("scheduler", 0, "none|auto|slurm|mpi|flux|pbs|lsf|sge", "none", kRendezvous,
        "Take multi-node options that are not given from the scheduler. slurm, mpi, flux: it "
        "starts one ddp-run per node, auto: whichever of them did. pbs, lsf, sge: start one "
        "ddp-run in the job's script; it starts itself on the other hosts, as with --hosts."),
    own("hosts", 0, "HOST[:N],...|@FILE", "", kRendezvous,
        "Start the job on these hosts over ssh (or the command in DDP_SSH), with N workers each; "
        "ranges such as a[1-4]:8 work too, and gpu1:0,2,3 for some of a host's GPUs. @FILE: one "
        "host per line, HOST:N or HOST slots=N or gpus=0,2. The first host is node 0. The working "
        "directory and the program must exist on all of them."),
    own("export", 0, "NAME[=VALUE],...", "", kRendezvous,
        "Environment variables that --hosts passes on, e.g. NCCL_*,PYTHONPATH. Default: none."),

    {"shutdown-timeout", 0, "SECONDS", "30", kStopping,
     "Grace period for workers to stop before SIGKILL."},
    {"signals-to-handle", 0, "LIST", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", kStopping,
     "Signals that are forwarded to all workers and end the job."},

    {"log-dir", 0, "FOLDER", "", kLogs,
     "Directory for logs and error files; /dev/null: none. Default: a temporary one, kept if it "
     "holds logs of a failed job or lines the console missed."},
    {"redirects", 'r', "WHAT", "0", kLogs,
     "Redirect worker output to files: 0 none, 1 stdout, 2 stderr, 3 both; by local rank: "
     "0:3,1:1."},
    {"tee", 't', "WHAT", "0", kLogs,
     "Like --redirects, but also copy whole lines to the console, with a prefix."},
    {"log-line-prefix-template", 0, "TEXT", "", kLogs,
     "Prefix of teed lines; may use ${role_name}, ${local_rank}, ${rank}, ${hostname} and ${time}, "
     "e.g. '${time} [${rank}]: '. Default: [${role_name}${local_rank}]:"},
    own("fold-lines", 0, "MS", "0", kLogs,
        "Show identical lines from several ranks once, prefixed [default0-7]:. Lines are held for "
        "up to MS milliseconds to find duplicates. 0: off."),
    own("log-max-size", 0, "SIZE[:KEEP]", "0", kLogs,
        "Rotate log files at this size and keep the last KEEP (default: 3), e.g. 64M or 64M:5; "
        "stdout.log.1 is the previous one. 0: never."),
    {"local-ranks-filter", 0, "RANKS", "", kLogs,
     "Show only these local ranks on the console, e.g. 0,1."},
    {"duplicate-stdout-filters", 0, "TEXTS", "", kLogs,
     "Also copy lines that contain one of these strings to filtered_stdout.log; ,, is a literal "
     "comma. --duplicate-stderr-filters: same for stderr."},
    own("report-lines", 0, "N", "18", kLogs,
        "Last stderr lines shown in a failure report; 0: workers write directly to ddp-run's "
        "stderr."),
    own("summary", 0, nullptr, "", kLogs,
        "At the end, print a table of all workers: exit code, run time, CPU time, peak memory."),
    own("result-json", 0, "FILE", "", kLogs, "At the end, write the job's result to this file."),
    own("events", 0, "FILE", "", kLogs,
        "Append the job's events to this file, one JSON object per line; console: write them to "
        "stderr."),
    own("health-port", 0, "[HOST:]PORT", "", kLogs,
        "Serve /health and /metrics (Prometheus) over HTTP, on 127.0.0.1 unless HOST is given; "
        "port 0: any free port."),

    own("dry-run", 0, nullptr, "", kOther, "Print each worker's command; start nothing."),
    own("explain", 0, "FOLDER", "", kOther,
        "Explain why a past run failed and what to do, from its --log-dir or --result-json; start "
        "nothing."),
    own("status", 0, "RUN|PID", "", kOther,
        "Print phase, round, nodes and ranks of a running job of this user on this machine. RUN: "
        "its --rdzv-id or the folder of its logs; PID: of its ddp-run or of a worker."),
    own("stacks", 0, "RUN|PID", "", kOther,
        "Print the stacks of such a job's ranks on this node; its other nodes write theirs to "
        "stderr. The job continues. The same: kill -URG PID of its ddp-run."),
    {"help", 'h', nullptr, "", kOther, "Show this help; -h: only the most common options."},
    own("version", 0, nullptr, "", kOther, "Show the version."),

    // Explained in the usage, and with --duplicate-stdout-filters.
    {"run-path", 0, nullptr, "", kUnlisted, ""},
    {"duplicate-stderr-filters", 0, "TEXTS", "", kUnlisted, ""},
    // The packages install what it prints.
    {"print-completion", 0, "bash|zsh|fish", "", kUnlisted, ""},
    // torchrun's. Exits are noticed at once, not polled for.
    {"monitor-interval", 0, "SECONDS", "0.1", kUnlisted, ""},
    {"start-method", 0, "spawn|fork|forkserver", "spawn", kUnlisted, ""},
    {"logs-specs", 0, "NAME", "default", kUnlisted, ""},              // only default is supported
    {"event-log-handler", 0, "null|console", "null", kUnlisted, ""},  // console: --events
    // torch.distributed.launch's: LOCAL_RANK is always in the environment.
    own("use-env", 0, nullptr, "", kUnlisted, ""),
    // Set by --hosts: checks the version, reads signals from standard input and stops at its end.
    own("lifeline", 0, "VERSION", "", kUnlisted, ""),
};

constexpr bool is_listed(const OptionSpec& option) { return option.group != kUnlisted; }
static_assert(std::is_partitioned(std::begin(kOptions), std::end(kOptions), is_listed));

bool same_name(std::string_view a, std::string_view b) {
  const auto plain = [](char c) { return c == '_' ? '-' : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return plain(x) == plain(y); });
}

}  // namespace

std::span<const OptionSpec> option_table() { return kOptions; }

std::span<const OptionSpec> listed_options() {
  return {std::begin(kOptions),
          std::partition_point(std::begin(kOptions), std::end(kOptions), is_listed)};
}

const OptionSpec* find_option(std::string_view name) {
  const auto* found = std::find_if(std::begin(kOptions), std::end(kOptions),
                                   [&](const OptionSpec& o) { return same_name(o.name, name); });
  return found == std::end(kOptions) ? nullptr : found;
}

const OptionSpec* find_option(char letter) {
  const auto* found =
      std::find_if(std::begin(kOptions), std::end(kOptions),
                   [&](const OptionSpec& o) { return o.letter != 0 && o.letter == letter; });
  return found == std::end(kOptions) ? nullptr : found;
}

}  // namespace ddp::launch
