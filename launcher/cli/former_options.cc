#include "launcher/cli/former_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ddp::launch {
namespace {

struct FormerOption {
  std::string_view name;
  std::string_view answer;  // what follows the name in the error
};

constexpr std::array kFormerOptions{
    FormerOption{"crash-loop",
                 "is gone: 10 identical failures of one rank in a row, each within 10 s, end the "
                 "job; omit it"},
    FormerOption{"devices", "is now the environment variable CUDA_VISIBLE_DEVICES"},
    FormerOption{"final-exit-codes", "is now --restart-policy=final=CODE,final=CODE,..."},
    FormerOption{"hostfile", "is now --hosts=@FILE"},
    FormerOption{"log-keep", "is now part of --log-max-size=SIZE:KEEP"},
    FormerOption{"print-man", "is gone: the packages install the manual page; run man ddp-run"},
    FormerOption{"restart-delay",
                 "is gone: restarts wait 0, 1, 2, 4, ... 60 s while rounds fail within 10 s; omit "
                 "it"},
    FormerOption{"retry-exit-codes", "is now --restart-policy=retry=CODE,retry=CODE,..."},
    FormerOption{"short-help", "is now -h"},
    FormerOption{"ssh", "is now the environment variable DDP_SSH"},
    FormerOption{"store",
                 "is gone: ddp-run hosts the store; set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 to "
                 "leave it to rank 0"},
    FormerOption{"timestamps", "is now --tee=3 --log-line-prefix-template='${time} [${rank}]: '"},
};

}  // namespace

std::string answer_to_former_option(std::string_view name) {
  const auto* found = std::find_if(kFormerOptions.begin(), kFormerOptions.end(),
                                   [&](const FormerOption& option) { return option.name == name; });
  return found == kFormerOptions.end() ? "" : fmt::format("--{} {}", found->name, found->answer);
}

}  // namespace ddp::launch
