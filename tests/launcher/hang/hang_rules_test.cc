// What a heartbeat says, and who is judged to hang.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "launcher/hang/first_writes.h"
#include "launcher/hang/hang_rules.h"
#include "launcher/hang/heartbeat.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using Catch::EndsWith;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::TempFolder;

TEST_CASE("a heartbeat is a line of words, of which timeout= is the promise") {
  const LifeSign sign = parse_heartbeat("timeout=2.5  step=12 phase=forward\nmore\n");
  CHECK(sign.promise == milliseconds(2500));
  CHECK(sign.text == "step=12 phase=forward");
  CHECK_FALSE(parse_heartbeat("").promise);
  CHECK(parse_heartbeat("a\x1b[2Jb").text == "a?[2Jb");
}

TEST_CASE("a promise that is no time is only text") {
  for (const char* word : {"timeout=", "timeout=-1", "timeout=0", "timeout=nan", "timeout=1x",
                           "timeout=inf", "timeout=1e99"}) {
    CHECK_FALSE(parse_heartbeat(word).promise);
    CHECK(parse_heartbeat(word).text == word);
  }
}

TEST_CASE("a heartbeat file tells when it was written, and keeps what it said while it is empty") {
  const TempFolder folder;
  const std::string file = folder / "heartbeat";
  const auto start = Clock::now();
  Heartbeat heartbeat(file, start);
  CHECK(heartbeat.look(Clock::now()).at == start);

  folder.write("heartbeat", "timeout=3 step=1");
  namespace fs = std::filesystem;
  fs::last_write_time(file, fs::file_time_type::clock::now() + milliseconds(1));
  const LifeSign first = heartbeat.look(Clock::now() + seconds(1));
  CHECK(first.at > start);
  CHECK(first.promise == seconds(3));

  folder.write("heartbeat", "");
  fs::last_write_time(file, fs::file_time_type::clock::now() + milliseconds(2));
  const LifeSign second = heartbeat.look(Clock::now() + seconds(2));
  CHECK(second.at >= first.at);
  CHECK(second.text == "step=1");
  CHECK(second.promise == seconds(3));
}

TEST_CASE("spares=1 in a heartbeat is an offer and no text") {
  const LifeSign sign = parse_heartbeat("step=3 spares=1 timeout=2");
  CHECK(sign.offers_standby);
  CHECK(sign.text == "step=3");
  CHECK_FALSE(parse_heartbeat("step=3 spares=2").offers_standby);
}

TEST_CASE("files that come and go beside a heartbeat cost no memory") {
  const TempFolder folder;
  FirstWrites first;
  if (first.fd() < 0) FAIL("no inotify here");
  for (int rotation = 0; rotation < 100; ++rotation) {
    first.watch(folder / "heartbeat");
    folder.write("stdout.log." + std::to_string(rotation), "");
    pollfd readable{first.fd(), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 0) == 1);
    first.drain();
  }
  CHECK(first.size() == 1);  // the folder: the file is not there yet
}

TEST_CASE("a heartbeat in the same tick of the clock as the one before is seen all the same") {
  const TempFolder folder;
  namespace fs = std::filesystem;
  Heartbeat heartbeat(folder / "heartbeat", Clock::now());
  folder.write("heartbeat", "step=0");
  const auto made = fs::last_write_time(folder / "heartbeat");
  CHECK(heartbeat.look(Clock::now()).text == "step=0");
  folder.write("heartbeat", "timeout=3 step=1");
  fs::last_write_time(folder / "heartbeat", made);
  CHECK(heartbeat.look(Clock::now()).text == "step=1");
}

TEST_CASE("what is no file any more is no heartbeat, and nothing waits for it") {
  const TempFolder folder;
  const auto start = Clock::now();
  Heartbeat heartbeat(folder / "heartbeat", start);
  std::filesystem::remove(folder / "heartbeat");
  CHECK(heartbeat.look(Clock::now()).at == start);
  REQUIRE(::mkfifo((folder / "heartbeat").c_str(), 0600) == 0);
  CHECK(heartbeat.look(Clock::now()).at == start);
}

TEST_CASE("a removed heartbeat file is read as long as its worker has it open") {
  const TempFolder folder;
  namespace fs = std::filesystem;
  const std::string file = folder / "run/0/heartbeat";
  fs::create_directories(folder / "run/0");
  Heartbeat heartbeat(file, Clock::now());
  std::ofstream worker(file);
  worker << "step=1 " << std::flush;
  CHECK(heartbeat.look(Clock::now()).text == "step=1");
  fs::remove_all(folder / "run");
  worker << "phase=data" << std::flush;
  CHECK(heartbeat.look(Clock::now()).text == "step=1 phase=data");
}

TEST_CASE("a removed folder of heartbeats is restored for workers that open the file each time") {
  const TempFolder folder;
  namespace fs = std::filesystem;
  fs::create_directories(folder / "run/0");
  Heartbeat heartbeat(folder / "run/0/heartbeat", Clock::now());
  fs::remove_all(folder / "run");
  heartbeat.look(Clock::now());
  folder.write("run/0/heartbeat", "step=2");
  CHECK(heartbeat.look(Clock::now()).text == "step=2");
  CHECK(fs::status(folder / "run").permissions() == fs::perms::owner_all);
}

