"""Relaxed samples against the distributions they are samples of."""

import math

import pytest
import torch

from ecoc.feeding import binary_concrete, gumbel_softmax, relaxations

N = 200_000


def tail(edge: torch.Tensor, log_alpha: float, tau: float) -> torch.Tensor:
    """P(Z > edge) of the binary concrete distribution: the noise must exceed tau logit(edge) - log alpha."""
    return torch.sigmoid(log_alpha - tau * torch.logit(edge))


@pytest.mark.parametrize(("log_alpha", "tau"), [(0.0, 1.0), (1.3, 0.7), (-0.8, 2.5), (0.4, 0.4)])
def test_binary_concrete_has_its_analytic_mean_and_tail(log_alpha: float, tau: float) -> None:
    torch.manual_seed(0)
    samples = binary_concrete(torch.full((N,), log_alpha, dtype=torch.float64), tau)
    middles = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    mean = float(tail(middles, log_alpha, tau).mean())  # E[Z] is the integral of P(Z > z)
    assert abs(float(samples.mean()) - mean) < 4 * float(samples.std()) / math.sqrt(N)
    for edge in (0.01, 0.1, 0.5, 0.9, 0.99):
        exact = float(tail(torch.tensor(edge, dtype=torch.float64), log_alpha, tau))
        noise = math.sqrt(exact * (1 - exact) / N)
        assert abs((samples > edge).double().mean() - exact) < 4 * noise


def test_cold_samples_are_bernoulli_variables() -> None:
    torch.manual_seed(1)
    for log_alpha in (-2.0, 0.0, 1.0):
        samples = binary_concrete(torch.full((N,), log_alpha), 1e-4)
        assert ((samples < 1e-3) | (samples > 1 - 1e-3)).double().mean() > 0.998
        share = 1 / (1 + math.exp(-log_alpha))
        assert abs(samples.double().mean() - share) < 4 * math.sqrt(share * (1 - share) / N)


def test_cold_gumbel_samples_are_categorical_variables() -> None:
    torch.manual_seed(2)
    logits = torch.tensor([0.5, -1.0, 2.0, -torch.inf])
    samples = gumbel_softmax(logits.expand(N, -1), 0.05)
    torch.testing.assert_close(samples.sum(-1), torch.ones(N))
    shares = torch.bincount(samples.argmax(-1), minlength=4) / N
    assert (shares - logits.softmax(-1)).abs().max() < 4 * 0.5 / math.sqrt(N) and shares[3] == 0


@pytest.mark.parametrize("relax", [binary_concrete, gumbel_softmax])
def test_gradients_match_finite_differences_with_the_noise_held(relax) -> None:
    logits = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(4, 6, dtype=torch.float64)

    def held(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return (relax(x, 0.7) * weights).sum()

    assert torch.autograd.gradcheck(held, logits)


@pytest.mark.parametrize("relax", [binary_concrete, gumbel_softmax])
def test_straight_through_is_hard_with_the_soft_gradient(relax) -> None:
    logits = torch.randn(5, 7, requires_grad=True)
    results = []
    for straight_through in (False, True):
        torch.manual_seed(4)
        sample = relax(logits, 0.9, straight_through)
        (gradient,) = torch.autograd.grad((sample * torch.arange(7.0)).sum(), logits)
        results.append((sample.detach(), gradient))
    soft, hard = results
    assert ((hard[0] - hard[0].round()).abs() < 1e-6).all()
    if relax is gumbel_softmax:
        assert torch.equal(hard[0].argmax(-1), soft[0].argmax(-1)) and (hard[0].sum(-1) - 1).abs().max() < 1e-6
    else:
        assert torch.equal(hard[0] > 0.5, soft[0] > 0.5)
    torch.testing.assert_close(hard[1], soft[1])


@pytest.mark.parametrize("relax", [binary_concrete, gumbel_softmax])
def test_stable_under_autocast_and_at_extreme_logits(relax) -> None:
    logits = torch.tensor([[-1e4, 0.0, 1e4], [80.0, -80.0, 3.0]], dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        sample = relax(logits, 0.01)
    assert sample.dtype == torch.float32 and torch.isfinite(sample).all()
    sample.sum().backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("relax", [binary_concrete, gumbel_softmax])
@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_must_be_above_0(relax, tau: float) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        relax(torch.zeros(3), tau)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        relax(torch.zeros(3), torch.tensor(tau))


@pytest.mark.parametrize("number", [0.0, 1.0])
@pytest.mark.parametrize("relax", [binary_concrete, gumbel_softmax])
def test_noise_is_finite_and_reaches_far(relax, number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert relaxations.logistic_noise(torch.zeros(N)).abs().max() > 10
    assert relaxations.gumbel_noise(torch.zeros(N)).max() > 10
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, number))
    assert torch.isfinite(relax(torch.zeros(2, 3), 0.01)).all()


def test_what_cannot_be_has_no_share_and_no_gradient() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
    tau = torch.tensor(1.0, requires_grad=True)
    sample = gumbel_softmax(logits, tau)
    sample[0, 0].backward()
    assert sample[0, 2] == 0 and torch.isfinite(tau.grad) and tau.grad != 0
    assert torch.isfinite(logits.grad).all() and logits.grad[0, 2] == 0
