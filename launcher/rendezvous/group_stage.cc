#include "launcher/rendezvous/group_stage.h"

#include <algorithm>

namespace ddp::launch {

std::string_view name_of(GroupStage stage) {
  switch (stage) {
    case GroupStage::kIdle:
      return "Idle";
    case GroupStage::kSearching:
      return "Searching";
    case GroupStage::kStanding:
      return "Standing";
    case GroupStage::kGreeting:
      return "Greeting";
    case GroupStage::kSeeking:
      return "Seeking";
    case GroupStage::kMember:
      return "Member";
    case GroupStage::kOrphaned:
      return "Orphaned";
    case GroupStage::kOver:
      return "Over";
  }
  return "";
}

std::vector<GroupStage> stages_after(GroupStage stage) {
  using enum GroupStage;
  switch (stage) {
    case kIdle:
      return {kSearching, kSeeking, kOver};
    case kSearching:
      return {kStanding, kGreeting, kSeeking, kOrphaned, kOver};
    case kStanding:
      return {kSearching, kOver};
    case kGreeting:
      return {kSearching, kStanding, kSeeking, kMember, kOrphaned, kOver};
    case kSeeking:
      return {kSearching, kOver};
    case kMember:
      return {kSearching, kStanding, kSeeking, kOrphaned, kOver};
    case kOrphaned:
      return {kOver};
    case kOver:
      return {};
  }
  return {};
}

bool may_follow(GroupStage from, GroupStage to) {
  const auto next = stages_after(from);
  return from == to || std::find(next.begin(), next.end(), to) != next.end();
}

}  // namespace ddp::launch
