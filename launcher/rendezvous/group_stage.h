// What an agent of several nodes is about: the stages of GroupRendezvous, and which may follow
// which. launcher/README.md has the table with what leads from one to the other; a test compares
// them. Pure.
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace ddp::launch {

enum class GroupStage {
  kIdle,
  kSearching,
  kStanding,  // listens at an endpoint, and asks the others before it hosts
  kGreeting,  // the channel is open, but there was no Welcome yet
  kSeeking,   // no host; the authority decides on the next one
  kMember,
  kOrphaned,  // static: the host is lost; this node's round has to end, then the job
  kOver,
};

inline constexpr std::array kGroupStages{
    GroupStage::kIdle,    GroupStage::kSearching, GroupStage::kStanding, GroupStage::kGreeting,
    GroupStage::kSeeking, GroupStage::kMember,    GroupStage::kOrphaned, GroupStage::kOver};

std::string_view name_of(GroupStage stage);
/// Besides the stage itself.
std::vector<GroupStage> stages_after(GroupStage stage);
bool may_follow(GroupStage from, GroupStage to);

}  // namespace ddp::launch
