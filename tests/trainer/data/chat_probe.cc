// Chat templates and conversations on a command line, for the tests against transformers.
// Standard input is JSON: {template, special, messages, answer_next, tools, place}, and the output
// is the text; or {folder, path, loss_on} for a folder with a tokenizer and a file of
// conversations, and the output has a line for each: {tokens, targets}, then {end_of_turn}.
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/data/chat/chat_encoding.h"
#include "trainer/data/chat/chat_template.h"
#include "trainer/data/chat/chat_template_file.h"
#include "trainer/data/chat/conversations.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace {

using namespace ddp::train;
using Json = nlohmann::ordered_json;

void render(const Json& request) {
  std::vector<ChatMessage> messages;
  for (const auto& each : request.at("messages"))
    messages.push_back({each.at("role"), "", each.dump()});
  const auto tools = request.find("tools");
  std::cout << ChatTemplate(request.at("template"), request.at("special"),
                            request.value("place", std::string()))
                   .render(messages, request.at("answer_next"),
                           tools == request.end() ? "" : tools->dump())
                   .text;
}

void encode(const Json& request) {
  const std::string folder = request.at("folder");
  const auto text = read_chat_template(folder);
  if (!text) throw std::runtime_error("no chat template");
  const auto tokenizer = load_tokenizer(folder);
  const ChatTemplate chat = parse_chat_template(*text);
  const ChatEncoder encoder(chat, *tokenizer);
  const LossOn loss_on = request.at("loss_on") == "all" ? LossOn::kAll : LossOn::kAssistant;
  if (loss_on == LossOn::kAssistant) encoder.check_answers();
  LeftOut none(OnBadSample::kStop);
  for (const EncodedChat& each :
       encode_all(read_conversations(request.at("path"), none), encoder, loss_on, none))
    std::cout << Json{{"tokens", each.tokens}, {"targets", each.is_target}} << "\n";
  std::cout << Json{{"end_of_turn", encoder.end_of_turn()}} << "\n";
}

}  // namespace

int main() {
  try {
    const auto request = Json::parse(std::string{std::istreambuf_iterator<char>(std::cin), {}});
    request.contains("folder") ? encode(request) : render(request);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
