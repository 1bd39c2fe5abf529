// Data that cannot be trained on: one line each, before anything is trained.
#include <sys/stat.h>

#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/conversations.h"
#include "tests/e2e/masked_text.h"
#include "tests/e2e/pictures.h"
#include "tests/e2e/reviews.h"
#include "tests/trainer/app/in_process.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

/// Long enough for a few windows.
std::string test_text() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "some word " + std::to_string(i * i % 97) + (i % 7 != 0 ? " " : "\n");
  return text;
}

}  // namespace

TEST_CASE("tokens that do not fit are refused in one line") {
  const Workspace place;
  const auto tokenize = [&](const Words& how) {
    succeed_in_process(trainer(place, joined({"tokenize", "--input", "text.txt"}, how)));
  };
  tokenize({"--tokenizer", "bpe", "--train", "--vocab_size", "300", "--output", "bpe",
            "--shard_tokens", "700"});
  tokenize({"--tokenizer", "byte", "--output", "bytes"});
  const auto on_bpe = [&](const std::string& further) {
    return in_process(alone(place, {"data_config.path=bpe", further}));
  };
  check_refused(on_bpe("data_config.tokenizer=byte"), {"its vocabulary has 300 tokens"});
  check_refused(on_bpe("data_config.tokenizer=none"),
                {"data_config.tokenizer=none: none: no such folder",
                 "; else give char, byte, bpe, wordpiece or a folder"});
  check_refused(on_bpe("data_config.tokenizer=bpe/tokens_000000.bin"),
                {"is incomplete or malformed JSON"});
  check_refused(on_bpe("data_config.eval_path=bytes"), {"was written with another tokenizer"});
  check_refused(on_bpe("data_config.format=text"), {"holds no .txt file"});
  check_refused(on_bpe("data_config.format=token"), {"did you mean"});
  check_refused(in_process(alone(place, {"data_config.format=tokens"})),
                {"has no tokenizer.json next to it"});
  fs::resize_file(place / "bpe/tokens_000000.bin", 900);
  check_refused(on_bpe("data_config.stride=1"), {"tokens_000000.bin: is cut short"});
  fs::remove(place / "bytes/tokenizer.json");
  check_refused(in_process(alone(place, {"data_config.path=bytes"})),
                {"has no tokenizer.json next to it"});
  CHECK_FALSE(fs::exists(place.snapshot()));
}

TEST_CASE("rows without the column are refused, and keys of rows where there are none") {
  const Workspace place;
  place.write("chats.jsonl", "{\"text\": \"a\"}\n{\"messages\": []}\n");
  place.write("TABLE.CSV", "text,label\na,b\n");
  place.write("a.txt.gz", "\x1F\x8B");
  const auto with = [&](const Words& more) { return refusal_of(alone(place, more)); };
  CHECK_THAT(with({"data_config.text_column=nonsense"}),
             Contains("data_config.text_column: has no effect, as none of the data has rows"));
  CHECK_THAT(with({"data_config.on_bad_sample=skip"}),
             Contains("data_config.on_bad_sample: has no effect, as none of the data has rows"));
  CHECK_THAT(with({"data_config.path=chats.jsonl", "data_config.text_column=nonsense"}),
             Contains("chats.jsonl:1: has no nonsense; its names are text; set data_config."));
  CHECK_THAT(with({"data_config.path=chats.jsonl"}),
             Contains("chats.jsonl:2: has no text; its names are messages; set "
                      "data_config.text_column to one of them, or data_config.format=chat"));
  CHECK_THAT(with({"data_config.path=TABLE.CSV", "data_config.text_column=body"}),
             Contains("TABLE.CSV: has no column body; its columns are text, label"));
  CHECK_THAT(with({"data_config.path=a.txt.gz"}),
             Contains("a.txt.gz: is compressed; unpack it: gzip -dk "));
  CHECK_THAT(with({"data_config.path=chats.jsonl", "data_config.text_column=no",
                   "data_config.on_bad_sample=skip"}),
             Contains("has no row with a text; 2 unusable rows left out; the first: ") &&
                 Contains("chats.jsonl:1: has no no"));
  place.write("none.jsonl", "\n");
  CHECK_THAT(with({"data_config.path=none.jsonl"}),
             Contains("none.jsonl: has no row with a text; give a file that has some"));
}

