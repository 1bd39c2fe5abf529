// data_config.format=chat, generate --chat and the export of chat templates, on the conversations
// of scripts/make_conversations.py.
#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/conversations.h"
#include "tests/e2e/exact_runs.h"
#include "tests/e2e/logged_losses.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

/// `command` with `input` on standard input.
ChildOptions with_input(ChildOptions command, const std::string& input) {
  Words argv = {"sh", "-c", "printf '%s' \"$0\" | \"$@\"", input};
  command.argv = joined(argv, command.argv);
  return command;
}

ChildOptions chatting(const Workspace& place, const std::string& input, const Words& options = {}) {
  const Words chat = {"generate", "--snapshot", "snapshot.pt",      "--chat",
                      "--greedy", "--json",     "--max_new_tokens", "12"};
  return with_input(trainer(place, joined(chat, options)), input);
}

std::string chat_refusal(const ChildOptions& command) {
  const auto run = finish(command);
  INFO(run.err);
  CHECK(run.exit == 2);
  REQUIRE(errors_of(run.err).size() == 1);
  CHECK(lines_of(run.err).size() == 1);
  return errors_of(run.err).front();
}

void check_later_turns(const std::string& model) {
  INFO(model);
  const ChatPlace place(model);
  succeed(alone(place));
  const Words questions = {"Hello, my name is Emma.", "What is 2 + 2?", "What is my name?"};
  std::string input, text;
  for (const std::string& question : questions) input += question + "\n";
  const auto answers = lines_of(succeed(chatting(place, input)).out);
  REQUIRE(answers.size() == questions.size());
  for (std::size_t i = 0; i < questions.size(); ++i) {
    text += "<|im_start|>user\n" + questions[i] + "<|im_end|>\n<|im_start|>assistant\n";
    const auto whole = succeed(
        trainer(place, {"generate", "--snapshot", "snapshot.pt", "--greedy", "--json",
                        "--max_new_tokens", "12", "--stop", "<|im_end|>", "--prompt", text}));
    const std::string answer = Json::parse(answers[i]).at("content");
    CHECK(answer == Json::parse(whole.out).at("text").get<std::string>());
    text += answer + "<|im_end|>\n";
  }
}

}  // namespace

TEST_CASE(
    "conversations resume bit for bit after a kill, and two ranks, under zero3 too, are one "
    "process") {
  check_exact<ChatPlace>({}, 13, {"zero3"}, kChatModels.front());
}

TEST_CASE("conversations of every model, under zero too, and with a loss on all tokens, resume",
          "[long]") {
  for (const std::string& model : kChatModels)
    check_exact<ChatPlace>({}, 13, {"zero1", "zero3"}, model);
  check_exact<ChatPlace>({"data_config.loss_on=all", "data_config.eval_path=null"}, 13);
}

TEST_CASE("a resumed run's chat template writes the time at which the run began") {
  const ChatPlace place;
  place.write("chats/chat_template.jinja",
              "{{ strftime_now('%s') }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + "
              "m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
              "'<|im_start|>assistant\\n' }}{% endif %}");
  succeed(alone(place, {"trainer_config.max_steps=10"}));
  const auto second = succeed(alone(place, {}));
  CHECK_THAT(second.out, Contains("Resuming") && !Contains("The training data differs"));
  const auto eval = succeed(trainer(place, {"eval", "--snapshot", "snapshot.pt", "--json"}));
  const double loss = Json::parse(eval.out).at("loss");
  CHECK_THAT(evaluations_of(second.out).back(), Contains(std::to_string(loss)));
}

TEST_CASE("weighted sources of conversations resume bit for bit, and two ranks are one process",
          "[long]") {
  const Words sources = {
      "~data_config.path", "data_config.eval_path=null",
      "data_config.sources=[{path: chats/train.jsonl}, {path: chats/eval.jsonl, weight: 3}]"};
  check_exact<ChatPlace>(sources, 13);
  const ChatPlace place;
  const auto run = succeed(alone(place, joined(sources, {"trainer_config.max_steps=2"})));
  CHECK_THAT(run.out, Contains("Data: 2 sources, ") &&
                          Contains("eval.jsonl: 36 conversations in ") &&
                          Contains("; weight 3: ") && Contains("the last of each source: 24 conv"));
}

