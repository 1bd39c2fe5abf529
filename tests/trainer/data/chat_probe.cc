// Chat templates on a command line, for the tests beside transformers.
// Standard input is JSON, {template, special, messages, answer_next}; output the text.
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/data/chat/chat_template.h"

int main() {
  using namespace ddp::train;
  try {
    const auto json =
        nlohmann::json::parse(std::string{std::istreambuf_iterator<char>(std::cin), {}});
    std::vector<ChatMessage> messages;
    for (const auto& each : json.at("messages"))
      messages.push_back({each.at("role"), each.at("content")});
    std::cout << ChatTemplate(json.at("template"), json.at("special"))
                     .render(messages, json.at("answer_next"));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
