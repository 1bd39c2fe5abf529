#include "launcher/rendezvous/group_stage.h"

#include <algorithm>

namespace ddp::launch {

std::string_view name_of(GroupStage stage) {
  switch (stage) {
    case GroupStage::Idle:
      return "Idle";
    case GroupStage::Searching:
      return "Searching";
    case GroupStage::Standing:
      return "Standing";
    case GroupStage::Greeting:
      return "Greeting";
    case GroupStage::Seeking:
      return "Seeking";
    case GroupStage::Member:
      return "Member";
    case GroupStage::Orphaned:
      return "Orphaned";
    case GroupStage::Over:
      return "Over";
  }
  return "";
}

std::vector<GroupStage> stages_after(GroupStage stage) {
  using enum GroupStage;
  switch (stage) {
    case Idle:
      return {Searching, Seeking, Over};
    case Searching:
      return {Standing, Greeting, Seeking, Orphaned, Over};
    case Standing:
      return {Searching, Over};
    case Greeting:
      return {Searching, Standing, Seeking, Member, Orphaned, Over};
    case Seeking:
      return {Searching, Over};
    case Member:
      return {Searching, Standing, Seeking, Orphaned, Over};
    case Orphaned:
      return {Over};
    case Over:
      return {};
  }
  return {};
}

bool may_follow(GroupStage from, GroupStage to) {
  const auto next = stages_after(from);
  return from == to || std::find(next.begin(), next.end(), to) != next.end();
}

}  // namespace ddp::launch
