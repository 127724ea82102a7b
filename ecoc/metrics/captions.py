"""How good captions are: BLEU-1..4, ROUGE-L and CIDEr-D of a set of images, and METEOR 1.5 where Java is there.

The numbers are those of ``pycocoevalcap``, which papers on MSCOCO report, on captions that are tokenised already.

>>> score_captions([["a", "cat"]], [[["a", "cat"], ["the", "black", "cat"]]])["bleu2"]
0.9999999987499999
"""

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from typing import TypeAlias

from ecoc.codes.vectors import progress_bar

Caption: TypeAlias = Sequence[str]
Ngrams: TypeAlias = Counter[tuple[str, ...]]

_ORDER = 4  # words of the longest n-gram
_BETA = 1.2  # how much more recall counts than precision in ROUGE-L
_SIGMA = 6.0  # words of difference in length that CIDEr-D forgives


def score_captions(
    hypotheses: Sequence[Caption], references: Sequence[Sequence[Caption]], progress: bool = False
) -> dict[str, float]:
    """Scores of one caption an image, against that image's references.

    Args:
        hypotheses: The tokens of each image's caption; one without tokens counts as a wrong one.
        references: The tokens of each image's references, in the same order of images.
        progress: Show a bar.

    Returns:
        ``bleu1`` to ``bleu4`` and ``rouge_l`` from 0 to 1, and ``cider`` from 0 to 10. CIDEr weighs n-grams by how few
        of *these* images have them in a reference: a single image always gets 0.

    Raises:
        ValueError: The arguments do not fit together.
    """
    _check(hypotheses, references)
    counted, found = [], []
    rouge = 0.0
    with progress_bar(progress) as bar:
        pairs = zip(hypotheses, references, strict=True)
        for hypothesis, own in bar.track(pairs, total=len(hypotheses), description="score captions"):
            counted.append(_ngrams(hypothesis))
            found.append([_ngrams(reference) for reference in own])
            rouge += _rouge_l(hypothesis, own)
    lengths = [len(hypothesis) for hypothesis in hypotheses]
    closest = [
        min((abs(len(reference) - length), len(reference)) for reference in own)[1]
        for length, own in zip(lengths, references, strict=True)
    ]
    scores = {f"bleu{n}": score for n, score in enumerate(_bleu(counted, found, sum(lengths), sum(closest)), start=1)}
    return scores | {"rouge_l": rouge / len(hypotheses), "cider": _cider(counted, found)}


def meteor(
    hypotheses: Sequence[Caption], references: Sequence[Sequence[Caption]], progress: bool = False
) -> tuple[float | None, str]:
    """METEOR 1.5 from 0 to 1, computed by ``pycocoevalcap`` in Java.

    Args:
        hypotheses: The tokens of each image's caption.
        references: The tokens of each image's references, in the same order of images.
        progress: Show a bar.

    Returns:
        The score and "", or None and why there is none. Other implementations give other values: none stands in.

    Raises:
        ValueError: The arguments do not fit together.
    """
    _check(hypotheses, references)
    missing = [] if shutil.which("java") else ["needs java"]
    try:
        scorer_class = import_module("pycocoevalcap.meteor.meteor").Meteor
    except ImportError:
        missing.append("pip install pycocoevalcap")
    if missing:
        return None, f"METEOR unavailable ({'; '.join(missing)})"
    results = {number: [_line(caption)] for number, caption in enumerate(hypotheses)}
    truths = {number: [_line(caption) for caption in own] for number, own in enumerate(references)}
    scorer = scorer_class()
    with progress_bar(progress) as bar:
        bar.add_task("METEOR", total=None)  # the scorer tells nothing before its end
        try:
            return float(scorer.compute_score(truths, results)[0]), ""
        except (OSError, ValueError):  # what answers is not METEOR: no output, or a message
            scorer.meteor_p.kill()
            with suppress(OSError):  # what it has not read
                scorer.meteor_p.stdin.close()
            said = scorer.meteor_p.stderr.read().decode(errors="replace").split("\n")[0].strip()
            return None, f"METEOR unavailable (needs java: the one here failed{': ' + said if said else ''})"
        finally:
            if scorer.lock.locked():  # after an error it still is, and the scorer's own end would wait for ever
                scorer.lock.release()


