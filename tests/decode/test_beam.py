"""Batched beam search against one search at a time, and against all sentences."""

import itertools

import pytest
import torch
from torch import Tensor

from ecoc.decode import Beam, beam_search, search
from ecoc.decode.generate import read
from ecoc.heads import Softmax
from ecoc.models import LanguageModel, TokenEmbedding, VariationalLSTM

V, H, END = 6, 5, 1


def small_model(seed: int = 0, vocab: int = V) -> LanguageModel:
    torch.manual_seed(seed)
    model = LanguageModel(TokenEmbedding(vocab, H), VariationalLSTM(H, H, 1), Softmax(H, vocab)).double().eval()
    with torch.no_grad():
        model.head.weight.mul_(4.0)
        model.embedding.weight.mul_(2.0)
    return model


def all_sentences(model: LanguageModel, prompt: Tensor, steps: int, power: float) -> list[tuple[float, list[int]]]:
    """Every sentence that ends with END or has `steps` tokens, with its normalised score, best first."""
    found = []
    for length in range(1, steps + 1):
        for words in itertools.product(range(V), repeat=length):
            if END in words[:-1] or (length < steps and words[-1] != END):
                continue
            ids = torch.cat([prompt, torch.tensor(words)])
            hidden, _ = model.hidden(ids[:-1].unsqueeze(0))
            nll = model.head.nll(hidden[0, len(prompt) - 1 :], torch.tensor(words)).sum()
            found.append((-float(nll.detach()) / length**power, list(words)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("power", [0.0, 0.7, 1.0])
def test_wide_beams_of_a_batch_equal_exhaustive_search(power: float) -> None:
    model = small_model()
    prompts = torch.tensor([[0, 2], [3, 4], [5, 5]])
    hidden, state = read(model, prompts)
    found = search(model, hidden, state, steps=4, width=V**4, end=END, length_power=power)
    for prompt, beams in zip(prompts, found, strict=True):
        wanted = all_sentences(model, prompt, 4, power)[: len(beams)]
        assert [beam.tokens for beam in beams[:5]] == [words for _, words in wanted[:5]]
        torch.testing.assert_close(
            torch.tensor([beam.score for beam in beams[:5]]), torch.tensor([score for score, _ in wanted[:5]])
        )


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("power", [0.0, 1.0])
def test_a_batch_is_its_rows_one_by_one(width: int, power: float) -> None:
    model = small_model(1)
    prompts = torch.randint(V, (7, 3), generator=torch.Generator().manual_seed(2))
    hidden, state = read(model, prompts)
    banned = torch.tensor([4])
    together = search(model, hidden, state, 9, width, END, power, banned)
    apart = [beam_search(model, prompt, 9, width, END, power, banned) for prompt in prompts]
    for one, other in zip(together, apart, strict=True):
        assert [beam.tokens for beam in one] == [beam.tokens for beam in other]
        assert [beam.score for beam in one] == pytest.approx([beam.score for beam in other])
        assert all(4 not in beam.tokens for beam in one)


def test_scores_are_those_of_the_sentences_and_ordered() -> None:
    model = small_model(3)
    hidden, state = read(model, torch.tensor([[0], [2]]))
    for start, beams in zip((0, 2), search(model, hidden, state, 8, 4, END, 0.6), strict=True):
        assert [beam.score for beam in beams] == sorted((beam.score for beam in beams), reverse=True)
        for beam in beams:
            assert isinstance(beam, Beam) and END not in beam.tokens[:-1]
            assert len(beam.tokens) == 8 or beam.tokens[-1] == END
            ids = torch.tensor([[start, *beam.tokens]])
            nll = model.head.nll(model.hidden(ids[:, :-1])[0], ids[:, 1:]).sum()
            assert beam.log_prob == pytest.approx(-float(nll.detach()))
            assert beam.score == pytest.approx(beam.log_prob / len(beam.tokens) ** 0.6)


def test_rows_that_are_over_take_no_more_part() -> None:
    """One row's sentence is sure to end at once; the decoder must not be asked about it again."""
    model, asked = small_model(4), []
    with torch.no_grad():
        model.head.bias.fill_(0.0)
        model.head.bias[END] = 60.0
    advance = model.advance
    model.advance = lambda tokens, state: asked.append(len(tokens)) or advance(tokens, state)
    hidden, state = read(model, torch.tensor([[0], [2], [3]]))
    found = search(model, hidden, state, 10, 1, END)
    assert [beams[0].tokens for beams in found] == [[END]] * 3 and asked == []


def greedy_score(model: LanguageModel, prompt: Tensor, steps: int, power: float, banned: list[int]) -> float:
    """Score of the sentence whose every word is the best one."""
    ids, total = prompt.tolist(), 0.0
    for length in range(1, steps + 1):
        hidden, _ = model.hidden(torch.tensor([ids]))
        log_probs = model.head.log_prob(hidden[0, -1])
        log_probs[banned] = -torch.inf
        total += float(log_probs.max())
        ids.append(int(log_probs.argmax()))
        if ids[-1] == END or length == steps:
            return total / length**power
    raise AssertionError


@torch.no_grad()
@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("banned", [[], [3]])
def test_the_best_sentence_is_never_worse_than_the_greedy_one(power: float, banned: list[int]) -> None:
    for seed in range(60):
        model = small_model(seed, 8)
        prompts = torch.randint(8, (16, 2), generator=torch.Generator().manual_seed(seed))
        hidden, state = read(model, prompts)
        found = search(model, hidden, state, 6, 2, END, power, torch.tensor(banned) if banned else None)
        for prompt, beams in zip(prompts, found, strict=True):
            assert beams[0].score >= greedy_score(model, prompt, 6, power, banned) - 1e-9
            assert len({tuple(beam.tokens) for beam in beams}) == len(beams) <= 2


def plain_beam(
    model: LanguageModel, prompt: Tensor, steps: int, width: int, power: float
) -> tuple[list[tuple[float, list[int]]], int]:
    """The textbook's search, all beams to the last step, and how many beams were moved along."""
    beams, ends, moved = [(0.0, list[int]())], list[tuple[float, list[int]]](), 0
    for length in range(1, steps + 1):
        grown = []
        for total, words in beams:
            log_probs = model.head.log_prob(model.hidden(torch.tensor([[*prompt.tolist(), *words]]))[0][0, -1])
            grown += [(total + float(value), [*words, word]) for word, value in enumerate(log_probs)]
        grown.sort(reverse=True)
        ends += [
            (total / length**power, words) for total, words in grown[:width] if words[-1] == END or length == steps
        ]
        beams = [(total, words) for total, words in grown[: 2 * width] if words[-1] != END][:width]
        moved += len(beams)
    return sorted(ends, reverse=True)[:width], moved


@torch.no_grad()
@pytest.mark.parametrize("power", [0.0, 0.7])
def test_dropped_beams_would_not_have_been_among_the_best(power: float) -> None:
    moved = plain_moved = 0
    for seed in range(25):
        model = small_model(seed, 8)
        prompts = torch.randint(8, (4, 2), generator=torch.Generator().manual_seed(seed))
        hidden, state = read(model, prompts)
        advance = model.advance

        def counted(tokens: Tensor, state: object, advance=advance) -> object:
            nonlocal moved
            moved += len(tokens)
            return advance(tokens, state)

        model.advance = counted
        for prompt, beams in zip(prompts, search(model, hidden, state, 7, 3, END, power), strict=True):
            wanted, all_moved = plain_beam(model, prompt, 7, 3, power)
            plain_moved += all_moved
            greedy = [beam.tokens for beam in beams if beam.tokens not in [words for _, words in wanted]]
            assert len(greedy) <= 1  # which went on beside the beam
            kept = [words for _, words in wanted][: 3 - len(greedy)]
            assert [beam.tokens for beam in beams if beam.tokens not in greedy] == kept
            if greedy:
                assert beams[0].score >= wanted[0][0] - 1e-9
                score = greedy_score(model, prompt, 7, power, [])
                assert score == pytest.approx(next(beam.score for beam in beams if beam.tokens in greedy))
    assert moved < (0.77 if power == 0.0 else 0.853) * plain_moved  # to drop whole searches alone leaves more


@pytest.mark.parametrize(("options", "says"), [({"width": 0}, "width must be"), ({"length_power": -0.5}, "0 or more")])
def test_bad_options_are_named(options: dict, says: str) -> None:
    model = small_model()
    with pytest.raises(ValueError, match=says):
        search(model, *read(model, torch.tensor([[0, 2]])), 4, **options)


def test_where_all_is_banned_there_is_no_sentence() -> None:
    model = small_model()
    assert search(model, *read(model, torch.tensor([[0, 2]])), 4, banned=torch.arange(V)) == [[]]


def test_no_row_is_no_mistake() -> None:
    model = small_model()
    hidden, state = read(model, torch.tensor([[0, 2]]))
    none = torch.tensor([], dtype=torch.long)
    assert search(model, hidden[none], model.select(state, none), 4) == []
