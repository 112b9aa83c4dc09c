"""Tokenizers of pretrained checkpoints, whichever files they are in; each becomes the one class `Tokenizer`.

A folder may hold a tokenizer.json, pairs (vocab.json and merges.txt), a WordPiece vocabulary (vocab.txt) or a model of
SentencePiece. What the files leave open, the family decides: it is named by tokenizer_config.json or config.json.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from ..core.errors import InputError
from . import FILES, found, holds
from .families import BERT, DOUBLE, FAIRSEQ, PIECES, SENTENCE
from .gguf import BYTE_LEVEL, from_gguf, split_by
from .guard import VOCABULARY, numbered, read_bytes, read_json, read_text, understood, whole
from .segmented import SegmentedTokenizer
from .sentencepiece import BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, Piece, Pieces, read_pieces, relabelled
from .tokenizer import MOST, Tokenizer
from .tokenizer_config import Frame, TokenizerSettings

__all__ = ["from_gguf", "from_llama2c", "holds", "read"]

Built: TypeAlias = tuple[tokenizers.Tokenizer, TokenizerSettings, Frame | None]

# Families whose files look like others but are read in a way of their own.
STRANGE = {
    *("bertjapanese", "bertweet", "biogpt", "blenderbotsmall", "canine", "cpm", "cpmant", "ctrl", "esm"),
    *("flaubert", "fsmt", "herbert", "phobert", "prophetnet", "rocbert", "speech2text"),
    *("tapas", "wav2vec2", "xlm"),
}

SEGMENTED = {"roformer"}  # families whose words are those of a dictionary


def read(folder: Path | str) -> Tokenizer:
    """The tokenizer of a folder."""
    place = Path(folder)
    files = found(place)
    if files is None:
        kinds = "; ".join(" and ".join(files) for files in FILES)
        raise InputError(f"{place} holds no tokenizer that heed knows; one of these is needed: {kinds}")
    settings = TokenizerSettings.read(place)
    if settings.kind in STRANGE and files != FILES[0]:
        raise InputError(
            f"{place} is for the family {settings.kind}, whose tokenizer is not supported; a tokenizer.json would be"
        )
    what = str(place / files[0])
    with understood(f"{what} cannot be read"):
        inner, settings, frame = STRATEGIES.get(files, _sentence(files[0]))(place, settings)
    return settings.finish(inner, frame, what, SegmentedTokenizer if settings.kind in SEGMENTED else Tokenizer)


# --- tokenizer.json ---


def _whole(place: Path, settings: TokenizerSettings) -> Built:
    return whole(place / "tokenizer.json"), settings, None


# --- pairs ---


def _pairs(place: Path, settings: TokenizerSettings) -> Built:
    path = place / "vocab.json"
    vocabulary = numbered(read_json(path, VOCABULARY), path)
    merges = _merges(place / "merges.txt")
    with understood(f"{path} and merges.txt do not fit"):
        if settings.kind.startswith("clip"):
            return _clip(vocabulary, merges, settings)
        if settings.kind == "openaigpt":
            return _openai(vocabulary, merges, settings)
        inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        prefix = settings.flag("add_prefix_space", False)
        inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=prefix), decoders.ByteLevel()
        if settings.kind.startswith("qwen"):
            inner.normalizer, inner.pre_tokenizer = normalizers.NFC(), split_by(BYTE_LEVEL["qwen2"])
    if settings.kind in FAIRSEQ:
        return inner, settings.with_usual(FAIRSEQ[settings.kind]), DOUBLE
    if settings.kind == "deberta":
        return inner, settings.with_usual(PIECES["bert"].tokens), BERT
    end = "<|endoftext|>" if "<|endoftext|>" in vocabulary else None
    usual: dict[str, str | None] = {"eos_token": end, "unk_token": end}
    usual |= {"bos_token": None, "pad_token": end} if settings.kind.startswith("qwen") else {"bos_token": end}
    return inner, settings.with_usual(usual), None


def _merges(path: Path) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for number, line in enumerate(read_text(path, VOCABULARY).split("\n"), 1):
        if line.strip() and not line.startswith("#version"):
            left, _, right = line.partition(" ")
            if not left or not right or " " in right:
                raise InputError(f"line {number} of {path} is {line[:40]!r}; two tokens and a space are needed")
            found.append((left, right))
    return found


def _clip(vocabulary: dict[str, int], merges: list[tuple[str, str]], settings: TokenizerSettings) -> Built:
    """Lower case; words end in </w> (Radford et al. 2021)."""
    end = "<|endoftext|>"
    usual = {"bos_token": "<|startoftext|>", "eos_token": end, "unk_token": end, "pad_token": end}
    settings = settings.with_usual(usual)
    model = models.BPE(
        vocab=vocabulary, merges=merges, end_of_word_suffix="</w>", unk_token=settings.tokens["unk_token"]
    )
    inner = tokenizers.Tokenizer(model)
    inner.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    ended = decoders.Replace(Regex(r" \z"), "")  # the library's Strip fails on what is empty
    inner.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " "), ended])
    around = "bos_token $A eos_token"
    return inner, settings, Frame(around, f"{around} eos_token $B eos_token")


def _openai(vocabulary: dict[str, int], merges: list[tuple[str, str]], settings: TokenizerSettings) -> Built:
    """The first GPT (Radford et al. 2018): lower case, words as in BERT, which end in </w>."""
    settings = settings.with_usual({"unk_token": "<unk>"})
    model = models.BPE(
        vocab=vocabulary, merges=merges, end_of_word_suffix="</w>", unk_token=settings.tokens["unk_token"]
    )
    inner = tokenizers.Tokenizer(model)
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder("</w>")
    return inner, settings, None


# --- WordPiece ---


def _words(place: Path, settings: TokenizerSettings) -> Built:
    """Wu et al. 2016, Devlin et al. 2019: the longest piece that fits, again and again."""
    lines = read_text(place / "vocab.txt", VOCABULARY).removesuffix("\n").split("\n")
    layout = PIECES.get(settings.kind, PIECES["bert"])
    settings = settings.with_usual(layout.tokens)
    unknown = settings.tokens["unk_token"]
    if unknown is None or unknown not in lines:
        raise InputError(f"{place / 'vocab.txt'} lacks {unknown!r}, which stands for words that it does not know")
    vocabulary = {line: number for number, line in enumerate(lines)}
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    lower = settings.flag("do_lower_case", not _cased(lines, settings))
    inner.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.kind not in SEGMENTED and settings.flag("tokenize_chinese_chars", True),
        strip_accents=settings.flag("strip_accents", lower),
        lowercase=lower,
    )
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return inner, settings, layout.frame


def _cased(lines: list[str], settings: TokenizerSettings) -> bool:
    """Whether a vocabulary tells upper from lower case: then texts in lower case alone cannot be meant."""
    special = {*settings.extra, *filter(None, settings.tokens.values())}
    return any(line != line.lower() and line not in special and not line.startswith("[unused") for line in lines)


# --- SentencePiece ---


def _sentence(name: str) -> Build:
    def build(place: Path, settings: TokenizerSettings) -> Built:
        layout = SENTENCE.get(settings.kind, SENTENCE[""])
        model = read_pieces(place / name)
        if "lang_token" in layout.tokens and isinstance(language := settings.settings.get("src_lang"), str):
            settings = settings.with_usual({"lang_token": f"__{language}__" if settings.kind == "m2m100" else language})
        path = place / "vocab.json"
        if path.is_file():  # the ids are in a file of their own
            settings = settings.with_usual(layout.tokens)
            ids = numbered(read_json(path, VOCABULARY), path)
            new = [token for token in dict.fromkeys(settings.extra) if token not in ids]
            ids |= {token: len(ids) + place for place, token in enumerate(new)}
            special = [settings.tokens.get(key) for key in ("unk_token", "bos_token", "eos_token", "pad_token")]
            names = [token or "" for token in special] + list(settings.extra)
            return relabelled(model, ids, names).build(), settings, layout.frame
        settings, model = layout.arrange(settings.with_usual(layout.tokens), model)
        return model.build(), settings, layout.frame

    return build


Build: TypeAlias = Callable[[Path, TokenizerSettings], Built]
STRATEGIES: dict[tuple[str, ...], Build] = {  # the others are models of SentencePiece
    ("tokenizer.json",): _whole,
    ("vocab.json", "merges.txt"): _pairs,
    ("vocab.txt",): _words,
}


# --- llama2.c (Karpathy 2023): pieces of SentencePiece with their scores, and nothing else ---

LLAMA2C = {0: ("<unk>", UNKNOWN), 1: ("<s>", CONTROL), 2: ("</s>", CONTROL)}
FIRST_BYTE = 3  # the id of the first of the 256 bytes


def from_llama2c(path: Path | str, size: int) -> Tokenizer:
    """The tokenizer of a .bin file with `size` tokens: the longest length, then score, length and bytes of each."""
    place = Path(path)
    if not FIRST_BYTE + 256 <= size <= MOST:
        raise InputError(f"a tokenizer of llama2.c has the 256 bytes and 3 special tokens at least, not {size}")
    data = read_bytes(place, VOCABULARY)
    pieces: list[Piece] = []
    at = 4  # after the longest length, which is not needed
    for index in range(size):
        score, length = _scored(data, at, place, index, size)
        text = data[at + 8 : at + 8 + length]
        at += 8 + length
        pieces.append(_piece(index, text, score, place))
    if at != len(data):
        raise InputError(f"{place} goes on after {size} tokens; give the number of tokens that it was made for")
    inner = Pieces(tuple(pieces), pairs=True, tidy=False).build()
    settings = TokenizerSettings(tokens={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"})
    return settings.finish(inner, Frame("bos_token $A", "bos_token $A bos_token:1 $B:1"), str(place))


def _scored(data: bytes, at: int, place: Path, index: int, size: int) -> tuple[float, int]:
    if at + 8 <= len(data):
        score, length = struct.unpack_from("<fi", data, at)
        if 0 <= length <= len(data) - at - 8:
            return score, length
    raise InputError(f"{place} ends at token {index} of {size}, or is no tokenizer of llama2.c")


def _piece(index: int, text: bytes, score: float, place: Path) -> Piece:
    if index in LLAMA2C:  # the file has line breaks around their names
        name, kind = LLAMA2C[index]
        return Piece(name, 0.0, kind)
    if index < FIRST_BYTE + 256:
        return Piece(f"<0x{index - FIRST_BYTE:02X}>", 0.0, BYTE)
    try:
        return Piece(text.decode().replace(" ", SPACE), score, NORMAL)
    except UnicodeDecodeError:
        raise InputError(f"token {index} of {place} is {text!r}, which is not UTF-8") from None
