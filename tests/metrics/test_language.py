"""Scores of a language model against plain computation."""

import math

import pytest
import torch

from ecoc import codes, heads
from ecoc.data import Batches
from ecoc.metrics import Scorer, evaluate
from ecoc.models import LanguageModel, TokenEmbedding, VariationalLSTM
from tests.heads.cases import OPTIONS, V, batch, build, zipf_counts


@pytest.mark.parametrize("case", OPTIONS)
def test_scores_equal_plain_computation(case: str) -> None:
    head, (hidden, target) = build(case), batch(rows=60)
    rank = codes.frequency_rank(V, zipf_counts())
    scorer = Scorer(head, rank)
    for rows in (slice(0, 25), slice(25, 60)):  # in two goes
        scorer.add(hidden[rows], target[rows])
    numbers = scorer.scores.as_dict()
    log_probs = head.log_prob(hidden).detach()
    own = log_probs[torch.arange(60), target]
    places = (log_probs > own.unsqueeze(1)).sum(1) + 1
    assert numbers["tokens"] == 60
    assert numbers["perplexity"]["normalised"] == pytest.approx(float((-own.mean()).exp()))
    assert numbers["bits_per_token"] == pytest.approx(float(-own.mean()) / math.log(2))
    assert numbers["accuracy"] == pytest.approx(float((places == 1).double().mean()))
    assert numbers["top5_accuracy"] == pytest.approx(float((places <= 5).double().mean()))
    assert numbers["mean_reciprocal_rank"] == pytest.approx(float((1 / places).double().mean()))
    assert sum(band["tokens"] for band in numbers["perplexity_by_band"].values()) == 60
    if case.startswith("ecoc"):
        wrong = (head.latent_logits(hidden) > 0) ^ head.code_of(target)
        assert numbers["hamming_distance"] == pytest.approx(float(wrong.sum(-1).double().mean()))
    assert set(numbers["perplexity"]) == (
        {"normalised", "span-mass", "paper"} if "ecoc span-" in case else {"normalised"}
    )


def test_evaluation_reads_every_token_in_context() -> None:
    head = heads.build("softmax", 8, V)
    model = LanguageModel(TokenEmbedding(V, 8), VariationalLSTM(8, 8, 2), head)
    ids = torch.randint(0, V, (101,))
    one_row = evaluate(model, Batches(ids, 1, 7, drop_last=False))
    hidden, _ = model.eval().hidden(ids[:-1].unsqueeze(0))
    expected = head.nll(hidden[0], ids[1:]).sum()
    assert one_row.tokens == 100 and one_row.nll["normalised"] == pytest.approx(float(expected), rel=1e-5)
    several = evaluate(model, Batches(ids, 3, 7, drop_last=False))
    assert several.tokens == 100
    assert model.train().training and evaluate(model, Batches(ids, 3, 7)).tokens == 99 and model.training
