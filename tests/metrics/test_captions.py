"""Caption metrics against hand-computed cases, slow plain computation, and pycocoevalcap on real captions."""

import gzip
import json
import math
import shutil
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoc.metrics.captions import meteor, score_captions

captions = st.lists(st.sampled_from(["a", "cat", "sat", "on", "the", "mat"]), max_size=9)
image = st.tuples(captions, st.lists(captions, min_size=1, max_size=4))


def words(*lines):
    return [line.split() for line in lines]


# --- slow and independent


def grams(tokens, n):
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]


def slow_bleu(hypotheses, references):
    length = sum(map(len, hypotheses))
    closest = 0
    for hypothesis, own in zip(hypotheses, references, strict=True):
        closest += min(sorted(map(len, own)), key=lambda size: abs(size - len(hypothesis)))
    precisions = []
    for n in range(1, 5):
        right = made = 0
        for hypothesis, own in zip(hypotheses, references, strict=True):
            for gram in set(grams(hypothesis, n)):
                right += min(grams(hypothesis, n).count(gram), max(grams(one, n).count(gram) for one in own))
            made += len(grams(hypothesis, n))
        precisions.append(right / made if made else 0.0)
    penalty = 0.0 if not length else 1.0 if length >= closest else math.exp(1 - closest / length)
    return [math.prod(precisions[:n]) ** (1 / n) * penalty for n in range(1, 5)]


def slow_common(first, second):
    @cache
    def common(i, j):
        if i == 0 or j == 0:
            return 0
        if first[i - 1] == second[j - 1]:
            return common(i - 1, j - 1) + 1
        return max(common(i - 1, j), common(i, j - 1))

    return common(len(first), len(second))


def slow_rouge(hypotheses, references):
    scores = []
    for hypothesis, own in zip(hypotheses, references, strict=True):
        precision = max(slow_common(hypothesis, one) / max(1, len(hypothesis)) for one in own)
        recall = max(slow_common(hypothesis, one) / max(1, len(one)) for one in own)
        scores.append(2.44 * precision * recall / (recall + 1.44 * precision) if precision else 0.0)
    return np.mean(scores)


def slow_cider(hypotheses, references):
    """With dense vectors over all n-grams, as the paper writes it."""
    result = np.zeros(len(hypotheses))
    for n in range(1, 5):
        everything = [*hypotheses, *(one for own in references for one in own)]
        place = {gram: number for number, gram in enumerate({gram for one in everything for gram in grams(one, n)})}
        seen = np.zeros(len(place))
        for own in references:
            for gram in {gram for one in own for gram in grams(one, n)}:
                seen[place[gram]] += 1
        idf = np.log(len(references)) - np.log(np.maximum(1, seen))

        def vector(tokens, place=place, idf=idf, n=n):
            counts = np.zeros(len(place))
            for gram in grams(tokens, n):
                counts[place[gram]] += 1
            return counts * idf

        for number, (hypothesis, own) in enumerate(zip(hypotheses, references, strict=True)):
            for one in own:
                x, y = vector(hypothesis), vector(one)
                if x.any() and y.any():
                    cosine = np.minimum(x, y) @ y / np.linalg.norm(x) / np.linalg.norm(y)
                    off = max(0, len(hypothesis) - 1) - max(0, len(one) - 1)
                    result[number] += 10 / 4 * cosine * np.exp(-(off**2) / 72) / len(own)
    return result.mean()


@given(st.lists(image, min_size=1, max_size=5))
def test_scores_equal_slow_plain_computation(images):
    hypotheses, references = [list(part) for part in zip(*images, strict=True)]
    scores = score_captions(hypotheses, references)
    assert list(scores) == ["bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider"]
    for n, expected in enumerate(slow_bleu(hypotheses, references), start=1):
        # where it should be 0, pycocoevalcap's small numbers let BLEU-4 be (1e-15 / 1e-9) ** 0.25
        assert scores[f"bleu{n}"] == pytest.approx(expected, abs=1e-8 if expected else 0.04)
    assert scores["rouge_l"] == pytest.approx(slow_rouge(hypotheses, references), abs=1e-12)
    assert scores["cider"] == pytest.approx(slow_cider(hypotheses, references), abs=1e-12)