TEST_CASE("a tokenizer in the working directory is none of the model's folder") {
  const Workspace place;
  place.write("tokenizer.json", "{}");
  succeed_in_process(alone(place, {"trainer_config.max_steps=1"}));
}

TEST_CASE("a pipe, a device and a file that is too large are refused as metadata") {
  const Workspace place;
  fs::create_directories(place / "model");
  const std::string config = place / "model/config.json";
  const auto refused = [&] {
    return refusal_of(alone(
        place, {"gpt_config.model_type=null", "gpt_config.n_layer=null", "gpt_config.n_head=null",
                "gpt_config.n_embd=null", "gpt_config.init_from=model"}));
  };
  REQUIRE(::mkfifo(config.c_str(), 0600) == 0);
  CHECK_THAT(refused(), Contains("config.json: is a pipe or a device; give a regular file"));
  fs::remove(config);
  fs::create_symlink("/dev/zero", config);
  CHECK_THAT(refused(), Contains("config.json: is a pipe or a device"));
  fs::remove(config);
  place.write("model/config.json", "{}");
  fs::resize_file(config, 300'000'000);
  CHECK_THAT(refused(), Contains("config.json: has 300 MB, more than the 17 MB"));
}

TEST_CASE("sources, sets and masks that cannot be used are refused in one line") {
  const Workspace place;
  for (const char* name : {"web.txt", "code.txt", "wiki.txt"}) place.write(name, test_text());
  const auto with = [&](const Words& more) { return refusal_of(alone(place, more)); };
  const auto sources = [&](const std::string& list) {
    return with({"~data_config.path", "data_config.sources=" + list, "data_config.tokenizer=byte"});
  };
  CHECK_THAT(sources("[{path: web.txt, weight: 0}, {path: code.txt, weight: 0}]"),
             Contains("}]: the weights sum to 0; give"));
  CHECK_THAT(sources("[{path: web.txt, weight: -1}]"), Contains("entry 0: weight: -1"));
  CHECK_THAT(sources("[{path: web.txt, wait: 1}]"),
             Contains("'wait' is not a key of a source; known: path, weight"));
  CHECK_THAT(sources("[{weight: 1}]"), Contains("entry 0: has no path"));
  CHECK_THAT(sources("[{path: gone.txt}]"), Contains("}]: gone.txt: No such file"));
  CHECK_THAT(with({"data_config.sources=[{path: web.txt}]"}),
             Contains("conflicts with data_config.path"));
  CHECK_THAT(with({"~data_config.path", "data_config.sources=[{path: web.txt}, {path: code.txt}]"}),
             Contains("data_config.sources: ") && Contains("set data_config.tokenizer to byte"));
  CHECK_THAT(with({"data_config.mask_documents=true"}),
             Contains("data_config.mask_documents: the tokenizer (char) has no end-of-text token"));
  CHECK_THAT(with({"data_config.eval_sets={wiki: gone.txt}"}), Contains("data_config.eval_sets"));
  CHECK_THAT(with({"data_config.eval_sets={wiki: wiki.txt}", "data_config.train_split=1",
                   "data_config.tokenizer=byte"}),
             Contains("data_config.eval_sets: are evaluated next to the evaluation data"));
  place.write("short.txt", test_text().substr(0, 1));
  CHECK_THAT(with({"data_config.eval_path=short.txt", "data_config.tokenizer=byte"}),
             Contains("data_config.eval_path: ") && Contains("has fewer than two tokens"));
}

