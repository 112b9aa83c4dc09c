"""Metrics of generated texts beside references: ROUGE, BLEU, and the edits of a correction."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from ..core.errors import MissingExtra
from .metrics import Metrics, must_have_sacrebleu

ROUGE = ("rouge1", "rouge2", "rougeL")
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[^\W_]+")
BETA = 0.5  # of edits: a wrong one is worse than a missed one (Ng et al. 2014)


class Characters:
    """How texts in Chinese, Japanese and Korean are taken apart, where the library knows ASCII only."""

    def tokenize(self, text: str) -> list[str]:
        return [word.lower() for word in WORDS.findall(text)]


def rouge(generated: Sequence[str], references: Sequence[Sequence[str]]) -> Metrics:
    """ROUGE-1, -2 and -L (Lin 2004), F-measures in percent; of several references the best, for each by itself."""
    must_have_rouge()
    from rouge_score.rouge_scorer import RougeScorer

    foreign = any(CJK.search(text) for row in references for text in row)
    scorer = RougeScorer(ROUGE, tokenizer=Characters()) if foreign else RougeScorer(ROUGE, use_stemmer=True)
    best: dict[str, float] = dict.fromkeys(ROUGE, 0.0)
    for text, row in zip(generated, references, strict=True):
        found = [scorer.score(reference, text) for reference in row]
        for name in ROUGE:
            best[name] += max(one[name].fmeasure for one in found)
    how = "characters of CJK" if foreign else "stemmed"
    return {
        **{f"rouge_{name[5:].lower()}": 100 * total / max(1, len(generated)) for name, total in best.items()},
        "rouge_signature": f"rouge-score, {how}, maximum over references",
    }


def bleu(generated: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool) -> Metrics:
    """sacreBLEU over all references; where a text has fewer than others, its first stands for the missing ones."""
    must_have_sacrebleu()
    from sacrebleu.metrics.bleu import BLEU

    most = max(map(len, references))
    columns = [[row[place] if place < len(row) else row[0] for row in references] for place in range(most)]
    measure = BLEU(lowercase=lowercase)
    equal = [any(text == one for one in row) for text, row in zip(generated, references, strict=True)]
    return {
        "bleu": measure.corpus_score(list(generated), columns).score,
        "exact": 100 * sum(equal) / len(equal),
        "signature": str(measure.get_signature()),
    }


def edits(sources: Sequence[str], generated: Sequence[str], references: Sequence[Sequence[str]]) -> Metrics:
    """F0.5 of the edits that turn a source into what was generated, beside those that turn it into a reference."""
    right = made = wanted = 0
    for source, text, row in zip(sources, generated, references, strict=True):
        ours = changes(source, text)
        theirs = max((changes(source, one) for one in row), key=lambda one: (len(ours & one), -len(one)))
        right, made, wanted = right + len(ours & theirs), made + len(ours), wanted + len(theirs)
    precision, recall = right / max(1, made), right / max(1, wanted)
    total = BETA**2 * precision + recall
    return {"edit_f05": 100 * (1 + BETA**2) * precision * recall / total if total else 0.0}


def changes(source: str, target: str) -> set[tuple[int, int, tuple[str, ...]]]:
    """Which words of the source become which others: (from, to, the words in their place)."""
    before, after = source.split(), target.split()
    matched = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return {(i, j, tuple(after[k:m])) for tag, i, j, k, m in matched if tag != "equal"}


def must_have_rouge() -> None:
    """Raise unless ROUGE can be measured: before hours of decoding, not after them."""
    try:
        import rouge_score  # noqa: F401
    except ImportError:
        raise MissingExtra.of("rouge-score", "train") from None
