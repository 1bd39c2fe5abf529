// A node without a host asks before it hosts.
#include "launcher/rendezvous/follow/newcomer.h"

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using Found = Inquiry::Found;
using Kind = Newcomer::Step::Kind;
using Findings = std::vector<Inquiry::Finding>;

const Place kFirst{"10.0.0.1", 29400}, kThird{"10.0.0.3", 29400}, kMember{"10.0.0.7", 4000};

Inquiry::Finding found(const Place& place, Found what) { return {.place = place, .found = what}; }

Inquiry::Finding answer(const Place& place, long long epoch, bool hosts = false,
                        const Place& host = {}) {
  auto finding = found(place, Found::kAnswer);
  finding.status = {.id = "other", .run_id = "job", .epoch = epoch, .hosts = hosts};
  finding.status.address = host.address;
  finding.status.port = host.port;
  return finding;
}

// At the second of three endpoints; the last round known to it had the member in it.
Newcomer second(long long epoch = -1) {
  return Newcomer({{kFirst, true}, {kThird, false}, {kMember, false}}, "own", epoch);
}

Newcomer::Step step_of(Newcomer newcomer, const Findings& findings, bool alone = false) {
  return newcomer.next(findings, alone, Clock::now());
}

TEST_CASE("a newcomer hosts once everyone that it knows of refuses or is a newcomer as well") {
  const Findings no_answer{found(kFirst, Found::kRefused), found(kThird, Found::kRefused),
                           found(kMember, Found::kRefused)};
  CHECK(step_of(second(), no_answer).kind == Kind::kHost);
  Findings with_third = no_answer;
  with_third[1] = answer(kThird, -1);
  CHECK(step_of(second(), with_third).kind == Kind::kHost);
}

TEST_CASE("of newcomers at several endpoints the one at the first hosts") {
  const Findings both{answer(kFirst, -1), answer(kThird, -1), found(kMember, Found::kRefused)};
  const auto step = step_of(second(), both);
  CHECK(step.kind == Kind::kConnect);
  CHECK(step.place == kFirst);
}

TEST_CASE("a newcomer waits for each that is silent, unless it may begin alone") {
  for (const Found silence : {Found::kNothing, Found::kSilence}) {
    for (std::size_t who = 0; who < 3; ++who) {
      Findings findings{found(kFirst, Found::kRefused), found(kThird, Found::kRefused),
                        found(kMember, Found::kRefused)};
      findings[who].found = silence;
      Newcomer newcomer = second();
      CHECK(newcomer.next(findings, false, Clock::now()).kind == Kind::kWait);
      CHECK(newcomer.missing().find(findings[who].place.address) == 0);
      CHECK(step_of(second(), findings, /*alone=*/true).kind == Kind::kHost);
    }
  }
}

TEST_CASE("a newcomer goes to the host, whoever names it, even while others are silent") {
  const Findings named{found(kFirst, Found::kSilence), answer(kThird, 5, false, kMember),
                       found(kMember, Found::kNothing)};
  CHECK(step_of(second(), named).place == kMember);
  const Findings itself{found(kFirst, Found::kSilence), found(kThird, Found::kRefused),
                        answer(kMember, 5, true)};
  CHECK(step_of(second(), itself).place == kMember);
}

TEST_CASE("a host of an older round than the newcomer's own is followed only if no other is left") {
  Findings findings{answer(kFirst, 5, true), found(kThird, Found::kRefused),
                    found(kMember, Found::kSilence)};
  CHECK(step_of(second(6), findings).kind == Kind::kWait);
  findings[2].found = Found::kRefused;
  CHECK(step_of(second(6), findings).place == kFirst);
}

TEST_CASE("a newcomer follows the nodes of a round that look for their host") {
  const Findings findings{answer(kFirst, -1), found(kThird, Found::kSilence), answer(kMember, 6)};
  const auto step = step_of(second(6), findings);
  CHECK(step.kind == Kind::kConnect);
  CHECK(step.place == kMember);
}

TEST_CASE("a newcomer that asks itself hears nobody") {
  Findings findings{found(kFirst, Found::kRefused), found(kThird, Found::kRefused),
                    answer(kMember, 6, true)};
  findings[2].status.id = "own";
  CHECK(step_of(second(), findings).kind == Kind::kHost);
}

TEST_CASE("a newcomer does not try a failed connection again at once") {
  Newcomer newcomer = second();
  const auto now = Clock::now();
  newcomer.avoid(kMember, now + std::chrono::seconds(1));
  const Findings findings{found(kFirst, Found::kRefused), found(kThird, Found::kRefused),
                          answer(kMember, 6, true)};
  CHECK(newcomer.next(findings, false, now).kind == Kind::kWait);
  CHECK(newcomer.next(findings, false, now + std::chrono::seconds(1)).kind == Kind::kConnect);
}

}  // namespace
}  // namespace ddp::launch