TEST_CASE("conversations that cannot be used are refused in one line") {
  const ChatPlace place;
  const auto refused = [&](const Words& keys) { return refusal_of(alone(place, keys)); };
  CHECK_THAT(refused({"data_config.tokenizer=null"}),
             Contains("data_config.tokenizer: is not given") && Contains("a folder"));
  CHECK_THAT(refused({"data_config.tokenizer=byte"}), Contains("data_config.tokenizer: is byte"));
  const auto of_sources = [&](const std::string& sources) {
    return refused({"~data_config.path", "data_config.sources=[" + sources + "]"});
  };
  CHECK_THAT(of_sources("{path: chats/train.jsonl, weight: 0}"), Contains("the weights sum to 0"));
  CHECK_THAT(of_sources("{path: chats/train.jsonl}, {path: none.jsonl}"),
             Contains("}]: none.jsonl: No such file"));
  place.write("unanswered.jsonl", R"({"messages": [{"role": "user", "content": "x"}]})");
  CHECK_THAT(of_sources("{path: chats/train.jsonl}, {path: unanswered.jsonl}"),
             Contains("data_config.sources: ") &&
                 Contains("unanswered.jsonl: none of 1 conversations has a target"));
  fs::remove(place / "unanswered.jsonl");
  CHECK_THAT(refused({"data_config.format=text", "data_config.loss_on=all"}),
             Contains("data_config.loss_on=all: is for data_config.format=chat"));
  CHECK_THAT(refused({"data_config.mask_documents=true"}), Contains("data_config.mask_documents"));
  CHECK_THAT(refused({"trainer_config.batch_size=500"}),
             Contains("200 training conversations make ") && Contains("fewer than"));
  place.set_training("");
  CHECK_THAT(refused({}), Contains("chats/train.jsonl: holds no conversations"));
  place.set_training("{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"messages\": [{}]}\n");
  CHECK_THAT(refused({}), Contains("chats/train.jsonl:2: 'role' is missing"));
  const Words skip = {"data_config.on_bad_sample=skip"};
  place.set_training("{\"messages\": [{}]}\n[]\n");
  CHECK_THAT(refused(skip), Contains("holds no conversations") &&
                                Contains("; 2 unusable conversations left out; the first: ") &&
                                Contains("chats/train.jsonl:1: 'role' is missing"));
  place.set_training(R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})");
  CHECK_THAT(refused(skip), Contains("none of 0 conversations has a target") &&
                                Contains("; 1 unusable conversation left out; the first: ") &&
                                Contains("chats/train.jsonl:1: "));
  fs::remove(place / "chats/chat_template.jinja");
  CHECK_THAT(refused({}), Contains("chats: has no chat template"));
  place.write("chats/chat_template.jinja", "{% for m in messages %}\n{% macro a() %}{% endfor %}");
  CHECK_THAT(refused({}), Contains("chats/chat_template.jinja:2: 'endfor'"));
  place.write("chats/chat_template.jinja", "{{ messages[0].content }}");
  CHECK_THAT(refused({}), Contains("chat_template.jinja: the chat template writes no assistant"));
  place.write("chats/chat_template.jinja",
              "{% for m in messages %}{{ m.content }}{% if m.role == 'user' or loop.last %}"
              "<|im_end|>{% endif %}{% endfor %}");
  CHECK_THAT(refused({}), Contains("chats/chat_template.jinja: what the chat template writes"));
  CHECK(place.new_files() == std::set<std::string>{"chats"});
}

TEST_CASE("images that do not fit are refused with one line") {
  const ImageWorkspace place;
  fs::create_directories(place / "empty/a");
  const auto run_with = [&](const Words& overrides) { return in_process(alone(place, overrides)); };
  check_refused(run_with({"data_config.path=empty"}), {"empty/a", "no PNG or JPEG file"});
  fs::create_directories(place / "flat");
  check_refused(run_with({"data_config.path=flat"}), {"flat", "contains no folder"});
  check_refused(run_with({"data_config.path=config.yaml"}), {"config.yaml", "not an idx file"});
  place.write("cut-images", idx_head({3, kSide, kSide}) + "abc");
  check_refused(run_with({"data_config.path=cut-images"}), {"cut-images", "3 of the 192 bytes"});
  place.write("wide-images", idx_head({1, 2, 3}) + "abcdef");
  place.write("wide-labels", idx_head({1}) + std::string(1, '\1'));
  check_refused(run_with({"data_config.eval_path=wide-images"}),
                {"data_config.eval_path", "is 3x2", "takes 8x8",
                 "resize it, or train with image_config.size"});
  place.write("wide-labels", idx_head({1}) + std::string(1, '\11'));
  check_refused(run_with({"data_config.eval_path=wide-images"}), {"has label 9", "has 4 labels"});
  place.write("wide-labels", idx_head({2}) + "ab");
  check_refused(run_with({"data_config.eval_path=wide-images"}), {"wide-labels", "need 1"});
  place.write("flat-images", idx_head({6}) + "abcdef");
  check_refused(run_with({"data_config.path=flat-images"}), {"its shape is 6"});
  check_refused(run_with({"gpt_config.n_layer=2"}), {"gpt_config.n_layer", "image_classification"});
  check_refused(run_with({"image_config.network=dense", "image_config.batch_norm=local"}),
                {"image_config.batch_norm"});
  check_refused(run_with({"trainer_config.batch_size=500"}),
                {"fewer than trainer_config.batch_size"});
}

