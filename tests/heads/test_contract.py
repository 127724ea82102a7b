"""What every head promises, for every head: one test a promise, run over all methods and objectives."""

import copy
import itertools
import pickle

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from ecoc import heads
from tests.heads import reference
from tests.heads.cases import OPTIONS, H, V, batch, build, word_vectors, zipf_counts

pytestmark = pytest.mark.parametrize("case", OPTIONS)


def seeded_loss(head: heads.Head, hidden: Tensor, target: Tensor, **options) -> Tensor:
    torch.manual_seed(5)
    return head(hidden, target, **options)


def test_probabilities_equal_brute_force(case: str) -> None:
    head, (hidden, _) = build(case), batch(rows=2)
    with torch.no_grad():
        expected = torch.stack([reference.probabilities(head, row) for row in hidden])
    torch.testing.assert_close(head.log_prob(hidden).exp(), expected, rtol=1e-9, atol=1e-12)


def test_probabilities_sum_to_one(case: str) -> None:
    head, (hidden, _) = build(case), batch()
    total = head.log_prob(3 * hidden).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-9)


def test_nll_is_minus_log_prob_at_the_target(case: str) -> None:
    head, (hidden, target) = build(case), batch()
    expected = -head.log_prob(hidden).gather(1, target.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(head.nll(hidden, target), expected, rtol=1e-10, atol=1e-10)


def test_evaluation_in_small_pieces_changes_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head, (hidden, target) = build(case), batch()
    whole = head.nll(hidden, target), head.log_prob(hidden), *head.topk(hidden, 4), head.predict(hidden)
    monkeypatch.setattr("ecoc.heads.head.SCORE_BUDGET", 2 * V)
    monkeypatch.setattr("ecoc.heads.span_model._TERMS_AT_ONCE", 100)
    monkeypatch.setattr("ecoc.codes.search.BLOCK", 5)
    monkeypatch.setattr("ecoc.heads.codeword_model.ROWS", 2)
    pieces = head.nll(hidden, target), head.log_prob(hidden), *head.topk(hidden, 4), head.predict(hidden)
    torch.testing.assert_close(pieces, whole, rtol=1e-10, atol=1e-10)


def test_candidates_are_the_best_tokens_with_a_gradient(case: str) -> None:
    head, (hidden, _) = build(case), batch(rows=6)
    if getattr(head, "objective", "").startswith("span-"):
        with pytest.raises(ValueError, match="one token at a time: use topk"):
            head.candidates(hidden, 3)
        return
    hidden = hidden.view(2, 3, H).requires_grad_()
    log_probs, ids = head.candidates(hidden, 3)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        head.candidates(hidden, 0)
    assert head.candidates(hidden * torch.nan, 16)[1].max() < V
    assert torch.equal(ids, head.topk(hidden, 3)[1]) and head.candidates(hidden, V + 5)[1].shape == (2, 3, V)
    share = head.log_prob(hidden).gather(-1, ids).softmax(-1)
    torch.testing.assert_close(log_probs.softmax(-1), share, rtol=1e-9, atol=1e-12)
    weights = torch.randn_like(share)
    (wanted,) = torch.autograd.grad((share * weights).sum(), hidden)
    (got,) = torch.autograd.grad((log_probs.softmax(-1) * weights).sum(), hidden)
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10)


def test_topk_and_predict_follow_log_prob(case: str) -> None:
    head, (hidden, _) = build(case), batch(rows=40)
    values, ids = head.log_prob(hidden).sort(-1, descending=True)
    for k in (1, 3, V):
        log_probs, best = head.topk(hidden, k)
        torch.testing.assert_close(log_probs, values[:, :k], rtol=1e-9, atol=1e-9)
        assert torch.equal(best, ids[:, :k])
    assert torch.equal(head.predict(hidden), ids[:, 0])


def test_sample_draws_from_log_prob(case: str) -> None:
    """Chi-square with V - 1 degrees of freedom: above the bound by chance once in 10 000."""
    head, (hidden, _) = build(case), batch(rows=1)
    draws = 20_000
    drawn = head.sample(hidden.expand(draws, H), generator=torch.Generator().manual_seed(11))
    expected = head.log_prob(hidden)[0].exp() * draws
    common = expected >= 5  # rare tokens are pooled, as the test wants
    observed = drawn.bincount(minlength=V).double()
    observed = torch.cat([observed[common], observed[~common].sum().view(1)])
    expected = torch.cat([expected[common], expected[~common].sum().view(1)])
    statistic = ((observed - expected) ** 2 / expected.clamp(min=1e-3)).sum()
    freedom = torch.tensor(float(len(observed) - 1))
    assert 1 - torch.special.gammainc(freedom / 2, statistic.float() / 2) > 1e-4