# --- by hand


def test_bleu_by_hand():
    scores = score_captions(words("the cat sat on the the"), [words("the cat sat down", "a cat on the mat there")])
    # "the" counts at most once, as in either reference; "the cat", "cat sat", "on the"; "the cat sat"; none
    assert scores["bleu1"] == pytest.approx(4 / 6)
    assert scores["bleu2"] == pytest.approx(math.sqrt(4 / 6 * 3 / 5))
    assert scores["bleu3"] == pytest.approx((4 / 6 * 3 / 5 * 1 / 4) ** (1 / 3))
    assert scores["bleu4"] < 1e-3


def test_short_captions_are_penalised_by_the_closest_reference_and_of_two_by_the_shorter():
    scores = score_captions(words("a b"), [words("a b c d e", "a b c", "a b x y z w")])
    assert scores["bleu1"] == pytest.approx(math.exp(1 - 3 / 2))
    assert score_captions(words("a b c"), [words("a b c d", "a b")])["bleu1"] == pytest.approx(1)


def test_bleu_is_of_the_corpus_and_not_a_mean():
    scores = score_captions(words("a", "b c d"), [words("a"), words("x y z")])
    assert scores["bleu1"] == pytest.approx(1 / 4)


def test_rouge_by_hand():
    scores = score_captions(words("a dog runs in the park"), [words("a dog is in a park", "the park")])
    precision, recall = 4 / 6, 1.0  # "a dog in park" of six words; all of "the park"
    assert scores["rouge_l"] == pytest.approx(2.44 * precision * recall / (recall + 1.44 * precision))


def test_cider_by_hand():
    scores = score_captions(words("a cat", "a dog"), [words("a cat", "a bird"), words("a dog")])
    # "a" is in both images: no weight. Image 1: "cat" and "a cat" agree with one of two references, n = 3, 4 with none
    assert scores["cider"] == pytest.approx((10 * (1 + 1) / 4 / 2 + 10 * (1 + 1) / 4) / 2)


def test_perfect_captions_score_best():
    lines = words("a cat sat on the mat", "two dogs run through green grass")
    scores = score_captions(lines, [[line] for line in lines])
    assert scores == pytest.approx(dict.fromkeys(scores, 1.0) | {"cider": 10.0})


@pytest.mark.parametrize(
    ("hypothesis", "reference", "bleu1"),
    [
        ("", "a cat", 0.0),
        ("cat", "a cat", math.exp(-1)),
        ("a cat " * 40, "a cat", 2 / 80),  # more tokens than bits of a machine word
        ("x y", "a cat", 0.0),
    ],
)
def test_odd_lengths(hypothesis, reference, bleu1):
    other = "something else entirely here"
    scores = score_captions(words(hypothesis, other), [words(reference), words(other)])
    alone = score_captions(words(hypothesis), [words(reference)])
    assert alone["bleu1"] == pytest.approx(bleu1, abs=1e-9)
    assert alone["cider"] == 0.0
    assert all(math.isfinite(score) for score in scores.values())
    assert 5.0 <= scores["cider"] < 10.0
    assert scores["rouge_l"] == pytest.approx((1 + alone["rouge_l"]) / 2)


def test_progress_goes_to_standard_error(capsys):
    score_captions(words("a"), [words("a")], progress=True)
    shown = capsys.readouterr()
    assert not shown.out and "score captions" in shown.err


@pytest.mark.parametrize("score", [score_captions, meteor])
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([["a"]], [], r"references must be a list of references for each of the 1 hypotheses, got 0"),
        ([], [], r"hypotheses must hold at least one caption"),
        ([["a"]], [[]], r"references\[0\] must be a list of one or more captions"),
        ([["a"], ["b"]], [[["a"]], "b c"], r"references\[1\] must be a list of one or more captions, got 'b c'"),
        (["a cat"], [[["a"]]], r"hypotheses\[0\] must have captions as lists of tokens, got 'a cat'; split"),
        ([["a"]], [["a cat"]], r"references\[0\] must have captions as lists of tokens, got 'a cat'; split"),
        ([[1, 2]], [[["a"]]], r"hypotheses\[0\] must have captions as lists of tokens, got \[1, 2\]"),
    ],
)
def test_wrong_input_is_named(score, hypotheses, references, message):
    with pytest.raises(ValueError, match=message) as caught:
        score(hypotheses, references)
    assert "\n" not in str(caught.value)


