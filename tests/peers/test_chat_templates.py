"""Chat templates beside transformers: the same text of every conversation."""

import json
import os
import resource
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
LEAVING = "{%% for m in messages %%}{%% %s %%}{%% if true %%}{%% continue %%}{%% endif %%}{%% %s %%}{%% endfor %%}"
BLOCKS = [("set x", "endset"), ("filter upper", "endfilter"), ("generation", "endgeneration"), ("call f()", "endcall"), ("macro f()", "endmacro")]
GENERATORS = ("messages | map(attribute='role')", "['user', 'b', 'user'] | reverse", "{'a': 1, 'user': 2} | items | map('first')", "['b', 'user', 'c'] | select")
USES = ("{{ g | list }}{{ g | list }}", "{{ g | first }}{{ g | first }}{{ g | first }}{{ g | list }}", "{{ 'user' in g }}{{ g | list }}{{ 'user' in g }}", "{{ 'x' in g }}{{ g | join }}",
        "{% for x in g %}{{ x }}{{ loop.last }}{% endfor %}{% for x in g %}{{ x }}{% else %}none{% endfor %}", "{% if g %}{{ g | join }}{% endif %}{{ g | list }}")
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
                       "{%- if true -%}\n x \n{%- endif %}\ny", "{% generation %}a{% endgeneration %}", "{{ ['a', 'b'] | join('-') }}{{ 'aXb' | upper | lower | replace('x', 'y') }}", "\n\n  {% if true %}\r\nz{% endif %}",
                       *("{% set g = " + made + " %}" + used for made in GENERATORS for used in USES), "{{ '\u01c6 \u00dfa' | title }}{{ cycler is defined }}{{ undefined_name is callable }}",
                       "{{ \"it's 2nd\u00c9t\u00e9 ab-CD \u01c6x\".title() }}"):
            if "generation %}" in source:
                self.assertEqual(rendered(source, [USER], False).stdout, b"a")
                continue
            with self.subTest(source=source):
                self.same(source, [USER, ANSWER], False)

    def test_what_published_templates_use_of_the_language(self):
        for source in PARTS:
            with self.subTest(source=source):
                done = probe({"template": source, "special": SPECIAL, "messages": CALLED, "answer_next": True, "tools": TOOLS})
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                texts, _ = render_jinja_template([CALLED], tools=TOOLS, chat_template=source, add_generation_prompt=True, **SPECIAL)
                self.assertEqual(done.stdout.decode(), texts[0])

    def test_reasoning_reaches_the_template(self):
        for field in ("reasoning_content", "thinking", "reasoning"):
            done = rendered(QWEN3, [USER, {"role": "assistant", "content": "4", field: "Two and two."}], False)
            self.assertIn("<think>\nTwo and two.\n</think>\n\n4", done.stdout.decode(), done.stderr.decode())

    def test_what_is_not_supported_is_refused_with_its_line(self):
        for source, says in (("\n{% include 'x' %}", "line 2: 'include' is not supported"), ("{% if a %}", "'endif' is missing"), ("{{ 1 + 'a' }}", "unsupported operand type(s) for +: 'int' and 'str'"),
                             ("{{ 'a' | wordwrap }}", "the filter 'wordwrap' is not supported"), ("{{", "a tag has no end"), ("{{ 'a }}", "a string has no end"),
                             ("{{ a.b.c }}", "line 1: 'a' is undefined"), ("{{ raise_exception('no') }}", "the chat template refuses it: no"), ("{{ cycler(1) }}", "'cycler' is not supported"), ("{{ f(1) }}", "'f' is not defined or not supported"),
                             ("{{ self }}", "'self' is not supported"), ("{{ 2 ** 3 }}", "the operator ** is not supported"), ("{{ [1] | sum }}", "the filter 'sum' is not supported"), ("{{ '%s' % 1 }}", "formatting by % is not supported"), ("{{ 'a'.zfill(3) }}", "'zfill' is not defined or not supported"), ("{{ 1e19 | int }}", "a number is too large"),
                             ("{{ messages | map(attribute='role') }}", "printing a generator is not supported; write | list after it"), ("{{ messages | selectattr('role') | length }}", "object of type 'generator' has no len()"),
                             ("{{ messages | reverse | last }}", "'generator' object is not reversible"), ("{{ {}.items() | tojson }}", "Object of type dict_items is not JSON serializable"), ("{{ range(2) + [1] }}", "unsupported operand type(s) for +: 'range' and 'list'"),
                             ("{{ [1].append(2) }}", "'append' would change a list, which templates must not"), ("{% macro f() %}", "'endmacro' is missing"), *((LEAVING % tags, "line 1: 'continue' outside a loop, or in a block within it") for tags in BLOCKS), ("{{ {}|tojson(x=1) }}", "tojson has no argument 'x'"),
                             ("{% set g = [1, 2] | reverse %}{% for x in g %}{% break %}{% endfor %}{{ g | list }}", "a generator after a loop with break is not supported; write | list after it")):
            with self.subTest(source=source[:40]):
                done = rendered(source, [USER], False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(says, done.stderr.decode())
                self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_what_is_not_reached_is_not_refused(self):
        self.assertEqual(rendered("{% set x %}{% for m in messages %}a{% break %}{% endfor %}{% endset %}{{ x }}", [USER], False).stdout, b"a")
        self.assertEqual(rendered("{% if false %}{% include 'x' %}{{ 'a' | wordwrap }}{{ lipsum() }}{% endif %}b", [USER], False).stdout, b"b")

    def test_an_error_names_the_file_and_the_line(self):
        done = probe({"template": "a\n{{ 1 // 0 }}", "special": {}, "messages": [USER], "answer_next": False, "place": "m/chat_template.jinja"})
        self.assertEqual(done.stderr, b"m/chat_template.jinja:2: division by zero\n")

    def test_templates_from_strangers_are_bounded(self):
        chains = ["{{ 1" + sign * 80000 + " }}" for sign in (" + 1", " ~ 1", " * 1", " and 1", " or 1", " is none", ".a", "[0]", "|trim")]
        nested = ["{{ " + "(" * 80000 + "1" + ")" * 80000 + " }}", "{{ " + "not " * 80000 + "1 }}", "{% if 1 %}" * 80000, "{{ " + "[" * 80000 + "]" * 80000 + " }}"]
        costly = ["{% set n = namespace(x='a' * 16) %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "{{ 'a' * 9999999999 }}", "{{ ('a' * 99999) | replace('a', 'b' * 99999) }}",
                  "{% for i in range(3000) %}{% for j in range(3000) %}{% for k in range(3000) %}{% endfor %}{% endfor %}{% endfor %}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                  "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x == n.x }}", "{% set n = namespace(x=[]) %}{% for i in range(90000) %}{% set n.x = [n.x] %}{% endfor %}",
                  "{% set n = namespace() %}{% set n.n = namespace(n=n) %}", "{{ ('a' * 1000 * 100000) | list }}", "{{ 'a' | map(*(['map'] * 100000)) }}", "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{% set y = x[::-1] %}{% endfor %}"]
        for source in chains + nested + costly:
            with self.subTest(source=source[:60]):
                done = subprocess.run([PROBE], input=json.dumps({"template": source, "special": {}, "messages": [USER], "answer_next": False}).encode(), capture_output=True, timeout=60, check=False,
                                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)))
                self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1), done.stderr.decode()[:200])


