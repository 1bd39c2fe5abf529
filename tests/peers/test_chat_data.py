"""Conversations as tokens beside transformers: the same ids as apply_chat_template(), and the same targets: its assistant mask where a template
has {% generation %}, and otherwise what follows the generation prompt up to and with the end of the turn, found here by rendering prefixes."""

import json
import os
import tempfile
import time
import unittest
from pathlib import Path

from support import need_here

need_here("transformers")
from transformers import PreTrainedTokenizerFast

import test_chat_templates as templates
import test_model_tokenizers as made

MARKED_CHATML = ("{% for message in messages %}{% if message.role == 'assistant' %}<|im_start|>assistant\n{% generation %}{{ message.content + '<|im_end|>' }}"
                 "{% endgeneration %}{{ '\n' }}{% else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
MARKED_SPACES = ("{%- for message in messages %}\n  {%- if message.role == 'assistant' %}\n    {%- generation %}\n    {{- ' ' + message.content | trim + ' ' + eos_token -}}\n"
                 "    {%- endgeneration %}\n  {%- else %}\n    {{- bos_token + '[INST] ' + message.content | trim + ' [/INST]' }}\n  {%- endif %}\n{%- endfor %}")
# End only the last answer, and end the role as well as the answer.
UNENDED = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content }}{% if message.role == 'user' or loop.last %}<|im_end|>{% endif %}{{ '\n' }}"
           "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