def test_temperature_changes_what_sample_draws(case: str) -> None:
    head, (hidden, _) = build(case), batch(rows=1)
    draws = 20_000
    drawn = head.sample(hidden.expand(draws, H), temperature=0.5, generator=torch.Generator().manual_seed(11))
    expected = (2 * head.log_prob(hidden)[0]).softmax(-1)
    torch.testing.assert_close(drawn.bincount(minlength=V) / draws, expected.float(), rtol=0, atol=0.015)


def test_sample_keeps_to_top_k_and_top_p(case: str) -> None:
    head, (hidden, _) = build(case), batch(rows=1)
    log_probs, ids = head.topk(hidden, V)
    many, generator = hidden.expand(500, H), torch.Generator().manual_seed(0)
    assert set(head.sample(many, top_k=3, generator=generator).tolist()) <= set(ids[0, :3].tolist())
    nucleus = int((log_probs[0].exp().cumsum(0) < 0.7).sum()) + 1
    drawn = set(head.sample(hidden.expand(5000, H), top_p=0.7, generator=generator).tolist())
    assert drawn == set(ids[0, :nucleus].tolist())
    cold = head.sample(many, temperature=1e-3, top_k=3, generator=generator)
    assert set(cold.tolist()) == {int(ids[0, 0])}
    assert set(head.sample(many, top_p=1e-9, generator=generator).tolist()) == {int(ids[0, 0])}


