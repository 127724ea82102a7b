"""Generation: greedy, sampled and by beam search."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from ecoc import TrainedModel, heads
from ecoc.data import Vocabulary
from ecoc.decode import Sampling, beam_search, generate
from ecoc.decode.generate import read
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


class NoMemory(nn.Module):
    """In place of an LSTM: what enters leaves."""

    def forward(self, inputs: Tensor, state: object) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        nothing = inputs.new_zeros(1, len(inputs), 1)
        return inputs, (nothing, nothing)


def chain(table: list[list[float]]) -> LanguageModel:
    """A Markov chain: row w of `table` has the probabilities of the tokens after w."""
    size = len(table)
    result = LanguageModel(TokenEmbedding(size, size), NoMemory(), heads.build("softmax", size, size)).double()
    with torch.no_grad():
        result.embedding.weight.copy_(torch.eye(size))
        result.head.weight.copy_(torch.tensor(table, dtype=torch.float64).clamp(min=1e-30).log().T)
        result.head.bias.zero_()
    return result.eval()


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


@pytest.mark.parametrize("banned", [None, 0, 1])
@pytest.mark.parametrize(
    ("sampling", "weights"),
    [
        (Sampling(), [0.4, 0.3, 0.2, 0.1]),
        (Sampling(temperature=0.5), [0.16, 0.09, 0.04, 0.01]),
        (Sampling(top_k=3), [0.4, 0.3, 0.2, 0]),
        (Sampling(top_p=0.6), [0.4, 0.3, 0, 0]),
        (Sampling(temperature=0.5, top_k=3, top_p=0.9), [0.16, 0.09, 0.04, 0]),
    ],
)
def test_draws_have_the_distribution_asked_for(sampling: Sampling, weights: list[float], banned: int | None) -> None:
    expected = torch.tensor(weights)
    if banned is not None:
        expected[banned] = 0
    expected /= expected.sum()
    never = None if banned is None else torch.tensor([banned])
    prompt, generator = torch.zeros(20_000, 1, dtype=torch.long), torch.Generator().manual_seed(1)
    drawn = generate(chain([[0.4, 0.3, 0.2, 0.1]] * 4), prompt, 1, sampling, generator, never)
    share = drawn.flatten().bincount(minlength=4) / len(drawn)
    assert torch.equal(share > 0, expected > 0)
    torch.testing.assert_close(share, expected, rtol=0, atol=0.015)  # 4 standard deviations


def test_a_long_prompt_is_read_in_parts_as_one_text() -> None:
    reader = model().double()
    prompt = torch.randint(0, V, (2, 513))  # two parts of 256, and one token that needs what came before it
    last, state = read(reader, prompt)
    with torch.no_grad():
        hidden, whole = reader.hidden(prompt)
    torch.testing.assert_close((last, state), (hidden[:, -1], whole), rtol=1e-12, atol=1e-12)


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


START, END, A, B = range(4)


def test_a_beam_that_ends_leaves_its_place_to_the_next() -> None:
    after = {START: [0, 0.5, 0.3, 0.2], END: [0, 0, 1, 0], A: [0, 0.4, 0.3, 0.3], B: [0, 0.95, 0.05, 0]}
    found = beam_search(chain(list(after.values())), torch.tensor([START]), 4, width=2, end=END)
    assert [beam.tokens for beam in found] == [[END], [B, END]]  # B was the third best after START
    assert [beam.log_prob for beam in found] == pytest.approx([math.log(0.5), math.log(0.2 * 0.95)], rel=1e-12)


@pytest.mark.parametrize(
    ("length_power", "best", "probability"), [(0.0, [END], 0.5), (0.2, [END], 0.5), (1.0, [A, END], 0.4 * 0.9)]
)
def test_length_power_lets_a_longer_beam_win(length_power: float, best: list[int], probability: float) -> None:
    after = {START: [0, 0.5, 0.4, 0.1], END: [0, 0, 1, 0], A: [0, 0.9, 0.05, 0.05], B: [0, 0.2, 0.4, 0.4]}
    writer = chain(list(after.values()))
    (beam,) = beam_search(writer, torch.tensor([START]), 2, width=1, end=END, length_power=length_power)
    assert beam.tokens == best
    assert beam.log_prob == pytest.approx(math.log(probability), rel=1e-12)
    assert beam.score == pytest.approx(math.log(probability) / len(best) ** length_power, rel=1e-12)


@pytest.mark.parametrize("head", heads.NAMES)
def test_a_beam_without_the_banned_equals_exhaustive_search_without_them(head: str) -> None:
    writer, prompt = model(head).double(), torch.tensor([1, 4])
    hidden, _ = read(writer, prompt.unsqueeze(0))
    order = writer.head.topk(hidden, V)[1].flatten().tolist()
    banned, allowed = order[:2], order[2:]  # the banned would have come first
    everything = {two: log_probability(writer, [1, 4], two) for two in itertools.product(allowed, repeat=2)}
    best = sorted(everything, key=lambda two: -everything[two])[:3]
    beams = beam_search(writer, prompt, 2, width=3, banned=torch.tensor(banned))
    assert [tuple(beam.tokens) for beam in beams] == best
    assert [beam.log_prob for beam in beams] == pytest.approx([everything[two] for two in best], rel=1e-6)


def test_a_beam_has_its_width_whatever_is_banned() -> None:
    writer, start = chain([[0.4, 0.3, 0.2, 0.1]] * 4), torch.tensor([0])
    for banned, best in (([0], [[1], [2]]), ([0, 1], [[2], [3]]), ([0, 1, 2], [[3]])):
        assert [beam.tokens for beam in beam_search(writer, start, 1, 2, banned=torch.tensor(banned))] == best


def trained_model() -> TrainedModel:
    """A chain over five words, nearly always ``<unk>``, as if it had been loaded from a run."""
    result = TrainedModel.__new__(TrainedModel)
    result.vocabulary = Vocabulary(("<unk>", "<eos>", "a", "b", "c"), (5, 4, 3, 2, 1))
    result.model = chain([[0.9, 0.01, 0.04, 0.03, 0.02]] * 5)
    return result


def test_no_way_of_writing_gives_an_unknown_word() -> None:
    writer = trained_model()
    first, second = writer.generate("b", tokens=3, beam=2, count=2)
    assert first == "b a a a" and sorted(second.split()) == ["a", "a", "b", "b"]  # its order does not matter here
    assert writer.generate("b", tokens=3, temperature=0) == ["b a a a"]
    assert "<unk>" not in " ".join(writer.generate("b", tokens=20, count=20, temperature=1.0, seed=1))
    assert [word for word, _ in writer.suggest("b", 4)] == ["a", "b", "c", "<eos>"]


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("name", ["tokens", "count", "beam", "k"])
def test_numbers_below_1_are_refused_by_name(name: str, number: int) -> None:
    writer = trained_model()
    with pytest.raises(ValueError, match=rf"^{name} must be at least 1, got {number}$"):
        (writer.suggest if name == "k" else writer.generate)("a", **{name: number})
