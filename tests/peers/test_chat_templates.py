"""Chat templates beside transformers: the same text of every conversation."""

import json
import os
import subprocess
import unittest

from support import ROOT, need_here

PROBE = os.environ.get("DDP_CHAT_PROBE", str(ROOT / "build/dev/bin/ddp_chat_probe"))

need_here("transformers")
from transformers.utils.chat_template_utils import render_jinja_template

CHATML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
SMOLLM2 = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
           "trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
ZEPHYR = ("{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
          "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
          "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
          "{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
          "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}"
          "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
          "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}"
          "{% endif %}{% endfor %}")
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
          "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
LLAMA31 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {{- message.tool_calls | tojson }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
TEMPLATES = {"chatml": CHATML, "smollm2": SMOLLM2, "zephyr": ZEPHYR, "llama2": LLAMA2, "llama3": LLAMA3, "llama31": LLAMA31, "qwen3": QWEN3}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
USER, ANSWER = {"role": "user", "content": " What is 2 + 2?\n"}, {"role": "assistant", "content": "4, \u65e5\u672c \U0001f600.\n"}
SYSTEM = {"role": "system", "content": "Be brief."}
THOUGHT = {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\nIt is 4."}
CONVERSATIONS = [[USER, ANSWER], [SYSTEM, USER, ANSWER], [USER, ANSWER, USER], [SYSTEM, USER, ANSWER, USER, THOUGHT], [USER, THOUGHT, USER, ANSWER], [USER]]


def probe(request):
    return subprocess.run([PROBE], input=json.dumps(request).encode(), capture_output=True, timeout=60, check=False)


def rendered(source, messages, answer_next, special=None):
    request = {"template": source, "special": SPECIAL if special is None else special, "messages": messages, "answer_next": answer_next}
    return probe(request)


def peer(source, messages, answer_next):
    texts, _ = render_jinja_template([messages], chat_template=source, add_generation_prompt=answer_next, **SPECIAL)
    return texts[0]


class Rendering(unittest.TestCase):
    def same(self, source, messages, answer_next):
        done = rendered(source, messages, answer_next)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(done.stdout.decode(), peer(source, messages, answer_next))

    def test_published_templates(self):
        for name, source in TEMPLATES.items():
            for messages in CONVERSATIONS:
                for answer_next in (False, True):
                    with self.subTest(template=name, messages=messages, answer_next=answer_next):
                        self.same(source, messages, answer_next)

    def test_parts_of_the_language(self):
        for source in ("{{ 1 + 2 * 3 - 4 }} {{ -7 // 2 }} {{ -7 % 3 }}", "a \n  {% if true %}  \nb{% endif %}\n", "a {{- ' b ' -}} c {#- x -#} d {# y #}\n e\n\n",
                       "{% for k, v in {'a': 1, 'b': none}.items() %}{{ loop.index }}{{ k }}{{ v }}{{ ', ' if not loop.last }}{% endfor %}",
                       "{% for x in [] %}x{% else %}none{% endfor %}", "{% for m in messages if m.role == 'user' %}{{ loop.length }}{{ m.content | trim }}{% endfor %}",
                       "{{ 'a' 'b' ~ 3 ~ none }}{{ undefined_name }}{{ 'x' if false }}", "{{ messages | tojson }}", "{{ {'a': [1, true, none, 'é\"\\n']} | tojson }}",
                       "{% set x %}  block {{ 1 }}{% endset %}[{{ x }}]", "{{ messages[-1].content | length }} {{ messages[1:] | length }} {{ messages[::-1][0].role }}",
                       "{{ 'a,b'.split(',')[-1] }}{{ 'xxaxx'.strip('x') }}{{ '\u3000a\x1c'.strip() }}|", "{{ 'b' in 'abc' }}{{ 'x' not in ['x'] }}{{ 1 < 2 < 3 }}{{ not 1 == 2 }}",
                       "{{ y | default('d') }}{{ none is none }}{{ y is not defined }}{{ 'a' is string }}{{ messages is iterable }}", "{% set n = namespace(a=1) %}{% for m in messages %}{% set n.a = n.a + 1 %}{% set q = 5 %}{% endfor %}{{ n.a }}{{ q }}",
                       "{%- if true -%}\n x \n{%- endif %}\ny", "{% generation %}a{% endgeneration %}", "{{ ['a', 'b'] | join('-') }}{{ 'aXb' | upper | lower | replace('x', 'y') }}", "\n\n  {% if true %}\r\nz{% endif %}"):
            if "generation %}" in source:
                self.assertEqual(rendered(source, [USER], False).stdout, b"a")
                continue
            with self.subTest(source=source):
                self.same(source, [USER, ANSWER], False)

    def test_what_is_not_supported_is_refused_with_its_line(self):
        for source, says in (("\n{% macro f() %}{% endmacro %}", "line 2: 'macro' is not supported"), ("{{ x | tojson(indent=2) }}", "named arguments of filters"),
                             ("{{ strftime_now('%d') }}", "strftime_now() is not supported"), ("{% if a %}", "'endif' is missing"), ("{{ 1 / 2 }}", "'/' is not supported"),
                             ("{{ 'a' | wordwrap }}", "the filter 'wordwrap' is not supported"), ("{{", "a tag has no end"), ("{{ 'a }}", "a string has no end"),
                             ("{{ a.b.c }}", "line 1: an undefined value has no elements"), ("{{ raise_exception('no') }}", "the chat template refuses it: no"),
                             ("(" * 3 + "{{ " + "(" * 500 + "1" + ")" * 500 + " }}", "nested too deeply"), ("{% if 1 %}" * 500 + "{% endif %}" * 500, "nested too deeply")):
            with self.subTest(source=source[:40]):
                done = rendered(source, [USER], False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(says, done.stderr.decode())
                self.assertEqual(done.stderr.count(b"\n"), 1)


if __name__ == "__main__":
    unittest.main()