LifeSign sign_at(Clock::time_point at, std::optional<Clock::duration> promise = {}) {
  return {at, promise, ""};
}

TEST_CASE(
    "where every rank writes heartbeats one without any is held to the promise of the others") {
  const Clock::time_point t0{};
  const auto overdue_at = [&](seconds now, const char* peer, const HangRules& rules = {}) {
    LifeSign spoken = parse_heartbeat(peer);
    spoken.at = t0 + seconds(5);
    return judge_hangs(rules, {sign_at(t0), spoken}, t0, t0 + now).overdue;
  };
  using Overdue = std::vector<std::size_t>;
  CHECK(overdue_at(seconds(9), "timeout=10 ranks=all") == Overdue{});
  CHECK(overdue_at(seconds(10), "timeout=10 ranks=all") == Overdue{0});
  CHECK(overdue_at(seconds(10), "timeout=10") == Overdue{});
  CHECK(overdue_at(seconds(10), "step=0 ranks=all") == Overdue{});
  CHECK(overdue_at(seconds(6), "timeout=10 ranks=all", {.timeout = seconds(6)}) == Overdue{0});
  CHECK(parse_heartbeat("step=0 ranks=all").text == "step=0");
}

TEST_CASE("a program that is known to write heartbeats must write a first one") {
  const Clock::time_point t0{};
  const auto overdue_at = [&](seconds now, HangRules rules, const char* peer = "") {
    LifeSign other = parse_heartbeat(peer);
    other.at = t0 + now;
    return judge_hangs(rules, {sign_at(t0), other}, t0, t0 + now).overdue;
  };
  using Overdue = std::vector<std::size_t>;
  const HangRules known{.first_heartbeat = seconds(300)};
  CHECK(judge_hangs(known, {sign_at(t0)}, t0, t0 + seconds(299)).overdue == Overdue{});
  CHECK(judge_hangs(known, {sign_at(t0)}, t0, t0 + seconds(300)).overdue == Overdue{0});
  CHECK(overdue_at(seconds(300), known, "timeout=400 ranks=all") == Overdue{});
  CHECK(overdue_at(seconds(300), known, "step=0 ranks=all") == Overdue{});
  CHECK(overdue_at(seconds(300), {.heed_promises = false, .first_heartbeat = seconds(300)}) ==
        Overdue{});
}

