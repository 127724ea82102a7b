"""Mixed paths through trees, against slow walks written from the tokens' probabilities alone."""

import itertools

import pytest
import torch
from torch import Tensor

from ecoc import feeding, heads
from ecoc.feeding import Schedule, relaxations
from ecoc.heads import BinaryTreeSoftmax, HierarchicalSoftmax
from ecoc.models import TokenEmbedding
from tests.heads.cases import zipf_counts

V, H = 23, 8
ALWAYS = Schedule("constant", 5, 1.0)


def build(tree: str) -> HierarchicalSoftmax | BinaryTreeSoftmax:
    head = heads.build("hierarchical", H, V, zipf_counts(V), tree=tree, order="random").double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(3.0)
    assert isinstance(head, HierarchicalSoftmax | BinaryTreeSoftmax)
    return head


def walked(probabilities: Tensor, codes: list[tuple], target: tuple, own: list[bool]) -> int:
    """The token that is reached by choosing, of the tokens left, the heaviest branch or the target's own."""
    left, place, strayed = list(range(V)), 0, False
    while len(left) > 1:
        mass: dict = {}
        for token in left:
            mass[codes[token][place]] = mass.get(codes[token][place], 0.0) + float(probabilities[token])
        best = max(mass, key=mass.__getitem__)
        choice = best if own[place] or strayed else target[place]
        strayed = strayed or choice != target[place]
        left = [token for token in left if codes[token][place] == choice]
        place += 1
    return left[0]


@pytest.mark.parametrize("tree", ["two-level", "binary"])
def test_a_mixed_path_is_the_targets_until_it_leaves_it(tree: str) -> None:
    head = build(tree)
    hidden, truth = torch.randn(120, H, dtype=torch.float64), torch.randint(V, (120,))
    code = head.code_of(truth)
    own = torch.rand(code.shape) < 0.4
    reached = head.token_of(head.follow(hidden, code, own))
    codes = [tuple(row) for row in head.code_of(torch.arange(V)).tolist()]
    probabilities = head.log_prob(hidden).exp().detach()
    wanted = [walked(p, codes, tuple(c), o) for p, c, o in zip(probabilities, code.tolist(), own.tolist(), strict=True)]
    assert reached.tolist() == wanted
    assert (reached != truth).any() and (reached == truth).any()
    nowhere, everywhere = torch.zeros_like(own), torch.ones_like(own)
    assert torch.equal(head.token_of(head.follow(hidden, code, nowhere)), truth)
    other = head.code_of(truth.flip(0))
    assert torch.equal(head.follow(hidden, code, everywhere), head.follow(hidden, other, everywhere))


@pytest.mark.parametrize("tree", ["two-level", "binary"])
def test_curriculum_feeds_mixed_paths(tree: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head, embedding = build(tree), TokenEmbedding(V, H).double()
    policy = feeding.build("curriculum", head, embedding, ALWAYS)
    assert policy is not None
    hidden, truth = torch.randn(40, H, dtype=torch.float64), torch.randint(V, (40,))
    own = torch.rand(head.code_of(truth).shape) < 0.5
    monkeypatch.setattr(policy, "chosen", lambda truth, generator: own)
    tokens = head.token_of(head.follow(hidden, head.code_of(truth), own))
    assert torch.equal(policy(head, embedding, hidden, truth), embedding(tokens))
    assert policy.take_counts() == (40, int((tokens != truth).sum()))


@pytest.mark.parametrize(("classes", "words"), [(5, 5), (2, 3)], ids=["all paths", "the likeliest"])
@pytest.mark.parametrize(("own_class", "own_word"), [*itertools.product([False, True], repeat=2)])
def test_differentiable_feeds_the_mean_over_relaxed_paths(
    own_class: bool, own_word: bool, classes: int, words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, embedding, tau = build("two-level"), TokenEmbedding(V, H).double(), 0.7
    policy = feeding.build("differentiable", head, embedding, ALWAYS, temperature=tau, classes=classes, words=words)
    assert policy is not None and head.classes == 5
    monkeypatch.setattr(relaxations, "gumbel_noise", lambda like, generator: torch.zeros_like(like))
    hidden, truth = torch.randn(30, H, dtype=torch.float64), torch.randint(V, (30,))
    monkeypatch.setattr(policy, "chosen", lambda truth, _: torch.tensor([own_class, own_word]).expand(len(truth), 2))
    got = policy(head, embedding, hidden, truth)
    code = head.code_of(torch.arange(V))
    for row, target in enumerate(truth.tolist()):
        p = head.log_prob(hidden[row]).exp().detach()
        by_class = {c: p[code[:, 0] == c].sum() for c in range(5)} if own_class else {int(code[target, 0]): 1.0}
        wanted = torch.zeros(H, dtype=torch.float64)
        for c, share in kept(by_class, classes, tau).items():
            members = [w for w in range(V) if code[w, 0] == c]
            by_word = {w: p[w] / p[members].sum() for w in members}
            if c == code[target, 0] and not own_word:
                by_word = {target: 1.0}
            for w, part in kept(by_word, words, tau).items():
                wanted += share * part * embedding.weight[w]
        torch.testing.assert_close(got[row], wanted, rtol=1e-9, atol=1e-12)


def kept(shares: dict, number: int, tau: float) -> dict:
    """The largest shares to the power 1 / tau, made to sum to 1."""
    sharp = {key: float(value) ** (1 / tau) for key, value in shares.items()}
    largest = sorted(sharp, key=sharp.__getitem__, reverse=True)[:number]
    return {key: sharp[key] / sum(sharp[k] for k in largest) for key in largest}


def test_a_straight_through_path_is_one_word_with_a_gradient() -> None:
    head, embedding = build("two-level"), TokenEmbedding(V, H).double()
    policy = feeding.build("differentiable", head, embedding, ALWAYS, temperature=1.0, straight_through=True)
    assert policy is not None
    hidden = torch.randn(40, H, dtype=torch.float64, requires_grad=True)
    vectors = policy(head, embedding, hidden, torch.zeros(40, dtype=torch.long))
    assert (torch.cdist(vectors, embedding.weight).amin(-1) < 1e-6).all()
    (gradient,) = torch.autograd.grad((vectors * torch.randn(H)).sum(), hidden)
    assert gradient.abs().sum() > 1e-3


@pytest.mark.parametrize("learned", [False, True])
def test_places_without_a_word_leave_the_gradient_finite(learned: bool) -> None:
    head = heads.build("hierarchical", H, V, zipf_counts(V))
    assert isinstance(head, HierarchicalSoftmax) and head.classes * head.size > V
    embedding = TokenEmbedding(V, H)
    policy = feeding.build("differentiable", head, embedding, ALWAYS, temperature="learned" if learned else 0.5)
    assert policy is not None
    policy(head, embedding, torch.randn(60, H), torch.zeros(60, dtype=torch.long)).sum().backward()
    found = [p.grad for p in (*head.parameters(), *policy.parameters())]
    assert all(g is not None and torch.isfinite(g).all() for g in found)
