#include "launcher/cli/option_table.h"

#include <algorithm>
#include <array>

namespace ddp::launch {
namespace {

using enum OptionGroup;

constexpr std::array kOptions{
    OptionSpec{"standalone", 0, nullptr, "", Workers,
               "Run on this machine alone, on a free port (what a single node does anyway)."},
    OptionSpec{
        "nproc-per-node", 0, "N|gpu|cpu|auto", "1", Workers,
        "Workers to start: a number, one per GPU, one per CPU, or GPUs if any and else CPUs."},
    OptionSpec{"nnodes", 0, "N|MIN:MAX", "1", Workers,
               "Number of nodes. This version runs one node."},
    OptionSpec{"role", 0, "NAME", "default", Workers, "Name of the workers (ROLE_NAME)."},
    OptionSpec{"virtual-local-rank", 0, nullptr, "", Workers,
               "Give each worker LOCAL_RANK=0 and only its own GPU in CUDA_VISIBLE_DEVICES."},

    OptionSpec{"one-device-per-rank", 0, nullptr, "", Workers,
               "Give each worker only its own GPU in CUDA_VISIBLE_DEVICES; LOCAL_RANK stays."},
    OptionSpec{"numa-binding", 0, "node|socket|exclusive|core-complex", "", Workers,
               "Bind each worker to CPUs near its GPU: the node's, the socket's, cores of its "
               "own, or those of one cache."},
    OptionSpec{"devices", 0, "LIST", "", Workers,
               "GPUs of this job, as in CUDA_VISIBLE_DEVICES, which it sets for all workers."},

    OptionSpec{"max-restarts", 0, "N", "0", Restarts,
               "Restart the whole group up to N times when a worker fails."},
    OptionSpec{"restart-policy", 0, "on-failure|on-crash|never", "on-failure", Restarts,
               "Which failures are worth a restart: any, or only deaths by a signal and hangs."},
    OptionSpec{
        "restart-delay", 0, "SECONDS", "0", Restarts,
        "Wait before a restart; twice as long each time while rounds end within 10 s, at most "
        "a minute."},
    OptionSpec{
        "crash-loop", 0, "N", "0", Restarts,
        "Give up when the same rank fails in the same way N times in a row, each within 10 s "
        "of its start; 0: never."},
    OptionSpec{"final-exit-codes", 0, "CODES", "", Restarts,
               "Give up at these exit codes, as in 2,64; 128+N for signal N."},
    OptionSpec{
        "retry-exit-codes", 0, "CODES", "", Restarts,
        "Restart at these exit codes whatever the policy is, also at 75 (preempted, saved) and "
        "76 (would fail again)."},
    OptionSpec{"hang-timeout", 0, "SECONDS", "auto", Restarts,
               "A worker that is silent for so long hangs: its stacks are written and the group is "
               "restarted. auto: as long as its own heartbeats promise; 0: never."},
    OptionSpec{"healthy-after", 0, "SECONDS", "0", Restarts,
               "A round that lived so long gives all restarts back; 0: never."},
    OptionSpec{
        "monitor-interval", 0, "SECONDS", "0.1", Restarts,
        "Accepted for torchrun's sake: ddp-run is told of every exit by the kernel, at once."},

    OptionSpec{"module", 'm', nullptr, "", Program,
               "PROGRAM is a Python module (python3 -u -m PROGRAM)."},
    OptionSpec{"no-python", 0, nullptr, "", Program,
               "Execute PROGRAM itself, also when its name ends in .py."},
    OptionSpec{"run-path", 0, nullptr, "", Program, "Run PROGRAM under Python, whatever its name."},
    OptionSpec{"start-method", 0, "spawn|fork|forkserver", "spawn", Program,
               "Accepted; ddp-run always starts programs by fork and exec."},

    OptionSpec{"master-addr", 0, "HOST", "127.0.0.1", Rendezvous,
               "Address of rank 0 (MASTER_ADDR)."},
    OptionSpec{"master-port", 0, "PORT", "0", Rendezvous,
               "Port of rank 0 (MASTER_PORT); 0: a free one, a new one for each restart."},
    OptionSpec{"node-rank", 0, "N", "0", Rendezvous, "Rank of this node; 0 on a single node."},
    OptionSpec{"local-addr", 0, "HOST", "", Rendezvous,
               "Address of this node, used as MASTER_ADDR."},
    OptionSpec{"rdzv-backend", 0, "static|c10d", "static", Rendezvous,
               "How nodes find each other; both do the same on a single node."},
    OptionSpec{"rdzv-endpoint", 0, "HOST[:PORT]", "", Rendezvous,
               "With a port, and static: MASTER_ADDR and MASTER_PORT of a single node."},
    OptionSpec{
        "store", 0, "auto|agent|rank0", "auto", Rendezvous,
        "Who serves the workers' store at MASTER_ADDR:MASTER_PORT: ddp-run, through ddp-store, "
        "or rank 0; auto: ddp-run where ddp-store lies beside it."},
    OptionSpec{"rdzv-id", 0, "ID", "", Rendezvous,
               "Name of the job (TORCHELASTIC_RUN_ID); default: a random one."},
    OptionSpec{"rdzv-conf", 0, "K=V,...", "", Rendezvous,
               "Settings of the rendezvous; no effect on a single node."},

    OptionSpec{"shutdown-timeout", 0, "SECONDS", "30", Stopping,
               "Time that workers have to stop, on every path, before SIGKILL."},
    OptionSpec{"signals-to-handle", 0, "LIST", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", Stopping,
               "Signals that are passed on to all workers and end the job."},

    OptionSpec{"log-dir", 0, "FOLDER", "", Logs,
               "Folder for logs and error files, /dev/null for none; default: a temporary one, "
               "kept if it holds logs of a failure or unseen ones."},
    OptionSpec{"redirects", 'r', "WHAT", "0", Logs,
               "Send output to files: 0 none, 1 stdout, 2 stderr, 3 both, or by local rank as in "
               "0:3,1:1."},
    OptionSpec{"tee", 't', "WHAT", "0", Logs,
               "Like --redirects, and to the console, too, in whole lines with a prefix."},
    OptionSpec{"log-line-prefix-template", 0, "TEXT", "", Logs,
               "Prefix of teed lines, with ${role_name}, ${local_rank}, ${rank}, ${hostname}; "
               "default: [${role_name}${local_rank}]:"},
    OptionSpec{"timestamps", 0, nullptr, "", Logs,
               "Date and time before each line on the console; also as ${time} in the template."},
    OptionSpec{"fold-lines", 0, "MS", "0", Logs,
               "Show equal lines of several ranks once, as in [default0-7]:; a line waits for its "
               "equals for at most MS milliseconds; 0: do not fold."},
    OptionSpec{"log-max-size", 0, "SIZE", "0", Logs,
               "Begin a new log file at this size, as in 64M: stdout.log.1 is the one before; 0: "
               "never."},
    OptionSpec{"log-keep", 0, "N", "3", Logs, "Older files that --log-max-size leaves."},
    OptionSpec{"local-ranks-filter", 0, "RANKS", "", Logs,
               "Only these local ranks reach the console, as in 0,1."},
    OptionSpec{"duplicate-stdout-filters", 0, "TEXTS", "", Logs,
               "Copy lines with one of these texts to filtered_stdout.log, too; ,, is a comma."},
    OptionSpec{"duplicate-stderr-filters", 0, "TEXTS", "", Logs, "The same for stderr."},
    OptionSpec{"report-lines", 0, "N", "18", Logs,
               "Last lines of stderr that a failure report shows; 0: workers write to ddp-run's "
               "stderr directly."},

    OptionSpec{"summary", 0, nullptr, "", Logs,
               "At the end, print a table of all workers: exit, time, CPU time, largest memory."},
    OptionSpec{"result-json", 0, "FILE", "", Logs,
               "At the end, write what became of the job to this file."},
    OptionSpec{"events", 0, "FILE", "", Logs,
               "Append what happens to the job to this file, one JSON object per line."},
    OptionSpec{"health-port", 0, "[HOST:]PORT", "", Logs,
               "Serve /health and /metrics (Prometheus) over HTTP, on 127.0.0.1 unless HOST says "
               "otherwise; port 0: any free one."},
    OptionSpec{"logs-specs", 0, "NAME", "default", Logs,
               "torchrun's Python plug-ins for logs; ddp-run has none but default."},
    OptionSpec{"event-log-handler", 0, "null|console", "null", Logs,
               "null, or console: what --events writes, to stderr."},

    OptionSpec{"dry-run", 0, nullptr, "", Other,
               "Print the command and the environment of each worker, and start nothing."},
    OptionSpec{"print-completion", 0, "bash|zsh|fish", "", Other,
               "Print a completion script, as in source <(ddp-run --print-completion bash)."},
    OptionSpec{"print-man", 0, nullptr, "", Other, "Print the manual page, as for man -l."},
    OptionSpec{"short-help", 'h', nullptr, "", Other, "Print the options that are used most."},
    OptionSpec{"help", 0, nullptr, "", Other, "Print this help."},
    OptionSpec{"version", 0, nullptr, "", Other, "Print the version."},
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
