#include "launcher/cli/option_table.h"

#include <algorithm>
#include <array>

namespace ddp::launch {
namespace {

using enum OptionGroup;

constexpr std::array kOptions{
    OptionSpec{"standalone", 0, nullptr, "", Workers,
               "Single-node job on a free port (a single node always does this)."},
    OptionSpec{"nproc-per-node", 0, "N|gpu|cpu|auto", "1", Workers,
               "Workers to start: a number, one per GPU (gpu), one per CPU (cpu), or one per GPU "
               "if there are any, else one per CPU (auto)."},
    OptionSpec{"nnodes", 0, "N|MIN:MAX", "1", Workers,
               "Number of nodes; MIN:MAX with --rdzv-backend=c10d."},
    OptionSpec{"role", 0, "NAME", "default", Workers, "Role of the workers (ROLE_NAME)."},
    OptionSpec{"virtual-local-rank", 0, nullptr, "", Workers,
               "Show each worker only its own GPU (CUDA_VISIBLE_DEVICES) and set LOCAL_RANK=0."},

    OptionSpec{
        "one-device-per-rank", 0, nullptr, "", Workers,
        "Show each worker only its own GPU (CUDA_VISIBLE_DEVICES); LOCAL_RANK is unchanged."},
    OptionSpec{"numa-binding", 0, "node|socket|exclusive|core-complex", "", Workers,
               "Bind each worker to CPUs near its GPU: the NUMA node, the socket, an exclusive "
               "share of the node's cores, or the cores that share a last-level cache."},
    OptionSpec{"devices", 0, "LIST", "", Workers, "GPUs for all workers: CUDA_VISIBLE_DEVICES."},

    OptionSpec{"max-restarts", 0, "N", "0", Restarts,
               "Restart the whole group up to N times when a worker fails."},
    OptionSpec{
        "restart-policy", 0, "on-failure|on-crash|never", "on-failure", Restarts,
        "Failures that trigger a restart: any, only crashes (fatal signals and hangs), or none."},
    OptionSpec{"restart-delay", 0, "SECONDS", "0", Restarts,
               "Delay before a restart; doubles while rounds fail within 10 s, up to one minute."},
    OptionSpec{"crash-loop", 0, "N", "0", Restarts,
               "Give up when the same rank fails the same way N times in a row, each time within "
               "10 s; 0: never."},
    OptionSpec{"final-exit-codes", 0, "CODES", "", Restarts,
               "Exit codes that are never retried, e.g. 2,64; 128+N for signal N."},
    OptionSpec{"retry-exit-codes", 0, "CODES", "", Restarts,
               "Exit codes that are always retried, whatever the policy; may include trainer's 75 "
               "(preempted, state saved), 76 (permanent failure) and 2 (usage error)."},
    OptionSpec{
        "hang-timeout", 0, "SECONDS", "auto", Restarts,
        "Consider a worker hung after this long without a heartbeat or output: dump its stacks and "
        "restart the group. auto: the timeout announced in its heartbeats; 0: never."},
    OptionSpec{"healthy-after", 0, "SECONDS", "0", Restarts,
               "Reset the restart count after a round has run this long; 0: never."},
    OptionSpec{
        "warm-spares", 0, nullptr, "", Restarts,
        "Keep a second set of workers started, with their libraries loaded, for faster restarts. "
        "The program must support it, as trainer does. Doubles the number of processes in memory."},
    OptionSpec{"monitor-interval", 0, "SECONDS", "0.1", Restarts,
               "Accepted for torchrun compatibility; ignored (exits are noticed immediately)."},

    OptionSpec{"module", 'm', nullptr, "", Program,
               "Run PROGRAM as a Python module (python3 -u -m PROGRAM)."},
    OptionSpec{"no-python", 0, nullptr, "", Program,
               "Execute PROGRAM directly, even if its name ends in .py."},
    OptionSpec{"run-path", 0, nullptr, "", Program, "Run PROGRAM with Python, whatever its name."},
    OptionSpec{"use-env", 0, nullptr, "", Program,
               "Accepted for torch.distributed.launch compatibility; ignored (LOCAL_RANK is always "
               "in the environment)."},
    OptionSpec{"start-method", 0, "spawn|fork|forkserver", "spawn", Program,
               "Accepted for torchrun compatibility; ignored."},

    OptionSpec{"master-addr", 0, "HOST", "127.0.0.1", Rendezvous,
               "Address of rank 0 (MASTER_ADDR)."},
    OptionSpec{"master-port", 0, "PORT", "0", Rendezvous,
               "Port of rank 0 (MASTER_PORT); 0: a free port, chosen anew for each restart."},
    OptionSpec{"node-rank", 0, "N", "0", Rendezvous,
               "Rank of this node with the static backend; node 0 hosts the rendezvous."},
    OptionSpec{
        "local-addr", 0, "HOST", "", Rendezvous,
        "Address at which other nodes reach this one; default: as seen by the rendezvous host."},
    OptionSpec{"rdzv-backend", 0, "static|c10d", "static", Rendezvous,
               "Rendezvous of several nodes. static: a fixed set, each with its --node-rank. c10d: "
               "MIN to MAX nodes, which may join, leave and be replaced."},
    OptionSpec{"rdzv-endpoint", 0, "HOST[:PORT]", "", Rendezvous,
               "Address of the rendezvous [port 29400, static: 29500]; static: also MASTER_ADDR, "
               "MASTER_PORT."},
    OptionSpec{
        "store", 0, "auto|agent|rank0", "auto", Rendezvous,
        "Who hosts the workers' TCPStore at MASTER_ADDR:MASTER_PORT: ddp-run (agent) or rank 0; "
        "auto: ddp-run, unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1."},
    OptionSpec{"rdzv-id", 0, "ID", "", Rendezvous,
               "Job ID (TORCHELASTIC_RUN_ID). Default: random; with several nodes: none."},
    OptionSpec{"rdzv-conf", 0, "K=V,...", "", Rendezvous,
               "Rendezvous settings: join_timeout, last_call_timeout, keep_alive_interval, "
               "keep_alive_max_attempt, read_timeout, timeout, is_host."},
    OptionSpec{"rdzv-token-file", 0, "FILE", "", Rendezvous,
               "File with a secret of at least 16 bytes, the same on all nodes; agents without it "
               "are rejected. Default: none."},

    OptionSpec{"scheduler", 0, "none|auto|slurm|mpi", "none", Rendezvous,
               "Take multi-node options that are not given from the scheduler that started one "
               "ddp-run per node: SLURM_* variables of srun, or OMPI_* and PMI_* of mpirun."},
    OptionSpec{"hosts", 0, "HOST[:N],...", "", Rendezvous,
               "Start the job on these hosts over ssh, with N workers each; ranges such as "
               "a[1-4]:8 work too. The first host is node 0. The working directory and the program "
               "must exist on all of them."},
    OptionSpec{"hostfile", 0, "FILE", "", Rendezvous,
               "The same, read from a file with one host per line: HOST:N or HOST slots=N."},
    OptionSpec{"ssh", 0, "COMMAND", "", Rendezvous,
               "Command for --hosts in place of ssh; default: DDP_SSH, or ssh with BatchMode and "
               "short timeouts."},
    OptionSpec{
        "export", 0, "NAME[=VALUE],...", "", Rendezvous,
        "Environment variables that --hosts passes on, e.g. NCCL_*,PYTHONPATH. Default: none."},
    OptionSpec{"lifeline", 0, "VERSION", "", Rendezvous,
               "Internal, set by --hosts: checks the version, reads signals from standard input "
               "and stops at its end."},

    OptionSpec{"shutdown-timeout", 0, "SECONDS", "30", Stopping,
               "Grace period for workers to stop before SIGKILL."},
    OptionSpec{"signals-to-handle", 0, "LIST", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", Stopping,
               "Signals that are forwarded to all workers and end the job."},

    OptionSpec{"log-dir", 0, "FOLDER", "", Logs,
               "Directory for logs and error files; /dev/null: none. Default: a temporary one, "
               "kept if it holds logs of a failed job or lines the console missed."},
    OptionSpec{"redirects", 'r', "WHAT", "0", Logs,
               "Redirect worker output to files: 0 none, 1 stdout, 2 stderr, 3 both; by local "
               "rank: 0:3,1:1."},
    OptionSpec{"tee", 't', "WHAT", "0", Logs,
               "Like --redirects, but also copy whole lines to the console, with a prefix."},
    OptionSpec{"log-line-prefix-template", 0, "TEXT", "", Logs,
               "Prefix of teed lines; may use ${role_name}, ${local_rank}, ${rank}, ${hostname}. "
               "Default: [${role_name}${local_rank}]:"},
    OptionSpec{"timestamps", 0, nullptr, "", Logs,
               "Prefix each console line with date and time, like ${time} in the template."},
    OptionSpec{"fold-lines", 0, "MS", "0", Logs,
               "Show identical lines from several ranks once, prefixed [default0-7]:. Lines are "
               "held for up to MS milliseconds to find duplicates. 0: off."},
    OptionSpec{
        "log-max-size", 0, "SIZE", "0", Logs,
        "Rotate log files at this size, e.g. 64M; stdout.log.1 is the previous one. 0: never."},
    OptionSpec{"log-keep", 0, "N", "3", Logs, "Rotated log files to keep."},
    OptionSpec{"local-ranks-filter", 0, "RANKS", "", Logs,
               "Show only these local ranks on the console, e.g. 0,1."},
    OptionSpec{"duplicate-stdout-filters", 0, "TEXTS", "", Logs,
               "Also copy lines that contain one of these strings to filtered_stdout.log; ,, is a "
               "literal comma."},
    OptionSpec{"duplicate-stderr-filters", 0, "TEXTS", "", Logs,
               "Same for stderr (filtered_stderr.log)."},
    OptionSpec{"report-lines", 0, "N", "18", Logs,
               "Last stderr lines shown in a failure report; 0: workers write directly to "
               "ddp-run's stderr."},

    OptionSpec{
        "summary", 0, nullptr, "", Logs,
        "At the end, print a table of all workers: exit code, run time, CPU time, peak memory."},
    OptionSpec{"result-json", 0, "FILE", "", Logs,
               "At the end, write the job's result to this file."},
    OptionSpec{"events", 0, "FILE", "", Logs,
               "Append the job's events to this file, one JSON object per line."},
    OptionSpec{"health-port", 0, "[HOST:]PORT", "", Logs,
               "Serve /health and /metrics (Prometheus) over HTTP, on 127.0.0.1 unless HOST is "
               "given; port 0: any free port."},
    OptionSpec{"logs-specs", 0, "NAME", "default", Logs,
               "torchrun's log plug-in; only default is supported."},
    OptionSpec{"event-log-handler", 0, "null|console", "null", Logs,
               "Where to log events: null (nowhere) or console (stderr)."},

    OptionSpec{"dry-run", 0, nullptr, "", Other, "Print each worker's command; start nothing."},
    OptionSpec{"explain", 0, "FOLDER", "", Other,
               "Explain why a past run failed and what to do, from its --log-dir or --result-json; "
               "start nothing."},
    OptionSpec{"print-completion", 0, "bash|zsh|fish", "", Other,
               "Print a completion script: source <(ddp-run --print-completion bash)."},
    OptionSpec{"print-man", 0, nullptr, "", Other,
               "Print the manual page: ddp-run --print-man | man -l -."},
    OptionSpec{"short-help", 'h', nullptr, "", Other, "Show the most common options."},
    OptionSpec{"help", 0, nullptr, "", Other, "Show this help."},
    OptionSpec{"version", 0, nullptr, "", Other, "Show the version."},
};

bool same_name(std::string_view a, std::string_view b) {
  const auto plain = [](char c) { return c == '_' ? '-' : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return plain(x) == plain(y); });
}

}  // namespace

std::span<const OptionSpec> option_table() { return kOptions; }

const OptionSpec* find_option(std::string_view name) {
  const auto* found = std::find_if(kOptions.begin(), kOptions.end(),
                                   [&](const OptionSpec& o) { return same_name(o.name, name); });
  return found == kOptions.end() ? nullptr : found;
}

const OptionSpec* find_option(char letter) {
  const auto* found = std::find_if(kOptions.begin(), kOptions.end(), [&](const OptionSpec& o) {
    return o.letter != 0 && o.letter == letter;
  });
  return found == kOptions.end() ? nullptr : found;
}

}  // namespace ddp::launch
