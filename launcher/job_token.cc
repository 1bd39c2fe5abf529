#include "launcher/job_token.h"

#include <fmt/format.h>

#include "launcher/base/command.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cluster/user_token.h"
#include "launcher/process/input_file.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kShortest = 16, kLongest = 4096;

// Without its last line's end.
std::string read_token(const std::string& file, const SignalMailbox& signals) {
  const std::string remedy = fmt::format(
      "must be a readable file of 16 to 4096 bytes; make one with: (umask 077; openssl rand -hex "
      "32 "
      "> {})",
      file);
  const std::string token = trimmed(read_input_file({"--rdzv-token-file=", remedy, /*secret=*/true},
                                                    file, kLongest + 1, signals));
  if (token.size() < kShortest || token.size() > kLongest)
    usage_error(fmt::format("--rdzv-token-file={}: {}", file, remedy));
  return token;
}

std::string user_token(const std::string& file, const SignalMailbox& signals) {
  if (file.empty()) usage_error("--rdzv-token-file=auto: HOME is not set; name a file");
  make_user_token(file);
  return read_token(file, signals);
}

}  // namespace

JobToken job_token(const LaunchConfig& config, const SignalMailbox& signals) {
  const std::string& option = config.rdzv_token_file;
  const std::string own = user_token_file(inherited_environment());
  if (option == "-") return {read_token_line(kLongest, signals)};
  if (option == "auto") return {user_token(own, signals)};
  if (!option.empty()) return {read_token(option, signals)};
  if (!config.scheduled)
    return {"",
            "give all nodes --rdzv-token-file=FILE with the same secret (openssl rand -hex 32)"};
  if (!own.empty() && is_on_shared_file_system(own)) return {user_token(own, signals)};
  return {"",
          fmt::format("{} is not on a file system known to be shared: if the nodes do share it, "
                      "add --rdzv-token-file=auto, else give all of them the same file",
                      own.empty() ? "the home folder" : own)};
}

}  // namespace ddp::launch