/// Two micro-batches, and a head of its own.
const Words kTwoUntied = {"trainer_config.grad_accumulation_steps=2",
                          "llama_config.tie_weights=false"};

TEST_CASE("ranks that have some layers learn conversations as one process does") {
  const ChatPlace one, stages;
  const auto by_one = succeed(alone(one, kTwoUntied));
  const auto by_stages =
      succeed(launched(stages, 2, joined(kTwoUntied, {"distributed_config.pipeline=2"})));
  CHECK(differences(one.snapshot(), stages.snapshot()) == Words{});
  CHECK(evaluations_of(by_stages.out) == evaluations_of(by_one.out));
}

TEST_CASE("ranks that share each layer learn conversations as one process does", "[long]") {
  const ChatPlace one, shared;
  const auto by_one = succeed(alone(one, kTwoUntied));
  const auto by_shared =
      succeed(launched(shared, 2, joined(kTwoUntied, {"distributed_config.tensor=2"})));
  check_near(logged_losses(by_shared.out), logged_losses(by_one.out), 1e-4);
  CHECK(largest_parameter_distance(shared.snapshot(), one.snapshot()) < 1e-3);
}

TEST_CASE("adapters learn conversations, resume bit for bit and chat") {
  const ChatPlace whole, killed;
  const Words adapters = {"lora.rank=4",
                          "llama_config.init_from=base",
                          "~llama_config.n_layer",
                          "~llama_config.n_head",
                          "~llama_config.n_kv_head",
                          "~llama_config.n_embd",
                          "data_config.tokenizer=null"};
  for (const ChatPlace* place : {&whole, &killed}) {
    succeed(alone(*place, {"trainer_config.snapshot_path=base.pt"}));
    succeed(trainer(*place, {"export", "--snapshot", "base.pt", "--output", "base"}));
  }
  const auto run = succeed(alone(whole, adapters));
  CHECK_THAT(run.out, Contains("<|im_end|> ends an assistant's turn"));
  succeed(
      launched(killed, 1,
               joined(adapters,
                      {R"(trainer_config.fault_plan=["rank=0 step=13 phase=backward kind=kill"])"}),
               {"--max_restarts=1"}));
  CHECK(differences(whole.snapshot(), killed.snapshot()) == Words{});
  succeed(chatting(whole, "Hello\n"));
  succeed(trainer(
      whole, {"export", "--snapshot", "snapshot.pt", "--output", "adapter", "--format", "peft"}));
  for (const char* file :
       {"adapter_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json"})
    CHECK(std::filesystem::exists(whole / ("adapter/" + std::string(file))));
}

TEST_CASE("a snapshot of conversations is evaluated on its own and on other ones") {
  const ChatPlace place;
  const auto run = succeed(alone(
      place,
      {"data_config.eval_sets={again: chats/eval.jsonl}", "data_config.test_path=chats/eval.jsonl",
       "trainer_config.sample_every_steps=10", "trainer_config.sample_prompt='What is my name?'"}));
  CHECK_THAT(run.out, Contains("Evaluation: ") && Contains("40 conversations in "));
  CHECK_THAT(run.out, Contains("<|im_start|>user\nWhat is my name?<|im_end|>"));
  const auto eval = [&](const Words& more) {
    const Words words = {"eval", "--snapshot", "snapshot.pt", "--json"};
    return Json::parse(succeed(trainer(place, joined(words, more))).out);
  };
  const Json own = eval({});
  CHECK(own.at("loss") == own.at("again_loss"));
  CHECK(own.at("loss") == eval({"--data", "chats/eval.jsonl"}).at("loss"));
  CHECK(own.at("tokens") == eval({"--data", "chats/eval.jsonl"}).at("tokens"));
  CHECK_THAT(evaluations_of(run.out).back(),
             Contains(std::to_string(own.at("loss").get<double>())));
}

