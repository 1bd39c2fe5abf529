#include "launcher/rendezvous/group_stage.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using Table = std::map<std::string, std::set<std::string>>;

Table table_of_the_code() {
  Table table;
  for (const GroupStage stage : kGroupStages) {
    for (const GroupStage next : stages_after(stage))
      table[std::string(name_of(stage))].insert(std::string(name_of(next)));
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

TEST_CASE("the page on nodes names each change of stage that the code allows, and no other") {
  CHECK(table_of_the_page() == table_of_the_code());
}

TEST_CASE("a stage may follow itself, and only those that its row names") {
  CHECK(may_follow(GroupStage::kMember, GroupStage::kMember));
  CHECK(may_follow(GroupStage::kGreeting, GroupStage::kMember));
  CHECK_FALSE(may_follow(GroupStage::kSeeking, GroupStage::kMember));
  CHECK_FALSE(may_follow(GroupStage::kOver, GroupStage::kSearching));
}

}  // namespace
}  // namespace ddp::launch
