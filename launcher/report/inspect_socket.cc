#include "launcher/report/inspect_socket.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "launcher/base/clock.h"
#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/memory_file.h"
#include "launcher/base/system/path_search.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolders = "ddp-run-";  // MemoryFolder's
constexpr const char* kSocket = "/inspect";
// What comes with a text. From an agent that is meant: at once nothing, and then the answer. From
// another one: the name of its job.
constexpr const char* kMeant = "+";
constexpr const char* kAnswer = "=";
constexpr const char* kIncomplete = "~";  // an answer as well
constexpr const char* kNotMeant = "-";
constexpr const char* kStatusHead = "job ";  // status_table() begins with it
// For all agents together, until each has replied whether it is meant; of a pid until that one has.
constexpr std::chrono::seconds kPatience{5};

// A datagram: what is asked, of which job as the user names it, and of which folder that may be.
struct Question {
  std::string option{};
  std::string run{};
  std::string folder{};
  std::string text() const { return fmt::format("{}\n{}\n{}\n", option, run, folder); }
};

Question parse_question(const std::string& text) {
  const auto lines = lines_of(text);
  if (lines.size() < 3) return {};
  return {std::string(lines[0]), std::string(lines[1]), std::string(lines[2])};
}

bool is_meant(const Question& question, const JobNames& names) {
  if (question.run == names.run_id) return true;
  const fs::path folder = names.folder;
  if (!question.folder.empty() &&
      (folder == question.folder || (names.has_log_dir && folder.parent_path() == question.folder)))
    return true;
  const auto pid = whole_number(question.run);
  return pid && std::find(names.pids.begin(), names.pids.end(), *pid) != names.pids.end();
}

