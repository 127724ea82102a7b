"""Feeding policies: what enters, when, and where gradients go."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from ecoc import codes, feeding, heads
from ecoc.feeding import Policy, Schedule
from ecoc.feeding.soft_curriculum import soft_codes
from ecoc.heads import ECOC
from ecoc.models import CodeEmbedding, LanguageModel, TokenEmbedding, VariationalLSTM
from tests.heads.cases import zipf_counts

V, H, B, T, BITS = 23, 8, 3, 7, 12
COUNTS = zipf_counts(V)
ALWAYS = Schedule("constant", 5, 1.0)


def code(kind: str = "random", bits: int = BITS) -> codes.Codebook:
    return codes.build(kind, V, bits, COUNTS)


HEADS: dict[str, Callable[[], heads.Head]] = {
    "softmax": lambda: heads.build("softmax", H, V, COUNTS),
    "adaptive": lambda: heads.build("adaptive", H, V, COUNTS, cutoffs=[3, 9]),
    "sampled": lambda: heads.build("sampled", H, V, COUNTS, samples=9),
    "hierarchical": lambda: heads.build("hierarchical", H, V, COUNTS),
    "binary": lambda: heads.build("hierarchical", H, V, COUNTS, tree="binary"),
    "likelihood": lambda: heads.build("ecoc", H, V, COUNTS, codebook=code(), samples=V),
    "bits": lambda: heads.build("ecoc", H, V, COUNTS, codebook=code(), objective="bits"),
    "span-mass": lambda: heads.build("ecoc", H, V, COUNTS, codebook=code("span-unigram"), objective="span-mass"),
    "span-max": lambda: heads.build("ecoc", H, V, COUNTS, codebook=code("span-unigram"), objective="span-max"),
}
CODED = ("likelihood", "bits", "span-mass", "span-max")
CASES = [
    *((name, "scheduled", False) for name in HEADS),
    *((name, "scheduled", True) for name in CODED),
    *((name, "soft", False) for name in HEADS if not name.startswith("span-")),
    *((name, "soft", True) for name in CODED),
    *((name, "curriculum", False) for name in ("hierarchical", "binary", *CODED)),
    *((name, "curriculum", True) for name in CODED),
    *((name, "soft-curriculum", True) for name in CODED),
    ("hierarchical", "differentiable", False),
    *((name, "differentiable", True) for name in CODED),
]


def build(
    name: str, policy: str, by_code: bool, schedule: Schedule = ALWAYS, sequential: bool = False, **options: object
) -> LanguageModel:
    """A small model in float64, its head's weights large enough for sure predictions."""
    torch.manual_seed(0)
    head = HEADS[name]()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(3.0)
    embedding = CodeEmbedding(head.codebook, H) if by_code and isinstance(head, ECOC) else TokenEmbedding(V, H)
    lstm = VariationalLSTM(H, H, 2, dropout=0.0, recurrent_dropout=0.0)
    built = feeding.build(policy, head, embedding, schedule, **options)
    return LanguageModel(embedding, lstm, head, feeding=built, sequential=sequential).double()


def batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    ids = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(seed))
    return ids[:, :-1], ids[:, 1:]