TEST_CASE("conversations longer than the context are cut, and those without a target left out") {
  const ChatPlace place;
  const auto run =
      succeed(alone(place, {"data_config.block_size=24", "trainer_config.sample_every_steps=10"}));
  CHECK_THAT(run.out, Contains(" truncated to data_config.block_size + 1 = 25 tokens (") &&
                          Contains(" left out: no target is left"));
  CHECK_THAT(chat_refusal(alone(
                 place, {"data_config.block_size=8", "trainer_config.snapshot_path=other.pt"})),
             Contains("data_config.eval_path: ") && Contains("no conversation has a target") &&
                 Contains("raise data_config.block_size"));
  CHECK_THAT(chat_refusal(alone(place, {"data_config.block_size=8", "data_config.eval_path=null",
                                        "trainer_config.snapshot_path=other.pt"})),
             Contains("none of 180 conversations has a target") &&
                 Contains("raise data_config.block_size"));
  place.write("unanswered.jsonl", R"({"messages": [{"role": "user", "content": "x"}]})");
  CHECK_THAT(chat_refusal(trainer(
                 place, {"eval", "--snapshot", "snapshot.pt", "--data", "unanswered.jsonl"})),
             Contains("unanswered.jsonl: no conversation has a target"));
}

TEST_CASE("conversations that cannot be used stop the run, or are left out and named") {
  const ChatPlace place;
  const std::string good =
      R"({"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]})"
      "\n";
  std::string lines = good + "{\"messages\": \n" + R"({"messages": [{"role": "judge"}]})" + "\n";
  for (int i = 0; i < 40; ++i) lines += good;
  place.set_training(lines);
  const Words one_step = {"trainer_config.max_steps=1"};
  CHECK_THAT(chat_refusal(alone(place, one_step)), Contains("train.jsonl:2: "));
  const auto run = succeed(alone(place, joined(one_step, {"data_config.on_bad_sample=skip"})));
  CHECK_THAT(run.out, Contains("Left out: 2 unusable conversations left out; the first: ") &&
                          Contains("train.jsonl:2: ") && Contains(": 41 conversations in "));
}

TEST_CASE("a chat remembers what was said until it is reset or its context is full") {
  const ChatPlace place;
  succeed(alone(place));
  const auto answers = lines_of(succeed(chatting(place, "Hello\nWhat is 2 + 2?\n")).out);
  const auto reset =
      lines_of(succeed(chatting(place, "Hello\n\n/reset\nHello\n/quit\nHello\n")).out);
  REQUIRE(answers.size() == 2);
  REQUIRE(reset.size() == 2);
  CHECK(reset[0] == answers[0]);
  CHECK(reset[1] == answers[0]);
  CHECK(Json::parse(answers[0]).at("role") == "assistant");
  const auto one = lines_of(succeed(chatting(place, "", {"--prompt", "Hello"})).out);
  CHECK(one == Words{answers[0]});
  std::string many;
  for (int i = 0; i < 12; ++i) many += "What is the opposite of hot?\n";
  const auto full = succeed(chatting(place, many));
  CHECK(lines_of(full.out).size() == 12);
  CHECK_THAT(full.err, Contains("chat: the context of 128 tokens is full; the oldest 2 messages"));
  const std::string too_long(600, '7');
  const auto goes_on = finish(chatting(place, "Hello\n" + too_long + "\nWhat is 2 + 2?\n"));
  CHECK(goes_on.exit == 2);
  CHECK_THAT(goes_on.err, Contains("this message makes 6") &&
                              Contains("1 of the messages could not be answered"));
  const auto replies = lines_of(goes_on.out);
  REQUIRE(replies.size() == 3);
  CHECK(Words{replies[0], replies[2]} == answers);  // as if the long one had not been said
  CHECK_THAT(Json::parse(replies[1]).at("error").get<std::string>(),
             Contains("this message makes 6"));
  CHECK_THAT(finish(chatting(place, "", {"--prompt", "a\xff"})).err,
             Contains("this message is not valid UTF-8 at byte 1"));
  const auto plain = succeed(with_input(
      trainer(place, {"generate", "--snapshot", "snapshot.pt", "--chat", "--greedy",
                      "--max_new_tokens", "12", "--system", "Answer in one short sentence."}),
      "Hello\n"));
  CHECK(plain.out.ends_with("\n"));
  CHECK_THAT(plain.err, Contains("tokens/s"));
}

TEST_CASE("later turns, for which the cache is kept, are what the whole text is continued with") {
  check_later_turns(kChatLlama);
}

TEST_CASE("later turns of every model are what the whole text is continued with", "[long]") {
  for (const std::string& model : kChatModels) check_later_turns(model);
}

}  // namespace ddp::test
