#include "launcher/rendezvous/group_policy.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::launch::group_policy_test {
namespace {

using enum GroupStage;
using enum GroupEvent;
using Action = GroupAction;
using Table = std::map<std::string, std::set<std::string>>;

constexpr int kEvents = static_cast<int>(kEnd) + 1;

std::string name_of(GroupStage stage) { return kStageNames[static_cast<std::size_t>(stage)]; }

GroupMove after(GroupSituation now, GroupStage stage, GroupEvent event) {
  now.stage = stage;
  return next_move(now, event);
}

// What a node can be about in a stage.
bool is_possible(const GroupSituation& now) {
  if (now.stage == kIdle && now.holds_endpoint) return false;
  if (now.stage == kStanding && !now.holds_endpoint) return false;
  if (now.stage == kSearching || now.stage == kGreeting) return true;
  return now.sought == (now.stage == kSeeking ? Sought::kNextHost : Sought::kAnyHost);
}

std::vector<GroupSituation> all_situations() {
  std::vector<GroupSituation> all;
  for (int stage = 0; stage < static_cast<int>(kStageNames.size()); ++stage) {
    for (const Sought sought : {Sought::kAnyHost, Sought::kNextHost, Sought::kSameHost}) {
      for (unsigned bits = 0; bits < 1U << 7U; ++bits) {
        const auto bit = [&](unsigned i) { return (bits >> i & 1U) != 0; };
        const GroupSituation one{static_cast<GroupStage>(stage),
                                 sought,
                                 bit(0),
                                 bit(1),
                                 bit(2),
                                 bit(3),
                                 bit(4),
                                 bit(5),
                                 bit(6)};
        if (is_possible(one)) all.push_back(one);
      }
    }
  }
  return all;
}

Table table_of_the_code() {
  Table table;
  for (const GroupSituation& now : all_situations()) {
    for (int event = 0; event < kEvents; ++event) {
      const GroupStage next = next_move(now, static_cast<GroupEvent>(event)).stage;
      if (next != now.stage) table[name_of(now.stage)].insert(name_of(next));
    }
  }
  return table;
}

std::set<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  std::set<std::string> found;
  for (std::string word; words >> word;) found.insert(word.substr(0, word.find(',')));
  return found;
}

// " stage \ event | what happens | next stage": rows of a stage follow each other.
Table table_of_the_page() {
  std::ifstream page(DDP_TEST_DATA "/../../launcher/README.md");
  std::string line, stage;
  while (std::getline(page, line) && line.find("stage \\ event") == std::string::npos) {
  }
  REQUIRE(page);
  Table table;
  while (std::getline(page, line) && line != "```") {
    const auto first = line.find('|'), last = line.rfind('|');
    REQUIRE(first < last);
    const auto own = words_of(line.substr(0, first));
    REQUIRE(own.size() <= 1);
    if (!own.empty()) stage = *own.begin();
    table[stage].merge(words_of(line.substr(last + 1)));
  }
  for (auto& [name, next] : table) next.erase(name);
  return table;
}

TEST_CASE("the page on nodes names each change of stage that the code makes, and no other") {
  CHECK(table_of_the_page() == table_of_the_code());
}

TEST_CASE("a node begins at the endpoints, or with the authority that finds the first host") {
  CHECK(after({}, kIdle, kStart) == GroupMove{kSearching, Action::kSearch});
  CHECK(after({.authority_leads = true}, kIdle, kStart) == GroupMove{kSeeking, Action::kSeek});
  CHECK(after({}, kSearching, kListening) == GroupMove{kStanding, Action::kStand});
  CHECK(after({}, kStanding, kMayHost) == GroupMove{kSearching, Action::kHost});
  CHECK(after({}, kStanding, kNamed) == GroupMove{kSearching, Action::kFollow});
  CHECK(after({}, kSearching, kConnected) == GroupMove{kGreeting});
  CHECK(after({}, kGreeting, kWelcome) == GroupMove{kMember});
}