def test_sample_repeats_with_its_generator(case: str) -> None:
    head, (hidden, _) = build(case), batch(rows=50)
    first, second = (head.sample(hidden, generator=torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, head.sample(hidden, generator=torch.Generator().manual_seed(6)))


def test_loss_repeats_with_the_seed(case: str) -> None:
    head, (hidden, target) = build(case), batch()
    assert torch.equal(seeded_loss(head, hidden, target), seeded_loss(head, hidden, target))


def test_gradients_match_finite_differences(case: str) -> None:
    head, (hidden, target) = build(case), batch(rows=3)
    names = [name for name, _ in head.named_parameters()]

    def loss(hidden: Tensor, *parameters: Tensor) -> Tensor:
        torch.manual_seed(5)
        values = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(head, values, (hidden, target), {"reduction": "none"})

    inputs = [hidden, *(p.detach().clone() for p in head.parameters())]
    assert torch.autograd.gradcheck(loss, [x.requires_grad_() for x in inputs], fast_mode=True)


def test_nll_gradients_match_finite_differences(case: str) -> None:
    head, (hidden, target) = build(case), batch(rows=3)
    assert torch.autograd.gradcheck(lambda h: head.nll(h, target), [hidden.requires_grad_()])


def test_any_leading_shape(case: str) -> None:
    head, (hidden, target) = build(case), batch(rows=8)
    deep_hidden, deep_target = hidden.view(2, 4, H), target.view(2, 4)
    torch.testing.assert_close(
        seeded_loss(head, deep_hidden, deep_target, reduction="none"),
        seeded_loss(head, hidden, target, reduction="none").view(2, 4),
    )
    assert head.nll(deep_hidden, deep_target).shape == (2, 4)
    assert head.log_prob(deep_hidden).shape == (2, 4, V)
    assert [x.shape for x in head.topk(deep_hidden, 2)] == [(2, 4, 2)] * 2
    assert head.predict(deep_hidden).shape == head.sample(deep_hidden).shape == (2, 4)
    assert head.predict(hidden[0]).shape == head.sample(hidden[0]).shape == ()
    torch.testing.assert_close(head.nll(hidden[0], target[0]), head.nll(hidden, target)[0])


def test_reductions_agree(case: str) -> None:
    head, (hidden, target) = build(case), batch()
    each = seeded_loss(head, hidden, target, reduction="none")
    torch.testing.assert_close(seeded_loss(head, hidden, target, reduction="sum"), each.sum())
    torch.testing.assert_close(seeded_loss(head, hidden, target), each.mean())


def test_upstream_gradients_may_differ_from_row_to_row(case: str) -> None:
    head, (hidden, target) = build(case), batch()
    weights = torch.rand(len(target), dtype=torch.float64)
    parameters = [hidden.requires_grad_(), *head.parameters()]
    together = torch.autograd.grad((seeded_loss(head, hidden, target, reduction="none") * weights).sum(), parameters)
    one_by_one = [torch.zeros_like(p) for p in parameters]
    for row, weight in enumerate(weights):
        loss = seeded_loss(head, hidden, target, reduction="none")[row]
        for total, part in zip(one_by_one, torch.autograd.grad(loss, parameters), strict=True):
            total += weight * part
    torch.testing.assert_close(together, tuple(one_by_one))


def test_ignored_targets_add_nothing(case: str) -> None:
    head, (hidden, target) = build(case), batch()
    ignored = torch.tensor([0, 4, 5])
    kept = torch.tensor([i for i in range(len(target)) if i not in ignored])
    masked = target.clone()
    masked[ignored] = -7
    hidden.requires_grad_()
    loss = seeded_loss(head, hidden, masked, ignore_index=-7)
    torch.testing.assert_close(loss, seeded_loss(head, hidden[kept], target[kept]))
    each = seeded_loss(head, hidden, masked, ignore_index=-7, reduction="none")
    assert each[ignored].tolist() == [0.0] * 3
    gradient = torch.autograd.grad(loss, hidden)[0]
    assert gradient[ignored].abs().max() == 0 and gradient[kept].abs().min() > 0
    inside = seeded_loss(head, hidden, target, ignore_index=int(target[1]), reduction="none")
    assert inside[target == target[1]].abs().max() == 0  # a real id can be ignored too


@pytest.mark.parametrize("rows", [0, 3])
def test_no_target_at_all_is_a_loss_of_zero(case: str, rows: int) -> None:
    head, (hidden, _) = build(case), batch(rows=rows)
    target = torch.full((rows,), -100)
    for reduction in ("mean", "sum"):
        head.zero_grad()
        loss = head(hidden, target, reduction=reduction)
        loss.backward()
        assert loss.item() == 0
        assert all(p.grad is not None and p.grad.abs().max() == 0 for p in head.parameters())
    assert head(hidden, target, reduction="none").tolist() == [0.0] * rows


def test_empty_batch_everywhere(case: str) -> None:
    head, (hidden, target) = build(case), batch(rows=0)
    assert head.nll(hidden, target).shape == (0,)
    assert head.log_prob(hidden).shape == (0, V)
    assert [x.shape for x in head.topk(hidden, 2)] == [(0, 2)] * 2
    assert head.predict(hidden).shape == head.sample(hidden).shape == head.sample(hidden, top_k=2).shape == (0,)


def test_every_parameter_has_a_gradient_in_every_step(case: str) -> None:
    head, (hidden, _) = build(case), batch()
    for token in (0, V - 1):
        head.zero_grad()
        head(hidden, torch.full((len(hidden),), token)).backward()
        assert all(p.grad is not None for p in head.parameters())


def test_label_smoothing_is_the_mean_loss_over_all_tokens(case: str) -> None:
    without_noise = {"samples": V} if "samples" in OPTIONS[case] else {}
    head = build(case, **without_noise)
    hidden, target = batch(rows=4)
    plain = seeded_loss(head, hidden, target, reduction="none")
    smoothed = seeded_loss(head, hidden, target, reduction="none", label_smoothing=0.3)
    if case.startswith(("nce", "hybrid")):  # documented: the uniform part is that of the exact distribution
        uniform = -head.log_prob(hidden).mean(-1)
    else:
        uniform = torch.stack(
            [seeded_loss(head, hidden, torch.full_like(target, w), reduction="none") for w in range(V)]
        )
        uniform = uniform.mean(0)
    torch.testing.assert_close(smoothed, 0.7 * plain + 0.3 * uniform, rtol=1e-6, atol=1e-6)


def test_bf16_autocast_stays_close(case: str) -> None:
    head, (hidden, target) = build(case, torch.float32), batch(torch.float32)
    exact = seeded_loss(head, hidden, target)
    with torch.autocast("cpu", torch.bfloat16):
        loss = seeded_loss(head, hidden, target)
        smoothed = seeded_loss(head, hidden, target, label_smoothing=0.1)
        nll = head.nll(hidden, target)
        total = head.log_prob(hidden).exp().sum(-1)
        drawn = head.sample(hidden)
    assert loss.dtype == nll.dtype == smoothed.dtype == torch.float32 and torch.isfinite(smoothed)
    assert abs(loss - exact) < 0.05 * exact.abs()
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)
    assert drawn.max() < V and nll.min() >= 0
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


def test_float32_agrees_with_float64(case: str) -> None:
    hidden, target = batch()
    single = build(case, torch.float32).nll(hidden.float(), target)
    double = copy.deepcopy(build(case, torch.float32)).double().nll(hidden.float().double(), target)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