def fed_vectors(model: LanguageModel, inputs: Tensor) -> Tensor:
    """What enters the LSTM in the pass that counts, ``(batch, time, E)``."""
    entered = []

    def note(module: object, arguments: tuple) -> None:
        entered.append(arguments[0].detach().clone())

    handle = model.lstm.register_forward_pre_hook(note)
    torch.manual_seed(5)
    model.fed(inputs)
    handle.remove()
    return torch.cat(entered, 1) if model.sequential else entered[-1]


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize(("name", "policy", "by_code"), CASES)
def test_at_probability_0_it_is_teacher_forcing_to_the_last_bit(
    name: str, policy: str, by_code: bool, sequential: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(name, policy, by_code, Schedule("sigmoid", 5, 0.9), sequential)
    teacher = LanguageModel(model.embedding, model.lstm, model.head)
    inputs, targets = batch()
    calls = []
    fused = torch.nn.LSTM.forward
    monkeypatch.setattr(torch.nn.LSTM, "forward", lambda self, *rest: calls.append(1) or fused(self, *rest))
    results = []
    for one in (model, teacher):
        torch.manual_seed(2)
        loss, state = one(inputs, targets)
        gradients = torch.autograd.grad(loss, [*teacher.parameters()], allow_unused=True)
        results.append((loss, *state, *(g for g in gradients if g is not None)))
    assert len(calls) == 4  # one fused call a layer, for each of the two models
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize(("name", "by_code"), [(n, c) for n, p, c in CASES if p == "scheduled"])
def test_at_probability_1_all_inputs_are_predictions(name: str, by_code: bool, sequential: bool) -> None:
    model = build(name, "scheduled", by_code, sequential=sequential)
    inputs, _ = batch()
    entered = fed_vectors(model, inputs)
    assert torch.equal(entered[:, 0], model.embedding(inputs[:, 0]))
    hidden, _ = model.lstm(entered) if sequential else model.hidden(inputs)
    for t in range(1, T):
        before = hidden[:, t - 1]
        own = (
            model.head.token_of(model.head.latent_logits(before) > 0)
            if name.startswith("span-")
            else model.head.log_prob(before).argmax(-1)
        )
        torch.testing.assert_close(entered[:, t], model.embedding(own), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "by_code"), [(n, c) for n, p, c in CASES if p == "curriculum"])
