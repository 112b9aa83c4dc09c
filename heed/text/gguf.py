"""The tokenizer in the metadata of a GGUF file, as llama.cpp reads it.

`tokenizer.ggml.model` says how: "gpt2" for pairs of bytes, with `tokenizer.ggml.pre` for how texts are split into words
first; "llama" for pairs of SentencePiece, "t5" for its Unigram, "bert" for WordPiece.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ..core.errors import InputError
from .guard import understood
from .sentencepiece import BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, UNUSED, USER, Piece, Pieces
from .tokenizer import MOST, Tokenizer
from .tokenizer_config import Frame, TokenizerSettings

# --- how texts are split into words ---

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _words(digits: str, letters: str = r"\p{L}") -> tuple[str, ...]:
    """Letters with one mark before them, so many digits, marks with line breaks after them (Llama 3, Qwen 2)."""
    return (rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{digits}| ?[^\s{letters}\p{{N}}]+[\r\n]*|{_SPACES}",)


def _cased(digits: str, short: str) -> tuple[str, ...]:
    """The same, and a new word before a capital (Tekken, GPT-4o)."""
    mark = r"[^\r\n\p{L}\p{N}]?"
    words = f"{mark}{_UPPER}*{_LOWER}+{short}|{mark}{_UPPER}+{_LOWER}*{short}"
    return (rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",)


class Split(NamedTuple):
    """Patterns that split a text one after the other; whether a whole word is a token without being merged."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    begins: bool = False  # a text has the first token before it unless the file denies it


_LLAMA3 = Split(_words(r"\p{N}{1,3}"), ignore_merges=True, begins=True)
_QWEN2 = Split(_words(r"\p{N}"))
_DIGITS = Split((r"\p{N}", _GPT2))
_BLOOM = Split((r" ?[^(\s|.,!?…。，、।۔،)]+",))
# Letters that are large or small, but for some scripts and what mathematics makes of letters.
_CASED = (
    r"[[\p{Lu}\p{Ll}\p{Lt}]&&[^\x{560}-\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2D}\x{A790}-\x{A7FA}"
    r"\x{AB30}-\x{AB68}\x{10570}-\x{105BC}\x{10D50}-\x{10D85}\x{16E40}-\x{16EBF}\x{1D400}-\x{1D7CB}\x{1DF00}-\x{1DFFF}]]"
)
_EASTERN = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
_ASCII_MARKS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    rf"{_ASCII_MARKS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)

