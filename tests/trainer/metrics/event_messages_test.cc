// The bytes of event files. TensorBoard itself reads them in tests/peers/test_tensorboard.py.
#include "trainer/metrics/event_messages.h"

#include "tests/support/catch.h"

#include "trainer/metrics/event_file_sink.h"

namespace ddp::train {
namespace {

TEST_CASE("crc32c gives the check values of RFC 3720") {
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43U);
  CHECK(crc32c("") == 0U);
}

TEST_CASE("a record is framed with the masked checks of its length and its data") {
  const std::string record = framed("abc");
  REQUIRE(record.size() == 8 + 4 + 3 + 4);
  CHECK(record.substr(0, 8) == std::string("\x03\0\0\0\0\0\0\0", 8));
  CHECK(record.substr(12, 3) == "abc");
  const uint32_t mask = 0xA282EAD8;
  const uint32_t crc = crc32c("abc");
  CHECK(masked_crc32c("abc") == ((crc >> 15) | (crc << 17)) + mask);
}

TEST_CASE("a scalar has the bytes that protoc gives") {
  MetricRecord record;
  record.step = 300;
  record.split = "a";
  record.values = {{"b", 1.0}};
  record.time = 2.0;
  CHECK(scalars_event(record) == std::string("\x09\0\0\0\0\0\0\0\x40"  // wall_time: 2.0
                                             "\x10\xAC\x02"            // step: 300
                                             "\x2A\x0C\x0A\x0A"        // summary { value {
                                             "\x0A\x03"
                                             "a/b"  // tag
                                             "\x15\0\0\x80\x3F",
                                             26));  // simple_value: 1.0
}

TEST_CASE("text is shown letter by letter") {
  CHECK(as_markdown_code("# no title\n* no list") == "    # no title\n    * no list");
  CHECK(as_markdown_code("") == "    ");
}

}  // namespace
}  // namespace ddp::train