TEST_CASE("char and byte are refused as a vocabulary of BERT's") {
  const ReviewWorkspace place;
  for (const std::string kind : {"char", "byte"}) {
    check_refused(
        in_process(alone(place, {"data_config.tokenizer=" + kind})),
        {"data_config.tokenizer: " + kind + " does not apply to task=text_classification"});
  }
}

TEST_CASE("tables that do not fit are refused in one line") {
  const ReviewWorkspace place;
  const auto run_with = [&](const Words& overrides) { return in_process(alone(place, overrides)); };
  check_refused(
      run_with({"data_config.text_column=body"}),
      {"data_config.path", "reviews.csv: has no column body",
       "its columns are label, text; rename one of them, or set data_config.text_column"});
  check_refused(run_with({"data_config.path=config.yaml"}),
                {"config.yaml", "expected a file of rows (.csv"});
  place.write("single.csv", "text,label\nthe film,a\nthe cast,a\nso,b\n");
  check_refused(
      run_with({"data_config.path=single.csv"}),
      {"single.csv: of 3 rows only that at line 4 has the label b", "data_config.eval_path"});
  place.write("empty.csv", "text,label\nthe film,a\n\"\",b\n");
  check_refused(run_with({"data_config.path=empty.csv"}),
                {"empty.csv:3: its text is empty", "data_config.on_bad_sample=skip"});
  place.write("blank.csv", "text,label\n\"\",b\n");
  check_refused(run_with({"data_config.path=blank.csv", "data_config.on_bad_sample=skip"}),
                {"has no row to use; 1 unusable row left out; the first: ",
                 "blank.csv:2: its text is empty"});
  place.write("unknown.csv", "text,label\nthe film,good\nthe cast,awful\n");
  check_refused(
      run_with({"data_config.eval_path=unknown.csv"}),
      {"data_config.eval_path", "unknown.csv:3: the label awful is not one", "bad, good"});
  place.write("one.csv", "text,label\nthe film,a\nthe cast,a\n");
  check_refused(run_with({"data_config.path=one.csv"}), {"all rows have the label a"});
  check_refused(run_with({"bert_config.class_weights=[1, 2, 3]"}),
                {"bert_config.class_weights", "3 numbers for 2 labels (bad, good)"});
  check_refused(run_with({"bert_config.class_weights=equal"}),
                {"bert_config.class_weights", "balanced"});
  check_refused(run_with({"trainer_config.metric_for_best_model=f2"}), {"f1_macro"});
  check_refused(run_with({"trainer_config.batch_size=100"}),
                {"fewer than trainer_config.batch_size=100"});
  check_refused(run_with({"data_config.mask_share=0.2"}), {"data_config.mask_share"});
  check_refused(run_with({"bert_config.init_from=reviews.csv"}),
                {"bert_config.init_from", "is neither a snapshot"});
}

