#include "launcher/rendezvous/group_policy.h"

namespace ddp::launch {
namespace {

bool is_possible(GroupStage stage, GroupEvent event) {
  using enum GroupStage;
  using enum GroupEvent;
  if (event == kEnd) return true;
  switch (stage) {
    case kIdle:
      return event == kStart;
    case kSearching:
      return event == kStart || event == kListening || event == kUnreachable ||
             event == kConnected || event == kNamed || event == kLost || event == kDeposed;
    case kStanding:
      return event == kNamed || event == kMayHost;
    case kGreeting:
      return event != kStart && event != kListening && event != kUnreachable && event != kConnected;
    case kSeeking:
      return event == kNamed || event == kMayHost;
    case kMember:
      return event == kSilent || event == kClosed || event == kLost || event == kDeposed;
    case kOrphaned:
    case kOver:
      return false;
  }
  return false;
}

GroupMove search(const GroupSituation& now) {
  using enum GroupStage;
  if (now.authority_leads) return {kSeeking, GroupAction::kSeek};
  if (!now.holds_endpoint) return {kSearching, GroupAction::kSearch};
  return now.may_host ? GroupMove{kStanding, GroupAction::kStand}
                      : GroupMove{kSearching, GroupAction::kWait};
}

GroupMove replace_host(const GroupSituation& now) {
  using enum GroupStage;
  if (!now.has_round) return search(now);
  return now.fixed_ranks ? GroupMove{kOrphaned, GroupAction::kOrphan}
                         : GroupMove{kSeeking, GroupAction::kSeek};
}

// The agent that was tried did not become this node's host.
GroupMove turn_away(const GroupSituation& now) {
  using enum GroupStage;
  if (now.sought == Sought::kNextHost) return {kSeeking, GroupAction::kTryAnother};
  return {now.candidate && now.holds_endpoint && now.may_host ? kStanding : kSearching,
          GroupAction::kTryAnother};
}

}  // namespace

GroupMove next_move(const GroupSituation& now, GroupEvent event) {
  using enum GroupStage;
  using enum GroupEvent;
  if (!is_possible(now.stage, event)) return {now.stage, GroupAction::kDefect};
  const bool resumes = now.sought == Sought::kSameHost;
  switch (event) {
    case kStart:
      return resumes ? GroupMove{kSearching, GroupAction::kResume} : search(now);
    case kListening:
      return {kStanding, GroupAction::kStand};
    case kUnreachable:
      if (const GroupMove move = turn_away(now); move.stage != kSearching) return move;
      return {kSearching, now.waits ? GroupAction::kNone : GroupAction::kTryLater};
    case kConnected:
      return {kGreeting};
    case kWelcome:
      return {kMember};
    case kSentOn:
      if (resumes) return {now.stage, GroupAction::kLose};
      if (now.sought == Sought::kNextHost) return turn_away(now);
      return {kSearching, GroupAction::kFollow};
    case kNoHost:
      return resumes ? GroupMove{now.stage, GroupAction::kLose} : turn_away(now);
    case kSilent:
      return now.stage == kMember ? GroupMove{kMember, GroupAction::kLose} : turn_away(now);
    case kClosed:
      return now.stage == kMember ? GroupMove{kSearching, GroupAction::kResume} : turn_away(now);
    case kLost:
      return replace_host(now);
    case kNamed:
      return {kSearching, GroupAction::kFollow};
    case kMayHost:
      return {kSearching, now.stage == kStanding ? GroupAction::kHost : GroupAction::kTakeOver};
    case kDeposed:
      return now.has_round || now.authority_leads ? replace_host(now)
                                                  : GroupMove{kSearching, GroupAction::kMakeWay};
    case kEnd:
      return {kOver};
  }
  return {now.stage, GroupAction::kDefect};
}

}  // namespace ddp::launch
