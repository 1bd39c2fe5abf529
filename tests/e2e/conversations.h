// Training on the conversations of scripts/make_conversations.py.
#pragma once

#include <string>
#include <vector>

#include "tests/e2e/job.h"

namespace ddp::test {

inline const std::string kChatData =
    "data_config: {format: chat, path: chats/train.jsonl, eval_path: chats/eval.jsonl, tokenizer: "
    "chats, block_size: 128}\n";
inline const std::vector<std::string> kChatModels = {
    "model: gpt\ngpt_config: {n_layer: 2, n_head: 2, n_embd: 32}\n",
    "model: llama\nllama_config: {n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 32}\n",
};
inline const std::string& kChatLlama = kChatModels[1];

struct ChatPlace : Workspace {
  explicit ChatPlace(const std::string& model = kChatLlama) {
    write("config.yaml", tiny_config(model + kChatData, 20, 4, 1, "0.01"));
    ChildOptions made = trainer(*this, {});
    made.argv = {"python3", std::string(DDP_SOURCE_DIR) + "/scripts/make_conversations.py",
                 *this / "chats"};
    succeed(made);
  }

  /// `lines` in the file that is trained on.
  void set_training(const std::string& lines) const { write("chats/train.jsonl", lines); }
};

}  // namespace ddp::test
