"""Tool calls: asked for by the checkpoint's template, taken out of what models write, enforced where they must come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from heed.pipelines import TextGeneration
from heed.serve import Engine, Limits
from heed.serve.api.tools import FORMATS, format_of
from heed.serve.api.tools.base import CALLS_OF_ANSWER, LONGEST, Call, Said, ToolFormat
from heed.serve.api.tools.formats import Hermes, Llama, Mistral, Tekken
from heed.text import Tokenizer
from heed.text.chat import Chat
from heed.text.tokenizer import Declared
from tests.serve.api.material import END, SPECIAL
from tests.serve.api.serving import Live, events, running
from tests.serve.api.solo import Scripted

PATH = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
NAMES = ("weather", "add")
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "of a place",
            "parameters": {
                "type": "object",
                "properties": {"place": {"enum": ["né", "🎉"]}, "days": {"enum": [1, 2, 30]}},
                "required": ["place", "days"],
                "additionalProperties": False,
                "x-guidance": {"whitespace_flexible": False},
            },
        },
    },
    {"type": "function", "function": {"name": "add", "parameters": {
        "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    }}},
]  # fmt: skip
TALK = (
    "{% if tools %}<system>{% for t in tools %}{{ t.function.name }};{% endfor %}{% endif %}"
    "{% for m in messages %}<{{ 'assistant' if m.role == 'tool' else m.role }}>"
    "{% for c in m.tool_calls or [] %}HOW{% endfor %}"
    "{% if m.role == 'tool' %}{{ m.name }}={% endif %}{{ m.content or '' }}{% endfor %}<assistant>"
)
HOW: dict[Any, str] = {
    Hermes: "<tool_call>{{ c.function.name }}{{ c.function.arguments | tojson }}</tool_call>",
    Tekken: "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}",
    Mistral: "[TOOL_CALLS] [{{ c.function | tojson }}]",
    Llama: '<|python_tag|>{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}',
}
TEMPLATES: dict[Any, str] = {one: TALK.replace("HOW", how) for one, how in HOW.items()}

PARIS = '{"place": "Pa\\"<tool_call></tool_call>ris 好", "days": 2}'
ONE = Call("weather", json.dumps(json.loads(PARIS), ensure_ascii=False))
TWO = Call("add", '{"a": true}')
CASES: dict[str, tuple[type[ToolFormat], str, list[Said]]] = {
    "hermes": (Hermes, f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>', [ONE]),
    "hermes, two, after text": (
        Hermes,
        f'Well. \n<tool_call>{{"arguments": {PARIS}, "name": "weather"}}</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": true}}</tool_call>',
        ["Well.", ONE, TWO],
    ),
    "hermes, not closed": (Hermes, '<tool_call>{"name": "add", "arguments": {"a": true}}', [TWO]),
    "hermes, broken off": (Hermes, '<tool_call>{"name": "add", "arg', ['<tool_call>{"name": "add", "arg']),
    "hermes, no JSON": (Hermes, "a <tool_call>x</tool_call> b", ["a <tool_call>x</tool_call> b"]),
    "hermes, another's": (
        Hermes,
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        ['<tool_call>{"name": "rm", "arguments": {}}</tool_call>'],
    ),
    "hermes, wrong then right": (
        Hermes,
        '<tool_call>{]</tool_call><tool_call>{"name": "add", "arguments": {"a": true}}</tool_call>',
        ["<tool_call>{]</tool_call>", TWO],
    ),
    "llama": (Llama, f'{{"name": "weather", "parameters": {PARIS}}}', [ONE]),
    "llama, tagged": (Llama, '<|python_tag|>{"name": "add", "parameters": {"a": true}}', [TWO]),
    "llama, two": (
        Llama,
        f'{{"name": "weather", "parameters": {PARIS}}}; {{"name": "add", "parameters": {{"a": true}}}}',
        [ONE, TWO],
    ),
    "llama, JSON that is no call": (Llama, '{"name": "Bob", "age": 3}', ['{"name": "Bob", "age": 3}']),
    "llama, arguments that are none": (Llama, '{"name": "add", "parameters": 3}', ['{"name": "add", "parameters": 3}']),
    "llama, more behind it": (Llama, '{"name": "add", "parameters": {}} so', ['{"name": "add", "parameters": {}} so']),
    "llama, code": (Llama, "<|python_tag|>print(1)", ["<|python_tag|>print(1)"]),
    "mistral": (Mistral, f'[TOOL_CALLS] [{{"name": "weather", "arguments": {PARIS}}}]', [ONE]),
    "mistral, two, after text": (
        Mistral,
        f'So [TOOL_CALLS][{{"name": "weather", "arguments": {PARIS}}}, '
        '{"name": "add", "arguments": {"a": true}}]\n',
        ["So", ONE, TWO],
    ),
    "mistral, one of them wrong": (
        Mistral,
        '[TOOL_CALLS] [{"name": "add", "arguments": {}}, {"name": "rm", "arguments": {}}]',
        ['[TOOL_CALLS] [{"name": "add", "arguments": {}}, {"name": "rm", "arguments": {}}]'],
    ),
    "tekken": (Tekken, f"[TOOL_CALLS]weather[ARGS]{PARIS}", [ONE]),
    "tekken, two": (
        Tekken,
        f'[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]{PARIS}[TOOL_CALLS]add[ARGS]{{"a": true}}',
        [ONE, TWO],
    ),
    "tekken, another's": (Tekken, "[TOOL_CALLS]rm[ARGS]{}", ["[TOOL_CALLS]rm[ARGS]{}"]),
    "numbers that JSON has not": (Tekken, '[TOOL_CALLS]add[ARGS]{"a": NaN}', ['[TOOL_CALLS]add[ARGS]{"a": NaN}']),
    "half a character": (Tekken, '[TOOL_CALLS]add[ARGS]{"a": "\\ud800"}', [Call("add", '{"a": "\\ud800"}')]),
    "nested beyond bounds": (Tekken, f"[TOOL_CALLS]add[ARGS]{'[' * 9999}", [f"[TOOL_CALLS]add[ARGS]{'[' * 9999}"]),
    **{f"{one.__name__}, text": (one, " a <tool [TOOL <|py {b} \n", [" a <tool [TOOL <|py {b} \n"]) for one in FORMATS},
    **{f"{one.__name__}, blanks": (one, " \n ", [" \n "]) for one in FORMATS},
}  # fmt: skip


def joined(said: list[Said]) -> list[Said]:
    """Texts that follow one another in one."""
    found = list[Said]()
    for one in said:
        if isinstance(one, str) and found and isinstance(found[-1], str):
            found[-1] += one
        else:
            found.append(one)
    return found


@pytest.mark.parametrize(("kind", "text", "wanted"), CASES.values(), ids=CASES)
def test_calls_are_taken_out_however_the_text_is_cut(kind: type[ToolFormat], text: str, wanted: list[Said]) -> None:
    sizes = (1, 2, 3, 7, len(text)) if len(text) < 1000 else (997, len(text))
    for size in sizes:
        reader, said = kind.reader(NAMES), list[Said]()
        for begin in range(0, len(text), size):
            said += reader.push(text[begin : begin + size])
        assert joined([*said, *reader.finish()]) == wanted, size


def test_what_is_too_long_for_a_call_is_text() -> None:
    """Answers are taken apart beside all others: none may take its time by closing tags without end."""
    reader, said = Hermes.reader(NAMES), list[Said]()
    text = '<tool_call>{"name": "' + "</tool_call>" * (LONGEST // len("</tool_call>") + 1)
    for begin in range(0, len(text), 12):
        said += reader.push(text[begin : begin + 12])
    assert joined([*said, *reader.push(" so")]) == [text + " so"]
    many = '{"name": "add", "parameters": {}};' * (CALLS_OF_ANSWER + 1)
    assert joined([*(whole := Llama.reader(NAMES)).push(many), *whole.finish()]) == [many]
    many = "[TOOL_CALLS]add[ARGS]{}" * (CALLS_OF_ANSWER + 1)
    assert joined([*(named := Tekken.reader(NAMES)).push(many), *named.finish()]) == [many]


def test_the_template_tells_the_format() -> None:
    for kind, template in TEMPLATES.items():
        assert format_of(template) is kind
    assert format_of(TALK.replace("HOW", "")) is None
    assert format_of(TALK.replace("HOW", "<tool_call><function={{ c.function.name }}>")) is None, "Qwen3-Coder's"
    assert format_of(TEMPLATES[Hermes].replace("tools", "nothing")) is None
    assert len({Mistral.identity() for _ in range(50)}) == 50
    assert all(len(Mistral.identity()) == 9 for _ in range(5)), "others are refused by Mistral's templates"


# --- over HTTP ---


def spelt(text: str) -> list[int]:
    """The ids of a text; markers are special tokens."""
    found = list[int]()
    while text:
        name = next((one for one in SPECIAL if text.startswith(one)), None)
        found += [256 + SPECIAL.index(name)] if name else list(text[0].encode())
        text = text[len(name) if name else 1 :]
    return found


def taught_by(pipeline: TextGeneration, template: str) -> TextGeneration:
    """The same model with another template."""
    declared = Declared(pipeline.tokenizer.told.roles, (END,), Chat(template))
    return TextGeneration(pipeline.model, Tokenizer(pipeline.tokenizer._inner, declared), pipeline.strategy)


@pytest.fixture(scope="module")
def taught(pipeline: TextGeneration) -> dict[type[ToolFormat], TextGeneration]:
    """The same model with templates that teach tools."""
    return {kind: taught_by(pipeline, template) for kind, template in TEMPLATES.items()}


@pytest.fixture(scope="module")
def scripted(taught: dict[type[ToolFormat], TextGeneration]) -> Iterator[Live]:
    with running(Scripted({kind.__name__: one for kind, one in taught.items()})) as live:
        yield live


@pytest.fixture(scope="module")
def caller(taught: dict[type[ToolFormat], TextGeneration]) -> Iterator[Live]:
    """A server whose models would never call anything by themselves."""
    named = {kind.__name__: one for kind, one in taught.items()}
    with Engine(named, Limits(memory=1 << 28, rows=8)) as engine, running(engine) as live:
        yield live


def body(kind: type[ToolFormat], **fields: Any) -> dict[str, Any]:
    return {"model": kind.__name__, "messages": HELLO, "tools": TOOLS, "max_tokens": 300, **fields}


def streamed(found: list[dict[str, Any]], index: int = 0) -> tuple[str, list[dict[str, Any]], str]:
    """The deltas of one answer, put together as clients do: its text, its calls, why it ended."""
    text, calls, why = "", list[dict[str, Any]](), ""
    for choice in (one for event in found for one in event["choices"] if one["index"] == index):
        text += choice["delta"].get("content") or ""
        why = choice["finish_reason"] or why
        for call in choice["delta"].get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(calls)
                calls.append({"id": call["id"], "type": call["type"], "function": dict(call["function"])})
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return text, calls, why


@pytest.mark.parametrize("case", [one for one in CASES if CASES[one][2] != [CASES[one][1]]] + ["hermes, no JSON"])
def test_a_stream_tells_the_same_calls(scripted: Live, case: str) -> None:
    kind, text, wanted = CASES[case]
    scripted.service.engine.script = spelt(text)  # type: ignore[attr-defined]
    status, found, _ = scripted.ask(PATH, body(kind, logprobs=True))
    assert status == 200, found
    (choice,) = found["choices"]
    content = "".join(one for one in wanted if isinstance(one, str))
    calls = [{"name": one.name, "arguments": one.arguments} for one in wanted if not isinstance(one, str)]
    assert [one["function"] for one in choice["message"].get("tool_calls", [])] == calls
    assert choice["message"]["content"] == (content or None)
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
    assert len(choice["logprobs"]["content"]) == len(spelt(text))
    pieces = events(scripted.ask(PATH, body(kind, stream=True))[1])
    assert streamed(pieces)[0] == content
    assert [one["function"] for one in streamed(pieces)[1]] == calls
    assert streamed(pieces)[2] == choice["finish_reason"]
    assert len({one["id"] for one in streamed(pieces)[1]}) == len(calls)


def test_without_tools_marks_are_texts(scripted: Live) -> None:
    text = CASES["hermes"][1]
    scripted.service.engine.script = spelt(text)  # type: ignore[attr-defined]
    without: list[dict[str, Any]] = [{"tools": []}, {"tool_choice": "none"}]
    for fields in without:
        (choice,) = scripted.ask(PATH, body(Hermes, **fields))[1]["choices"]
        assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}


def test_one_call_at_most(scripted: Live) -> None:
    scripted.service.engine.script = spelt(CASES["mistral, two, after text"][1])  # type: ignore[attr-defined]
    (choice,) = scripted.ask(PATH, body(Mistral, parallel_tool_calls=False))[1]["choices"]
    assert [one["function"]["name"] for one in choice["message"]["tool_calls"]] == ["weather"]


def test_what_is_cut_off_is_no_call(scripted: Live) -> None:
    scripted.service.engine.script = spelt(CASES["hermes"][1])  # type: ignore[attr-defined]
    (choice,) = scripted.ask(PATH, body(Hermes, max_tokens=20))[1]["choices"]
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("length", False)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_conversation_holds_calls_and_what_tools_gave(scripted: Live, kind: type[ToolFormat]) -> None:
    """It goes on with the message as it was told, as clients send it back."""
    engine: Any = scripted.service.engine
    engine.script = spelt(CASES[kind.__name__.lower()][1])
    (choice,) = scripted.ask(PATH, body(kind))[1]["choices"]
    result = {"role": "tool", "tool_call_id": choice["message"]["tool_calls"][0]["id"], "content": "rain"}
    status, found, _ = scripted.ask(PATH, body(kind, messages=[*HELLO, choice["message"], result]))
    assert status == 200, found
    how = {
        "Hermes": f"<tool_call>weather{ONE.arguments}</tool_call>",
        "Tekken": f"[TOOL_CALLS]weather[ARGS]{ONE.arguments}",
        "Mistral": f'[TOOL_CALLS] [{{"name": "weather", "arguments": {ONE.arguments}}}]',
        "Llama": f'<|python_tag|>{{"name": "weather", "parameters": {ONE.arguments}}}',
    }[kind.__name__]
    wanted = f"<system>weather;add;<user>hello<assistant>{how}<assistant>weather=rain<assistant>"
    assert list(engine.asked[-1].prompt) == spelt(wanted)
    chat = {"model": kind.__name__, "messages": HELLO, "tools": TOOLS}
    assert scripted.ask("/tokenize", chat)[1]["tokens"] == spelt("<system>weather;add;<user>hello<assistant>")


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no function": ({"tools": [{"type": "web_search"}]}, "tools", "type"),
    "a name of words": ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", "pattern"),
    "twice": ({"tools": [TOOLS[0], TOOLS[0]]}, "", "two tools"),
    "many": ({"tools": [TOOLS[0]] * 129}, "tools", "128"),
    "a schema of a text": (
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "string"}}}]},
        "tools",
        "object",
    ),
    "a schema that is none": (
        {
            "tool_choice": "required",
            "tools": [
                {"type": "function", "function": {"name": "a", "parameters": {"properties": {"a": {"type": "cat"}}}}}
            ],
        },
        "tools",
        "cat",
    ),
    "a choice of nothing": ({"tool_choice": {"type": "function", "function": {"name": "rm"}}}, "", "rm"),
    "a choice without tools": ({"tools": [], "tool_choice": "required"}, "", "goes with tools"),
    "another choice": ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice", "tool_choice"),
    "a form, too": ({"response_format": {"type": "json_object"}}, "", "exclude each other"),
    "functions": ({"functions": [{"name": "a"}]}, "functions", "write tools"),
    "a call of a user": (
        {"messages": [{"role": "user", "content": "a", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "a", "arguments": "{}"}}]}]},
        "messages", "only the assistant",
    ),
    "arguments that are no JSON": (
        {"messages": [{"role": "assistant", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "a", "arguments": "{"}}]}]},
        "messages", "not valid JSON",
    ),
    "an answer to no call": ({"messages": [{"role": "tool", "content": "a"}]}, "messages", "tool_call_id"),
    "nothing said": ({"messages": [{"role": "assistant", "content": None}]}, "messages", "without content"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(caller: Live, fields: dict[str, Any], param: str, text: str) -> None:
    status, found, _ = caller.ask(PATH, body(Hermes, **fields))
    assert status == 400, found
    assert text in found["error"]["message"]
    if param:
        assert found["error"]["param"] == param


def test_a_template_without_tools_takes_none(real: Live) -> None:
    status, found, _ = real.ask(PATH, {"model": "chain", "messages": HELLO, "tools": TOOLS})
    assert (status, found["error"]["param"], found["error"]["code"]) == (400, "tools", "wrong_model")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_call_is_enforced(caller: Live, kind: type[ToolFormat]) -> None:
    pytest.importorskip("llguidance")
    named = {"type": "function", "function": {"name": "weather"}}
    for choice, names in (("required", {"weather", "add"}), (named, {"weather"})):
        asked = body(kind, tool_choice=choice, parallel_tool_calls=False, n=4, seed=1, temperature=3)
        status, found, _ = caller.ask(PATH, asked)
        assert status == 200, found
        for one in found["choices"]:
            assert (one["finish_reason"], one["message"]["content"]) == ("tool_calls", None), one
            (call,) = one["message"]["tool_calls"]
            assert call["function"]["name"] in names
            arguments = json.loads(call["function"]["arguments"])
            assert set(arguments) == ({"place", "days"} if call["function"]["name"] == "weather" else {"a"})
        again = events(caller.ask(PATH, {**asked, "stream": True})[1])
        for index, one in enumerate(found["choices"]):
            assert [call["function"] for call in streamed(again, index)[1]] == [
                call["function"] for call in one["message"]["tool_calls"]
            ]


@pytest.mark.parametrize("kind", FORMATS)
def test_strict_arguments_are_kept_where_the_model_decides(taught: Any, kind: type[ToolFormat]) -> None:
    """The grammar leaves texts as they are, and lets calls be right ones only."""
    pytest.importorskip("llguidance")
    from heed.serve.api.service import NamedModel
    from heed.serve.api.shapes.conversation import ChatRequest
    from heed.serve.api.talk import Calls

    info: Any = type("Info", (), {"pipeline": taught[kind], "vocabulary": taught[kind].tokenizer.size})
    served = NamedModel("it", info)
    strict = [{"type": "function", "function": {**one["function"], "strict": True}} for one in TOOLS]
    asked = ChatRequest.load({"model": "it", "messages": HELLO, "tools": strict})
    source = Calls.of(served, asked).grammar()
    begin = {Hermes: '<tool_call>\n{"name": "add", "arguments": ', Llama: '{"name": "add", "parameters": '}
    begin |= {Mistral: '[TOOL_CALLS] [{"name": "add", "arguments": ', Tekken: "[TOOL_CALLS]add[ARGS]"}
    end = {Hermes: "}\n</tool_call>", Llama: "}", Mistral: "}]", Tekken: ""}
    for text, right in {
        "just né 🎉 {text}": True,
        "": True,
        begin[kind] + '{"a":true}' + end[kind]: True,
        begin[kind] + '{"a":3}' + end[kind]: False,
        begin[kind] + '{"b":true}' + end[kind]: False,
        begin[kind].replace("add", "rm") + '{"a":true}' + end[kind]: False,
    }.items():
        grammar = served.grammars.of(asked, source)
        assert grammar is not None
        written, ids = list[int](), [*spelt(text), END]
        for token in ids:
            allowed: Any = grammar(tuple(written))
            if not (token in allowed if isinstance(allowed, tuple) else bool(allowed[token])):
                break
            written.append(token)
        assert (written == ids) is right, (text, source)
