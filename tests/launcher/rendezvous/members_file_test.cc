// The file of the last round's nodes: complete, private, one agent's, and never trusted.
#include "launcher/rendezvous/follow/members_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "tests/launcher/ddp_run.h"
#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using test::TempFolder;
using test::text_of;

const std::vector<Endpoint> kEndpoints{{"n1", 29400}, {"n2", 29400}};
const LastMembers kMembers{.member = "89",
                           .epoch = (3LL << 36) + 1,
                           .places = {{"10.0.0.1", 29400}, {"fe80::1%lo", 4000}}};

MembersFile file_in(const TempFolder& folder, const std::string& run_id = "job",
                    const std::vector<Endpoint>& endpoints = kEndpoints) {
  return MembersFile(folder / "members", run_id, endpoints);
}

TEST_CASE("a returning node reads the members that its last agent wrote, from a private file") {
  const TempFolder folder;
  {
    MembersFile file = file_in(folder);
    CHECK(file.read().epoch == -1);
    file.write({.epoch = 1, .alone = true});
    CHECK(parse_members(text_of(folder / "members"), "job", "n1:29400, n2:29400").alone);
    file.write(kMembers);
  }
  MembersFile file = file_in(folder);
  const LastMembers read = file.read();
  CHECK(read.member == "89");
  CHECK(read.epoch == kMembers.epoch);
  CHECK(read.places == kMembers.places);
  CHECK_FALSE(read.alone);
  CHECK(file.take_note().empty());
  struct stat status {};
  REQUIRE(::stat((folder / "members").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  using Entries = std::filesystem::directory_iterator;
  CHECK(std::distance(Entries(folder.path()), Entries()) == 1);  // no temporary file is left
  file.remove();
  CHECK(file_in(folder).read().epoch == -1);
}

TEST_CASE("members of another job or of other endpoints are not this job's") {
  const TempFolder folder;
  file_in(folder).write(kMembers);
  for (const auto& run_id : {"job", "other"}) {
    for (const auto& endpoints : {kEndpoints, {{"n1", 29400}}}) {
      const bool same = std::string(run_id) == "job" && endpoints.size() == 2;
      CHECK(file_in(folder, run_id, endpoints).read().places.size() == (same ? 2 : 0));
    }
  }
}

TEST_CASE("a file of members that another agent uses is that agent's alone") {
  const TempFolder folder;
  MembersFile first = file_in(folder);
  first.write(kMembers);
  MembersFile second = file_in(folder);
  CHECK(second.read().epoch == -1);
  second.write({.epoch = 7});
  second.remove();
  first.write({.epoch = kMembers.epoch + 1});
  CHECK(parse_members(text_of(folder / "members"), "job", "n1:29400, n2:29400").epoch ==
        kMembers.epoch + 1);
}

TEST_CASE("a file of members that a dying agent still holds is read once it is gone") {
  const TempFolder folder;
  file_in(folder).write(kMembers);
  static int held;
  held = ::open((folder / "members").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  // In the thread that reads: it cannot lose patience while another one gets no CPU.
  const auto before = ::signal(SIGALRM, [](int) { ::close(held); });
  const itimerval in_a_moment{{}, {0, 100'000}};
  ::setitimer(ITIMER_REAL, &in_a_moment, nullptr);
  MembersFile file = file_in(folder);
  CHECK(file.read().epoch == kMembers.epoch);
  ::signal(SIGALRM, before);
}

TEST_CASE("a damaged file of members is one line and otherwise ignored, whatever is in it") {
  const TempFolder folder;
  file_in(folder).write(kMembers);
  const std::string text = text_of(folder / "members");
  std::vector<std::string> damaged{"",
                                   "{}",
                                   "[]",
                                   "null",
                                   text.substr(0, text.size() / 2),
                                   std::string(70'000, ' '),
                                   std::string(5'000, '[')};
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    REQUIRE(changed.find(from) != std::string::npos);
    damaged.push_back(changed.replace(changed.find(from), from.size(), to));
  };
  with("29400}", "0}");
  with("29400}", "65536}");
  with("29400}", "4294996696}");
  with("10.0.0.1", "n1");
  with("\"version\":1", "\"version\":2");
  with("206158430209", "-2");
  with("206158430209", "1e30");
  with("206158430209", "\"1\"");
  for (const std::string& one : damaged) {
    folder.write("members", one);
    MembersFile file = file_in(folder);
    INFO(one.substr(0, 200));
    CHECK(file.read().epoch == -1);
    CHECK(file.take_note().find("members, is damaged and ignored") != std::string::npos);
    file.write(kMembers);
    CHECK(file_in(folder).take_note().empty());
  }
}

TEST_CASE("no damage to a file of members does more than a missing file") {
  const TempFolder folder;
  file_in(folder).write(kMembers);
  const std::string text = text_of(folder / "members");
  std::mt19937 random(7);
  for (int i = 0; i < 5'000; ++i) {
    std::string changed = text;
    for (int n = 0; n < 3; ++n) changed[random() % changed.size()] = static_cast<char>(random());
    try {
      for (const Place& place : parse_members(changed, "job", "n1:29400, n2:29400").places)
        REQUIRE(parse_address(place.address, place.port));
    } catch (const std::exception&) {  // as it should be
    }
  }
}

TEST_CASE("a link, a folder or a pipe in place of the file of members is not followed") {
  const TempFolder folder;
  file_in(folder).write(kMembers);
  std::filesystem::rename(folder / "members", folder / "planted");
  std::filesystem::create_symlink(folder / "planted", folder / "members");
  CHECK(file_in(folder).read().epoch == -1);
  file_in(folder).write({.epoch = 5});
  CHECK(text_of(folder / "planted").find("206158430209") != std::string::npos);
  std::filesystem::remove(folder / "members");
  REQUIRE(::mkfifo((folder / "members").c_str(), 0600) == 0);
  CHECK(file_in(folder).read().epoch == -1);
}

TEST_CASE("a folder that cannot be written to is one line") {
  MembersFile file("/proc/no_such_folder/members", "job", kEndpoints);
  file.write(kMembers);
  CHECK(file.take_note().find("cannot write /proc/no_such_folder/members") == 0);
  file.write({.epoch = 3});
  CHECK(file.take_note().empty());
}

}  // namespace
}  // namespace ddp::launch