def test_at_probability_1_all_bits_are_predicted(name: str, by_code: bool) -> None:
    model = build(name, "curriculum", by_code)
    inputs, _ = batch()
    entered = fed_vectors(model, inputs)
    hidden, _ = model.hidden(inputs)
    head, before = model.head, hidden[:, :-1]
    if name == "likelihood":
        predicted = head.code_of(head.log_prob(before).argmax(-1))
    else:
        logits = head.latent_logits(before)
        predicted = logits.argmax(-1) if name == "hierarchical" else logits > 0
    vectors = model.embedding.of_code(predicted) if by_code else model.embedding(head.token_of(predicted))
    torch.testing.assert_close(entered[:, 1:], vectors, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize(("name", "policy", "by_code"), CASES)
def test_inputs_know_nothing_of_the_current_target(name: str, policy: str, by_code: bool, sequential: bool) -> None:
    model = build(name, policy, by_code, Schedule("constant", 5, 0.6), sequential)
    inputs, _ = batch()
    entered = fed_vectors(model, inputs)
    for t in range(1, T):
        other = inputs.clone()
        other[:, t:] = (other[:, t:] + 1 + torch.arange(T - t)) % V  # the targets of steps t - 1, t, ...
        again = fed_vectors(model, other)
        torch.testing.assert_close(again[:, :t], entered[:, :t], rtol=0, atol=1e-12)
        assert not torch.equal(again, entered)


@pytest.mark.parametrize(("name", "policy", "by_code"), CASES)
def test_one_step_is_the_same_both_ways(name: str, policy: str, by_code: bool) -> None:
    """The second input depends on one hidden state, which no prediction was fed before."""
    inputs = batch()[0][:, :2]
    losses = [fed_vectors(build(name, policy, by_code, sequential=mode), inputs) for mode in (False, True)]
    torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("thresholds", ["equal", "rising", "falling"])
@pytest.mark.parametrize("policy", ["curriculum", "soft-curriculum", "differentiable"])
def test_bits_are_mixed_at_their_own_rates(policy: str, thresholds: str) -> None:
    cold = {} if policy == "curriculum" else {"temperature": 1e-3}
    model = build("bits", policy, True, Schedule("constant", 5, 0.4), thresholds=thresholds, **cold)
    rows = 20_000
    hidden = torch.zeros(rows, H, dtype=torch.float64)
    with torch.no_grad():
        model.head.output.bias.copy_(torch.where(torch.arange(BITS) % 2 == 0, 40.0, -40.0))
    truth = torch.full((rows,), 4)
    model.embedding.of_code = lambda code: code.double()  # to see the code itself
    torch.manual_seed(3)
    mixed = model.feeding(model.head, model.embedding, hidden, truth)
    predicted, target = model.head.latent_logits(hidden[0]) > 0, model.head.code_of(truth[0])
    differ = predicted != target
    assert differ.any() and not differ.all()
    wanted = 0.4 * feeding.bit_thresholds(thresholds, BITS)
    rates = (mixed.round().bool() != target).double().mean(0)
    assert (rates[~differ] == 0).all()
    noise = (wanted * (1 - wanted) / rows).sqrt()
    assert ((rates - wanted).abs() < 4 * noise)[differ].all()
    fed, changed = model.feeding.take_counts()
    assert fed == rows and abs(changed / rows - (1 - (1 - wanted[differ]).prod())) < 0.02
    assert model.feeding.take_counts() == (0, 0)


@pytest.mark.parametrize("policy", ["scheduled", "soft"])
def test_tokens_are_mixed_at_the_schedules_rate(policy: str) -> None:
    model = build("softmax", policy, False, Schedule("linear", 5, 0.8))
    model.feeding.at_epoch(2)
    assert model.feeding.probability == pytest.approx(0.4)
    hidden, truth = torch.randn(20_000, H, dtype=torch.float64), torch.full((20_000,), 7)
    vectors = model.feeding(model.head, model.embedding, hidden, truth)
    own = (vectors != model.embedding(truth)).any(-1).double()
    mistaken = (model.head.predict(hidden) != 7).double() if policy == "scheduled" else torch.ones(1)
    assert abs(own.mean() - 0.4 * mistaken.mean()) < 0.015


def test_sampled_tokens_follow_the_model() -> None:
    model = build("softmax", "scheduled", False, sampled=True)
    hidden = torch.randn(1, H, dtype=torch.float64).expand(40_000, -1)
    model.embedding.forward = lambda ids: ids.double().unsqueeze(-1)
    torch.manual_seed(6)
    tokens = model.feeding(model.head, model.embedding, hidden, torch.zeros(40_000, dtype=torch.long)).long()
    shares = tokens.flatten().bincount(minlength=V) / 40_000
    assert (shares - model.head.log_prob(hidden[0]).exp()).abs().max() < 0.012


@pytest.mark.parametrize("name", ["softmax", "adaptive", "likelihood"])
def test_soft_feeds_the_expected_embedding(name: str) -> None:
    model = build(name, "soft", False, temperature=0.7, candidates=V)
    hidden, truth = torch.randn(5, H, dtype=torch.float64), torch.arange(5)
    weights = (model.head.log_prob(hidden) / 0.7).softmax(-1)
    wanted = torch.stack([sum(w * e for w, e in zip(row, model.embedding.weight, strict=True)) for row in weights])
    got = model.feeding(model.head, model.embedding, hidden, truth)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def test_soft_on_codes_feeds_the_expected_code() -> None:
    model = build("likelihood", "soft", True, temperature=1.3, candidates=V)
    hidden = torch.randn(5, H, dtype=torch.float64)
    weights = (model.head.log_prob(hidden) / 1.3).softmax(-1)
    wanted = model.embedding.of_code(weights @ model.head.code_of(torch.arange(V)).double())
    got = model.feeding(model.head, model.embedding, hidden, torch.arange(5))
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def test_soft_sums_over_the_best_tokens_alone() -> None:
    model = build("softmax", "soft", False, temperature=0.7, candidates=2)
    hidden = torch.randn(5, H, dtype=torch.float64)
    log_probs, ids = model.head.log_prob(hidden).topk(2)
    share = torch.sigmoid((log_probs[:, 0] - log_probs[:, 1]) / 0.7).unsqueeze(1)
    first, second = (model.embedding.weight[column] for column in ids.unbind(1))
    got = model.feeding(model.head, model.embedding, hidden, torch.arange(5))
    torch.testing.assert_close(got, share * first + (1 - share) * second)


def test_bit_log_odds_of_likelihood_are_those_of_its_distribution() -> None:
    head = build("likelihood", "soft", True).head  # of so few tokens all are drawn
    hidden = 0.3 * torch.randn(6, H, dtype=torch.float64)
    share = head.log_prob(hidden).exp() @ head.code_of(torch.arange(V)).double()
    got = head.bit_log_odds(hidden).sigmoid()
    torch.testing.assert_close(got, share.clamp(1e-4, 1 - 1e-4), rtol=1e-6, atol=1e-7)


def test_bit_log_odds_from_few_draws_are_those_of_best_token_and_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head = ECOC(H, V, COUNTS, bits=12, samples=8).double()
    draws = head.model.small_proposal()
    monkeypatch.setattr(head.model.small_proposal, "forward", lambda: draws)
    hidden = 6.0 * torch.randn(40, H, dtype=torch.float64)
    log_prob, code, best = head.log_prob(hidden), head.code_of(torch.arange(V)).double(), head.predict(hidden)
    assert set(best.tolist()) - set(draws.tolist()) and set(best.tolist()) & set(draws.tolist())
    for row, token in enumerate(best.tolist()):
        # each draw stands for exp(log_weight) / u(w) tokens like it, the best for itself
        mass = {token: log_prob[row, token].exp()}
        for draw, log_weight in zip(draws.tolist(), head.model.small_proposal.log_weight.double(), strict=True):
            if draw != token:
                share = (log_prob[row, draw] + log_weight - head.model.log_prior[draw].double()).exp()
                mass[draw] = mass.get(draw, 0.0) + share
        wanted = sum(m * code[w] for w, m in mass.items()) / sum(mass.values())
        got = head.bit_log_odds(hidden[row]).sigmoid()
        torch.testing.assert_close(got, wanted.clamp(1e-4, 1 - 1e-4), rtol=1e-5, atol=1e-6)


def test_a_policy_of_another_head_or_embedding_is_refused() -> None:
    softmax, coded = build("softmax", "scheduled", False), build("likelihood", "curriculum", True)
    lstm = softmax.lstm
    with pytest.raises(ValueError, match=r"'curriculum' on ECOC was built for another .* Softmax and TokenEmb"):
        LanguageModel(softmax.embedding, lstm, softmax.head, feeding=coded.feeding)
    with pytest.raises(
        ValueError, match="built for another head or embedding than the model's ECOC and TokenEmbedding"
    ):
        LanguageModel(softmax.embedding, lstm, coded.head, feeding=coded.feeding)
    assert LanguageModel(coded.embedding, lstm, coded.head, feeding=coded.feeding).feeding is coded.feeding
    tree, bits, spans = (build(name, "scheduled", False) for name in ("hierarchical", "bits", "span-mass"))
    longer = heads.build("ecoc", H, V, COUNTS, bits=BITS + 8)
    more = heads.build("softmax", H, V + 1)
    for policy, head in ((tree, softmax), (bits, spans), (softmax, None)):
        with pytest.raises(ValueError, match="built for another head or embedding"):
            LanguageModel(softmax.embedding, lstm, more if head is None else head.head, feeding=policy.feeding)
    by_token = build("likelihood", "curriculum", False)
    with pytest.raises(ValueError, match="built for another head or embedding"):
        LanguageModel(by_token.embedding, lstm, longer, feeding=by_token.feeding)


def test_a_mean_codeword_is_drawn_from_at_most_256_tokens() -> None:
    counts = 1e6 / torch.arange(1, 2001)
    assert len(ECOC(H, 2000, counts, bits=16, samples=700).model.small_proposal()) == 256
    assert len(ECOC(H, 2000, counts, bits=16, samples=70).model.small_proposal()) == 70


@pytest.mark.parametrize("policy", ["differentiable", "soft-curriculum"])
def test_relaxed_bits_of_likelihood_are_those_of_its_distribution(policy: str) -> None:
    """With probability 1 the fed code is the prediction's, whatever the target was."""
    model = build("likelihood", policy, True, temperature=0.7)
    hidden = torch.randn(6, H, dtype=torch.float64)
    torch.manual_seed(3)
    first = model.feeding(model.head, model.embedding, hidden, torch.arange(6))
    torch.manual_seed(3)
    second = model.feeding(model.head, model.embedding, hidden, torch.arange(6).flip(0))
    torch.testing.assert_close(first, second)
    raw = model.embedding.of_code((model.head.latent_logits(hidden) > 0).double())
    assert not torch.allclose(first, raw)


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(("name", "policy", "by_code"), CASES)
def test_nothing_chosen_is_no_mistake(name: str, policy: str, by_code: bool, sequential: bool) -> None:
    model = build(name, policy, by_code, Schedule("constant", 1, 1e-9), sequential)
    loss, _ = model(*batch())
    loss.backward()
    assert torch.isfinite(loss)


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize(("name", "policy", "by_code"), CASES)
def test_every_pass_has_the_same_dropout(name: str, policy: str, by_code: bool, sequential: bool) -> None:
    model = build(name, policy, by_code, sequential=sequential)
    model.lstm.dropout = model.lstm.recurrent_dropout = 0.5
    seen = []
    model.lstm.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[2]))
    model(*batch())
    assert len(seen) == (T if sequential else 2) and all(masks is seen[0] for masks in seen)
    assert seen[0].outputs is not None and not any(mask is None for mask in (*seen[0].inputs, *seen[0].recurrent))


