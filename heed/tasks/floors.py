"""Floors: what is reached without any attention, on the same examples. A model below them has learnt too little.

majority        what is most frequent in the training data, for everything
linear          a linear support vector machine on TF-IDF of words (1-2) and characters in words (2-5) (Joachims 1998)
frequent tag    of each word, the tag that it has most often
windowed        a linear model of a word, its affixes, its shape and its two neighbours on either side
linear numbers  a linear model of the bare numbers of images or sounds (logistic regression)
cosine          between the TF-IDF vectors of two texts, of characters in words (2-4)
lead            the first sentence of a text as its summary
sentence        the sentence that shares most with a question, rare words before frequent ones; and the longest name or
                number in it that the question does not have (compare the sliding window of Rajpurkar et al. 2016)
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..core.errors import MissingExtra

CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"  # scripts without spaces: each character is a word
WORDS = rf"(?u)[{CJK}]|[^\W{CJK}]+|[^\w\s]"
MOST = 400_000  # features of each kind: memory and time are bounded whatever the data
ENDED = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")

NAMED = re.compile(r"(?:[A-Z][\w'’-]*|\d[\d.,%]*\d|\d)(?: (?:[A-Z][\w'’-]*|\d[\d.,%]*\d|\d))*")  # names, numbers
DAMPED, ROUNDS = 0.01, 100  # of a linear model of bare numbers: how free its weights are, and steps at most
AT_ONCE = 1024  # texts that are compared with all others at a time

Numbers = np.ndarray[Any, np.dtype[Any]]


def most_frequent(train: Numbers, count: int) -> Numbers:
    """The class that most texts have, so often; of several classes, those that most texts have. [texts, ...]"""
    if train.ndim == 1:
        return np.full(count, np.bincount(train).argmax())
    return np.tile(train.mean(0) > 0.5, (count, 1))


def linear_classes(train: Sequence[str], classes: Numbers, texts: Sequence[str]) -> Numbers:
    """The class of each text, or with several classes whether it has each."""
    vectors, svm = _vectors(), _sklearn("svm").LinearSVC
    known, asked = vectors.fit_transform(train), vectors.transform(texts)
    if classes.ndim == 1:
        return np.asarray(svm(C=1.0).fit(known, classes).predict(asked))
    found = [_either(svm, known, column, asked) for column in classes.T]
    return np.stack(found, 1)


def linear_numbers(train: Numbers, classes: Numbers, asked: Numbers) -> Numbers:
    """The class of each row of bare numbers, by logistic regression. [rows, numbers]"""
    mean, spread = train.mean(0), train.std() or 1.0  # one spread for all: a pixel that hardly varies stays quiet
    known, wanted = ((some - mean) / spread for some in (train, asked))
    regression = _sklearn("linear_model").LogisticRegression(C=DAMPED, max_iter=ROUNDS, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the last digits were still moving after so many rounds
        return np.asarray(regression.fit(known, classes).predict(wanted))


def _either(svm: Any, known: Any, classes: Numbers, asked: Any) -> Numbers:
    """Of one class among several; one that no text or every text has needs no model."""
    if classes.min() == classes.max():
        return np.full(asked.shape[0], classes[0])
    return np.asarray(svm(C=1.0).fit(known, classes).predict(asked))


def frequent_tags(
    train: Sequence[tuple[Sequence[str], Sequence[str]]], rows: Sequence[Sequence[str]]
) -> list[list[str]]:
    """The tag that each word has most often; of unknown words, the tag that words seen once have most often."""
    tags: dict[str, Counter[str]] = defaultdict(Counter)
    for words, named in train:
        for word, tag in zip(words, named, strict=True):
            tags[word][tag] += 1
    rare = sum((found for found in tags.values() if found.total() == 1), Counter[str]())
    every = sum(tags.values(), Counter[str]())
    unknown = (rare or every).most_common(1)[0][0]
    best = {word: found.most_common(1)[0][0] for word, found in tags.items()}
    return [[best.get(word, unknown) for word in words] for words in rows]


def windowed_tags(
    train: Sequence[tuple[Sequence[str], Sequence[str]]], rows: Sequence[Sequence[str]]
) -> list[list[str]]:
    """The tag of each word by a linear model of its surroundings."""
    hashed = _sklearn("feature_extraction").FeatureHasher(1 << 18, input_type="string", alternate_sign=False)
    known = hashed.transform(features for words, _ in train for features in _surroundings(words))
    tags = [tag for _, named in train for tag in named]
    if len(set(tags)) < 2:
        return [[tags[0]] * len(words) for words in rows]
    model = _sklearn("svm").LinearSVC(C=0.1).fit(known, tags)
    asked = hashed.transform(features for words in rows for features in _surroundings(words))
    found = iter(model.predict(asked).tolist() if asked.shape[0] else [])
    return [[str(next(found)) for _ in words] for words in rows]


def _surroundings(words: Sequence[str]) -> Iterator[list[str]]:
    """Of every word: itself, its affixes, its shape, and two words before and after it."""
    padded = ["<", "<", *words, ">", ">"]
    for place, word in enumerate(words):
        near = [f"{step}={padded[place + 2 + step].lower()}" for step in (-2, -1, 1, 2)]
        ends = [
            f"{side}{size}={part}" for size in range(1, 5) for side, part in (("<", word[:size]), (">", word[-size:]))
        ]
        yield [
            f"word={word}",
            f"lower={word.lower()}",
            f"shape={_shape(word)}",
            f"both={near[1]}{near[2]}",
            *near,
            *ends,
        ]


def _shape(word: str) -> str:
    """Heed-24 -> Aa-0."""
    kinds = ("A" if c.isupper() else "a" if c.isalpha() else "0" if c.isdigit() else c for c in word)
    return re.sub(r"(.)\1+", r"\1", "".join(kinds))


def cosine(train: Sequence[str], texts: Sequence[str], others: Sequence[str]) -> Numbers:
    """How near two texts are by their words and characters, from 0 to 1."""
    vectors = _characters().fit(train)
    one, other = (_unit(vectors.transform(some)) for some in (texts, others))
    return np.asarray(one.multiply(other).sum(1)).ravel()


def nearest(train: Sequence[str], texts: Sequence[str], others: Sequence[str]) -> Numbers:
    """Of each text, the place of the other text that is nearest by words and characters. [texts]"""
    vectors = _characters().fit(train)
    one, other = (_unit(vectors.transform(some)) for some in (texts, others))
    parts = (one[begin : begin + AT_ONCE] @ other.T for begin in range(0, one.shape[0], AT_ONCE))
    return np.concatenate([np.asarray(part.argmax(1)).ravel() for part in parts])


def nearest_sentences(questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
    """Of each context the sentence that shares most words with the question; a word counts as much as it is rare."""
    known = {context: _sentences(context) for context in contexts}
    found = Counter(word for parts in known.values() for _, words in parts for word in words)
    total = max(1, sum(map(len, known.values())))

    def shared(question: set[str], words: set[str]) -> float:
        return sum(math.log(1 + total / found[word]) for word in question & words)

    asked = [set(_words(question)) for question in questions]
    pairs = zip(asked, contexts, strict=True)
    return [max(known[text], key=lambda part: shared(question, part[1]))[0] for question, text in pairs]


def named_in(sentence: str, question: str) -> str:
    """The longest name or number of a sentence that its question does not have; without one, the sentence."""
    asked = set(_words(question))
    runs = [run for run in NAMED.findall(sentence) if not asked & set(_words(run))]
    return max(runs, key=len, default=sentence)


def _sentences(text: str) -> list[tuple[str, set[str]]]:
    """The sentences of a text, each with its words; a text without any is one."""
    return [(part, set(_words(part))) for part in ENDED.split(text.strip()) if part] or [(text, set())]


def _words(text: str) -> list[str]:
    return re.findall(WORDS, text.lower())


def lead(text: str) -> str:
    """Its first sentence."""
    return next((part for part in ENDED.split(text.strip()) if part), "")


def _unit(rows: Any) -> Any:
    return _sklearn("preprocessing").normalize(rows)


def _characters() -> Any:
    """TF-IDF of characters in words: what pairs are best compared by."""
    tfidf = _sklearn("feature_extraction.text").TfidfVectorizer
    return tfidf(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, max_features=MOST)


def _vectors() -> Any:
    """TF-IDF of words and of characters, side by side."""
    tfidf, join = _sklearn("feature_extraction.text").TfidfVectorizer, _sklearn("pipeline").make_union
    return join(
        tfidf(ngram_range=(1, 2), sublinear_tf=True, token_pattern=WORDS, max_features=MOST),
        tfidf(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, max_features=MOST),
    )


def _sklearn(part: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"sklearn.{part}")
    except ImportError:
        raise MissingExtra.of("scikit-learn", "train") from None