# Each construct that the 178 templates in the sources of llama.cpp, TRL and axolotl use, and what was once rendered wrongly.
CALLED = [SYSTEM, USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": "\u00d8slo", "n": 1e15, "t": [1.5, True, None], "q": "it's \"x\"\\\n"}}}]},
          {"role": "tool", "content": "{}", "tool_call_id": "c1", "name": "f"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "F.\nG.", "parameters": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": ["integer", "null"], "enum": [2, 1]}}, "required": ["a"]}}}]
PARTS = [
    "{{ tools | tojson(indent=4) }}|{{ tools | tojson(indent=2, separators=(',', ':')) }}|{{ messages | tojson(ensure_ascii=True, sort_keys=True) }}|{{ tools[0] | tojson(separators=(',', ':')) }}",
    "{{ strftime_now('%Y') }} {{ strftime_now is defined }}{% if date is not defined %}{% set date = strftime_now('%d %b %Y') %}{% endif %}{{ date }}",
    "{% macro show(x, depth=0, name='n') %}{{ name }}{{ depth }}{% if x is mapping %}{% for k, v in x.items() %}<{{ k }}:{{ show(v, depth + 1) }}>{% endfor %}{% elif x is iterable and x is not string %}{% for v in x %}{{ show(v, name='i') }}{% endfor %}"
    "{% else %}{{ x }}{% endif %}{% endmacro %}{% set y = 3 %}{{ show(tools[0]) }}{{ show(x=y, depth=2) }}",
    "{% macro w(t) %}[{{ t }}{{ caller('a') if caller }}]{% endmacro %}{% call(x) w('b') %}{{ x }}{% endcall %}{{ w(1) }}{% set m = [w] %}{{ m[0](*[5]) }}",
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() if v > 1 %}{{ k }}{% endfor %}{% for k in {'a': 1, 'b': 2} if k != 'a' %}{{ k }}{{ loop.length }}{% endfor %}",
    "{% for x in 'a\u00e9' %}{{ x }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.cycle('o', 'e') }}{{ loop.previtem is defined }}{{ loop.nextitem }}{% endfor %}",
    "{{ 'abc'[0] }}{{ 'a\u00e9c'[1:] }}{{ 'abcd'[::-2] }}{{ '\u00e9\u00df\u00c5\ufb01' | upper }}{{ '\u00c9\u039f\u03a3 \u03a3\u0130' | lower }}{{ 'hello wORLD' | title }}{{ '\u00e9A' | capitalize }}{{ '\u00e9a\u00e9'.strip('\u00e9') }}",
    "{{ 1e15 | tojson }} {{ 1e16 }} {{ 1.50 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ 7.5 % 2 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ 10 % 3 }} {{ -7 % 3 }} {{ 1.0 == 1 }}",
    "{{ messages[2].tool_calls[0].function.arguments }} {{ [1, 'a', none, true, 1.5, (1,), {'k': 'it\\'s'}, '\\x07\u00e9\\n'] }} {{ (1, 2) }} {{ {} }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('|') | trim }}{{ messages | rejectattr('content') | list | length }}{{ [3, 1, 2] | sort(reverse=true) }}{{ ['b', 'A'] | sort }}{{ none | selectattr('x') | list }}",
    "{{ {'b': 1, 'a': 2} | dictsort }}{{ {'b': 1, 'a': 2} | dictsort(by='value') }}{{ ['x', 'y'] | map('upper') | join }}{{ [0, 1] | select | list }}",
    "{{ '3' | int + 1 }}{{ 'x' | int(7) }}{{ '2.5' | int }}{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(1, true) }}{{ 'abc' | reverse }}{{ 'abc' | list }}{{ [1, 2] | first }}{{ 'ab' | last }}",
    "{{ 'a,b,c'.split(',', 1) }}{{ 'a  b c'.split() }}{{ 'a b c'.rsplit(' ', 1) }}{{ 'a\nb\r\nc'.splitlines() }}{{ 'aXbX'.replace('X', '-', 1) }}{{ '{} {1}'.format('a') if false else '{} {x}'.format('a', x=2) }}{{ 'abc'.find('c') }}{{ ','.join(['a', 'b']) }}",
    "{{ 'ab'.startswith(('x', 'a')) }}{{ 'ab'.removeprefix('a') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}{{ tools[0].function.parameters.properties.a['type'][0] }}",
    "{% set x | trim | upper %}  block {{ 1 }} {% endset %}[{{ x }}]{% filter upper %}a{{ 'b' }}{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}{% set p, q = 1, 2 %}{{ p }}{{ q }}{% set d = dict(a=1, b=2) %}{{ d.b }}{{ d['a'] }}",
    "{% set ns = namespace(items=[], n=0) %}{% for m in messages %}{% set ns.items = ns.items + [m.role] %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.items }}{{ ns.n }}{{ ns.nothing is defined }}{% for i in range(1, 8, 3) %}{{ i }}{% endfor %}",
    "{% raw %}{{ x }} {% if %}{% endraw %}|{%- raw -%}  y  {%- endraw -%} z {{ '\\u00e9\\t\\x41\\q' }}", "{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ 4 is divisibleby(3) }}{{ 1 is in [1] }}{{ 'A' is upper }}{{ 1 is sameas true }}{{ 1.5 is float }}{{ true is integer }}{{ x is undefined }}{{ {} is sequence }}",
    "{% macro w() %}[{{ caller() }}]{% endmacro %}{% for x in [1, 2] %}{% call w() %}{{ x }}{% endcall %}{% endfor %}",
    "{% macro w(t) %}[{{ caller() }}]{% endmacro %}{% macro a(t) %}{% call w('W') %}{{ t }}{% endcall %}{% endmacro %}{{ a('A') }}",
    "{{ 9223372036854775806 % 9223372036854775807 }} {{ -9223372036854775807 // 3 }} {{ 'a  b  c  '.split(none, 1) }} {{ {}.get(x, 3) }}",
    "{{ range(3) }} {{ range(1, 9, 3) }} {{ [range(2)] }} {{ range(4)[1] }} {{ range(4)[1:] | list }} {{ range(2) == [0, 1] }} {{ {'a': 1, 'b': 'c'}.items() }} {{ {'a': 1}.keys() }} {{ {'a': 1}.values() }} {{ {'a': 1}.items()[0] }} "
    "{{ {'a': 1}.items() | length }} {{ {}.keys() is sequence }}{{ range(2) is sequence }}{{ {}.keys() is iterable }}{{ ('a', 1) in {'a': 1}.items() }}{{ 'y' if [] | select else 'n' }}{{ 'y' if {}.items() else 'n' }}{{ messages | reverse | map(attribute='role') | list }}",
    "{{ -0.0 }} {{ +(-0.0) }} {{ 4.0 % -2.0 }} {{ -4.0 % 2.0 }} {{ -0.0 // 1 }} {{ 1e308 * 10 }}",
    "{% for test in ['==', '!=', '<', '<=', '>', '>='] %}{{ [{'n': 1}, {'n': 2}, {'n': 3}] | selectattr('n', test, 2) | map(attribute='n') | join }} {% endfor %}{{ messages | selectattr('role', '==', 'user') | list | length }}",
    "{{ 1 < 2 < 3 == 3 }}{{ 'a' in {'a': 1} }}{{ 'x' not in 'abc' }}{{ [1] == [1] }}{{ (1,) == [1] }}{{ 'a' < 'b' }}{{ none == false }}{{ undefined_name == other_name }}{{ [] or 'empty' }}{{ 0 and x.y }}{{ 'b' if '' }}{{ not [] }}",
]


if __name__ == "__main__":
    unittest.main()
