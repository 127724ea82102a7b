"""Scores of a language model against plain computation."""

import math

import pytest
import torch

from ecoc import codes, heads
from ecoc.data import Batches
from ecoc.metrics import Scorer, evaluate
from ecoc.metrics.language import band_names
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
    quick = Scorer(head, rank, thorough=False)
    quick.add(hidden, target)
    assert quick.scores.perplexity() == pytest.approx(scorer.scores.perplexity())
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
    model = LanguageModel(TokenEmbedding(V, 8), VariationalLSTM(8, 8, 2), head).double().eval()
    ids = torch.randint(0, V, (102,))

    @torch.no_grad()
    def nll_of_one_text(text: torch.Tensor) -> float:
        hidden, _ = model.hidden(text[:-1].unsqueeze(0))
        return float(head.nll(hidden[0], text[1:]).sum())

    one_row = evaluate(model, Batches(ids, 1, 7, drop_last=False))
    assert one_row.tokens == 101
    assert one_row.nll["normalised"] == pytest.approx(nll_of_one_text(ids), rel=1e-12)
    several = evaluate(model, Batches(ids, 3, 7, drop_last=False))  # a last batch with the first 2 of 3 rows
    columns = [ids[:35], ids[34:69], ids[68:]]
    assert several.tokens == 101
    assert several.nll["normalised"] == pytest.approx(sum(map(nll_of_one_text, columns)), rel=1e-12)


def test_evaluation_leaves_the_model_in_the_mode_it_was_in() -> None:
    model = LanguageModel(TokenEmbedding(V, 8), VariationalLSTM(8, 8, 1), heads.build("softmax", 8, V))
    batches = Batches(torch.randint(0, V, (20,)), 1, 7)
    first, second = (evaluate(model.train(), batches).nll for _ in range(2))
    assert first == second and model.training  # without dropout, and back again
    evaluate(model.eval(), batches)
    assert not model.training


def test_a_band_has_the_perplexity_of_the_words_whose_ranks_it_names() -> None:
    head = heads.build("softmax", 4, 1200).double()
    token_of = torch.randperm(1200)  # by rank from 0
    members = {"1-100": [0, 42, 99], "101-1000": [100, 999], "1001-1200": [1000, 1001, 1100, 1199]}
    scorer = Scorer(head, rank=token_of.argsort(), thorough=False)
    expected = {}
    for name, ranks in members.items():
        hidden, target = torch.randn(len(ranks), 4, dtype=torch.float64), token_of[ranks]
        mean = float(head.nll(hidden, target).detach().mean())
        expected[name] = {"tokens": len(ranks), "perplexity": pytest.approx(math.exp(mean), rel=1e-12)}
        scorer.add(hidden, target)
    assert scorer.scores.as_dict()["perplexity_by_band"] == expected


@pytest.mark.parametrize(
    ("vocab_size", "names"),
    [
        (23, ["1-23"]),
        (100, ["1-100"]),
        (101, ["1-100", "101-101"]),
        (4196, ["1-100", "101-1000", "1001-4196"]),
        (10_000, ["1-100", "101-1000", "1001-10000"]),
        (33_278, ["1-100", "101-1000", "1001-10000", "10001-33278"]),
    ],
)
def test_bands_end_with_the_vocabulary(vocab_size: int, names: list[str]) -> None:
    assert band_names(vocab_size) == names
