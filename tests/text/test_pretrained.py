"""Tokenizers of other people's folders: the ids that transformers gives, the special tokens that the files declare."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import transformers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from heed.core.errors import InputError
from heed.text import Bpe, Framed, Tokenizer, pretrained
from heed.text.pretokenizers import byte_alphabet
from tests.text.material import LINES, TEXTS, folder, real, trained

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", ",", "this", "is", "n", "'", "t", "a", "test"]
WORDS += ["!", "two", "##s", "line", "one", "敏", "cafe", "1", "##2", "x", "##x"]
SYMBOLS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>", "<|startoftext|>"]
DECLARED = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>", "add_bos_token": True}


def pairs() -> dict[str, object]:
    """A vocab.json and a merges.txt."""
    written = json.loads(Bpe(size=400).train(LINES)._inner.to_str())["model"]
    vocabulary = {token: index for index, token in enumerate([*SYMBOLS, *list(written["vocab"])[4:]])}
    merges = "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in written["merges"]) + "\n"
    return {"vocab.json": vocabulary, "merges.txt": merges}


def clipped() -> dict[str, object]:
    """The same for CLIP, whose words end in </w>."""
    made = [("t", "h"), ("th", "e</w>"), ("i", "s</w>"), ("l", "l"), ("a", "t")]
    tokens = [*byte_alphabet(), *(f"{letter}</w>" for letter in byte_alphabet()), *map("".join, made)]
    vocabulary = {token: index for index, token in enumerate([*tokens, "<|startoftext|>", "<|endoftext|>"])}
    return {"vocab.json": vocabulary, "merges.txt": "\n".join(" ".join(pair) for pair in made)}


def named(name: str, **settings: object) -> dict[str, object]:
    return {"tokenizer_config.json": {"tokenizer_class": name, **settings}}


def sentence(file: str, **options: Any) -> dict[str, object]:
    return {file: trained(**options)}


T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ("[CLS]", "[SEP]", "[MASK]")}
XLNET = {"control_symbols": ("<cls>", "<sep>", "<pad>", "<mask>", "<eod>"), "user_defined_symbols": ("<eop>",)}
DEBERTA = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "unk_piece": "[UNK]"}
IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
BPE = {"model_type": "bpe", "byte_fallback": True, "vocab_size": 400, **IDENTITY}
GEMMA = {"add_dummy_prefix": False, "bos_piece": "<bos>", "eos_piece": "<eos>", "control_symbols": ("<mask>",)}
FOLDERS: dict[str, Callable[[], dict[str, object]]] = {
    "gpt2": lambda: pairs() | named("GPT2Tokenizer", model_max_length=1024),
    "gpt2 by its model": lambda: pairs() | {"config.json": {"model_type": "gpt2"}},
    "opt": lambda: pairs() | named("GPT2Tokenizer", **DECLARED),
    "roberta": lambda: pairs() | named("RobertaTokenizer"),
    "roberta, prefix": lambda: pairs() | named("RobertaTokenizerFast", add_prefix_space=True),
    "bart by its model": lambda: pairs() | {"config.json": {"model_type": "bart"}},
    "qwen2": lambda: pairs() | named("Qwen2Tokenizer"),
    "clip": lambda: clipped() | named("CLIPTokenizer"),
    "bert": lambda: {"vocab.txt": "\n".join(WORDS) + "\n"} | named("BertTokenizer"),
    "bert, cased": lambda: (
        {"vocab.txt": "\r\n".join(WORDS)}
        | named("BertTokenizer", do_lower_case=False, strip_accents=False, tokenize_chinese_chars=False)
    ),
    "distilbert by its model": lambda: {"vocab.txt": "\n".join(WORDS), "config.json": {"model_type": "distilbert"}},
    "t5": lambda: sentence("spiece.model", **T5) | named("T5Tokenizer", extra_ids=10),
    "albert": lambda: sentence("spiece.model", **ALBERT) | named("AlbertTokenizer"),
    "xlnet": lambda: sentence("spiece.model", **XLNET) | named("XLNetTokenizer"),
    "xlm-roberta": lambda: sentence("sentencepiece.bpe.model") | named("XLMRobertaTokenizer"),
    "camembert": lambda: sentence("sentencepiece.bpe.model") | named("CamembertTokenizer"),
    "deberta-v2": lambda: (
        sentence("spm.model", **DEBERTA, bos_piece="[CLS]", eos_piece="[SEP]") | named("DebertaV2Tokenizer")
    ),
    "gemma": lambda: (
        sentence("tokenizer.model", **BPE, **GEMMA, pad_id=0, eos_id=1, bos_id=2, unk_id=3)
        | named("GemmaTokenizer", add_bos_token=True)
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_ids_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    place = folder(tmp_path, FOLDERS[name]())
    ours, theirs = Tokenizer.of_folder(place), transformers.AutoTokenizer.from_pretrained(place)
    assert (ours.size, ours.pad, ours.mask) == (len(theirs), theirs.pad_token_id, theirs.mask_token_id)
    assert ours.unknown == theirs.unk_token_id
    assert ours.begin == (theirs.cls_token_id if theirs.bos_token_id is None else theirs.bos_token_id)
    assert ours.end == (theirs.sep_token_id if theirs.eos_token_id is None else theirs.eos_token_id)
    for text in TEXTS:
        found = theirs(text)
        assert ours.framed(text).ids == found["input_ids"], text
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
        assert ours.decode(found["input_ids"]) == theirs.decode(found["input_ids"], skip_special_tokens=True)
        stream = ours.stream()
        assert "".join([*map(stream.push, ours.encode(text)), stream.rest()]) == ours.decode(ours.encode(text))
    names = {key: token for key, token in theirs.special_tokens_map.items() if key.endswith("_token")}
    special = " ".join(token for key, token in sorted(names.items()) if key != "mask_token")
    assert ours.encode_marked(f"a{special} b") == theirs(f"a{special} b", add_special_tokens=False)["input_ids"]
    assert not set(theirs.all_special_ids) - {ours.unknown} & set(ours.encode(special))
    pair = theirs("hello world", "a test")
    assert ours.framed("hello world", "a test").ids == pair["input_ids"]
    if "token_type_ids" in pair:
        assert ours.framed("hello world", "a test").segments == pair["token_type_ids"]


@pytest.mark.parametrize("marked", [False, True])
def test_many_texts_are_framed_like_one(tmp_path: Path, marked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.of_folder(folder(tmp_path, FOLDERS["bert"]()))
    texts = [*TEXTS, "hello [MASK] world [SEP]"]
    assert tokenizer.framed_all(texts, marked=marked) == [tokenizer.framed(text, marked=marked) for text in texts]
    assert tokenizer.framed_all(texts, texts) == [tokenizer.framed(text, text) for text in texts]
    monkeypatch.setattr("heed.text.tokenizer.BATCH", 20)
    assert tokenizer.framed_all(texts, texts) == [tokenizer.framed(text, text) for text in texts]
    hidden = [2, 5, 1, 1, 1, 3]
    assert tokenizer.framed("hello [MASK]").ids == hidden
    assert tokenizer.framed("hello [MASK]", marked=True) == Framed([2, 5, 4, 3], [0, 0, 0, 0])
    assert tokenizer.framed("hello", "world, a") == Framed([2, 5, 3, 6, 7, 13, 3], [0, 0, 0, 1, 1, 1, 1])
    with pytest.raises(InputError, match="each text needs its pair; there are 1 texts and 2 pairs"):
        tokenizer.framed_all(["a"], ["b", "c"])


def test_gpt_2_is_read_id_for_id(tmp_path: Path) -> None:
    files = {"vocab.json": real("gpt2_encoder.json.gz"), "merges.txt": real("gpt2_vocab.bpe.gz")}
    tokenizer = Tokenizer.of_folder(folder(tmp_path, files))
    theirs = transformers.AutoTokenizer.from_pretrained(folder(tmp_path, {"config.json": {"model_type": "gpt2"}}))
    assert (tokenizer.size, tokenizer.begin, tokenizer.end, tokenizer.pad) == (50257, 50256, 50256, None)
    assert tokenizer.encode_all(TEXTS) == [theirs(text)["input_ids"] for text in TEXTS]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_all(TEXTS)] == TEXTS
    assert tokenizer.encode("Hello, my dog is cute<|endoftext|>")[:6] == [15496, 11, 616, 3290, 318, 13779]
    assert tokenizer.encode_marked("a<|endoftext|>") == [64, 50256]


def test_llama_2_is_framed_as_its_settings_say(tmp_path: Path) -> None:
    model = real("llama2_tokenizer.model.gz")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    for extra, begin in (
        ({}, [1]),
        ({"add_bos_token": False}, []),
        ({"add_bos_token": True, "add_eos_token": None}, [1]),
    ):
        tokenizer = Tokenizer.of_folder(folder(tmp_path, {"tokenizer.model": model} | named("LlamaTokenizer", **extra)))
        assert tokenizer.framed("Hello  world").ids == begin + theirs.encode("Hello  world")
        assert tokenizer.encode_marked("<s>Hi</s>x") == [1, *theirs.encode("Hi"), 2, *theirs.encode("x")]
    newer = Tokenizer.of_folder(folder(tmp_path, {"tokenizer.model": model} | named("LlamaTokenizer", legacy=False)))
    assert newer.encode_marked("<s>Hi</s>x")[:2] == [1, theirs.piece_to_id("Hi")]  # no space after a special token


def test_the_vocabulary_of_reactions(tmp_path: Path) -> None:
    files = {"vocab.txt": real("rxnmapper_albert/vocab.txt"), "config.json": real("rxnmapper_albert/config.json")}
    tokenizer = Tokenizer.of_folder(folder(tmp_path, files | named("BertTokenizer", do_lower_case=False)))
    assert (tokenizer.size, tokenizer.pad, tokenizer.begin, tokenizer.end, tokenizer.mask) == (591, 0, 12, 13, 14)
    assert tokenizer.decode(tokenizer.encode("C C ( = O ) O")) == "C C ( = O ) O"


# --- languages ---


def test_marian_reads_one_language_and_writes_another(tmp_path: Path) -> None:
    source, target = trained(), trained(vocab_size=160, normalization_rule_name="nmt_nfkc_cf")
    ids: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for data in (source, target):
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        for index in range(3, model.get_piece_size()):
            ids.setdefault(model.id_to_piece(index), len(ids))
    ids |= {">>fra<<": len(ids), "<pad>": len(ids) + 1}
    files = {"source.spm": source, "target.spm": target, "vocab.json": ids}
    place = folder(tmp_path, files | named("MarianTokenizer", source_lang="en", target_lang="fr"))
    ours = Tokenizer.of_folder(place)
    with pytest.warns(UserWarning, match="sacremoses"):
        theirs = transformers.AutoTokenizer.from_pretrained(place)
    for text in (*TEXTS, ">>fra<< Hello world"):
        assert ours.framed(text).ids == theirs(text)["input_ids"], text
    everything = [[index] * 2 for index in range(2, ours.size - 2)]
    assert ours.decode_all(everything) == theirs.batch_decode(everything, skip_special_tokens=True)
    assert (ours.pad, ours.begin, ours.end, ours.ends) == (ours.size - 1, None, 0, (0,))


def test_languages_have_places_of_their_own(tmp_path: Path) -> None:
    model = trained()
    count = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
    extra = {"additional_special_tokens": ["de_DE", "en_XX"]}
    files = {"sentencepiece.bpe.model": model, "special_tokens_map.json": extra}
    first = Tokenizer.of_folder(folder(tmp_path / "a", files | named("MBart50Tokenizer", src_lang="de_DE")))
    last = Tokenizer.of_folder(folder(tmp_path / "b", files | named("MBartTokenizer")))
    text = last.encode("the fox")
    assert first.framed("the fox").ids == [count + 1, *text, 2]
    assert last.framed("the fox").ids == [*text, 2, count + 2]
    assert first.tokens([0, 1, 2, 3, count + 1, first.mask or 0]) == [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "de_DE",
        "<mask>",
    ]


def test_ids_of_a_file_beside_the_model(tmp_path: Path) -> None:
    model = trained(model_type="bpe")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [theirs.id_to_piece(index) for index in range(3, theirs.get_piece_size())]
    names = ["<s>", "<pad>", "</s>", "<unk>", *reversed(pieces)]
    extra = {"additional_special_tokens": ["__en__", "__de__"]}
    files = {"sentencepiece.bpe.model": model, "special_tokens_map.json": extra}
    files["vocab.json"] = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer.of_folder(folder(tmp_path, files | named("M2M100Tokenizer", src_lang="de")))
    spelt = [names.index(piece) for piece in theirs.encode("the fox", out_type=str)]
    assert tokenizer.framed("the fox").ids == [len(names) + 1, *spelt, 2]
    assert tokenizer.decode(tokenizer.framed("the fox").ids) == "the fox"


# --- what the files beside a tokenizer say ---


def whole(*added: AddedToken) -> dict[str, object]:
    """A tokenizer.json: words, and after them what is added."""
    names = ["<unk>", "<s>", "a", "b", "</s>", "</S>", "<pad>"]
    inner = tokenizers.Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, "<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_tokens(list(added))
    return {"tokenizer.json": inner.to_str()}


def test_what_is_declared_wins_over_names(tmp_path: Path) -> None:
    plain = Tokenizer.of_folder(folder(tmp_path / "a", whole()))
    assert (plain.begin, plain.end, plain.pad, plain.unknown) == (1, 4, 6, 0)
    said = {"bos_token": None, "eos_token": {"content": "</S>", "special": True}, "pad_token": "b", "mask_token": "<?>"}
    told = Tokenizer.of_folder(folder(tmp_path / "b", whole() | {"special_tokens_map.json": said}))
    assert (told.begin, told.end, told.pad, told.unknown, told.mask) == (None, 5, 3, None, None)
    assert told.encode("a b </S>") == [2]  # b and </S> are special now, so no text gives them
    both = {"special_tokens_map.json": said} | named("PreTrainedTokenizerFast", eos_token="a")
    assert Tokenizer.of_folder(folder(tmp_path / "c", whole() | both)).end == 2


def test_ids_that_a_model_names_count_for_special_tokens_only(tmp_path: Path) -> None:
    special = whole(AddedToken("<e>", special=True), AddedToken("<p>", special=True))
    config = {"eos_token_id": [7, 3], "pad_token_id": 8, "bos_token_id": 2, "text_config": {"eos_token_id": 5}}
    generation = {"eos_token_id": [2, 7, 99, -1, True, "x"]}
    files = special | {"config.json": config, "generation_config.json": generation}
    tokenizer = Tokenizer.of_folder(folder(tmp_path, files))
    assert (tokenizer.end, tokenizer.pad, tokenizer.begin) == (7, 8, 1)
    assert tokenizer.ends == (7, 2, 3, 5)
    assert tokenizer.encode("a b") == [2, 3]


def test_tokens_that_were_added(tmp_path: Path) -> None:
    decoder = {"7": {"content": "<x>", "special": False, "lstrip": True}, "8": {"content": "<y>", "special": True}}
    tokenizer = Tokenizer.of_folder(folder(tmp_path / "a", whole() | named("", added_tokens_decoder=decoder)))
    assert (tokenizer.size, tokenizer.encode("a <x>b<y>")) == (9, [2, 7, 0])
    assert tokenizer.encode_marked("a <x>b<y>") == [2, 7, 3, 8]
    older = Tokenizer.of_folder(folder(tmp_path / "b", whole() | {"added_tokens.json": {"<z>": 8, "<x>": 7}}))
    assert older.encode("<z>") == [8]
    with pytest.raises(InputError, match="'<x>' should have the id 9, but its place is 7"):
        Tokenizer.of_folder(folder(tmp_path / "c", whole() | {"added_tokens.json": {"<x>": 9}}))


def test_beginnings_and_ends_that_are_asked_for(tmp_path: Path) -> None:
    said = {"bos_token": "<s>", "eos_token": "</s>"}
    for number, (begin, end) in enumerate([(True, True), (True, False), (False, True), (False, None)]):
        asked = named("X", **said, add_bos_token=begin, add_eos_token=end)
        tokenizer = Tokenizer.of_folder(folder(tmp_path / str(number), whole() | asked))
        assert tokenizer.framed("a").ids == [1] * begin + [2] + [4] * (end is True)
    assert Tokenizer.of_folder(folder(tmp_path / "x", whole())).framed("a").ids == [2]


def test_a_saved_folder_says_the_same(tmp_path: Path) -> None:
    template = [{"name": "default", "template": "{{ bos_token }}"}, {"name": "tool_use", "template": "tools"}]
    files = FOLDERS["gemma"]() | {"generation_config.json": {"eos_token_id": [1, 5]}}
    files |= named("GemmaTokenizer", add_bos_token=True, chat_template=template)
    tokenizer = Tokenizer.of_folder(folder(tmp_path / "a", files))
    tokenizer.save_all(folder(tmp_path / "b", {}))
    again = Tokenizer.of_folder(tmp_path / "b")
    for role in ("pad", "begin", "end", "unknown", "mask", "ends", "size", "chat"):
        assert getattr(again, role) == getattr(tokenizer, role), role
    assert again.framed_all(TEXTS) == tokenizer.framed_all(TEXTS)
    Bpe(size=300).train(LINES).save_all(tmp_path / "b")
    assert Tokenizer.of_folder(tmp_path / "b").need("pad") == 0
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "b")
    assert (theirs.bos_token_id, theirs.eos_token_id) == (1, 2)


# --- what is not there, or wrong ---


def test_folders_without_a_tokenizer(tmp_path: Path) -> None:
    assert not pretrained.holds(tmp_path)
    with pytest.raises(InputError, match=r"holds no tokenizer that heed knows; .*vocab.json and merges.txt; vocab.txt"):
        Tokenizer.of_folder(tmp_path)
    assert pretrained.holds(folder(tmp_path, {"vocab.txt": "\n".join(WORDS)} | named("BertJapaneseTokenizer")))
    with pytest.raises(InputError, match="for the family bertjapanese, whose tokenizer is not supported"):
        Tokenizer.of_folder(tmp_path)


BAD: dict[str, tuple[dict[str, object], str]] = {
    "no unknown word": ({"vocab.txt": "a\nb"}, r"lacks '\[UNK\]', which stands for words that it does not know"),
    "no frame": (
        {"vocab.txt": "a\n[UNK]"},
        "cls_token belongs around a text, but '\\[CLS\\]' is not in the vocabulary",
    ),
    "merges": ({"vocab.json": {"a": 0}, "merges.txt": "a b c"}, "line 1 of .*merges.txt is 'a b c'; two tokens"),
    "strange merges": ({"vocab.json": {"a": 0}, "merges.txt": "a b"}, "do not fit"),
    "ids": ({"vocab.json": {"a": -1}, "merges.txt": ""}, "the id of 'a' is -1; ids are whole numbers from 0 on"),
    "a list": ({"vocab.json": ["a"], "merges.txt": ""}, "holds a list; a table of named values is needed"),
    "flag": ({"vocab.txt": "\n".join(WORDS)} | named("", do_lower_case="yes"), "do_lower_case is 'yes'; true or false"),
    "token": (
        {"vocab.txt": "\n".join(WORDS)} | named("", pad_token=3),
        "pad_token is 3; the text of a token is needed",
    ),
    "json": ({"vocab.txt": "a", "tokenizer_config.json": "{"}, "tokenizer_config.json is not valid json"),
    "deep json": ({"vocab.txt": "a", "config.json": "[" * 100_000}, "config.json is not valid json"),
    "bytes": ({"vocab.txt": b"a\xff"}, "vocab.txt is not text in UTF-8: byte 1 is wrong"),
    "template": (whole() | named("", chat_template=[3]), "chat_template must be a text, or a list of tables"),
    "added": (whole() | named("", added_tokens_decoder={"x": "y"}), "added_tokens_decoder.x is 'y'; a whole number"),
    "extra ids": (sentence("spiece.model", **T5) | named("T5Tokenizer", extra_ids=10**9), "a whole number up to 10000"),
}


@pytest.mark.parametrize(("files", "words"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_told(tmp_path: Path, files: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Tokenizer.of_folder(folder(tmp_path, files))


def test_files_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heed.text.guard.VOCABULARY", 100)
    with pytest.raises(InputError, match="has more than 100 bytes, which no file of this kind needs"):
        Tokenizer.of_folder(folder(tmp_path, whole()))
    huge = tokenizers.Tokenizer(models.WordLevel({"a": 1 << 31}, "a"))
    with pytest.raises(InputError, match="has ids up to 2,147,483,648; at most 16,777,216 are accepted"):
        Tokenizer(huge)


@pytest.mark.parametrize(
    "normalizer",
    [
        normalizers.Replace("a", "a" * 2000),
        normalizers.Sequence([normalizers.Replace("a", "aa")] * 11),
        normalizers.Sequence([normalizers.Replace(tokenizers.Regex(""), "a")] * 11),
        normalizers.Prepend("a" * 2000),
    ],
)
def test_texts_cannot_be_blown_up(tmp_path: Path, normalizer: normalizers.Normalizer) -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"a": 0}, "a"))
    inner.normalizer = normalizer
    with pytest.raises(InputError, match="makes a text up to [0-9,]+ times as long"):
        Tokenizer.of_folder(folder(tmp_path, {"tokenizer.json": inner.to_str()}))
