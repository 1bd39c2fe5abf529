#include "trainer/tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/char_tokenizer.h"

namespace ddp::train {

std::unique_ptr<Tokenizer> tokenizer_from_state(const std::string& state) {
  using Json = nlohmann::json;
  try {
    const Json json = Json::parse(state);
    const auto kind = json.at("kind").get<std::string>();
    if (kind == "char") {
      return std::make_unique<CharTokenizer>(json.at("characters").get<std::vector<std::string>>());
    }
    throw RunError("this trainer knows no tokenizer of kind '" + kind + "'");
  } catch (const Json::exception& error) {
    throw RunError(std::string("damaged state of a tokenizer: ") + error.what());
  }
}

}  // namespace ddp::train
