"""What the JSON files beside a tokenizer say about it: its special tokens, what it puts around a text, how to chat."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, processors

from ..core.atomic import replacing
from ..core.errors import InputError
from .chat import TEMPLATE, Chat
from .guard import Data, check_growth, numbered, read_json, read_text, understood
from .tokenizer import MASKS, NAMES, Declared, Role, Tokenizer

SETTINGS, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
MODEL, GENERATION, TEMPLATES = "config.json", "generation_config.json", "chat_template.jinja"
KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
ROLES: dict[Role, tuple[str, ...]] = {
    "pad": ("pad_token",),
    "begin": ("bos_token", "cls_token"),
    "end": ("eos_token", "sep_token"),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}
GENERIC = frozenset({"pretrainedtokenizer", "pretrained", "tokenizersbackend", "auto", ""})  # name no family


class Frame(NamedTuple):
    """What stands around a text and around a pair: keys of special tokens and their segments, as $A:0 sep_token:0."""

    single: str
    pair: str


@dataclass(frozen=True)
class TokenizerSettings:
    """All of it. `tokens`: special tokens by their keys; None says that there is none, a missing key says nothing."""

    settings: Data = field(default_factory=dict)
    model: Data = field(default_factory=dict)
    tokens: Mapping[str, str | None] = field(default_factory=dict)
    added: Mapping[int, AddedToken] = field(default_factory=dict)
    extra: tuple[str, ...] = ()  # further special tokens
    ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of special tokens, as models name them
    templates: Mapping[str, str] = field(default_factory=dict)  # for chats, by name

    @classmethod
    def read(cls, folder: Path) -> TokenizerSettings:
        """From those files of a folder that are there."""
        special, settings, model, generation = (
            read_json(folder / name) if (folder / name).is_file() else {}
            for name in (SPECIAL, SETTINGS, MODEL, GENERATION)
        )
        made_of = model.get("source")  # a quantised checkpoint keeps the config that it had
        model = made_of if model.get("model_type") == "heed" and isinstance(made_of, dict) else model
        tokens = {
            key: _content(source[key], f"{folder / name}: {key}")
            for name, source in ((SPECIAL, special), (SETTINGS, settings))
            for key in KEYS
            if key in source
        }
        text = settings.get("chat_template")
        if (folder / TEMPLATES).is_file():
            text = read_text(folder / TEMPLATES, TEMPLATE)
        inner = model.get("text_config")
        sources = (generation, model, inner if isinstance(inner, dict) else {})
        return cls(
            settings,
            model,
            tokens,
            dict(_added(folder, settings)),
            tuple(_extra(special)) + tuple(_extra(settings)),
            {key: tuple(index for source in sources for index in _ids(source.get(f"{key}_id"))) for key in KEYS},
            _templates(text, folder / SETTINGS),
        )

    @property
    def kind(self) -> str:
        """The family, from the name of the tokenizer's class or else the model's: xlmroberta, gpt2; "" if unsaid."""
        for name in (self.settings.get("tokenizer_class"), self.model.get("model_type")):
            if isinstance(name, str):
                kind = re.sub(r"[^a-z0-9]", "", re.sub(r"Tokenizer(Fast)?$", "", name).lower())
                if kind not in GENERIC:
                    return kind
        return ""

    def flag(self, name: str, default: bool) -> bool:
        """A setting that is true or false."""
        value = self.settings.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{SETTINGS}: {name} is {value!r}; true or false is needed")
        return value

    def count(self, name: str, default: int) -> int:
        """A setting that is a number of tokens."""
        value = default if self.settings.get(name) is None else self.settings[name]
        if type(value) is not int or not 0 <= value <= 10_000:
            raise InputError(f"{SETTINGS}: {name} is {value!r}; a whole number up to 10000 is needed")
        return value

    def with_usual(self, tokens: Mapping[str, str | None]) -> TokenizerSettings:
        """These special tokens where the files say nothing."""
        return replace(self, tokens={**tokens, **self.tokens})

    def finish(
        self, inner: tokenizers.Tokenizer, frame: Frame | None, what: str, kind: type[Tokenizer] = Tokenizer
    ) -> Tokenizer:
        """The tokenizer, with all that is said about it. `what`: how errors call the file it is from."""
        with understood(f"{what} and the files beside it do not fit"):
            check_growth(inner, what)
            self._add(inner)
            self._surround(inner, frame)
        return kind(inner, self._declared(inner))

    def _add(self, inner: tokenizers.Tokenizer) -> None:
        """Tokens with ids of their own, and which of all are special."""
        added = sorted(self.added.items())
        inner.add_tokens([token for _, token in added if inner.token_to_id(token.content) is None])
        for index, token in added:
            if (given := inner.token_to_id(token.content)) != index:
                raise InputError(f"{token.content!r} should have the id {index}, but its place is {given}")
        # A mask stands for a word and the space before it.
        mask = self.tokens.get("mask_token")
        flags = {token.content: token for token in self.added.values()}
        named = {name for name in (*self.tokens.values(), *self.extra) if name and _known(inner, name)}
        special = {token.content for token in inner.get_added_tokens_decoder().values() if token.special}
        fresh = sorted(named - special)
        plain = {name: AddedToken(name, normalized=False, lstrip=name == mask) for name in fresh}
        inner.add_special_tokens([flags.get(name, plain[name]) for name in fresh])

    def _surround(self, inner: tokenizers.Tokenizer, frame: Frame | None) -> None:
        flags = [self.settings.get(f"add_{end}_token") for end in ("bos", "eos")]
        if any(isinstance(flag, bool) for flag in flags):  # said outright, this wins over what a family does
            keys = zip(flags, ("bos_token", "eos_token"), strict=True)
            begin, end = (key if flag is True and _known(inner, self.tokens.get(key)) else "" for flag, key in keys)
            frame = Frame(f"{begin} $A {end}", f"{begin} $A {end} {begin and begin + ':1'} $B:1 {end and end + ':1'}")
        if frame is not None:
            surround(inner, frame, self.tokens)

    def _declared(self, inner: tokenizers.Tokenizer) -> Declared:
        roles: dict[Role, str | None] = {}
        special = {index: token.content for index, token in inner.get_added_tokens_decoder().items() if token.special}
        for role, keys in ROLES.items():
            if any(key in self.tokens for key in keys):
                names = [self.tokens.get(key) for key in keys]
            else:  # nothing is said here; the model may know, or a name may say it
                names = [special.get(index) for key in keys for index in self.ids.get(key, ())]
                names += [name for name in NAMES.get(role, MASKS) if name in special.values() or not self.tokens]
            roles[role] = next((name for name in names if _known(inner, name)), None)
        chat = None
        tokens = {key: self.tokens[key] for key in KEYS if key in self.tokens}
        if "default" in self.templates:
            named = {key: token for key, token in tokens.items() if token}
            chat = Chat(self.templates["default"], named, self.templates.get("tool_use"))
        return Declared(roles, self.ids.get("eos_token", ()), chat, tokens)


def _known(inner: tokenizers.Tokenizer, name: str | None) -> bool:
    return name is not None and inner.token_to_id(name) is not None


def surround(inner: tokenizers.Tokenizer, frame: Frame, tokens: Mapping[str, str | None]) -> None:
    """Let the tokenizer put special tokens around a text."""
    special: list[dict[str, Any]] = []
    for key in sorted(set(re.findall(r"\w+_token", frame.pair))):
        name = tokens.get(key)
        index = None if name is None else inner.token_to_id(name)
        if name is None or index is None:
            raise InputError(f"{key} belongs around a text, but {name!r} is not in the vocabulary")
        special.append({"id": key, "ids": [index], "tokens": [name]})
    inner.post_processor = processors.TemplateProcessing(
        single=frame.single.split(), pair=frame.pair.split(), special_tokens=special
    )


def declared(tokenizer: Tokenizer, tokens: Mapping[str, str | None], frame: Frame | None = None) -> Tokenizer:
    """The same tokenizer with these special tokens, and with what it is to put around a text."""
    inner = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    if frame is not None:
        surround(inner, frame, tokens)
    roles: dict[Role, str | None] = {
        role: next((tokens[key] for key in keys if tokens.get(key)), None) for role, keys in ROLES.items()
    }
    told = tokenizer.told
    return type(tokenizer)(inner, Declared(roles, told.ends, told.chat, tokens))


# --- values of files ---


def _content(value: object, place: str) -> str | None:
    """The text of a token: written as it is, or as a table with its settings."""
    if isinstance(value, dict):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise InputError(f"{place} is {value!r}; the text of a token is needed")
    return value or None


def _added(folder: Path, settings: Data) -> Iterator[tuple[int, AddedToken]]:
    """Tokens that were added to a vocabulary: in one file with all settings, in the other with nothing but ids."""
    decoder = settings.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        for index, written in decoder.items():
            place = f"{folder / SETTINGS}: added_tokens_decoder.{index}"
            name = _content(written, place)
            if not (index.isascii() and index.isdigit() and len(index) < 10 and name):
                raise InputError(f"{place} is {written!r}; a whole number and the token with that id are needed")
            flags = written if isinstance(written, dict) else {}
            names = ("single_word", "lstrip", "rstrip", "normalized", "special")
            yield int(index), AddedToken(name, **{flag: flags.get(flag) is True for flag in names})
    elif (folder / ADDED).is_file():
        for name, number in numbered(read_json(folder / ADDED), folder / ADDED).items():
            yield number, AddedToken(name, normalized=False)


def _extra(source: Data) -> Iterator[str]:
    for key in ("additional_special_tokens", "extra_special_tokens"):
        values = source.get(key)
        listed = values if isinstance(values, list) else list(values.values()) if isinstance(values, dict) else []
        for value in listed:
            if name := _content(value, key):
                yield name


def _ids(value: object) -> list[int]:
    """One id or several; what is no id says nothing."""
    return [index for index in (value if isinstance(value, list) else [value]) if type(index) is int and index >= 0]


def _templates(value: object, path: Path) -> dict[str, str]:
    """Templates by name: one is the default, of several each says its name."""
    match value:
        case None:
            return {}
        case str():
            return {"default": value}
        case list() if all(isinstance(one, dict) for one in value):
            found = {one.get("name"): one.get("template") for one in value}
            if all(isinstance(text, str) for pair in found.items() for text in pair):
                return {str(name): str(text) for name, text in found.items()}
    raise InputError(f"{path}: chat_template must be a text, or a list of tables with name and template")


def write(tokenizer: Tokenizer, folder: Path) -> None:
    """A tokenizer.json, and beside it what is known of its special tokens and its chats."""
    keys: dict[Role, str] = {"begin": "bos_token", "end": "eos_token", "pad": "pad_token", "unknown": "unk_token"}
    found = {key: getattr(tokenizer, role) for role, key in keys.items()}
    named = {key: tokenizer.name(index) for key, index in found.items() if index is not None}
    settings: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,  # older versions of transformers take spaces out, unless told
        **(tokenizer.told.tokens or named),
    }
    if tokenizer.chat is not None:
        others = [] if tokenizer.chat.tooled is None else [{"name": "tool_use", "template": tokenizer.chat.tooled}]
        default = {"name": "default", "template": tokenizer.chat.template}
        settings["chat_template"] = [default, *others] if others else tokenizer.chat.template
    tokenizer.save(folder / "tokenizer.json")
    _written(folder / "tokenizer_config.json", settings)
    if tokenizer.ends[1:] and not (folder / "generation_config.json").exists():
        _written(folder / "generation_config.json", {"eos_token_id": list(tokenizer.ends)})


def _written(path: Path, data: object) -> None:
    with replacing(path) as fresh:
        fresh.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