# --- against pycocoevalcap


@pytest.fixture(scope="module")
def coco(shared_data):
    """Captions of another image or of the same one for hypotheses, with all five references, some, or one."""
    pytest.importorskip("pycocoevalcap", reason="needs pip install pycocoevalcap")
    content = json.loads(gzip.decompress((shared_data / "captions" / "coco_karpathy_subset.json.gz").read_bytes()))
    tests = [[one["tokens"] for one in image["sentences"]] for image in content["images"] if image["split"] == "test"]
    hypotheses, references = [], []
    for number, own in enumerate(tests[:1500]):
        other = tests[number * 7 % len(tests)][1]
        hypothesis = [own[0], other, other + own[0], own[0][:3]][number % 4]
        hypotheses.append([] if number % 100 == 0 else hypothesis)
        references.append([own, own[1:], own[1:2]][number % 3])
    return hypotheses, references


def joined(hypotheses, references):
    truths = {number: [" ".join(one) for one in own] for number, own in enumerate(references)}
    return truths, {number: [" ".join(one)] for number, one in enumerate(hypotheses)}


def test_scores_equal_pycocoevalcap_on_real_captions(coco):
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    scores, texts = score_captions(*coco), joined(*coco)
    bleus = Bleu(4).compute_score(*texts, verbose=0)[0]
    assert [scores[f"bleu{n}"] for n in range(1, 5)] == pytest.approx(bleus, abs=1e-9)
    assert scores["rouge_l"] == pytest.approx(Rouge().compute_score(*texts)[0], abs=1e-9)
    assert scores["cider"] == pytest.approx(Cider().compute_score(*texts)[0], abs=1e-9)
    assert 0.2 < scores["bleu4"] < 0.8 and scores["cider"] > 0.5  # not a comparison of zeros


@pytest.mark.skipif(shutil.which("java") is None, reason="METEOR needs java")
def test_meteor_equals_pycocoevalcap_and_its_separators_lead_nobody_astray(coco):
    from pycocoevalcap.meteor.meteor import Meteor

    hypotheses, references = coco[0][:40], coco[1][:40]
    clean = joined([*hypotheses, ["a", "dog"]], [*references, words("the dog")])
    expected = Meteor().compute_score(*clean)[0]
    assert 0.1 < expected < 0.6
    odd = [*hypotheses, ["a\n", "|||", "dog"]], [*references, [["the", "|||", " dog"]]]
    assert meteor(*odd) == (pytest.approx(expected, abs=1e-12), "")


def test_without_java_meteor_says_so(monkeypatch, tmp_path):
    pytest.importorskip("pycocoevalcap", reason="needs pip install pycocoevalcap")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert meteor(words("a"), [words("a")]) == (None, "METEOR unavailable (needs java)")


def test_without_pycocoevalcap_meteor_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pycocoevalcap.meteor.meteor", None)
    fake_java(tmp_path, monkeypatch, "exit 0")
    assert meteor(words("a"), [words("a")]) == (None, "METEOR unavailable (pip install pycocoevalcap)")


@pytest.mark.parametrize(
    "script", ["echo no such release >&2; exit 3", "echo hi; read x; read x; echo there", "exit 0"]
)
def test_a_java_that_does_not_work_gives_a_reason_and_no_endless_wait(monkeypatch, tmp_path, script):
    pytest.importorskip("pycocoevalcap", reason="needs pip install pycocoevalcap")
    fake_java(tmp_path, monkeypatch, script)
    score, reason = meteor(words("a"), [words("a")])
    assert score is None and reason.startswith("METEOR unavailable (needs java: the one here failed")
    if "release" in script:
        assert "no such release" in reason


def fake_java(folder, monkeypatch, script):
    (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
