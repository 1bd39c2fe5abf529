// Memory that processes share, and the watch over them, with real processes.
#include "trainer/parallel/collectives/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <vector>
#include "tests/support/catch.h"

#include "trainer/parallel/collectives/process_ends.h"
#include "trainer/parallel/collectives/shared_reduce.h"

namespace ddp::train {
namespace {

constexpr std::size_t kBytes = 100'000;

/// A process that does as `body` says; its exit code is what that returns.
template <class Body>
pid_t forked(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return child;
}

int exit_code_of(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<SharedSegment> two_parts() {
  std::vector<SharedSegment> parts;
  for (int rank = 0; rank < 2; ++rank)
    parts.push_back(std::move(*SharedSegment::create(SharedReduce::kPartBytes)));
  return parts;
}

}  // namespace

TEST_CASE("another process finds a segment by its offer, and both see one memory") {
  const auto own = SharedSegment::create(kBytes);
  REQUIRE(own);
  CHECK(own->data()[kBytes - 1] == std::byte{0});
  const std::string text = own->offer().text();
  const int code = exit_code_of(forked([&] {
    const auto offer = SharedSegment::Offer::of(text);
    const auto seen = offer ? SharedSegment::open(*offer, kBytes) : std::nullopt;
    if (!seen) return 1;
    seen->data()[kBytes - 1] = std::byte{7};
    return 0;
  }));
  CHECK(code == 0);
  CHECK(own->data()[kBytes - 1] == std::byte{7});
}

TEST_CASE("a segment that is not the offered one is not opened") {
  auto own = SharedSegment::create(kBytes);
  REQUIRE(own);
  const SharedSegment::Offer right = own->offer();
  CHECK(SharedSegment::open(right, kBytes));
  CHECK_FALSE(SharedSegment::open(right, kBytes + 4096));
  auto wrong = right;
  ++wrong.nonce[1];
  CHECK_FALSE(SharedSegment::open(wrong, kBytes));
  // One whose owner can make it shorter would end its readers by SIGBUS.
  const int loose = ::memfd_create("loose", MFD_CLOEXEC);
  REQUIRE(::ftruncate(loose, 4096 + kBytes) == 0);
  REQUIRE(::pwrite(loose, own->data() - 4096, 4096, 0) == 4096);
  CHECK_FALSE(SharedSegment::open({right.process, loose, right.nonce}, kBytes));
  ::close(loose);
  own->withdraw();
  CHECK_FALSE(SharedSegment::open(right, kBytes));
}

TEST_CASE("what is no offer of a segment is none") {
  for (const std::string text : {"", "none", "0 3 1 2", "12 -1 1 2", "12 3 1"})
    CHECK_FALSE(SharedSegment::Offer::of(text));
}

TEST_CASE("where files may not be so long there is no segment, and no signal") {
  const int code = exit_code_of(forked([] {
    const rlimit small{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &small);
    return SharedSegment::create(kBytes) ? 1 : 0;
  }));
  CHECK(code == 0);
}

TEST_CASE("the end of a watched process is told, by a kill as well") {
  const pid_t child = forked([] {
    ::pause();
    return 0;
  });
  const auto ends = ProcessEnds::watch({::getpid(), child});
  REQUIRE(ends);
  std::promise<std::size_t> told;
  ends->start([&](std::size_t place) { told.set_value(place); });
  ::kill(child, SIGKILL);
  CHECK(told.get_future().get() == 1);
  CHECK(exit_code_of(child) == 128 + SIGKILL);
  CHECK(ProcessEnds::watch({child}) == nullptr);
}

TEST_CASE("processes sum up through shared memory, and a killed one ends the wait of the other") {
  const auto parts = two_parts();
  const std::vector<std::byte*> data = {parts[0].data(), parts[1].data()};
  const auto sum = [](SharedReduce& reduce, std::vector<float>& numbers) {
    reduce.run(numbers.data(), numbers.size(), SharedReduce::Type::kFloat32,
               SharedReduce::Operation::kSum, SharedReduce::Time{60'000});
  };
  const pid_t child = forked([&] {
    SharedReduce reduce(1, data, false);
    std::vector<float> numbers(300'001, 2.0F);
    sum(reduce, numbers);
    if (numbers.back() != 3.0F) return 1;
    ::raise(SIGKILL);
    return 2;
  });
  const auto ends = ProcessEnds::watch({::getpid(), child});
  REQUIRE(ends);
  SharedReduce reduce(0, data, false);
  ends->start([&](std::size_t rank) { reduce.lose(static_cast<int>(rank)); });
  std::vector<float> numbers(300'001, 1.0F);
  sum(reduce, numbers);
  CHECK(numbers == std::vector<float>(300'001, 3.0F));
  CHECK_THROWS_AS(sum(reduce, numbers), PeerLost);
  CHECK(exit_code_of(child) == 128 + SIGKILL);
}

}  // namespace ddp::train
