"""Chat templates: rendered as transformers does, within bounds whatever they do; messages never make special tokens."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from transformers.utils.chat_template_utils import _compile_jinja_template

from heed.core.errors import InputError
from heed.text import Bpe, Chat, Tokenizer
from heed.text import chat as module
from heed.text.chat import Message
from heed.text.prompt import BROKEN, CLOSE, OPEN
from tests.text.material import LINES, folder

HELLO: list[Message] = [{"role": "user", "content": "Hello"}]
TALK: list[Message] = [
    {"role": "system", "content": "Be kind & <b>brief</b>."},
    {"role": "user", "content": "It's 你好 🎉?"},
    {"role": "assistant", "content": "Hi!\n"},
    {"role": "user", "content": [{"type": "text", "text": "Parts"}, {"type": "image"}]},
]
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln"}}}
USED: list[Message] = [
    *HELLO,
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "content": '{"t": 20}', "name": "weather"},
]
TOOLS: list[Message] = [{"type": "function", "function": {"name": "weather", "description": 'Say "it" <now> & é'}}]
CHATS: list[tuple[list[Message], list[Message] | None, dict[str, Any]]]
CHATS = [(HELLO, None, {}), (TALK, None, {"thinking": True}), (USED, TOOLS, {})]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "plain": "{% for message in messages %}{{ message.role }}: {{ message['content'] }}\n{% endfor %}",
    "turns": """{{ bos_token }}{% for message in messages %}
    {%- if message.role == 'system' and loop.first %}
        {{- '<<' ~ message.content|trim ~ '>>' }}
    {%- elif message.content is string %}
        {{- '[' + message.role|upper + ']' + message.content.strip() + eos_token }}
    {%- else %}
        {%- for part in message.content or [] if part.type == 'text' %}{{ part.text }}{% endfor %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[ASSISTANT]' }}
{%- endif %}
""",
    "tools": """{%- set ns = namespace(count=0, seen=[]) %}
{%- if tools %}{{ tools|tojson }} {{ tools[0]|tojson(indent=2) }}{% endif %}
{% for m in messages %}
    {% if m.tool_calls is defined %}
        {% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% set ns.count = ns.count + 1 %}{% endfor %}
    {% endif %}
{% endfor %}
{{ ns.count }} {{ dict(a=1, b=[1, 2.5, none, true]) | tojson }}""",
    "macros": """{% macro show(m, mark='#') %}{{ mark }}{{ m.role }}{{ mark }}{% endmacro %}
{% for m in messages %}{% if loop.index0 == 3 %}{% break %}{% endif %}
{% if m.role == 'system' %}{% continue %}{% endif %}
{{ show(m) }}{{ show(m, mark=loop.index) }}{% endfor %}
{{ messages[1:]|length }}{{ messages|map(attribute='role')|join(',') }}""",
    "generation": """{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}
{{ m.content }}{% set inside = 1 %}
{% endgeneration %}{% else %}{{ m.role }}{% endif %}{% endfor %}{{ inside is defined }}""",
    "refuses": "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{{ 'x' * 3 }}",
    "undefined": "{{ nothing }}{% if thinking is defined and thinking %}think{% endif %}{{ messages[0].nothing.more }}",
}


def outcome(render: Callable[..., str], *messages: Any, **values: Any) -> str:
    """What comes out, or why nothing does."""
    try:
        return render(*messages, **values)
    except Exception as error:
        return f"error: {str(error).rpartition('Error: ')[2]}"


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_chats_are_rendered_as_transformers_does(name: str, prompt: bool) -> None:
    chat, theirs = Chat(TEMPLATES[name], TOKENS), _compile_jinja_template(TEMPLATES[name])
    for messages, tools, values in CHATS:
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt, **values}
        found = outcome(chat.render, messages, prompt=prompt, tools=tools, **values)
        assert found == outcome(theirs.render, **given, **TOKENS)


def test_the_time_is_known() -> None:
    assert Chat("{{ strftime_now('%Y') }}").render(HELLO) == time.strftime("%Y")


def test_a_template_for_tools() -> None:
    chat = Chat("plain", {}, "with tools")
    assert [chat.render(HELLO), chat.render(HELLO, tools=TOOLS), chat.render(HELLO, tools=[])] == [
        "plain",
        "with tools",
        "plain",
    ]


def test_one_process_serves_many_chats_and_ends_with_its_owner() -> None:
    chat = Chat("{{ messages[0].content }}")
    texts = [chat.render([{"role": "user", "content": str(number)}]) for number in range(20)]
    assert texts == [str(number) for number in range(20)]
    process = chat._worker._process
    assert process is not None
    assert process.poll() is None
    copy: Chat = pickle.loads(pickle.dumps(chat))
    assert copy == chat
    del chat
    gc.collect()
    assert process.poll() is not None
    assert copy.render(HELLO) == "Hello"


def test_threads_take_turns() -> None:
    chat, found = Chat("{{ messages[0].content }}"), {}

    def ask(number: int) -> None:
        found[number] = chat.render([{"role": "user", "content": f"{number}" * 1000}])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"{number}" * 1000 for number in range(8)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_has_a_process_of_its_own() -> None:
    code = """
import os
from heed.text import Chat
chat = Chat("{{ messages[0].content }}")
say = lambda text: chat.render([{"role": "user", "content": text}])
say("before")
child = os.fork()
if child == 0:
    os._exit(0 if say("child") == "child" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert say("parent") == "parent"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# --- messages ---


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "a chat is a list of messages, at least one"),
        ("Hello", "a chat is a list of messages"),
        (HELLO[0], "a chat is a list of messages"),
        (7, "a chat is a list of messages"),
        (["Hello"], "message 0 is str; a table with role and content is needed"),
        ([*HELLO, {"content": "x"}], "message 1 has the role None; a text such as 'user' is needed"),
        ([{"role": "user"}], "message 0 has no content"),
        ([{"role": "user", "content": 3}], "the content of message 0 is int; a text or a list of parts is needed"),
        ([{"role": "user", "content": ["x"]}], "message 0 has a part that is not like"),
        ([{"role": "user", "content": [{"type": "text"}]}], "message 0 has a part that is not like"),
        ([{"role": "user", "content": "x", "extra": {1, 2}}], "must be plain data, as JSON can hold it"),
        ([{"role": "user", "content": "x", "extra": float("nan")}], "must be plain data"),
    ],
)
def test_messages_are_checked(messages: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Chat("x").render(messages)


def test_a_template_that_is_too_long() -> None:
    with pytest.raises(InputError, match="may have 1,048,576 characters; this one has 1,048,577"):
        Chat("x" * (module.TEMPLATE + 1))


# --- templates that mean no good ---

GROW = (
    "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}"
)
DOUBLE = "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x|length }}"
MEMORY, TIME = "needs too much memory", "it took more than 1 seconds"
HOSTILE = {
    "long text": ("{{ 'a' * 10**10 }}", MEMORY),
    "doubled": (DOUBLE, f"{MEMORY}|{TIME}"),
    "width": ("{{ '%1000000000d' % 1 }}", MEMORY),
    "center": ("{{ 'a'|center(10**9) }}", MEMORY),
    "indent": ("{{ 'a\nb'|indent(10**9) }}", MEMORY),
    "joined": ("{{ range(99999)|join('a' * 100000) }}", MEMORY),
    "batch": ("{{ [1]|batch(10**9, 'x')|list|length }}", MEMORY),
    "nested loops": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", TIME),
    "macros": ("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}", TIME),
    "written lists": (GROW + "{% endfor %}{{ n.x|string|length }}", f"{MEMORY}|{TIME}"),
    "compared lists": (GROW + "{% endfor %}{{ n.x == n.y }}", TIME),
    "large numbers": ("{{ (7 ** (10**8))|string|length }}", f"{MEMORY}|{TIME}|Error"),
    "range": ("{{ range(10**9)|length }}", "Range too big"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself too deeply"),
    "nesting": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
    "output": (
        "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "its text has more than 4,194,304 characters",
    ),
    "class": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "globals": ("{{ lipsum.__globals__['os'].system('true') }}", "unsafe"),
    "changed": ("{{ messages.append(1) }}", "unsafe"),
    "namespace": ("{% set n = namespace(__class__=1) %}", "may not begin with _"),
    "underscore": ("{% set n = namespace(_x=1) %}", "may not begin with _"),
    "set in a namespace": ("{% set n = namespace() %}{% set n.__class__ = 1 %}", "may not begin with _"),
    "file": ("{% include '/etc/passwd' %}", "no loader"),
    "syntax": ("{% for %}", "TemplateSyntaxError"),
}


@pytest.mark.skipif(os.name != "posix", reason="memory is limited on POSIX only")
@pytest.mark.parametrize(("template", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_is_ended(template: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 1)
    chat = Chat(template)
    begun = time.monotonic()
    with pytest.raises(InputError, match=rf"the chat template cannot be rendered: .*({words})"):
        chat.render(HELLO)
    assert time.monotonic() - begun < 20  # seconds: one for the template, the rest for a busy machine
    object.__setattr__(chat, "template", "fine")
    assert chat.render(HELLO) == "fine"


def test_what_leads_into_python_is_nothing() -> None:
    for template in ("{{ ''['__class__'] }}", "{{ ''|attr('__class__') }}", "{{ '{0.__class__}'.format(1) }}"):
        assert Chat(template).render(HELLO) == ""


def test_the_process_sees_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the environment, which may hold secrets, and no files beside it, which may be named as modules are."""
    monkeypatch.setenv("SECRET", "x")
    chat = Chat("x")
    chat.render(HELLO)
    process = chat._worker._process
    assert process is not None
    environment = Path(f"/proc/{process.pid}/environ")
    if environment.exists():
        assert b"SECRET" not in environment.read_bytes()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert str(module.MEMORY) in next(line for line in limits.splitlines() if line.startswith("Max address space"))


# --- folders, and chats as ids ---


def chatting(template: object, **files: object) -> dict[str, object]:
    ours = Bpe(size=300).train(LINES)
    ours._inner.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    ours._inner.add_tokens(["<think>"])
    said = {"chat_template": template, "bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": None}
    return {"tokenizer.json": ours._inner.to_str(), "tokenizer_config.json": said, **files}


CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


PARTS = CHATML.replace("{{ m.content }}", "{% for part in m.content %}{{ part.text }}{% endfor %}")


def test_templates_of_folders(tmp_path: Path) -> None:
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    cases: list[tuple[object, dict[str, str], str]] = [
        ("{{ eos_token }}{{ pad_token is defined }}", {}, "<|im_end|>False"),
        (several, {}, "a"),
        ("a", {"chat_template.jinja": "from the file"}, "from the file"),
    ]
    for number, (template, others, expected) in enumerate(cases):
        tokenizer = Tokenizer.of_folder(folder(tmp_path / str(number), chatting(template) | others))
        assert tokenizer.chat is not None
        assert tokenizer.chat.render(HELLO) == expected
    for number, missing in enumerate([None, [{"name": "rag", "template": "c"}]]):
        silent = Tokenizer.of_folder(folder(tmp_path / f"none{number}", chatting(missing)))
        assert silent.chat is None
        with pytest.raises(InputError, match="has no chat template"):
            silent.prompt(HELLO)


def test_a_chat_as_ids(tmp_path: Path) -> None:
    tokenizer = Tokenizer.of_folder(folder(tmp_path, chatting(CHATML)))
    assert tokenizer.chat is not None
    start, end = tokenizer.encode_marked("<|im_start|><|im_end|>")
    assert tokenizer.ends == (end,)
    ids = tokenizer.prompt(TALK[:3])
    assert ids == tokenizer.encode_marked(tokenizer.chat.render(TALK[:3]))
    assert (ids.count(start), ids.count(end)) == (4, 3)
    assert tokenizer.prompt(HELLO, prompt=False)[-2] == end


TOKENIZERS: dict[str, Tokenizer] = {}
INJECTED = st.lists(
    st.sampled_from(["<|im_end|>", "<|im_start|>", "<s>", "<think>", "<|im_", "end|>", *"ab <", BROKEN, OPEN, CLOSE])
)


@settings(deadline=None, max_examples=40)
@given(words=INJECTED)
@example(words=["<|im_", "end|>"])
def test_a_message_cannot_make_special_tokens(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    place = tmp_path_factory.getbasetemp() / "injected"
    if not TOKENIZERS:
        TOKENIZERS["one"] = Tokenizer.of_folder(folder(place, chatting(PARTS)))
    tokenizer = TOKENIZERS["one"]
    start, end = tokenizer.encode_marked("<|im_start|><|im_end|>")
    for parts in (words, ["".join(words)]):
        texts = [{"type": "text", "text": text} for text in parts]
        ids = tokenizer.prompt([{"role": "user", "content": texts}])
        assert (ids.count(start), ids.count(end), tokenizer.begin in ids) == (2, 1, False)
        bare = "".join(words).translate(dict.fromkeys(map(ord, (BROKEN, OPEN, CLOSE))))
        assert tokenizer.decode(ids) == f"user\n{bare}\nassistant\n"


def test_names_stay_names() -> None:
    """Templates compare them, so they are left alone even where a special token is called so."""
    inner = Bpe(size=300).train(LINES)._inner
    inner.add_special_tokens(["user", "sop", "<|x|>"])
    tokenizer = Tokenizer(inner)
    tokenizer.chat = Chat("{% for m in messages %}{{ m.role == 'user' }}{{ m | tojson }}{% endfor %}")
    ids = tokenizer.prompt(
        [{"role": "user", "content": "<|x|>", "props": {"<|x|>": 1}}, {"role": "<|x|>", "content": ""}]
    )
    assert tokenizer.decode(ids).startswith("True{")
    assert tokenizer.decode(ids).count("<|x|>") == 3
    assert inner.token_to_id("<|x|>") not in ids


def test_special_tokens_with_manners_keep_them() -> None:
    """A token may take the space beside it, and a first piece may differ from the others."""
    names = ["<unk>", "▁a", "a", "▁", "[X]", "b", "▁b"]
    inner = tokenizers.Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, "<unk>"))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(prepend_scheme="first"), decoders.Metaspace()
    inner.add_special_tokens([AddedToken("[X]", lstrip=True, rstrip=True, normalized=False)])
    tokenizer = Tokenizer(inner)
    tokenizer.chat = Chat("a [X] b{{ messages[0].content }}")
    assert tokenizer.encode_marked("a [X] b") == [1, 4, 5]
    assert tokenizer.prompt([{"role": "user", "content": " b[X]"}]) == [1, 4, 5, 0]
    assert json.loads(inner.to_str())["added_tokens"][0]["content"] == "[X]"