TEST_CASE("an agent that is not the host sends a node on, or the node tries another place") {
  CHECK(after({}, kGreeting, kSentOn) == GroupMove{kSearching, Action::kFollow});
  for (const GroupEvent event : {kNoHost, kSilent, kClosed}) {
    CHECK(after({}, kGreeting, event) == GroupMove{kSearching, Action::kTryAnother});
    CHECK(after({.may_host = false, .holds_endpoint = true, .candidate = true}, kGreeting, event) ==
          GroupMove{kSearching, Action::kTryAnother});
    CHECK(after({.holds_endpoint = true, .candidate = true}, kGreeting, event) ==
          GroupMove{kStanding, Action::kTryAnother});
    CHECK(after({.sought = Sought::kNextHost}, kGreeting, event) ==
          GroupMove{kSeeking, Action::kTryAnother});
  }
  CHECK(after({.sought = Sought::kNextHost}, kGreeting, kSentOn) ==
        GroupMove{kSeeking, Action::kTryAnother});
}

TEST_CASE("places that were tried in vain are tried later, unless others know more") {
  CHECK(after({}, kSearching, kUnreachable) == GroupMove{kSearching, Action::kTryLater});
  CHECK(after({.waits = true}, kSearching, kUnreachable) == GroupMove{kSearching});
  CHECK(after({.holds_endpoint = true, .candidate = true}, kSearching, kUnreachable) ==
        GroupMove{kStanding, Action::kTryAnother});
  CHECK(after({.sought = Sought::kNextHost}, kSearching, kUnreachable) ==
        GroupMove{kSeeking, Action::kTryAnother});
  CHECK(after({.holds_endpoint = true}, kSearching, kStart) ==
        GroupMove{kStanding, Action::kStand});
  CHECK(after({.may_host = false, .holds_endpoint = true}, kSearching, kStart) ==
        GroupMove{kSearching, Action::kWait});
}

TEST_CASE("a connection that ends is resumed, and silence loses the host") {
  const GroupSituation resumes{.sought = Sought::kSameHost, .has_round = true};
  CHECK(after({.has_round = true}, kMember, kClosed) == GroupMove{kSearching, Action::kResume});
  CHECK(after(resumes, kSearching, kUnreachable) == GroupMove{kSearching, Action::kTryLater});
  CHECK(after(resumes, kSearching, kStart) == GroupMove{kSearching, Action::kResume});
  CHECK(after(resumes, kGreeting, kWelcome) == GroupMove{kMember});
  for (const GroupEvent event : {kSentOn, kNoHost})
    CHECK(after(resumes, kGreeting, event) == GroupMove{kGreeting, Action::kLose});
  CHECK(after({.has_round = true}, kMember, kSilent) == GroupMove{kMember, Action::kLose});
}

TEST_CASE("nodes of a round seek their next host, those of fixed ranks end, others start over") {
  for (const GroupStage stage : {kSearching, kGreeting, kMember}) {
    CHECK(after({.has_round = true}, stage, kLost) == GroupMove{kSeeking, Action::kSeek});
    CHECK(after({.has_round = true, .fixed_ranks = true}, stage, kLost) ==
          GroupMove{kOrphaned, Action::kOrphan});
    CHECK(after({}, stage, kLost) == GroupMove{kSearching, Action::kSearch});
  }
  CHECK(after({}, kSeeking, kNamed) == GroupMove{kSearching, Action::kFollow});
  CHECK(after({}, kSeeking, kMayHost) == GroupMove{kSearching, Action::kTakeOver});
}

TEST_CASE("a host without a mandate seeks the next one, or makes way for the job that runs") {
  CHECK(after({.has_round = true}, kMember, kDeposed) == GroupMove{kSeeking, Action::kSeek});
  CHECK(after({.authority_leads = true}, kMember, kDeposed) == GroupMove{kSeeking, Action::kSeek});
  CHECK(after({.holds_endpoint = true}, kMember, kDeposed) ==
        GroupMove{kSearching, Action::kMakeWay});
}

TEST_CASE("a job that is over ends in every stage, and nothing follows") {
  for (const GroupSituation& now : all_situations()) {
    CHECK(next_move(now, kEnd) == GroupMove{kOver});
    for (int event = 0; now.stage == kOver && event < static_cast<int>(kEnd); ++event)
      CHECK(next_move(now, static_cast<GroupEvent>(event)) == GroupMove{kOver, Action::kDefect});
  }
}

}  // namespace
}  // namespace ddp::launch::group_policy_test