// `use`: bind or connect. -1: it failed.
int open_socket(int (*use)(int, const sockaddr*, socklen_t), const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (fd < 0 || use(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return fd;
  ::close(fd);
  return -1;
}

bool is_own(const fs::path& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

struct Received {
  std::string kind{};  // empty: nothing, as the agent has ended or is stuck
  std::string text{};
};

Received next_reply(int agent, std::optional<Clock::time_point> until) {
  std::vector<pollfd> fds{{agent, POLLIN, 0}};
  poll_until(fds, until, "cannot wait for an answer");
  Received reply;
  const Descriptor text(fds[0].revents == 0 ? -1 : receive_descriptor(agent, &reply.kind));
  if (text.get() >= 0) reply.text = text_of(text.get());
  return reply;
}

// What the jobs of this machine have answered.
struct Answers {
  Inspection meant{};
  bool at_once = true;                // a status; stacks take a minute
  std::set<std::string> shown{};      // of --status: whose tables, and other lines
  std::vector<std::string> others{};  // names of jobs that were not meant
  int silent = 0;                     // agents that ended, or are stuck
  int foreign = 0;                    // jobs of other users
  std::list<Descriptor> agents{};     // that were asked: where their replies come

  void ask(const std::string& folder, const std::string& question);
  void take(int agent, Clock::time_point until);
  void take_answer(const Received& reply);
  // From whoever replies first on, as one that is suspended holds up no other.
  void take_all(bool of_one);
};

void Answers::ask(const std::string& folder, const std::string& question) {
  const Descriptor agent(open_socket(::connect, folder + kSocket));
  auto [ours, theirs] = socket_pair();
  if (agent.get() < 0 || ours.get() < 0) return;
  agents.push_back(std::move(ours));
  pass_descriptors(agent.get(), {theirs.get()}, question);
}

void Answers::take(int agent, Clock::time_point until) {
  Received reply = next_reply(agent, until);
  if (reply.kind == kMeant)
    reply = next_reply(agent, at_once ? std::optional(until) : std::nullopt);
  if (reply.kind.empty()) ++silent;
  if (reply.kind == kNotMeant) others.push_back(printable(reply.text));
  if (reply.kind == kAnswer || reply.kind == kIncomplete) take_answer(reply);
}

// Each table once, and each line below them, as several agents of one job may run here. Rows are
// indented.
void Answers::take_answer(const Received& reply) {
  if (reply.kind == kIncomplete) meant.complete = false;
  if (!reply.text.starts_with(kStatusHead)) {
    meant.text += reply.text;
    return;
  }
  bool known = false;
  for (const auto line : lines_of(reply.text)) {
    const auto node = std::min(line.find(", node "), line.size());
    const auto agent = node < line.size() ? line.substr(node, line.find(", round ") - node) : line;
    if (!line.starts_with(' ')) known = !shown.insert(std::string(agent)).second;
    if (!known) meant.text.append(line).append("\n");
  }
}

void Answers::take_all(bool of_one) {
  const auto until = Clock::now() + kPatience;
  while (!agents.empty() && (!of_one || meant.text.empty())) {
    std::vector<pollfd> fds;
    for (const Descriptor& agent : agents) fds.push_back({agent.get(), POLLIN, 0});
    poll_until(fds, until, "cannot wait for an answer");
    const bool late = Clock::now() >= until;
    auto polled = fds.begin();
    std::erase_if(agents, [&](const Descriptor& agent) {
      const bool replied = (polled++)->revents != 0;
      if (replied) take(agent.get(), until);
      if (!replied && late) ++silent;
      return replied || late;
    });
  }
}

std::string folder_named(const std::string& run) {
  std::error_code error;
  const fs::path folder = fs::canonical(run, error);
  return error || !fs::is_directory(folder, error) ? "" : folder.string();
}

[[noreturn]] void not_found(const std::string& place, const std::string& option,
                            const std::string& run, const Answers& answers) {
  if (::access(place.c_str(), W_OK | X_OK) != 0) {
    usage_error(
        fmt::format("--{}={}: no job can be asked here, as '{}' is not writable; kill -URG PID of "
                    "a ddp-run prints its stacks",
                    option, printable(run), place));
  }
  const auto pid = whole_number(run);
  if (pid && is_own(process_folder(*pid)) &&
      first_line(process_folder(*pid) + "/comm") == kCommand) {
    usage_error(
        fmt::format("--{0}={1}: this ddp-run has no worker on this machine (yet), or is stuck; "
                    "ask on one of its --hosts, or use kill -URG {1}, which prints all stacks on "
                    "its stderr",
                    option, *pid));
  }
  std::string there = answers.others.empty()
                          ? "none of this user is running here"
                          : fmt::format("running: {}", fmt::join(answers.others, ", "));
  if (answers.silent > 0) there += fmt::format("; {} ended meanwhile or is stuck", answers.silent);
  if (answers.foreign > 0)
    there += fmt::format("; {} of other users, who may ask", answers.foreign);
  usage_error(
      fmt::format("--{}={}: no such job on this machine; {}; give a job's --rdzv-id, the "
                  "folder of its logs, or the pid of its ddp-run or of a worker",
                  option, printable(run), there));
}

}  // namespace

InspectSocket::InspectSocket(const std::string& shm_dir, Job job)
    : fd_(shm_dir.empty() ? -1 : open_socket(::bind, shm_dir + kSocket)), job_(std::move(job)) {}

void InspectSocket::add_poll_fds(std::vector<pollfd>& fds) const {
  if (fd_.get() >= 0) fds.push_back({fd_.get(), POLLIN, 0});
}

void InspectSocket::handle(const std::vector<pollfd>& fds) {
  if (!is_ready(fds, fd_.get())) return;
  std::string text;
  const int asker = receive_descriptor(fd_.get(), &text);
  if (asker < 0) return;
  const auto end = std::make_shared<Descriptor>(asker);
  const auto reply = [end](const char* kind) {
    return [end, kind](const std::string& words) {
      const Descriptor file(memory_file(words));
      if (file.get() >= 0) pass_descriptors(end->get(), {file.get()}, kind);
    };
  };
  const Question question = parse_question(text);
  const JobNames names = job_.names();
  if (!is_meant(question, names))
    return reply(kNotMeant)(fmt::format("{} (pid {})", names.run_id, names.pids.front()));
  reply(kMeant)("");
  const auto& show = question.option == "stacks" ? job_.show_stacks : job_.show_status;
  show([reply](const std::string& words, bool complete) {
    reply(complete ? kAnswer : kIncomplete)(words);
  });
}

Inspection inspect_job(const std::string& place, const std::string& option,
                       const std::string& run) {
  const std::string question = Question{option, run, folder_named(run)}.text();
  Answers answers{.at_once = option == "status"};
  for (const fs::path& folder : paths_in(place)) {
    if (!folder.filename().string().starts_with(kFolders)) continue;
    if (is_own(folder)) {
      answers.ask(folder, question);
    } else {
      ++answers.foreign;
    }
  }
  answers.take_all(/*of_one=*/whole_number(run).has_value());
  if (answers.meant.text.empty()) not_found(place, option, run, answers);
  return answers.meant;
}

}  // namespace ddp::launch