@pytest.mark.parametrize(("name", "by_code"), [("softmax", False), ("likelihood", True), ("hierarchical", False)])
def test_processes_mix_other_rows_and_stay_in_step(name: str, by_code: bool) -> None:
    model = build(name, "scheduled", by_code, Schedule("constant", 5, 0.5), sampled=True)
    hidden, truth = torch.randn(200, H, dtype=torch.float64), torch.zeros(200, dtype=torch.long)
    fed, after = [], []
    for rank in (0, 1, 0):
        model.feeding.rank = rank
        torch.manual_seed(4)
        fed.append(model.feeding(model.head, model.embedding, hidden, truth))
        after.append(torch.rand(3))
    assert torch.equal(fed[0], fed[2]) and not torch.equal(fed[0], fed[1])
    assert torch.equal(after[0], after[1])


def test_soft_codes_are_the_weighted_neighbours() -> None:
    log_odds = torch.tensor([[3.0, -0.2, 0.5, -2.0]], dtype=torch.float64)
    base = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    words = [base.clone(), base.clone(), base.clone()]
    words[1][1], words[2][2] = 1.0, 0.0  # the two least certain bits, flipped

    def log_p(word: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(torch.where(word > 0, log_odds[0], -log_odds[0])).sum()

    weights = torch.stack([log_p(word) for word in words]).div(0.6).softmax(0)
    wanted = sum(w * word for w, word in zip(weights, words, strict=True))
    torch.testing.assert_close(soft_codes(log_odds, 2, 0.6)[0], wanted)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_soft_curriculum_weighs_neighbours_at_its_temperature(temperature: float) -> None:
    model = build("bits", "soft-curriculum", True, temperature=temperature, flips=3)
    hidden = torch.randn(6, H, dtype=torch.float64)
    wanted = model.embedding.of_code(soft_codes(model.head.latent_logits(hidden), 3, temperature))
    got = model.feeding(model.head, model.embedding, hidden, torch.arange(6))
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


LATENT = [(n, c) for n, p, c in CASES if p == "differentiable"]


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize(("name", "by_code"), LATENT)
def test_differentiable_gradients_reach_the_predictions_that_were_fed(
    name: str, by_code: bool, sequential: bool
) -> None:
    """The loss of the last step alone, by a shift of the head's output where only what was fed can see it."""
    model = build(name, "differentiable", by_code, sequential=sequential, temperature=0.8)
    inputs, targets = batch()
    shift = torch.zeros(B, H, dtype=torch.float64, requires_grad=True)

    def loss_of_last(shift: Tensor) -> Tensor:
        torch.manual_seed(7)
        policy = model.feeding
        hidden, state = model.hidden(inputs[:, :1])  # its own prediction is shifted, not what the LSTM carries on
        vectors = policy(model.head, model.embedding, hidden[:, 0] + shift, inputs[:, 1])
        hidden, _ = model.lstm(vectors.unsqueeze(1), state)
        return model.head.nll(hidden[:, 0], targets[:, 1]).sum()

    (gradient,) = torch.autograd.grad(loss_of_last(shift), shift)
    assert gradient.abs().sum() > 1e-6
    numeric = torch.zeros_like(gradient)
    for place in range(B * H):
        step = torch.zeros(B * H, dtype=torch.float64)
        step[place] = 1e-6
        step = step.view(B, H)
        numeric.view(-1)[place] = (loss_of_last(shift + step) - loss_of_last(shift - step)).detach() / 2e-6
    torch.testing.assert_close(gradient, numeric, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize(("name", "by_code"), LATENT)
def test_differentiable_gradients_of_the_whole_model_are_exact(name: str, by_code: bool, sequential: bool) -> None:
    """The last step's loss by the recurrent weights: through the states, and through every prediction that was fed."""
    model = build(name, "differentiable", by_code, sequential=sequential, temperature=0.8)
    inputs, targets = batch()
    weight = model.lstm.layers[0].weight_hh_l0

    def loss_of_last() -> Tensor:
        torch.manual_seed(7)
        hidden, _ = model.fed(inputs)
        return model.head.nll(hidden[:, -1], targets[:, -1]).sum()

    (gradient,) = torch.autograd.grad(loss_of_last(), weight)
    (by_states,) = torch.autograd.grad(model.head.nll(model.hidden(inputs)[0][:, -1], targets[:, -1]).sum(), weight)
    assert not torch.allclose(gradient, by_states, rtol=1e-2)
    for place in range(0, weight.numel(), 37):
        losses = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                weight.view(-1)[place] += step
            losses.append(float(loss_of_last().detach()))
        with torch.no_grad():
            weight.view(-1)[place] += 1e-6
        assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(float(gradient.view(-1)[place]), rel=1e-4, abs=1e-7)


def gradient_through_feeding(model: LanguageModel) -> list[Tensor]:
    """Gradient of the last step's loss with respect to the head, of which the last step's own use is held fixed."""
    inputs, targets = batch()
    torch.manual_seed(8)
    hidden, _ = model.fed(inputs)
    frozen = {name: p.detach() for name, p in model.head.named_parameters()}
    loss = torch.func.functional_call(model.head, frozen, (hidden[:, -1], targets[:, -1]), {"reduction": "sum"})
    found = torch.autograd.grad(loss, [*model.head.parameters()], allow_unused=True)
    return [g for g in found if g is not None]


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize(("name", "policy", "by_code"), CASES)
def test_only_soft_and_differentiable_policies_have_a_gradient_through_what_is_fed(
    name: str, policy: str, by_code: bool, sequential: bool
) -> None:
    options = {"temperature": 0.8} if policy in ("soft", "differentiable") else {}
    found = gradient_through_feeding(build(name, policy, by_code, sequential=sequential, **options))
    if policy in ("soft", "differentiable"):
        assert sum(float(g.abs().sum()) for g in found) > 1e-9
    else:
        assert not found


def test_learned_temperature_is_a_parameter_with_a_gradient() -> None:
    model = build("likelihood", "differentiable", True, temperature="learned")
    assert any(name == "feeding.log_temperature" for name, _ in model.named_parameters())
    loss, _ = model(*batch())
    loss.backward()
    assert model.feeding.log_temperature.grad.abs() > 0
    model.feeding.probability, model.feeding.log_temperature.grad = 0.0, None
    model(*batch())[0].backward()
    assert model.feeding.log_temperature.grad == 0  # touched in every step, for DDP


@pytest.mark.parametrize("straight_through", [False, True])
def test_cold_differentiable_samples_are_codes_of_the_head(straight_through: bool) -> None:
    model = build("bits", "differentiable", True, temperature=1e-5, straight_through=straight_through)
    hidden = torch.randn(30, H, dtype=torch.float64)
    model.embedding.of_code = lambda code: code
    code = model.feeding(model.head, model.embedding, hidden, torch.zeros(30, dtype=torch.long))
    assert ((code < 1e-6) | (code > 1 - 1e-6)).double().mean() > 0.99


def test_a_cold_path_through_the_tree_is_a_token() -> None:
    model = build("hierarchical", "differentiable", False, temperature=1e-6)
    hidden = torch.randn(30, H, dtype=torch.float64)
    vectors = model.feeding(model.head, model.embedding, hidden, torch.zeros(30, dtype=torch.long))
    distance = torch.cdist(vectors, model.embedding.weight).amin(-1)
    assert (distance < 1e-6).double().mean() > 0.95


def test_paths_are_drawn_from_the_tree() -> None:
    model = build("hierarchical", "differentiable", False, temperature=1e-6)
    hidden = torch.randn(1, H, dtype=torch.float64).expand(40_000, -1)
    torch.manual_seed(9)
    vectors = model.feeding(model.head, model.embedding, hidden, torch.zeros(40_000, dtype=torch.long))
    tokens = torch.cdist(vectors.detach(), model.embedding.weight.detach()).argmin(-1)
    shares = tokens.bincount(minlength=V) / 40_000
    assert (shares - model.head.log_prob(hidden[0]).exp()).abs().max() < 0.012


BAD: dict[str, tuple[str, bool, str, dict, str]] = {
    "latent on softmax": (
        "softmax",
        False,
        "curriculum",
        {},
        "'curriculum' needs a head with .* Softmax has none",
    ),
    "relaxed on a tree of turns": ("binary", False, "differentiable", {}, "BinaryTreeSoftmax cannot here"),
    "relaxed by token": ("likelihood", False, "differentiable", {}, "'differentiable' feeds relaxed codes, .* ECOC"),
    "weighted codes by token": ("bits", False, "soft-curriculum", {}, "'soft-curriculum' feeds weighted codes"),
    "soft spans by token": ("span-mass", False, "soft", {}, "'soft' on ECOC with a span objective"),
    "tau": (
        "likelihood",
        True,
        "differentiable",
        {"temperature": 0.0},
        "'differentiable' on ECOC: temperature must",
    ),
    "tau that is a word": ("softmax", False, "soft", {"temperature": "hot"}, "temperature 'hot' is unknown"),
    "tau that cannot be learned": ("bits", True, "soft-curriculum", {"temperature": "learned"}, "no gradient reaches"),
    "tau of another": ("bits", True, "curriculum", {"temperature": 0.5}, "'curriculum' on ECOC: it has no temperature"),
    "a word for thresholds": ("bits", True, "curriculum", {"thresholds": "wavy"}, "'curriculum' on ECOC: .*'wavy'"),
    "a list of thresholds": ("bits", True, "curriculum", {"thresholds": [0.5]}, "thresholds must be 12 numbers"),
    "no candidates": ("softmax", False, "soft", {"candidates": 0}, "'soft' on Softmax: candidates must be at least 1"),
    "no paths": ("hierarchical", False, "differentiable", {"words": 0}, "classes and words must be at least 1"),
    "teacher with options": ("softmax", False, "teacher", {"flips": 3}, "'teacher' has no options: leave out flips"),
    "a schedule of one's own": (
        "softmax",
        False,
        "soft",
        {"schedule": lambda epoch: 1.5},
        r"'soft' on Softmax: the schedule leaves \[0, 1\]",
    ),
    "thresholds": ("bits", True, "curriculum", {"thresholds": torch.ones(3)}, "thresholds must be 12 numbers"),
    "thresholds that are no numbers": (
        "bits",
        True,
        "curriculum",
        {"thresholds": torch.full((BITS,), torch.nan)},
        r"'curriculum' on ECOC: thresholds must be 12 numbers in \[0, 1\]",
    ),
    "endless tau": ("softmax", False, "soft", {"temperature": torch.inf}, "must be above 0 and finite, got inf"),
    "flips": ("bits", True, "soft-curriculum", {"flips": 13}, "flips must be from 1 to 12"),
    "unknown": ("softmax", False, "professor", {}, "'professor' is unknown: choose one of teacher"),
    "another's option": ("softmax", False, "scheduled", {"flips": 2}, "'scheduled' on Softmax: .*flips"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_makes_no_sense_is_refused_with_the_names_of_both(bad: str) -> None:
    name, by_code, policy, options, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        build(name, policy, by_code, **options)


def test_a_schedule_that_leaves_its_range_later_is_refused_then() -> None:
    model = build("softmax", "scheduled", False)
    model.feeding.schedule = lambda epoch: -0.5
    with pytest.raises(
        ValueError, match=r"'scheduled' on Softmax: the schedule leaves \[0, 1\], it is -0.5 in epoch 3"
    ):
        model.feeding.at_epoch(3)


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
def test_a_model_that_is_evaluated_is_fed_targets(sequential: bool) -> None:
    model = build("softmax", "scheduled", False, sequential=sequential)
    teacher = LanguageModel(model.embedding, model.lstm, model.head)
    assert model(*batch()).loss != teacher(*batch()).loss
    assert model.eval()(*batch()).loss == teacher.eval()(*batch()).loss


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
def test_both_passes_go_on_from_the_state_given(sequential: bool) -> None:
    model = build("softmax", "scheduled", False, sequential=sequential)
    before, inputs = batch(2)[0], batch()[0]
    _, state = model.hidden(before)
    predicted, hidden, carried = [inputs[:, 0]], [], state
    for t in range(T):
        token = predicted[-1] if sequential else inputs[:, t]
        output, carried = model.advance(token, carried)
        hidden.append(output)
        predicted.append(model.head.predict(output))
    fed, after = model.fed(inputs, state)
    wanted, end = model.hidden(torch.stack(predicted[:-1], 1), state)
    torch.testing.assert_close(fed, wanted, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(after, end, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "policy", "by_code"), CASES)
def test_a_prediction_that_is_the_target_counts_as_unchanged(name: str, policy: str, by_code: bool) -> None:
    """Of two rows, one predicts its target for sure and the other another token."""
    options = {"temperature": 1e-6} if policy in ("soft", "soft-curriculum", "differentiable") else {}
    model = build(name, policy, by_code, **options)
    hidden = 40.0 * torch.randn(60, H, dtype=torch.float64)
    own = feeding.policy.best_token(model.head, hidden)
    if name == "bits":  # a word of bits that is a codeword
        own = torch.full((60,), 4)
        with torch.no_grad():
            model.head.output.weight.zero_()
            model.head.output.bias.copy_(80.0 * model.head.code_of(own[:1])[0] - 40.0)
    model.feeding(model.head, model.embedding, hidden, own)
    fed, changed = model.feeding.take_counts()
    assert fed == len(own) and changed <= 0.3 * fed  # relaxed ones are drawn
    model.feeding(model.head, model.embedding, hidden, (own + 1) % V)
    fed, changed = model.feeding.take_counts()
    assert fed == len(own) and changed >= 0.7 * fed


def test_codes_of_another_codebook_are_decoded_to_tokens() -> None:
    head = HEADS["likelihood"]()
    other = CodeEmbedding(codes.build("random", V, BITS, COUNTS, seed=9), H)
    assert feeding.build("curriculum", head, CodeEmbedding(head.codebook, H), ALWAYS).by_code
    assert not feeding.build("curriculum", head, other, ALWAYS).by_code
    with pytest.raises(ValueError, match="feeds relaxed codes"):
        feeding.build("differentiable", head, other, ALWAYS)


@pytest.mark.parametrize("name", ["bits", "span-mass"])
def test_expected_codes_of_single_bits_are_taken_at_the_temperature(name: str) -> None:
    head, hidden = build(name, "soft", True).head, torch.randn(5, H, dtype=torch.float64)
    torch.testing.assert_close(head.expected_code(hidden, 1.7), (head.latent_logits(hidden) / 1.7).sigmoid())


@pytest.mark.parametrize("name", ["bits", "likelihood"])
@pytest.mark.parametrize("straight_through", [False, True])
def test_straight_through_feeds_hard_codes_with_a_gradient(name: str, straight_through: bool) -> None:
    model = build(name, "differentiable", True, temperature=1.0, straight_through=straight_through)
    hidden = torch.randn(30, H, dtype=torch.float64, requires_grad=True)
    model.embedding.of_code = lambda code: code
    code = model.feeding(model.head, model.embedding, hidden, torch.zeros(30, dtype=torch.long))
    hard = ((code == 0) | (code == 1)).double().mean()
    assert hard == 1 if straight_through else hard < 0.1
    (gradient,) = torch.autograd.grad((code * torch.randn(BITS)).sum(), hidden)
    assert gradient.abs().sum() > 1e-3


def test_temperature_follows_the_schedules_slope() -> None:
    policy = build("softmax", "soft", False, Schedule("sigmoid", 9, 0.5, delta=0.7)).feeding
    policy.at_epoch(3)
    assert policy.temperature == feeding.annealed_temperature(3, 9, 0.7) != feeding.annealed_temperature(3, 9)


def test_few_bits_have_as_many_neighbours_as_there_are() -> None:
    head = heads.build("ecoc", H, V, COUNTS, codebook=code(bits=6))
    policy = feeding.build("soft-curriculum", head, CodeEmbedding(head.codebook, H), ALWAYS)
    assert policy is not None and policy.flips == 6


def test_teacher_is_no_policy_at_all() -> None:
    assert feeding.build("teacher", HEADS["softmax"](), TokenEmbedding(V, H)) is None


def test_temperatures_and_probabilities_move_with_epochs() -> None:
    policy = build("likelihood", "differentiable", True, Schedule("sigmoid", 6, 0.7)).feeding
    assert isinstance(policy, Policy)
    seen = []
    for epoch in range(6):
        policy.at_epoch(epoch)
        seen.append((policy.probability, float(policy.temperature)))
    assert seen[0] == (0.0, pytest.approx(0.01)) and seen[-1][1] == pytest.approx(2.5)
    assert all(a < b for a, b in pairwise(seen))
