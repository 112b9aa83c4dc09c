"""Chat templates, healthy and hostile: pieces of Jinja that are put together at random."""

from __future__ import annotations

from random import Random

from .mutate import mutated_bytes

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EXPRESSIONS = (
    *(
        "messages",
        "messages[0].content",
        "bos_token",
        "undefined_name",
        "messages | length",
        "tools",
        "1/0",
        "'a' * 10",
    ),
    *(
        "'a' * 10**10",
        "10**10**10",
        "range(10**9) | list",
        "''.__class__.__mro__",
        "messages.__class__",
        "[].__len__()",
    ),
    *("namespace(x=1)", "cycler.__init__.__globals__", "lipsum()", "joiner", "self", "loop", "raise_exception('no')"),
    *("strftime_now('%Y')", "strftime_now('%' * 99999)", "messages | tojson", "'%s' | format(messages)"),
    *(
        "'{0.__class__}'.format(1)",
        "('x' * 1000) | center(10**8)",
        "dict(a=1)",
        "range(99999)[::-1]",
        "'a' | replace('', 'b' * 9999)",
    ),
    *("messages | map(attribute='__class__') | list", "messages | sort(attribute='role')", "'\\ud800'", "(1,) * 10**9"),
    *(
        "'a' | indent(10**8)",
        "[[]] * 10**8",
        "1 | string * 5",
        "'x'.join(range(10**7) | map('string'))",
        "messages | batch(1)",
    ),
)
FRAMES = (
    "{{ %s }}",
    "{%% for x in %s %%}{{ x }}{%% endfor %%}",
    "{%% for x in range(100000) %%}{%% for y in range(100000) %%}{{ %s }}{%% endfor %%}{%% endfor %%}",
    "{%% set ns = namespace(a=[]) %%}{%% for x in range(40) %%}{%% set ns.a = [ns.a, ns.a] %%}{%% endfor %%}{{ %s }}",
    "{%% macro f(x) %%}{{ f(x) }}{%% endmacro %%}{{ f(%s) }}",
    "{%% if %s %%}yes{%% endif %%}",
    "{%% include 'x' %%}{{ %s }}",
    "{%% import '/etc/passwd' as x %%}{{ %s }}",
    "{%% generation %%}{{ %s }}{%% endgeneration %%}",
    "{%% set x = %s %%}{{ x }}",
    "{%% filter upper %%}{{ %s }}{%% endfilter %%}",
    "{%% raw %%}{{ %s }}{%% endraw %%}",
    "{%% call(x) f(%s) %%}{%% endcall %%}",
    "{{ %s",
    "{%% for x in messages recursive %%}{{ loop(messages) }}{{ %s }}{%% endfor %%}",
    "{%% break %%}{{ %s }}",
)
DEEP = ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if 1 %}" * 3000, "{{ 1" + "+1" * 50_000 + " }}", "{#" * 9999)


def mutated_template(draw: Random, data: bytes) -> bytes:
    """A template that is mostly well written, and does something that it should not."""
    text = data.decode("utf-8", "replace")
    how = draw.random()
    if how < 0.15:
        return mutated_bytes(draw, data)
    if how < 0.22:
        return draw.choice(DEEP).encode()
    frame = draw.choice(FRAMES) % draw.choice(EXPRESSIONS)
    at = draw.choice((0, len(text), text.find("{{")))
    return (text[:at] + frame + text[at:]).encode("utf-8", "surrogatepass")
