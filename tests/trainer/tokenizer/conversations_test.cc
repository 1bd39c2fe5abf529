// Conversations in the forms in which people share them.
#include "trainer/data/chat/conversations.h"

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/user_error.h"

namespace ddp::test {

using namespace ddp::train;
using Catch::Contains;

namespace {

std::vector<Conversation> chats_in(const std::string& name, const std::string& content,
                                   ConversationForms* forms = nullptr) {
  const TempFolder folder;
  LeftOut left_out(OnBadSample::kStop);
  return read_conversations(folder.write(name, content), left_out, forms);
}

std::string chat_error(const std::string& content) {
  return user_error_of([&] { chats_in("a.jsonl", content); });
}

const std::vector<ChatMessage> kQuestion = {
    {"system", "Be brief."}, {"user", "2 + 2?\n3?"}, {kAssistantRole, "4."}};

}  // namespace

TEST_CASE("each form of a conversation gives the same messages, and its name is reported") {
  const std::map<std::string, std::string> rows = {
      {"messages (OpenAI)",
       R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content":
          [{"type": "text", "text": "2 + 2?"}, {"type": "text", "text": "\n3?"}]},
          {"role": "assistant", "content": "4."}]})"},
      {"conversations (ShareGPT)",
       R"({"system": "Be brief.", "conversations": [{"from": "human", "value": "2 + 2?\n3?"},
          {"from": "gpt", "value": "4."}], "id": 7})"},
      {"instruction, input and output (Alpaca)",
       R"({"instruction": "2 + 2?", "input": "3?", "output": "4.", "system": "Be brief."})"},
      {"prompt and completion",
       R"({"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content":
          "2 + 2?\n3?"}], "completion": "4."})"}};
  const std::vector<std::string> with_system = {
      R"({"system": "Be brief.", "messages": [{"role": "user", "content": "2 + 2?\n3?"},
          {"role": "assistant", "content": "4."}]})",
      R"({"system": "Be brief.", "prompt": "2 + 2?\n3?", "completion": "4."})"};
  for (const std::string& row : with_system)
    CHECK(chats_in("a.json", "[" + row + "]").front().messages == kQuestion);
  for (const auto& [form, row] : rows) {
    INFO(form);
    ConversationForms forms;
    const auto chats = chats_in("a.json", "[" + row + ",\n" + row + "]", &forms);
    REQUIRE(chats.size() == 2);
    CHECK(chats[1].messages == kQuestion);
    CHECK(chats[1].trained == std::vector<bool>{false, false, true});
    CHECK(forms == ConversationForms{{form, 2}});
  }
}

TEST_CASE("a form whose columns are null is not that of the row") {
  const auto chat =
      chats_in("a.jsonl", R"({"messages": null, "conversations": null, "tools": null,)"
                          R"( "prompt": "a", "completion": "b", "system": null})")
          .front();
  CHECK(chat.messages == std::vector<ChatMessage>{{"user", "a"}, {kAssistantRole, "b"}});
}

TEST_CASE("an instruction may lack its input, and a history precedes it") {
  const auto chat = chats_in("a.jsonl", R"({"instruction": "b", "input": "", "output": "B",)"
                                        R"( "history": [["a", "A"]]})")
                        .front();
  CHECK(chat.messages ==
        std::vector<ChatMessage>{
            {"user", "a"}, {kAssistantRole, "A"}, {"user", "b"}, {kAssistantRole, "B"}});
}

TEST_CASE("other fields of ShareGPT's messages reach the template, and a weight of 0 counts") {
  const auto chat =
      chats_in("a.jsonl", R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt",)"
                          R"( "value": "b", "reasoning_content": "c", "weight": 0}]})")
          .front();
  CHECK(chat.messages[1].other == R"({"reasoning_content":"c"})");
  CHECK(chat.trained == std::vector<bool>{false, false});
}

TEST_CASE("rows that are no conversations are refused with file, line and what they have") {
  CHECK_THAT(
      chat_error("{\"question\": \"a\", \"answer\": \"b\"}"),
      Contains("a.jsonl:1: has neither 'messages'") && Contains("its names are question, answer"));
  CHECK_THAT(chat_error(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"),
             Contains("a.jsonl:1: 'content' has the part") && Contains("of the type text only"));
  CHECK_THAT(chat_error(R"({"system": "a", "messages": [{"role": "system", "content": "b"}]})"),
             Contains("a.jsonl:1: has 'system' and a message of that role; remove one of them"));
  CHECK_THAT(chat_error(R"({"system": "a", "messages": []})"),
             Contains("a.jsonl:1: has no messages"));
  CHECK_THAT(chat_error("PAR1"), Contains("is a Parquet file; name it .parquet"));
  const TempFolder folder;
  LeftOut left_out(OnBadSample::kStop);
  CHECK_THROWS_WITH(read_conversations(folder.path(), left_out),
                    Contains("folder with .jsonl, .parquet, .arrow, .feather files"));
  for (const char* name : {"a.jsonl", "b.feather"}) folder.write(name, "{}");
  CHECK_THROWS_WITH(
      read_conversations(folder.path(), left_out),
      Contains(": holds .jsonl and .feather files; name one kind, '") && Contains("/*.jsonl'"));
}

}  // namespace ddp::test
