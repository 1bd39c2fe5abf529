// All-reduces through shared memory, between threads. Also run under ThreadSanitizer.
#include "trainer/parallel/collectives/shared_reduce.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include "tests/support/catch.h"

namespace ddp::train {
namespace {

using Reduce = SharedReduce;
constexpr Reduce::Time kLong{60'000};

/// The parts of so many ranks, in this process's own memory.
class Parts {
 public:
  explicit Parts(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      memory_.emplace_back(
          static_cast<std::byte*>(::operator new (Reduce::kPartBytes, std::align_val_t{4096})));
      std::fill_n(memory_.back().get(), Reduce::kPartBytes, std::byte{0});
      data_.push_back(memory_.back().get());
    }
  }
  const std::vector<std::byte*>& data() const { return data_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{4096}); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::vector<std::byte*> data_;
};

/// Each rank on a thread of its own. Returns what each one threw, "" for nothing.
std::vector<std::string> in_ranks(int ranks, bool share_cores,
                                  const std::function<void(Reduce&, int)>& body) {
  const Parts parts(ranks);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Reduce reduce(rank, parts.data(), share_cores);
        body(reduce, rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Their sums depend on the order in floating point.
template <class T>
T element(int rank, std::size_t i) {
  constexpr std::array<double, 5> kScales = {1e-3, 1.0, 1e2, 1e5, 1e-1};
  const auto mixed =
      static_cast<uint32_t>(i * 2'654'435'761U) ^ (0x9e37U * (1U + static_cast<uint32_t>(rank)));
  const double value =
      static_cast<double>(mixed >> 8) / 3e5 * kScales[(i + static_cast<std::size_t>(rank)) % 5];
  if constexpr (std::is_same_v<T, uint8_t>)
    return static_cast<uint8_t>(mixed >> 11);
  else
    return static_cast<T>(value);
}

template <class T>
T expected(int ranks, std::size_t i, Reduce::Operation operation) {
  T result = element<T>(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const T next = element<T>(rank, i);
    if (operation == Reduce::Operation::kMax)
      result = result < next ? next : result;
    else
      result = static_cast<T>(result + next);
  }
  return result;
}

constexpr std::size_t kRow = 3;  // elements

void scatter_sums(Reduce& reduce, Reduce::Time timeout) {
  const std::array<float, 3 * kRow> table{};
  std::array<float, kRow> own{};
  reduce.scatter_sums(table.data(), own.data(), kRow, Reduce::Type::kFloat32, /*add=*/false,
                      timeout);
}

void gather_rows(Reduce& reduce, Reduce::Time timeout) {
  std::array<float, 3 * kRow> table{};
  reduce.gather_rows(table.data(), kRow, Reduce::Type::kFloat32, timeout);
}

template <class T>
void check_sizes(int ranks, Reduce::Type type, Reduce::Operation operation, bool share_cores) {
  const std::size_t chunk = (ranks == 2 ? Reduce::kChunkOfTwo : Reduce::kChunkOfMore) / sizeof(T);
  const std::vector<std::size_t> sizes = {
      0, 1, 3, 17, 1023, 2048, 2049, chunk - 1, chunk, chunk + 1, 2 * chunk, 9 * chunk + 5};
  std::atomic<int> wrong = 0;
  const auto errors = in_ranks(ranks, share_cores, [&](Reduce& reduce, int rank) {
    for (const std::size_t size : sizes) {
      std::vector<T> data(size);
      for (std::size_t i = 0; i < size; ++i) data[i] = element<T>(rank, i);
      reduce.run(data.data(), size, type, operation, kLong);
      for (std::size_t i = 0; i < size; ++i) {
        if (data[i] != expected<T>(ranks, i, operation)) ++wrong;
      }
    }
  });
  CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(ranks)));
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("ranks that share memory get the sum in the order of the ranks, whatever its size") {
  for (const int ranks : {1, 2, 3, 4}) {
    INFO(ranks << " ranks");
    using Type = Reduce::Type;
    const bool share_cores = ranks % 2 == 0;
    for (const auto operation : {Reduce::Operation::kSum, Reduce::Operation::kMax}) {
      check_sizes<float>(ranks, Type::kFloat32, operation, share_cores);
      check_sizes<double>(ranks, Type::kFloat64, operation, !share_cores);
      check_sizes<int32_t>(ranks, Type::kInt32, operation, share_cores);
      check_sizes<int64_t>(ranks, Type::kInt64, operation, share_cores);
      check_sizes<uint8_t>(ranks, Type::kUint8, operation, share_cores);
    }
  }
}

TEST_CASE("sums of whole numbers in shared memory wrap around") {
  const auto errors = in_ranks(2, false, [](Reduce& reduce, int) {
    int64_t value = std::numeric_limits<int64_t>::max();
    reduce.run(&value, 1, Reduce::Type::kInt64, Reduce::Operation::kSum, kLong);
    if (value != -2) throw std::runtime_error("the sum is " + std::to_string(value));
  });
  CHECK(errors == std::vector<std::string>(2));
}

TEST_CASE("thousands of all-reduces of changing sizes through shared memory keep in step") {
  constexpr int kRanks = 3;
  const auto errors = in_ranks(kRanks, true, [](Reduce& reduce, int rank) {
    for (int turn = 0; turn < 2000; ++turn) {
      std::vector<float> data(static_cast<std::size_t>(turn * 37 % 40'000), 1.0F * (rank + turn));
      reduce.run(data.data(), data.size(), Reduce::Type::kFloat32, Reduce::Operation::kSum, kLong);
      const int whole = kRanks * turn + kRanks * (kRanks - 1) / 2;
      const auto sum = static_cast<float>(whole);
      for (const float value : data) {
        if (value != sum) throw std::runtime_error("turn " + std::to_string(turn));
      }
    }
  });
  CHECK(errors == std::vector<std::string>(kRanks));
}

// One rank has no piece; others have pieces that end within a chunk or are empty.
TEST_CASE("rows of unequal lengths are gathered from the pieces they lie in") {
  constexpr std::size_t kMost = 3 * Reduce::kChunkOfMore + 5;
  const std::vector<std::vector<std::size_t>> lengths = {{7, 0, kMost, 1}, {}, {64, kMost / 2}};
  for (const int ranks : {2, 3}) {
    std::atomic<int> wrong = 0;
    const auto errors = in_ranks(ranks, ranks > 2, [&](Reduce& reduce, int own) {
      std::vector<std::vector<std::vector<uint8_t>>> memory(static_cast<std::size_t>(ranks));
      std::vector<Reduce::Row> rows(memory.size());
      const auto value = [](std::size_t rank, std::size_t piece, std::size_t i) {
        return static_cast<uint8_t>(i * 31 + rank * 7 + piece + 1);
      };
      for (std::size_t rank = 0; rank < memory.size(); ++rank) {
        for (const std::size_t length : lengths[rank]) memory[rank].emplace_back(length);
        for (auto& piece : memory[rank])
          rows[rank].push_back({reinterpret_cast<std::byte*>(piece.data()), piece.size()});
        for (std::size_t piece = 0; std::cmp_equal(rank, own) && piece < memory[rank].size();
             ++piece) {
          for (std::size_t i = 0; i < memory[rank][piece].size(); ++i)
            memory[rank][piece][i] = value(rank, piece, i);
        }
      }
      reduce.gather_pieces(rows, kLong);
      reduce.gather_pieces(rows, kLong);  // all slots are free again
      for (std::size_t rank = 0; rank < memory.size(); ++rank) {
        for (std::size_t piece = 0; piece < memory[rank].size(); ++piece) {
          for (std::size_t i = 0; i < memory[rank][piece].size(); ++i)
            wrong += memory[rank][piece][i] == value(rank, piece, i) ? 0 : 1;
        }
      }
    });
    CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(ranks)));
    CHECK(wrong == 0);
  }
}

TEST_CASE("each rank gets the sum of its row of every rank's table") {
  constexpr int kRanks = 3;
  const auto errors = in_ranks(kRanks, false, [](Reduce& reduce, int rank) {
    std::array<float, kRanks * kRow> table{};
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<float>(i) * static_cast<float>(rank + 1);
    std::array<float, kRow> own{};
    reduce.scatter_sums(table.data(), own.data(), kRow, Reduce::Type::kFloat32, /*add=*/false,
                        kLong);
    for (std::size_t i = 0; i < kRow; ++i) {
      const auto at = static_cast<float>(static_cast<std::size_t>(rank) * kRow + i);
      if (own[i] != 6 * at) throw std::runtime_error("a wrong sum");
    }
  });
  for (const auto& error : errors) CHECK(error.empty());
}

TEST_CASE("ranks that reduce different things in shared memory are told of both") {
  const auto errors = in_ranks(2, false, [](Reduce& reduce, int rank) {
    std::vector<float> data(10);
    reduce.run(data.data(), rank == 0 ? 10 : 9, Reduce::Type::kFloat32, Reduce::Operation::kSum,
               kLong);
  });
  CHECK(errors[0] ==
        "the ranks reduce different things: rank 0 the sum of 10 float32, rank 1 the sum of 9 "
        "float32");
  CHECK(errors[1] ==
        "the ranks reduce different things: rank 1 the sum of 9 float32, rank 0 the sum of 10 "
        "float32");
}

TEST_CASE("rows that are summed by one rank and gathered by the other are told to both") {
  const auto errors = in_ranks(2, false, [](Reduce& reduce, int rank) {
    (rank == 0 ? scatter_sums : gather_rows)(reduce, kLong);
  });
  const std::string scatter = "a reduce-scatter of rows of 3 float32";
  const std::string gather = "an all-gather of rows of 3 float32";
  CHECK(errors[0] == "the ranks reduce different things: rank 0 " + scatter + ", rank 1 " + gather);
  CHECK(errors[1] == "the ranks reduce different things: rank 1 " + gather + ", rank 0 " + scatter);
}

TEST_CASE("a rank that gives no rows in time is named, and so is one that has left") {
  const struct {
    void (*call)(Reduce&, Reduce::Time);
    std::string name;
  } collectives[] = {{scatter_sums, "a reduce-scatter of rows of 3 float32"},
                     {gather_rows, "an all-gather of rows of 3 float32"}};
  for (const auto& [call, name] : collectives) {
    std::atomic<bool> tried = false;
    const auto late = in_ranks(2, false, [&, call = call](Reduce& reduce, int rank) {
      while (rank == 1 && !tried) std::this_thread::yield();
      if (rank == 1) return;
      try {
        call(reduce, Reduce::Time{20});
      } catch (...) {
        tried = true;
        throw;
      }
    });
    CHECK(late[0] == "Timed out waiting 20ms for rank 1 in " + name);
    const auto left = in_ranks(3, true, [call = call](Reduce& reduce, int rank) {
      if (rank != 1) call(reduce, kLong);
    });
    for (const std::size_t rank : {0, 2}) {
      CHECK_THAT(left[rank], Catch::Contains("Connection closed by peer: rank ") &&
                                 Catch::Contains(" has ended before it gave its part of " + name));
    }
  }
}

TEST_CASE("a wait in shared memory ends at its timeout, and so do all later ones") {
  std::atomic<bool> tried_again = false;
  bool same_again = false;
  const auto errors = in_ranks(2, false, [&](Reduce& reduce, int rank) {
    int64_t value = 1;
    const auto sum = [&](Reduce::Time time) {
      reduce.run(&value, 1, Reduce::Type::kInt64, Reduce::Operation::kSum, time);
    };
    if (rank == 1) {
      while (!tried_again) std::this_thread::yield();
      return sum(kLong);
    }
    try {
      sum(Reduce::Time{20});
    } catch (const std::runtime_error& first) {
      try {
        sum(kLong);
      } catch (const std::runtime_error& second) {
        same_again = std::string(first.what()) == second.what();
      }
      tried_again = true;
      throw;
    }
  });
  CHECK(errors[0] == "Timed out waiting 20ms for rank 1 in the sum of 1 int64");
  CHECK(same_again);
}

TEST_CASE("who waits in shared memory for a rank that has left learns it at once") {
  const auto errors = in_ranks(3, false, [](Reduce& reduce, int rank) {
    std::vector<double> data(100'000, 1.0);
    const auto sum = [&] {
      reduce.run(data.data(), data.size(), Reduce::Type::kFloat64, Reduce::Operation::kSum, kLong);
    };
    sum();
    if (rank != 1) sum();
  });
  CHECK(errors[1].empty());
  CHECK_THAT(errors[0], Catch::Contains("Connection closed by peer: rank "));
  CHECK_THAT(errors[2], Catch::Contains("Connection closed by peer: rank "));
}

/// Whether this thread of the process sleeps in the kernel.
bool is_asleep(pid_t thread) {
  std::string stat;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), stat);
  return stat.find(") S ") != std::string::npos;
}

TEST_CASE("a sleeper in shared memory is woken when its peer's process is lost") {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = in_ranks(2, true, [](Reduce& reduce, int rank) {
    static std::atomic<bool> done;
    int64_t value = 1;
    if (rank == 1) {
      while (!done) std::this_thread::yield();  // alive, but it gives nothing
      return;
    }
    done = false;
    std::thread other([&, sleeper = ::gettid()] {
      while (!is_asleep(sleeper)) std::this_thread::yield();
      reduce.lose(1);
    });
    try {
      reduce.run(&value, 1, Reduce::Type::kInt64, Reduce::Operation::kSum, kLong);
    } catch (...) {
      done = true;
      other.join();
      throw;
    }
    done = true;
    other.join();
  });
  CHECK(errors[0] ==
        "Connection closed by peer: rank 1 has ended before it gave its part of the sum of 1 "
        "int64");
  CHECK(std::chrono::steady_clock::now() - start < kLong / 2);  // unwoken, it sleeps until kLong
}

}  // namespace ddp::train
