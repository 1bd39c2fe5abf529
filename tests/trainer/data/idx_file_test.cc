#include "trainer/data/images/idx_file.h"

#include <sys/resource.h>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/data/image_files.h"
#include "trainer/runtime/error.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using train::IdxArray;
using train::read_idx;
using train::UserError;

std::string why_not(const std::string& bytes) {
  const TempFolder folder;
  const std::string path = folder.write("file", bytes);
  try {
    read_idx(path);
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::StartsWith(path + ": "));
    return error.what();
  }
  return "";
}

int64_t largest_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

TEST_CASE("an idx file is its shape and its bytes, compressed or not") {
  const TempFolder folder;
  const std::string bytes = idx_head({2, 1, 3}) + "abcdef";
  for (const std::string& written : {bytes, gzipped(bytes)}) {
    const IdxArray array = read_idx(folder.write("images", written));
    CHECK(array.shape == std::vector<int64_t>{2, 1, 3});
    CHECK(std::string(array.elements.begin(), array.elements.end()) == "abcdef");
  }
}

TEST_CASE("what is no idx file of bytes is refused by name") {
  CHECK_THAT(why_not(""), Contains("not an idx file"));
  CHECK_THAT(why_not("\x89PNG"), Contains("not an idx file"));
  CHECK_THAT(why_not(idx_head({1}, '\x0D') + "abcd"), Contains("of type 0x0d"));
  CHECK_THAT(why_not(idx_head({})), Contains("has 0 dimensions"));
  CHECK_THAT(why_not(idx_head({1, 1, 1, 1, 1}) + "a"), Contains("has 5 dimensions"));
  CHECK_THAT(why_not(idx_head({3, 3}).substr(0, 9)), Contains("ends within its dimensions"));
  CHECK_THAT(why_not(idx_head({2, 0})), Contains("its dimensions are 2x0"));
}

TEST_CASE("an idx file with too few or too many bytes is refused with both numbers") {
  CHECK_THAT(why_not(idx_head({2, 3}) + "abcde"), Contains("holds 5 of the 6 bytes"));
  CHECK_THAT(why_not(idx_head({2, 3}) + "abcdefg"), Contains("holds more bytes"));
}

TEST_CASE("dimensions whose product overflows are refused, and large ones take no memory") {
  constexpr uint32_t kMost = 0xFFFFFFFF;
  CHECK_THAT(why_not(idx_head({kMost, kMost, kMost, kMost})), Contains("above 2^40"));
  CHECK_THAT(why_not(idx_head({1U << 31U, 1U << 31U, 4})), Contains("above 2^40"));
  const int64_t before = largest_resident_bytes();
  CHECK_THAT(why_not(idx_head({1U << 20U, 1U << 20U}) + "abc"),
             Contains("holds 3 of the 1099511627776 bytes"));
  CHECK(largest_resident_bytes() - before < int64_t{100} << 20U);
}

TEST_CASE("a small compressed file that claims to fill the memory is refused before it does") {
  const int64_t before = largest_resident_bytes();
  CHECK_THAT(why_not(gzipped(idx_head({1U << 20U, 1U << 12U}) + std::string(1U << 16U, '\0'))),
             Contains("claims 4.3 GB of pixels in a file of "));
  CHECK(largest_resident_bytes() - before < int64_t{100} << 20U);
}

TEST_CASE("a compressed idx file that is cut or damaged is refused") {
  const std::string whole = gzipped(idx_head({40, 50}) + std::string(2000, 'x'));
  CHECK(!why_not(whole.substr(0, whole.size() - 4)).empty());
  CHECK(!why_not(whole.substr(0, whole.size() / 2)).empty());
  std::string damaged = whole;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // its checksum
  CHECK(!why_not(damaged).empty());
}

TEST_CASE("an idx file that is not there is refused with the system's words") {
  CHECK_THROWS_WITH(read_idx("/nowhere/images"),
                    Contains("/nowhere/images: No such file or directory"));
}

}  // namespace
}  // namespace ddp::test