def test_train_and_eval_mode_return_the_same(case: str) -> None:
    head, (hidden, target) = build(case), batch()
    results = []
    for mode in (True, False):
        head.train(mode)
        results.append((seeded_loss(head, hidden, target), head.nll(hidden, target), head.log_prob(hidden)))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_state_dict_goes_round(case: str) -> None:
    head, (hidden, target) = build(case), batch()
    fresh = build(case)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    fresh.load_state_dict(load(save(head.state_dict())))
    for other in (fresh, copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert torch.equal(other.nll(hidden, target), head.nll(hidden, target))
        assert torch.equal(seeded_loss(other, hidden, target), seeded_loss(head, hidden, target))


def test_a_state_of_another_token_order_is_refused(case: str) -> None:
    head = build(case)
    if not hasattr(head, "seal"):
        pytest.skip("parameters are in the order of ids: nothing else gives them meaning")
    if "random" in case:
        other = build(case, seed=9)
    elif "embedding" in case:
        other = build(case, vectors=word_vectors().flip(0))
    else:
        other = build(case, counts=zipf_counts(seed=8))
    with pytest.raises(RuntimeError, match="another codebook or token order: build the head with"):
        other.load_state_dict(head.state_dict())


def test_sizes_are_those_of_the_state(case: str) -> None:
    head = build(case, torch.float32)
    assert head.num_parameters() == sum(p.numel() for p in head.parameters() if p.requires_grad)
    assert head.num_bytes() == sum(t.numel() * t.element_size() for t in load(save(head.state_dict())).values())


def test_latent_codes_go_round(case: str) -> None:
    head, (hidden, _) = build(case), batch()
    if not hasattr(head, "latent"):
        pytest.skip("no latent variables")
    everyone = torch.arange(V).view(1, V)
    code = head.code_of(everyone)
    assert torch.equal(head.token_of(code), everyone)
    logits = head.latent_logits(hidden)
    assert logits.shape[:2] == (len(hidden), code.shape[-1])
    assert (code.dtype == torch.bool) == (head.latent == "binary")


def test_repr_names_the_sizes(case: str) -> None:
    assert f"hidden_size={H}, vocab_size={V}" in repr(build(case))


@pytest.mark.parametrize("vocab_size", [2, 3, 5])
def test_tiny_vocabularies_work(case: str, vocab_size: int) -> None:
    name = case.replace(",", " ").split()[0]
    dropped = {"cutoffs", "bits", "vectors", "classes", "frequent", "codebook"}
    options = {key: value for key, value in OPTIONS[case].items() if key not in dropped}
    if options.get("order") == "embedding":
        options["vectors"] = torch.randn(vocab_size, 4)
    head = heads.build(name, H, vocab_size, counts=torch.ones(vocab_size), **options).double()
    hidden, _ = batch(rows=vocab_size)
    total = head.log_prob(hidden).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-9)
    assert torch.isfinite(head(hidden, torch.arange(vocab_size)))


BAD_CALLS = {
    "hidden of another size": (
        lambda head, h, t: head(h[:, 1:], t),
        r"hidden must have shape \(\.\.\., 6\), got \(9, 5\)",
    ),
    "target of another shape": (lambda head, h, t: head(h, t[1:]), r"target must have shape \(9,\)"),
    "target not integer": (lambda head, h, t: head(h, t.double()), "target must hold integer token ids"),
    "target too large": (lambda head, h, t: head(h, t + V), "target has token id .* outside the vocabulary .*<unk>"),
    "target below zero": (lambda head, h, t: head(h, t - V), "target has token id"),
    "ignored id in nll": (lambda head, h, t: head.nll(h, t * 0 - 100), "target has token id -100"),
    "unknown reduction": (lambda head, h, t: head(h, t, reduction="avg"), "reduction='avg' is unknown: choose"),
    "too much smoothing": (lambda head, h, t: head(h, t, label_smoothing=1.5), r"label_smoothing must be in \[0, 1\]"),
    "k of zero": (lambda head, h, t: head.topk(h, 0), "k must be from 1 to the vocabulary size 23, got 0"),
    "k above V": (lambda head, h, t: head.topk(h, V + 1), "k must be from 1"),
    "no temperature": (lambda head, h, t: head.sample(h, temperature=0), "temperature must be above 0.*use predict"),
    "no nucleus": (lambda head, h, t: head.sample(h, top_p=0), r"top_p must be in \(0, 1\]"),
}
BAD_CALLS |= {
    f"NaN in {name}": (call, "hidden has NaN or infinite values: lower the learning rate")
    for name, call in {
        "nll": lambda head, h, t: head.nll(h * torch.nan, t),
        "log_prob": lambda head, h, t: head.log_prob(h * torch.nan),
        "topk": lambda head, h, t: head.topk(h * torch.inf, 2),
        "predict": lambda head, h, t: head.predict(h * torch.nan),
        "sample": lambda head, h, t: head.sample(h * torch.nan),
    }.items()
}


@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_calls_say_what_to_do(case: str, bad: str) -> None:
    call, message = BAD_CALLS[bad]
    with pytest.raises(ValueError, match=message):
        call(build(case), *batch())


def test_building_twice_gives_the_same_head(case: str) -> None:
    for mine, theirs in itertools.zip_longest(build(case).state_dict().values(), build(case).state_dict().values()):
        assert torch.equal(mine, theirs)