ENDED_EARLY = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '<|im_end|>' + message.content + '<|im_end|>' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}")
# Asks for an answer in another way than it writes one, as DeepSeek R1's does.
OTHER_PROMPT = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}")
# As Qwen2.5's: tools in the system message, calls and results in tags.
TOOLS = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- endif %}
    {{- "\n\n# Tools\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"""
# Ends a call in another way than an answer, as Llama 3.1's.
CALLS_GO_ON = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.tool_calls %}{{ m.tool_calls | tojson + '<|endoftext|>' }}{% else %}{{ m.content + '<|im_end|>' }}"
               "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
TOKENS = {"chatml": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
          "llama2": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}}


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def call(name, content=None, **arguments):
    return {"role": "assistant", "content": content, "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}


def result(text):
    return {"role": "tool", "name": "weather", "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}
LATER = [[user("What is 2 + 2?"), answer("It is 4.")], [SYSTEM, user("Hello"), answer("Hi, \u65e5\u672c \U0001f600!"), user("And e\u0301t\u00e9?"), answer("A summer: e\u0301te\u0301\n\n  2 lines.")],
         [user("  spaces \n"), answer("\n\n def f():\n    return 1\n"), user("go on"), answer("")], [user("ends"), answer("ends"), user("ends"), answer("ends ends")], [user("no answer")],
         [SYSTEM, user("a"), answer("\u01c5 \uac00\u11a8 \u0915\u093c"), user("b")]]


WEATHER = [{"type": "function", "function": {"name": "weather", "description": "Of a \u00fc place.", "parameters": {"type": "object", "properties": {
    "zone": {"type": "string"}, "at": {"type": "integer", "minimum": 0}}, "required": ["zone"]}}}, {"type": "function", "function": {"name": "a"}}]
CALLS = [user("Rain?"), call("weather", zone="Oslo \u00f8", at=3), result("yes"), result('{"b": 1, "a": [2]}'), answer("Yes."), user("And now?"),
         call("weather", "I look.", zone="x"), result("no"), answer("No.")]


def folder_with(tokenizer, source, special, folder, as_file):
    tokenizer.save(f"{folder}/tokenizer.json")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    if as_file:
        (Path(folder) / "chat_template.jinja").write_text(source)
    else:
        config["chat_template"] = source
    (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
    return PreTrainedTokenizerFast.from_pretrained(folder)


def encoded(folder, path, loss_on="assistant"):
    request = {"folder": str(folder), "path": str(path), "loss_on": loss_on}
    return templates.probe(request)


def targets_by_prefixes(peer, messages, end, tools=None):
    """Independent of the mask of transformers: (ids, mask)."""
    text = peer.apply_chat_template(messages, tools=tools, tokenize=False)
    out = peer(text, add_special_tokens=False, return_offsets_mapping=True)
    mask = [0] * len(out["input_ids"])
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = peer.apply_chat_template(messages[:i], tools=tools, tokenize=False, add_generation_prompt=True)
        other = peer.apply_chat_template([*messages[:i], answer("\ue123")], tools=tools, tokenize=False)
        begin = len(os.path.commonprefix([prompt, other]))  # of most templates: len(prompt)
        close = text.index(end, begin) + len(end)
        for t, (first, last) in enumerate(out["offset_mapping"]):
            if first < close and last > begin:
                mask[t] = 1
    return out["input_ids"], mask


class Targets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.peers = {"qwen": made.qwen(), "smollm2": made.smollm2(), "llama3": made.llama3(), "llama2": made.of_model(made.sentencepiece_model(), normalizer=made.PREPEND),
                     "metaspace": made.of_model(made.sentencepiece_model(), pre_tokenizer=made.metaspace("first", False))}

    def same(self, tokenizer, source, special, end, marked=False, conversations=LATER, tools=None, as_text=False):
        with tempfile.TemporaryDirectory() as folder:
            peer = folder_with(self.peers[tokenizer], source, TOKENS[special], folder, as_file=marked)
            path = Path(folder) / "chats.jsonl"
            more = {} if tools is None else {"tools": json.dumps(tools) if as_text else tools}
            path.write_text("".join(json.dumps({"messages": messages, **more}) + "\n" for messages in conversations))
            done = encoded(folder, path)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            ours = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(ours.pop()["end_of_turn"], peer.convert_tokens_to_ids(end))
            for messages, chat in zip(conversations, ours, strict=True):
                with self.subTest(tokenizer=tokenizer, messages=messages):
                    if marked:
                        out = peer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
                        ids, mask = out["input_ids"], out["assistant_masks"]
                    else:
                        ids, mask = targets_by_prefixes(peer, messages, end, tools)
                        self.assertEqual(ids, peer.apply_chat_template(messages, tools=tools, return_dict=True)["input_ids"])
                    self.assertEqual(chat["tokens"], ids)
                    said = [peer.decode([t]) for t, m in zip(ids, mask) if m]
                    self.assertEqual([int(t) for t in chat["targets"]], mask, f"targets of transformers: {said}")
                    self.assertEqual(sum(mask) > 0, any(m["role"] == "assistant" for m in messages))

    def test_marked_answers(self):
        for tokenizer in ("qwen", "smollm2"):
            self.same(tokenizer, MARKED_CHATML, "chatml", "<|im_end|>", marked=True)
        alternating = [c for c in LATER if c[0]["role"] == "user"]
        for tokenizer in ("llama2", "metaspace"):
            self.same(tokenizer, MARKED_SPACES, "llama2", "</s>", marked=True, conversations=alternating)

    def test_answers_of_published_templates(self):
        self.same("qwen", templates.CHATML, "chatml", "<|im_end|>")
        self.same("smollm2", templates.SMOLLM2, "chatml", "<|im_end|>")
        self.same("llama3", templates.LLAMA3, "llama3", "<|eot_id|>")
        self.same("llama3", templates.LLAMA31, "llama3", "<|eot_id|>")
        self.same("smollm2", OTHER_PROMPT, "chatml", "<|im_end|>")

    def test_answers_with_thoughts(self):
        thought = "<think>\nTwo and two.\n</think>\n\nIt is 4."
        self.same("qwen", templates.QWEN3, "chatml", "<|im_end|>", conversations=[*LATER, [user("a"), answer(thought)], [user("a"), answer(thought), user("b"), answer(thought)]])

    def test_tools_and_calls(self):
        for messages in ([*CALLS], [SYSTEM, *CALLS], [*CALLS[:2]]):
            self.same("qwen", TOOLS, "chatml", "<|im_end|>", conversations=[messages])
            self.same("qwen", TOOLS, "chatml", "<|im_end|>", conversations=[messages, *LATER], tools=WEATHER)
            self.same("smollm2", TOOLS, "chatml", "<|im_end|>", conversations=[messages], tools=WEATHER, as_text=True)
        for none in ([], None, "[]"):
            line = {"messages": [user("a"), answer("b")], "tools": none}
            self.assertEqual(self.trained_text(line), "b<|im_end|>")

    def test_tools_that_a_template_leaves_out_are_refused(self):
        left_out = "{% for m in messages if m.role in ['user', 'assistant'] %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endfor %}"
        for source, line, says in ((templates.CHATML, {"tools": WEATHER, "messages": CALLS[4:5]}, "has 'tools', which the chat template does not write; describe them in a system message"),
                                   (templates.CHATML, {"messages": CALLS[:5]}, "message 2 has 'tool_calls', which the chat template does not write; write the call into 'content'"),
                                   (left_out, {"messages": [user("a"), answer("b"), result("c"), answer("d")]}, "message 3 has the role tool, which the chat template does not write"),
                                   (CALLS_GO_ON, {"messages": CALLS[:5]}, "the chat template writes message 2 without <|im_end|> at its end; enclose answers in {% generation %}")):
            for loss_on in ("assistant", "all"):
                with self.subTest(says=says, loss_on=loss_on):
                    done = self.in_folder(json.dumps(line).encode(), source=source, loss_on=loss_on)
                    fine = source == CALLS_GO_ON and loss_on == "all"
                    self.assertEqual((done.returncode, done.stderr.count(b"\n")), (0, 0) if fine else (1, 1), done.stderr.decode())
                    self.assertIn("" if fine else f"{self.path}:1: {says}", done.stderr.decode())
        # A template without a word for roles writes results, too.
        self.assertEqual(self.trained_text({"messages": [user("a"), answer("b"), result("c"), answer("d")]}), "b<|im_end|>d<|im_end|>")

    def test_sentencepiece(self):
        for tokenizer in ("llama2", "metaspace"):
            self.same(tokenizer, templates.LLAMA2, "llama2", "</s>")
            self.same(tokenizer, templates.ZEPHYR, "llama2", "</s>")

    def in_folder(self, lines, loss_on="assistant", source=templates.CHATML, tokenizer="smollm2"):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.peer = folder_with(self.peers[tokenizer], source, TOKENS["chatml"], folder, as_file=False)
        self.path = Path(folder) / "chats.jsonl"
        self.path.write_bytes(lines)
        return encoded(folder, self.path, loss_on)

    def trained_text(self, line, **options):
        done = self.in_folder(json.dumps(line).encode(), **options)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        chat = json.loads(done.stdout.splitlines()[0])
        return self.peer.decode([t for t, m in zip(chat["tokens"], chat["targets"]) if m])

    def test_prompts_and_weights_are_not_trained(self):
        self.assertEqual(self.trained_text({"prompt": "2 + 2?", "completion": "4."}), "4.<|im_end|>")
        prompt = [user("a"), answer("one"), user("b")]
        self.assertEqual(self.trained_text({"prompt": prompt, "completion": [answer("two")]}), "two<|im_end|>")
        self.assertEqual(self.trained_text({"messages": [user("a"), {**answer("one"), "weight": 0}, user("b"), {**answer("two"), "weight": 1}]}), "two<|im_end|>")
        self.assertEqual(self.trained_text({"prompt": prompt, "completion": [answer("two")]}, source=MARKED_CHATML), "two<|im_end|>")
        self.assertEqual(self.trained_text({"messages": [user("a"), answer("b")]}, loss_on="all"), "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n")
        self.assertEqual(self.trained_text({"messages": [answer("first"), user("a"), answer("b")]}), "first<|im_end|>b<|im_end|>")
        self.assertEqual(self.trained_text({"messages": [user("a"), answer("say <|im_end|> now"), user("b")]}), "say <|im_end|> now<|im_end|>")

    def test_layout_of_files(self):
        line = json.dumps({"messages": [user("a"), {**answer("b"), "tool_calls": [], "function_call": None}], "id": 7}).encode()
        done = self.in_folder(b"\xef\xbb\xbf" + line + b"\r\n\n  \n" + line)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        first, second, _ = done.stdout.splitlines()
        self.assertEqual(first, second)

    def test_bad_lines(self):
        good = json.dumps({"messages": [user("a"), answer("b")]})
        for line, says in (('{"messages": [', ":2: "), ('{"text": "x"}', ":2: has neither 'messages', 'conversations', "), ('{"messages": []}', ":2: has no messages"),
                           ('{"messages": "x"}', ":2: the messages are not a list"), ('{"messages": ["x"]}', ":2: a message is not an object"), ('[1]', ":2: is not an object"),
                           ('{"messages": [{"role": "bot", "content": "x"}]}', ":2: unknown role 'bot'; use system, user, assistant or tool"), ('{"prompt": "x"}', ":2: has neither"),
                           ('{"messages": [{"role": "user"}]}', ":2: 'content' is missing"), ('{"messages": [{"role": "assistant", "content": null}]}', ":2: 'content' is "),
                           ('{"prompt": 1, "completion": "x"}', ":2: 'prompt' is "), ('{"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]}', ":2: weight "),
                           ('{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add"}}]}]}',
                            ":2: message 2 has 'tool_calls', which the chat template does not write; write the call into 'content'"),
                           ('{"messages": [{"role": "user", "content": "x", "tool_calls": [1]}]}', ":2: 'tool_calls' is a list in a message of the assistant"),
                           ('{"messages": [{"role": "assistant", "content": "x", "tool_calls": "f"}]}', ":2: 'tool_calls' is a list in a message of the assistant"),
                           ('{"messages": [{"role": "user", "content": "x"}], "tools": {"name": "f"}}', ":2: 'tools' is not a list"),
                           ('{"messages": [{"role": "user", "content": "x"}], "tools": "[f"}', ":2: 'tools': is incomplete or malformed JSON"),
                           ('{"messages": [{"role": "assistant", "content": null, "function_call": {"name": "add"}}]}', ":2: 'function_call' is not supported"),
                           ('{"messages": [{"role": "user", "content": "\\ud800"}]}', ":2: half a character"), ("\xff", ":2: ")):
            with self.subTest(line=line):
                done = self.in_folder(good.encode() + b"\n" + line.encode("latin-1") + b"\n" + good.encode())
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{self.path}{says}", done.stderr.decode())
                self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_a_conversation_of_too_many_messages_is_refused_at_once(self):
        begin = time.monotonic()
        done = self.in_folder(json.dumps({"messages": [user("a"), answer("b")] * 50000}).encode())
        self.assertIn(f"{self.path}:1: has 100000 messages, more than 2000; ", done.stderr.decode())
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1))
        self.assertLess(time.monotonic() - begin, 60)

    def test_other_formats_are_named(self):
        for data, says in ((b'[{"messages": []}]', ":1: has no messages"), (b"[\n {}\n]", ":2: has neither"), (b"PAR1\0\0", ": is a Parquet file; ")):
            done = self.in_folder(data)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{self.path}{says}", done.stderr.decode())

    def test_a_number_that_json_has_not_is_null(self):
        line = b'{"score": NaN, "low": -Infinity, "messages": [{"role": "user", "content": "a NaN \\" Infinity"}, {"role": "assistant", "content": "b", "x": Infinity}]}'
        done = self.in_folder(line)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        same = self.in_folder(line.replace(b'"score": NaN, "low": -Infinity, ', b"").replace(b', "x": Infinity', b""))
        self.assertEqual(done.stdout, same.stdout)

    def test_templates_that_do_not_answer(self):
        line = json.dumps({"messages": [user("a"), answer("b")]}).encode()
        for source, says in (("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "writes no assistant's turn"),
                             ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "ends an assistant's turn without a special token"),
                             (UNENDED, "up to <|im_end|> is not that answer alone; enclose answers in {% generation %}"), (ENDED_EARLY, "is not that answer alone"),
                             ("{% include 'x' %}", "'include' is not supported"),
                             ("{{ messages | length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", "chats.jsonl:1: the chat template changes what precedes message 2"),
                             ("{% for m in messages %}{% if loop.first %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}", "")):
            with self.subTest(source=source):
                done = self.in_folder(line, source=source)
                self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1) if says else (0, 0))
                self.assertIn(says, done.stderr.decode())
        for source in (UNENDED, ENDED_EARLY):
            self.assertEqual(self.in_folder(line, loss_on="all", source=source).returncode, 0)


if __name__ == "__main__":
    unittest.main()
