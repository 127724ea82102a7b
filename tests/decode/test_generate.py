"""Generation: greedy, sampled and by beam search."""

import itertools

import pytest
import torch

from ecoc import heads
from ecoc.decode import Sampling, beam_search, generate
from ecoc.models import LanguageModel, TokenEmbedding, VariationalLSTM
from tests.heads.cases import zipf_counts

V = 5


def model(head: str = "softmax") -> LanguageModel:
    torch.manual_seed(3)
    options = {"samples": 5} if head in ("sampled", "nce") else {}
    built = heads.build(head, 16, V, counts=zipf_counts(V), **options)
    result = LanguageModel(TokenEmbedding(V, 16), VariationalLSTM(16, 16, 2), built).eval()
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.mul_(3)
    return result


def log_probability(of: LanguageModel, prompt: list[int], tokens: tuple[int, ...]) -> float:
    ids = torch.tensor([[*prompt, *tokens]])
    with torch.no_grad():
        hidden, _ = of.hidden(ids[:, :-1])
        return -float(of.head.nll(hidden[:, len(prompt) - 1 :], ids[:, len(prompt) :]).sum())


@pytest.mark.parametrize("head", heads.NAMES)
def test_greedy_takes_the_best_token_each_time(head: str) -> None:
    writer = model(head)
    prompts = torch.tensor([[1, 2], [3, 0]])
    written = generate(writer, prompts, 6, Sampling(temperature=0))
    for row in range(2):
        so_far = prompts[row].tolist()
        for token in written[row].tolist():
            hidden, _ = writer.hidden(torch.tensor([so_far]))
            assert token == int(writer.head.log_prob(hidden[0, -1]).argmax())
            so_far.append(token)


def test_sampling_repeats_with_its_seed_and_avoids_what_is_banned() -> None:
    writer, prompt = model(), torch.tensor([[1]]).expand(40, 1)
    first, second = (
        generate(writer, prompt, 10, Sampling(), torch.Generator().manual_seed(7), torch.tensor([0, 2]))
        for _ in range(2)
    )
    assert torch.equal(first, second) and set(first.unique().tolist()) == {1, 3, 4}
    greedy = generate(writer, prompt, 10, Sampling(temperature=0), banned=torch.tensor([0, 1, 2, 3]))
    assert set(greedy.unique().tolist()) == {4}


@pytest.mark.parametrize("head", heads.NAMES)
def test_a_wide_beam_equals_exhaustive_search(head: str) -> None:
    writer = model(head)
    everything = {tokens: log_probability(writer, [1, 4], tokens) for tokens in itertools.product(range(V), repeat=3)}
    best = sorted(everything, key=lambda tokens: -everything[tokens])[:5]
    beams = beam_search(writer, torch.tensor([1, 4]), 3, width=V)
    wide = beam_search(writer, torch.tensor([1, 4]), 3, width=5)
    assert tuple(beams[0].tokens) == best[0]
    assert all(beam.log_prob == pytest.approx(everything[tuple(beam.tokens)], abs=1e-4) for beam in wide)


def test_a_beam_never_scores_below_greedy_and_ends_where_told() -> None:
    writer = model()
    for start in range(V):
        greedy = tuple(generate(writer, torch.tensor([[start]]), 5, Sampling(temperature=0))[0].tolist())
        beam = beam_search(writer, torch.tensor([start]), 5, width=3)[0]
        assert beam.log_prob >= log_probability(writer, [start], greedy) - 1e-4
    ended = beam_search(writer, torch.tensor([1]), 6, width=3, end=2)
    assert all(2 not in beam.tokens[:-1] and (beam.tokens[-1] == 2 or len(beam.tokens) == 6) for beam in ended)
    assert [beam.score for beam in ended] == sorted((beam.score for beam in ended), reverse=True)