def _check(hypotheses: Sequence[Caption], references: Sequence[Sequence[Caption]]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(
            f"references must be a list of references for each of the {len(hypotheses)} hypotheses, "
            f"got {len(references)}; give both in the same order of images"
        )
    if not hypotheses:
        raise ValueError("hypotheses must hold at least one caption, got none; give the captions of some images")
    for number, (hypothesis, own) in enumerate(zip(hypotheses, references, strict=True)):
        if isinstance(own, str) or not own:
            raise ValueError(f"references[{number}] must be a list of one or more captions, got {own!r}")
        for name, caption in ((f"hypotheses[{number}]", hypothesis), *((f"references[{number}]", it) for it in own)):
            if isinstance(caption, str) or not all(isinstance(token, str) for token in caption):
                raise ValueError(f"{name} must have captions as lists of tokens, got {caption!r}; split it into words")


def _line(caption: Caption) -> str:
    """The caption on a line of METEOR's protocol, in which ``|||`` and line ends have a meaning."""
    return " ".join(" ".join(caption).replace("|||", "").split())


def _ngrams(tokens: Caption) -> Ngrams:
    """How often each n-gram of one to four words occurs."""
    return Counter(
        chain.from_iterable(zip(*(tokens[i:] for i in range(n)), strict=False) for n in range(1, _ORDER + 1))
    )


def _bleu(hypotheses: list[Ngrams], references: list[list[Ngrams]], length: int, closest: int) -> list[float]:
    """BLEU-1..4 of the corpus; ``closest`` is the sum of the reference lengths nearest to those of the hypotheses."""
    right, made = [0] * _ORDER, [0] * _ORDER
    for hypothesis, own in zip(hypotheses, references, strict=True):
        for ngram, count in hypothesis.items():
            right[len(ngram) - 1] += min(count, max(reference.get(ngram, 0) for reference in own))
            made[len(ngram) - 1] += count
    scores, product = [], 1.0
    penalty = min(1.0, math.exp(1 - (closest + 1e-9) / (length + 1e-15))) if length else 0.0
    for n in range(_ORDER):
        product *= (right[n] + 1e-15) / (made[n] + 1e-9)  # the small numbers are pycocoevalcap's
        scores.append(product ** (1 / (n + 1)) * penalty)
    return scores


def _rouge_l(hypothesis: Caption, references: Sequence[Caption]) -> float:
    """F-measure of the longest common subsequence: best precision and best recall over the references."""
    commons = [(_common(hypothesis, reference), len(reference)) for reference in references]
    precision = max(common for common, _ in commons) / max(1, len(hypothesis))
    recall = max(common / max(1, length) for common, length in commons)
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision) if precision else 0.0


def _common(first: Caption, second: Caption) -> int:
    """Length of the longest common subsequence, a row of the table at once: bit i of ``row`` is cleared where it grows.

    Hyyrö, *Bit-parallel LCS-length computation revisited* (2004).
    """
    places: dict[str, int] = {}
    for place, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << place
    every = (1 << len(first)) - 1
    row = every
    for token in second:
        matched = row & places.get(token, 0)
        row = (row + matched | row - matched) & every
    return len(first) - row.bit_count()


def _cider(hypotheses: list[Ngrams], references: list[list[Ngrams]]) -> float:
    """CIDEr-D: clipped cosine of tf-idf vectors of n-grams, a mean over orders, references and images, times 10."""
    frequency = Counter(chain.from_iterable(set().union(*own) for own in references))
    images = len(hypotheses)
    weight = {ngram: math.log(images / count) ** 2 for ngram, count in frequency.items()}
    unseen = math.log(images) ** 2

    def norms(counts: Ngrams) -> list[float]:
        squares = [0.0] * _ORDER
        for ngram, count in counts.items():
            squares[len(ngram) - 1] += count * count * weight.get(ngram, unseen)
        return [math.sqrt(square) for square in squares]

    def words(counts: Ngrams) -> int:
        return sum(count for ngram, count in counts.items() if len(ngram) == 1)

    total = 0.0
    for hypothesis, own in zip(hypotheses, references, strict=True):
        own_norms, own_length = norms(hypothesis), words(hypothesis)
        for reference in own:
            products = [0.0] * _ORDER
            for ngram in hypothesis.keys() & reference.keys():
                count = reference[ngram]
                products[len(ngram) - 1] += min(hypothesis[ngram], count) * count * weight[ngram]
            cosine = sum(
                product / (one * other)
                for product, one, other in zip(products, own_norms, norms(reference), strict=True)
                if product
            )
            penalty = math.exp(-((own_length - words(reference)) ** 2) / (2 * _SIGMA**2))
            total += 10 * cosine * penalty / (_ORDER * len(own))
    return total / images