BYTE_LEVEL: dict[str, Split] = {
    "default": Split((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ("gpt-2", "mpt", "olmo", "jais", "phi-2", "roberta-bpe", "modern-bert", "exaone4"), Split((_GPT2,))
    ),
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), Split(_LLAMA3.patterns)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2"), _QWEN2),
    "qwen35": Split(_words(r"\p{N}", r"\p{L}\p{M}")),
    "falcon": Split((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _BLOOM),
    "viking": Split((*_BLOOM.patterns, r"\p{N}")),
    "tekken": Split(_cased(r"\p{N}", ""), ignore_merges=True, begins=True),
    **dict.fromkeys(("gpt-4o", "llama4"), Split(_cased(r"\p{N}{1,3}", f"{_SHORT}?"))),
    "deepseek-llm": Split(
        (
            r"[\r\n]",
            rf"\s?{_CASED}+",
            r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
            r"\s+$",
            _EASTERN,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": Split((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EASTERN, r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), Split(_DEEPSEEK3)),
}


def split_by(how: Split) -> pre_tokenizers.PreTokenizer:
    """Words by these patterns, spelt in the alphabet of bytes."""
    parts: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Split(Regex(one), "isolated") for one in how.patterns]
    return pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# --- metadata ---

# Names of tokens that end a completion, whatever else a file says.
ENDINGS = frozenset(
    {
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>"),
        *("<|eom_id|>", "<EOT>", "[EOT]", "<|end_of_text|>", "<end_of_utterance>", "<｜end▁of▁sentence｜>"),
    }
)
IDS = {
    "bos_token": ("bos_token_id", "cls_token_id"),
    "eos_token": ("eos_token_id",),
    "unk_token": ("unknown_token_id",),
    "sep_token": ("seperator_token_id", "separator_token_id"),  # the format's own spelling, and the usual one
    "pad_token": ("padding_token_id",),
    "cls_token": ("cls_token_id",),
    "mask_token": ("mask_token_id",),
}


# Ids that go without saying.
USUAL: dict[str, dict[str, int]] = {
    "llama": {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0},
    "t5": {"eos_token_id": 1, "unknown_token_id": 2, "padding_token_id": 0},
    "bert": {
        "padding_token_id": 0,
        "unknown_token_id": 100,
        "cls_token_id": 101,
        "seperator_token_id": 102,
        "mask_token_id": 103,
    },
}


class Meta:
    """The values below "tokenizer.", with their types checked."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        tokens = self.many("ggml.tokens", str)
        self.tokens: list[str] = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
        if not 0 < len(self.tokens) <= MOST or len(set(self.tokens)) < len(self.tokens):
            raise InputError(
                f"the GGUF file holds {len(tokens):,} tokens; 1 to {MOST:,} are needed, none of them twice"
            )
        self.types: list[int] = self.each("ggml.token_type", int, [1] * len(self.tokens))

    def one(self, name: str, kind: type[Any], default: Any = None) -> Any:
        value = self._values.get(f"tokenizer.{name}")
        if value is None:
            return default
        if type(value) is not kind:
            raise InputError(f"tokenizer.{name} of the GGUF file is {value!r:.60}; {kind.__name__} is needed")
        return value

    def many(self, name: str, kind: type[Any], default: list[Any] | None = None) -> list[Any]:
        value = self._values.get(f"tokenizer.{name}", default)
        if not isinstance(value, list | tuple):
            raise InputError(f"tokenizer.{name} of the GGUF file is missing or no list")
        try:
            return [kind(one) for one in value if isinstance(one, str) == (kind is str)]
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"tokenizer.{name} of the GGUF file must hold {kind.__name__} only") from None

    def each(self, name: str, kind: type[Any], default: list[Any] | None = None) -> list[Any]:
        """One value for every token."""
        listed = self.many(name, kind, default)
        if len(listed) != len(self.tokens):
            raise InputError(f"tokenizer.{name} has {len(listed)} fit entries for {len(self.tokens)} tokens")
        return listed

    def named(self, usual: Mapping[str, int]) -> dict[str, str | None]:
        """Special tokens by their keys."""
        found: dict[str, str | None] = {}
        for key, names in IDS.items():
            said = [self.one(f"ggml.{name}", int, usual.get(name)) for name in names]
            index = next((index for index in said if index is not None), -1)
            found[key] = self.tokens[index] if 0 <= index < len(self.tokens) else None
        return found

    def ends(self) -> tuple[int, ...]:
        said = [self.one(f"ggml.{name}_token_id", int) for name in ("eos", "eot", "eom")]
        named = [index for index, token in enumerate(self.tokens) if token in ENDINGS and self.types[index] in ASIDE]
        return tuple(index for index in (*said, *named) if index is not None)

    def frame(self, begins: bool, ends: bool, tokens: Mapping[str, str | None]) -> Frame:
        begin = "bos_token" if self.one("ggml.add_bos_token", bool, begins) and tokens["bos_token"] else ""
        end = "eos_token" if self.one("ggml.add_eos_token", bool, ends) and tokens["eos_token"] else ""
        return Frame(f"{begin} $A {end}", f"{begin} $A {end} $B:1 {end and end + ':1'}")


ASIDE = frozenset({CONTROL, USER, UNKNOWN})


def from_gguf(meta: Mapping[str, object]) -> Tokenizer:
    """The tokenizer that a GGUF file describes in its metadata, given as plain values by their keys."""
    model = meta.get("tokenizer.ggml.model")
    build = MODELS.get(model) if isinstance(model, str) else None
    if build is None:
        raise InputError(f"tokenizer.ggml.model of the GGUF file is {model!r}; known are {', '.join(MODELS)}")
    read = Meta(meta)
    tokens = read.named(USUAL.get(str(model), {}))
    with understood("the tokenizer of the GGUF file does not fit together"):
        inner, frame = build(read, tokens)
    template = read.one("chat_template", str)
    settings = TokenizerSettings(
        tokens=tokens,
        ids={"eos_token": read.ends()},
        templates={} if template is None else {"default": template},
    )
    return settings.finish(inner, frame, "the tokenizer of the GGUF file")


def _bytes(meta: Meta, tokens: dict[str, str | None]) -> tuple[tokenizers.Tokenizer, Frame]:
    name = meta.one("ggml.pre", str, "default")
    if name not in BYTE_LEVEL:
        raise InputError(f"tokenizer.ggml.pre of the GGUF file is {name!r}; known are {', '.join(sorted(BYTE_LEVEL))}")
    how = BYTE_LEVEL[name]
    merges = [tuple(pair.split(" ")) for pair in meta.many("ggml.merges", str, [])]  # bytes alone have none
    model = models.BPE(
        vocab={token: index for index, token in enumerate(meta.tokens)},
        merges=merges,  # pairs; others are refused by the library
        ignore_merges=how.ignore_merges,
    )
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer, inner.decoder = split_by(how), decoders.ByteLevel()
    _add(inner, meta)
    return inner, meta.frame(how.begins, False, tokens)


def _sentence(pairs: bool) -> Callable[[Meta, dict[str, str | None]], tuple[tokenizers.Tokenizer, Frame]]:
    def build(meta: Meta, tokens: dict[str, str | None]) -> tuple[tokenizers.Tokenizer, Frame]:
        scores = meta.each("ggml.scores", float)
        tidy = not pairs and meta.one("ggml.remove_extra_whitespaces", bool, False)
        pieces = Pieces(
            tuple(Piece(*each) for each in zip(meta.tokens, scores, meta.types, strict=True)),
            pairs,
            charsmap=bytes(one & 0xFF for one in meta.many("ggml.precompiled_charsmap", int, [])),
            composed=True,
            prefix=tidy or meta.one("ggml.add_space_prefix", bool, pairs),
            tidy=tidy,
        )
        return pieces.build(), meta.frame(pairs, not pairs, tokens)

    return build


def _wordpiece(meta: Meta, tokens: dict[str, str | None]) -> tuple[tokenizers.Tokenizer, Frame]:
    """The file marks the beginnings of words by ▁, where BERT marks the other pieces by ##."""
    lower = meta.one("ggml.normalizer.lowercase", bool, True)
    vocabulary = {_plain(token): index for index, token in enumerate(meta.tokens)}
    unknown = tokens["unk_token"] or "[UNK]"
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    accents = meta.one("ggml.normalizer.strip_accents", bool)
    inner.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=accents)
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    _add(inner, meta)
    return inner, Frame("bos_token $A sep_token", "bos_token $A sep_token $B:1 sep_token:1")


def _plain(token: str) -> str:
    if token.startswith(SPACE):
        return token[1:]
    return token if token.startswith("[") and token.endswith("]") else f"##{token}"


def _add(inner: tokenizers.Tokenizer, meta: Meta) -> None:
    """Control tokens are special; those that the user defined are found in any text."""
    aside = [(token, kind) for token, kind in zip(meta.tokens, meta.types, strict=True) if kind in ASIDE]
    inner.add_tokens([AddedToken(token, special=kind != USER, normalized=False) for token, kind in aside])


MODELS = {"gpt2": _bytes, "llama": _sentence(pairs=True), "t5": _sentence(pairs=False), "bert": _wordpiece}


# --- the way back ---

# Texts that tell ways to take them apart from one another: contractions, numbers, marks, spaces, scripts.
PROBES = (
    "Hello world! It's 1234567 o'clock, isn't it? THEY'LL see  two   spaces\n\nand lines\r\n\ttabs.",
    "x=y+1; if (a[0]!=b): return f'{c:>10}'  # why? 3.14159 100,000 12345 e-mail@host.org/path_to/file",
    "Ünïcödé naïve café straße – “quotes” … 12€ 日本語のテキスト 漢字123 Привет, мир! مرحبا ไทย 🙂👍🏽",
    " leading and trailing \n",
    "CamelCaseWords ABCdef word's WORD'S",
)


def to_gguf(tokenizer: Tokenizer, rows: int) -> dict[str, object]:
    """The metadata that describes a tokenizer in a GGUF file, with a token for each of the `rows` of a model.

    Whether it takes texts apart in the same way when it is read again is tried before it is believed.
    """
    written = _Written(tokenizer, rows)
    for meta in written.candidates():
        if _same(tokenizer, from_gguf(meta)):
            return meta
    raise InputError(
        "GGUF has no word for how this tokenizer takes texts apart (whole words, lower case, a pattern of its own); "
        "write a folder instead: OUT without .gguf"
    )


class _Written:
    """A tokenizer as GGUF has it."""

    def __init__(self, tokenizer: Tokenizer, rows: int) -> None:
        self.tokenizer, data = tokenizer, json.loads(tokenizer.to_json())
        self.model, self.decoder = data["model"], (data["decoder"] or {}).get("type")
        self.added = {token["id"]: token["special"] for token in data["added_tokens"]}
        known = tokenizer.convert_ids_to_tokens(range(tokenizer.size))
        self.tokens = [known[index] if index < len(known) else "" for index in range(rows)]
        pairs = self.model.get("merges") or ()
        self.merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in pairs]

    def candidates(self) -> Iterator[dict[str, object]]:
        """What may describe it: pairs of bytes by every known way to split texts, else pieces."""
        if self.model["type"] != "BPE":
            return
        if self.decoder == "ByteLevel":
            listed = {"tokenizer.ggml.merges": [" ".join(pair) for pair in self.merges]} if self.merges else {}
            common = {"tokenizer.ggml.model": "gpt2", **self._common(self.tokens), **listed}
            ways = {how.patterns: name for name, how in reversed(BYTE_LEVEL.items()) if not how.ignore_merges}
            whole = {how.patterns: name for name, how in reversed(BYTE_LEVEL.items()) if how.ignore_merges}
            for name in (whole if self.model.get("ignore_merges") else ways).values():
                yield {**common, "tokenizer.ggml.pre": name}
        else:
            yield self._pieces()

    def _pieces(self) -> dict[str, object]:
        """Of SentencePiece, or single characters, which are pieces that nothing merges."""
        ranks = {left + right: rank for rank, (left, right) in reversed(list(enumerate(self.merges)))}
        spelt = [token.replace(" ", SPACE) if index not in self.added else token for index, token in self._numbered()]
        return {
            "tokenizer.ggml.model": "llama",
            **self._common(spelt),
            "tokenizer.ggml.scores": [-float(ranks.get(token, len(ranks))) for token in spelt],
            "tokenizer.ggml.add_space_prefix": self.tokenizer.encode("a") != self.tokenizer.encode(" a")[-1:]
            and self.decoder != "Fuse",
        }

    def _common(self, tokens: list[str]) -> dict[str, object]:
        """Tokens and their types, ids of the special ones, what is put around a text, and the chat template."""
        told = self.tokenizer
        ids = {"bos": told.begin, "eos": told.end, "unknown": told.unknown, "padding": told.pad}
        framed = told.framed("a").ids
        around = {"bos": framed[:1] == [told.begin], "eos": framed[-1:] == [told.end]}
        return {
            "tokenizer.ggml.tokens": [token or f"[PAD{index}]" for index, token in enumerate(tokens)],
            "tokenizer.ggml.token_type": [self._type(index, token) for index, token in enumerate(tokens)],
            **{f"tokenizer.ggml.{name}_token_id": index for name, index in ids.items() if index is not None},
            **{f"tokenizer.ggml.add_{name}_token": put for name, put in around.items()},
            **({} if told.chat is None else {"tokenizer.chat_template": told.chat.template}),
        }

    def _type(self, index: int, token: str) -> int:
        if not token:
            return UNUSED
        if index == self.tokenizer.unknown and self.decoder != "ByteLevel":
            return UNKNOWN
        if index in self.added:
            return CONTROL if self.added[index] else USER
        return BYTE if self.decoder != "ByteLevel" and len(token) == 6 and token.startswith("<0x") else NORMAL

    def _numbered(self) -> Iterator[tuple[int, str]]:
        return enumerate(self.tokens)


def _same(one: Tokenizer, two: Tokenizer) -> bool:
    """Whether two take the same texts apart in the same way, as far as the first knows their characters."""
    return all(one.encode(text) == two.encode(text) for text in map(_known_to(one), PROBES))


def _known_to(tokenizer: Tokenizer) -> Callable[[str], str]:
    def known(text: str) -> str:
        return "".join(each for each in text if tokenizer.unknown not in tokenizer.encode(each))

    return known if tokenizer.unknown is not None else lambda text: text