TEST_CASE("labels of another kind than the problem's are refused in one line") {
  const ReviewWorkspace place;
  place.write("kinds.csv",
              "text,second,stars,tags\nthe film,so long,4.5,a|b\nthe cast,,many,\"['a', 'b']\"\n");
  const auto refused = [&](const Words& how) {
    return in_process(alone(place, joined({"data_config.path=kinds.csv"}, how)));
  };
  const std::string regression = "bert_config.problem_type=regression";
  const std::string several = "bert_config.problem_type=multi_label_classification";
  check_refused(refused({regression, "data_config.label_column=stars"}),
                {"kinds.csv:3: the label many is not a number", "data_config.on_bad_sample=skip"});
  check_refused(refused({several, "data_config.label_column=tags"}),
                {"kinds.csv:3: the labels ['a', 'b'] are not a JSON list"});
  check_refused(refused({"data_config.label_column=stars", "data_config.text_pair_column=second"}),
                {"kinds.csv:3: its second text is empty"});
  check_refused(refused({"data_config.label_column=stars", "data_config.text_pair_column=third"}),
                {"has no column third", "data_config.text_pair_column"});
  check_refused(refused({several, "data_config.label_separator="}),
                {"data_config.label_separator=: is empty"});
  check_refused(
      refused({regression, "bert_config.class_weights=balanced"}),
      {"bert_config.class_weights=balanced: is for bert_config.problem_type=single_label_"});
  check_refused(
      refused({several, "trainer_config.label_smoothing=0.1"}),
      {"trainer_config.label_smoothing=0.1: is for bert_config.problem_type=single_label_"});
  check_refused(refused({"data_config.text_pair_column=second", "data_config.block_size=5"}),
                {"data_config.block_size=5: 5 holds no pair of texts; set at least 6"});
  check_refused(refused({"bert_config.problem_type=ranking"}), {"multi_label_classification"});
  place.write("bare.jsonl", "{\"text\": \"the film\", \"label\": []}\n");
  check_refused(refused({several, "data_config.path=bare.jsonl"}), {"no row has a label"});
  place.write("unknown.csv", "text,label\nthe film,\"good, awful\"\n");
  check_refused(
      refused({several, "data_config.path=reviews.csv", "data_config.eval_path=unknown.csv"}),
      {"data_config.eval_path", "unknown.csv:2: the label awful is not one"});
}

TEST_CASE("a vocabulary without a mask, lines that are too short and another shape are refused") {
  const MaskedWorkspace place;
  place.write("other.txt", std::string("[PAD]\n[UNK]\n[CLS]\n[SEP]\n") + kVocabularyWords);
  check_refused(in_process(alone(place, {"data_config.tokenizer=other.txt"})),
                {"data_config.tokenizer", "has no [MASK]", "add it to vocab.txt, or train"});
  check_refused(in_process(alone(place, {"data_config.tokenizer=null"})),
                {"data_config.tokenizer", "trainer tokenize --tokenizer wordpiece"});
  check_refused(in_process(alone(place, {"data_config.min_characters=1000"})),
                {"data_config.path", "0 of its 90 lines have 1000 characters"});
  check_refused(in_process(alone(place, {"gpt_config.n_layer=2"})), {"gpt_config.n_layer"});
  check_refused(in_process(alone(place, {"data_config.text_column=story"})),
                {"data_config.text_column: has no effect, as none of the data has rows"});
  place.write("lines.jsonl", "{\"story\": \"a\"}\n");
  check_refused(in_process(alone(place, {"data_config.path=lines.jsonl"})),
                {"data_config.path: ", "lines.jsonl:1: has no text; its names are story"});
  check_refused(in_process(alone(place, {"bert_config.n_head=5"})), {"bert_config.n_embd"});
  succeed_in_process(alone(place, {"trainer_config.max_steps=1"}));
  succeed_in_process(
      trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "exported"}));
  check_refused(
      in_process(alone(place, {"trainer_config.snapshot_path=new.pt",
                               "bert_config.init_from=exported", "bert_config.n_embd=64"})),
      {"bert_config.init_from", "n_embd is 32 there, 64 here"});
  // As many tokens, but others: the embeddings would be those of other words.
  std::string twisted = std::string(kSpecialTokens) + kVocabularyWords;
  twisted.replace(twisted.find("oak"), 3, "elm");
  place.write("twisted.txt", twisted);
  check_refused(
      in_process(
          alone(place, {"trainer_config.snapshot_path=new.pt", "bert_config.init_from=exported",
                        "data_config.tokenizer=twisted.txt"})),
      {"data_config.tokenizer: ", "another vocabulary than that of bert_config.init_from=",
       "data_config.tokenizer=null"});
  succeed_in_process(
      alone(place, {"trainer_config.snapshot_path=new.pt", "trainer_config.max_steps=1",
                    "bert_config.init_from=exported", "data_config.tokenizer=null"}));
  // As transformers saved before safetensors.
  fs::rename(place / "exported/model.safetensors", place / "exported/pytorch_model.bin");
  check_refused(
      in_process(alone(place, {"trainer_config.snapshot_path=newer.pt",
                               "bert_config.init_from=exported", "data_config.tokenizer=null"})),
      {"exported/model.safetensors: no such file", "save_pretrained(NEW_FOLDER)"});
}

}  // namespace ddp::test
