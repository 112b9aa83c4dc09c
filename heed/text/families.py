"""What families of tokenizers differ in: the names of special tokens, where they stand, and how ids are arranged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from tokenizers import normalizers

from .sentencepiece import CONTROL, UNKNOWN, Piece, Pieces
from .tokenizer import NAMES
from .tokenizer_config import Frame, TokenizerSettings

# --- what stands around a text, and around a pair ---

BERT = Frame("cls_token $A sep_token", "cls_token $A sep_token $B:1 sep_token:1")
FUNNEL = Frame("cls_token:2 $A sep_token", "cls_token:2 $A sep_token $B:1 sep_token:1")
XLNET = Frame("$A sep_token cls_token:2", "$A sep_token $B:1 sep_token:1 cls_token:2")
DOUBLE = Frame("cls_token $A sep_token", "cls_token $A sep_token sep_token $B sep_token")  # RoBERTa
END = Frame("$A eos_token", "$A eos_token $B eos_token")  # T5
ONE_END = Frame("$A eos_token", "$A $B eos_token")
BEGIN = Frame("bos_token $A", "bos_token $A bos_token:1 $B:1")
LANGUAGE_FIRST = Frame("lang_token $A eos_token", "lang_token $A $B eos_token")
LANGUAGE_LAST = Frame("$A eos_token lang_token", "$A $B eos_token lang_token")

# --- special tokens by their keys ---


def _tokens(begin: str, end: str, pad: str, unknown: str, mask: str | None = None) -> dict[str, str | None]:
    """Names for a family that has one token before a text and one after it, whatever they are called."""
    keys = {"bos_token": begin, "cls_token": begin, "eos_token": end, "sep_token": end, "pad_token": pad}
    return {**keys, "unk_token": unknown, "mask_token": mask}


ROBERTA = _tokens("<s>", "</s>", "<pad>", "<unk>", "<mask>")
BRACKETS: dict[str, str | None] = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}
ALBERT = _tokens("[CLS]", "[SEP]", "<pad>", "<unk>", "[MASK]")
NAMED: dict[str, str | None] = {**ROBERTA, "cls_token": "<cls>", "sep_token": "<sep>"}  # XLNet, Funnel
ENDED: dict[str, str | None] = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}  # T5, Marian

# Families whose pairs of bytes come with RoBERTa's special tokens.
FAIRSEQ = dict.fromkeys(("roberta", "bart", "longformer", "led", "mvp", "luke", "layoutlmv3", "xlmrobertaxl"), ROBERTA)

# --- WordPiece ---


class Words(NamedTuple):
    """A family that has a vocab.txt."""

    tokens: Mapping[str, str | None]
    frame: Frame


PIECES = {
    "bert": Words(BRACKETS, BERT),
    "funnel": Words(NAMED, FUNNEL),
    "mpnet": Words({**ROBERTA, "unk_token": "[UNK]"}, DOUBLE),
}

# --- SentencePiece ---

Arranged: TypeAlias = tuple[TokenizerSettings, Pieces]


class Layout(NamedTuple):
    """A family that has a SentencePiece model."""

    tokens: Mapping[str, str | None] = {}
    frame: Frame | None = None
    arrange: Callable[[TokenizerSettings, Pieces], Arranged] = lambda settings, model: (settings, model)


def _plain(settings: TokenizerSettings, model: Pieces) -> Arranged:
    """Ids as they are; the special tokens are those that the model itself calls so."""
    control = [piece.text for piece in model.pieces if piece.type == CONTROL]
    keys = {"bos_token": NAMES["begin"], "eos_token": NAMES["end"], "pad_token": NAMES["pad"]}
    found = {key: next((name for name in names if name in control), None) for key, names in keys.items()}
    unknown = model.first(UNKNOWN)
    if unknown is not None:
        found["unk_token"] = model.pieces[unknown].text
    prefix = model.prefix and settings.settings.get("add_prefix_space") is not False
    legacy = model.legacy and settings.settings.get("legacy") is not False
    return settings.with_usual(found), replace(model, prefix=prefix, legacy=legacy)


def _sentinels(settings: TokenizerSettings, model: Pieces) -> Arranged:
    """T5: the tokens that stand for what is left out come last, the first of them at the very end."""
    names = [f"<extra_id_{number}>" for number in range(settings.count("extra_ids", 100))]
    return settings, _with(model, *reversed(names))


def _masked(settings: TokenizerSettings, model: Pieces) -> Arranged:
    """DeBERTa: the mask comes last."""
    return settings, _with(model, settings.tokens.get("mask_token"))


def _fairseq(settings: TokenizerSettings, model: Pieces) -> Arranged:
    """XLM-R, mBART, NLLB: <s> <pad> </s> <unk> come first; languages and the mask come last."""
    first = _special(settings, "bos_token", "pad_token", "eos_token", "unk_token")
    pieces = replace(model, pieces=(*first, *model.pieces[3:]))
    return settings, _with(pieces, *settings.extra, settings.tokens.get("mask_token"))


def _camembert(settings: TokenizerSettings, model: Pieces) -> Arranged:
    pad, unknown = _special(settings, "pad_token", "unk_token")
    unused = [Piece(f"{name}NOTUSED", 0.0, CONTROL) for name in ("<s>", "</s>", "<unk>")]
    pieces = (unused[0], pad, unused[1], unknown, unused[2], *model.pieces[1:])
    return settings, _with(replace(model, pieces=pieces), settings.tokens.get("mask_token"))


def _pegasus(settings: TokenizerSettings, model: Pieces) -> Arranged:
    """103 ids are before those of the model, whose first two are replaced."""
    first = _special(settings, "pad_token", "eos_token")
    between = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, settings.count("offset", 103)))]
    pieces = (*first, *(Piece(name, 0.0, CONTROL) for name in between), *model.pieces[2:])
    return settings, replace(model, pieces=pieces)


def _reduced(lowercase: bool, accents: bool) -> Callable[[TokenizerSettings, Pieces], Arranged]:
    """ALBERT and its kin: quotation marks made plain, accents and capitals perhaps dropped; "9," is not one piece."""

    def arrange(settings: TokenizerSettings, model: Pieces) -> Arranged:
        lead: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not settings.flag("keep_accents", accents):
            lead += [normalizers.NFKD(), normalizers.StripAccents()]
        if settings.flag("do_lower_case", lowercase):
            lead.append(normalizers.Lowercase())
        pieces = tuple(
            piece._replace(score=piece.score - 100) if piece.text[-1:] == "," and piece.text[-2:-1].isdigit() else piece
            for piece in model.pieces
        )
        return settings, replace(model, pieces=pieces, lead=tuple(lead))

    return arrange


def _special(settings: TokenizerSettings, *keys: str) -> list[Piece]:
    names = [settings.tokens.get(key) or f"<{key}>" for key in keys]
    return [Piece(name, 0.0, UNKNOWN if key == "unk_token" else CONTROL) for key, name in zip(keys, names, strict=True)]


def _with(model: Pieces, *names: str | None) -> Pieces:
    """Special tokens at the end, unless they are there already."""
    there = {piece.text for piece in model.pieces}
    last = (Piece(name, 0.0, CONTROL) for name in dict.fromkeys(names) if name and name not in there)
    return replace(model, pieces=(*model.pieces, *last))


_LLAMA = Layout({}, BEGIN, _plain)
_T5 = Layout(ENDED, END, _sentinels)
SENTENCE: dict[str, Layout] = {
    "": Layout({}, None, _plain),
    **dict.fromkeys(("llama", "codellama", "mistral", "mixtral", "gemma", "gemma2", "gemma3", "gemma3text"), _LLAMA),
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5", "switchtransformers"), _T5),
    "albert": Layout(ALBERT, BERT, _reduced(lowercase=True, accents=False)),
    "rembert": Layout(ALBERT, BERT, _reduced(lowercase=False, accents=True)),
    "fnet": Layout(ALBERT, BERT, _reduced(lowercase=False, accents=True)),
    "xlnet": Layout(NAMED, XLNET, _reduced(lowercase=False, accents=False)),
    "bigbird": Layout({**ROBERTA, "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}, BERT),
    "debertav2": Layout({**BRACKETS, "bos_token": "[CLS]", "eos_token": "[SEP]"}, BERT, _masked),
    "xlmroberta": Layout(ROBERTA, DOUBLE, _fairseq),
    "camembert": Layout(ROBERTA, DOUBLE, _camembert),
    "pegasus": Layout({**ENDED, "mask_token": "<mask_2>"}, ONE_END, _pegasus),
    "marian": Layout(ENDED, ONE_END),
    "m2m100": Layout({**ENDED, "bos_token": "<s>", "lang_token": "__en__"}, LANGUAGE_FIRST),
    "nllb": Layout({**ROBERTA, "lang_token": "eng_Latn"}, LANGUAGE_FIRST, _fairseq),
    "mbart": Layout({**ROBERTA, "lang_token": "en_XX"}, LANGUAGE_LAST, _fairseq),
    "mbart50": Layout({**ROBERTA, "lang_token": "en_XX"}, LANGUAGE_FIRST, _fairseq),
}