TEST_CASE("without a promise and without --hang-timeout nobody ever hangs") {
  const Clock::time_point t0{};
  const auto verdict = judge_hangs({}, {sign_at(t0)}, t0, t0 + seconds(100'000));
  CHECK(verdict.overdue.empty());
  CHECK_FALSE(verdict.look_again);
}

TEST_CASE("who is silent for longer than the limit is overdue") {
  const Clock::time_point t0{};
  const HangRules rules{.timeout = seconds(5)};
  const std::vector<LifeSign> signs{sign_at(t0 + seconds(2)), sign_at(t0 + seconds(1)),
                                    sign_at(t0 + seconds(4))};
  CHECK(judge_hangs(rules, signs, t0, t0 + milliseconds(5999)).overdue.empty());
  CHECK(judge_hangs(rules, signs, t0, t0 + milliseconds(5999)).look_again == t0 + seconds(6));
  CHECK(judge_hangs(rules, signs, t0, t0 + seconds(7)).overdue == std::vector<std::size_t>{0, 1});
  CHECK(judge_hangs(rules, signs, t0 + seconds(3), t0 + seconds(7)).overdue.empty());
}

TEST_CASE("when its time is half over a worker is in doubt") {
  const Clock::time_point t0{};
  const HangRules rules{.timeout = seconds(6)};
  const auto early = judge_hangs(rules, {sign_at(t0)}, t0, t0 + milliseconds(2999));
  CHECK_FALSE(early.doubtful);
  CHECK(early.look_again == t0 + seconds(3));
  const auto late = judge_hangs(rules, {sign_at(t0)}, t0, t0 + seconds(3));
  CHECK(late.doubtful);
  CHECK(late.overdue.empty());
  CHECK(late.look_again == t0 + seconds(6));
}

TEST_CASE("of the time that threads wait for a CPU the longest counts, between two readings") {
  using launch::CpuTimes;
  using launch::starved_between;
  const CpuTimes before{{1, {seconds(7), seconds(5)}}, {2, {seconds(7), seconds(90)}}};
  CpuTimes after = before;
  CHECK(starved_between(before, after, seconds(9)) == seconds(0));
  CHECK(starved_between({}, after, seconds(9)) == seconds(0));
  after[1].waited += seconds(3);
  after[2].waited += seconds(1);
  after[3].waited = seconds(50);  // another one
  CHECK(starved_between(before, after, seconds(9)) == seconds(3));
  after[2].ready = true;  // its present wait is in no number yet
  after[2].ran += seconds(2);
  CHECK(starved_between(before, after, seconds(9)) == seconds(7));
}

TEST_CASE("a promise counts more than --hang-timeout, unless promises are not heeded") {
  const Clock::time_point t0{};
  const std::vector<LifeSign> signs{sign_at(t0, seconds(60))};
  CHECK(judge_hangs({.timeout = seconds(5)}, signs, t0, t0 + seconds(50)).overdue.empty());
  CHECK_FALSE(judge_hangs({.heed_promises = false}, signs, t0, t0 + seconds(90)).look_again);
}

TEST_CASE("a worker that writes heartbeats is looked at often, its promise may become shorter") {
  const Clock::time_point t0{};
  const auto look_again = [&](const char* heartbeat) {
    LifeSign sign = parse_heartbeat(heartbeat);
    sign.at = t0;
    return judge_hangs({}, {sign}, t0, t0 + seconds(10)).look_again;
  };
  CHECK(look_again("timeout=60") == t0 + milliseconds(10'200));
  CHECK(look_again("step=1") == t0 + milliseconds(10'200));
  CHECK(look_again("timeout=10.1") == t0 + milliseconds(10'100));
  CHECK_FALSE(look_again(""));
}

TEST_CASE("a heartbeat tells how far its worker is, in words that are agreed on") {
  const auto progress =
      parse_heartbeat("loss=1 phase=backward step=12 waiting=all_reduce collective=all_reduce#7")
          .progress;
  CHECK(progress.step == 12);
  CHECK(progress.phase == "backward");
  CHECK(progress.waiting == "all_reduce");
  CHECK(progress.collective == "all_reduce#7");
  for (const char* word : {"step=", "step=1x", "step=x", "steps=1", "step=99999999999999999999"}) {
    CHECK_FALSE(parse_heartbeat(word).progress.step);
    CHECK(parse_heartbeat(word).text == word);
  }
}

Suspect overdue(const char* heartbeat, int silent = 10, char state = 'S') {
  Suspect suspect{parse_heartbeat(heartbeat), true, state};
  suspect.sign.at = Clock::time_point(seconds(100 - silent));
  return suspect;
}
Suspect in_time(const char* heartbeat, char state = 'S') {
  Suspect suspect = overdue(heartbeat, 1, state);
  suspect.overdue = false;
  return suspect;
}

struct Hang {
  const char* why;
  std::vector<Suspect> suspects;
  std::vector<std::size_t> hung;  // the cause first
};

TEST_CASE("of those that hang together the cause is named first") {
  const Hang hang = GENERATE(values<Hang>({
      {"nobody has said anything: the longest silence", {overdue("", 10), overdue("", 20)}, {1, 0}},
      {"a stopped process", {overdue("step=3", 20), overdue("step=4", 10, 'T')}, {1, 0}},
      {"a traced process", {overdue("step=3", 20), overdue("step=4", 10, 't')}, {1, 0}},
      {"a process that the kernel holds", {overdue("step=3"), overdue("step=4", 1, 'D')}, {1, 0}},
      {"a stopped one that is not overdue yet",
       {overdue("step=3"), in_time("step=4", 'T')},
       {1, 0}},
      {"a moment in the kernel is nothing", {overdue("step=3"), in_time("step=4", 'D')}, {0}},
      {"the lowest step",
       {overdue("step=4", 20), overdue("step=3 waiting=all_reduce", 10)},
       {1, 0}},
      {"no step at all is the lowest", {overdue("step=0", 20), overdue("phase=start", 10)}, {1, 0}},
      {"who does not wait, at equal steps",
       {overdue("step=4 waiting=all_reduce", 20), overdue("step=4 phase=data", 10)},
       {1, 0}},
      {"the earlier collective, when all wait",
       {overdue("step=4 waiting=all_reduce collective=all_reduce#9", 20),
        overdue("step=4 waiting=broadcast collective=broadcast#8", 10)},
       {1, 0}},
      {"who is waited for has broken no promise yet",
       {overdue("step=4 waiting=all_reduce"), in_time("step=4 phase=save"), in_time("step=5")},
       {1, 0}},
      {"who waits itself is not waited for",
       {overdue("step=4 waiting=all_reduce"), in_time("step=4 waiting=all_reduce")},
       {0}},
      {"who has never written a heartbeat is not judged by them",
       {overdue("step=4 waiting=all_reduce"), in_time("")},
       {0}},
      {"who is waited for has promised to be longer: nobody",
       {overdue("step=4 waiting=all_reduce timeout=3"), in_time("step=4 phase=save timeout=60")},
       {}},
      {"one that has come to wait only now excuses those that have waited for it",
       {overdue("step=4 waiting=all_reduce timeout=3"),
        in_time("step=4 waiting=all_reduce timeout=3")},
       {}},
      {"nor does the promise of a stopped process",
       {overdue("step=4 waiting=all_reduce timeout=3"),
        in_time("step=4 phase=save timeout=60", 'T')},
       {1, 0}},
      {"who does not wait has only itself to blame",
       {overdue("step=4 phase=data"), in_time("step=3 phase=save")},
       {0}},
  }));
  INFO(hang.why);
  CHECK(find_hung(hang.suspects) == hang.hung);
}

}  // namespace
}  // namespace ddp::launch
