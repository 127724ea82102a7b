"""What single heads promise beyond the contract: oracles in torch, convergence of the sampled ones, tying, errors."""

import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc import codes, heads
from ecoc.heads.proposal import Proposal
from tests.heads.cases import H, V, batch, build, word_vectors, zipf_counts


def gradient(loss: Tensor, head: heads.Head, hidden: Tensor) -> Tensor:
    parts = torch.autograd.grad(loss, [hidden, *head.parameters()], allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


# Oracles in torch -----------------------------------------------------------------------------------------------------


def test_softmax_is_torchs_linear_and_cross_entropy() -> None:
    head, (hidden, target) = build("softmax"), batch()
    for options in ({}, {"reduction": "none"}, {"label_smoothing": 0.2}):
        expected = F.cross_entropy(F.linear(hidden, head.weight, head.bias), target, **options)
        torch.testing.assert_close(head(hidden, target, **options), expected)


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="this torch has no linear_cross_entropy")
@pytest.mark.parametrize("chunked", [False, True])
def test_softmax_is_torchs_linear_cross_entropy(chunked: bool) -> None:
    head, (hidden, target) = build("softmax"), batch()
    options = nn.LinearCrossEntropyOptions() if chunked else None
    hidden.requires_grad_()
    theirs = F.linear_cross_entropy(hidden, head.weight, target, linear_bias=head.bias, options=options)
    mine = head(hidden, target)
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(gradient(mine, head, hidden), gradient(theirs, head, hidden))


def test_adaptive_is_torchs_on_ids_sorted_by_frequency() -> None:
    head, (hidden, target) = build("adaptive", div_value=2.0), batch()
    oracle = nn.AdaptiveLogSoftmaxWithLoss(H, V, [3, 9], div_value=2.0, head_bias=True).double()
    with torch.no_grad():  # torch's has no biases in its tails
        for tail in head.tails:
            tail[1].bias.zero_()
        oracle.head.load_state_dict(head.head.state_dict())
        for mine, theirs in zip(head.tails, oracle.tail, strict=True):
            theirs[0].weight.copy_(mine[0].weight)
            theirs[1].weight.copy_(mine[1].weight)
    hidden.requires_grad_()
    expected = oracle(hidden, head.place[target])
    torch.testing.assert_close(-head.nll(hidden, target), expected.output)
    torch.testing.assert_close(head(hidden, target), expected.loss)
    torch.testing.assert_close(head.log_prob(hidden), oracle.log_prob(hidden)[:, head.place])
    mine, theirs = (torch.autograd.grad(loss, hidden)[0] for loss in (head(hidden, target), expected.loss))
    torch.testing.assert_close(mine, theirs)


def test_one_hot_code_with_likelihood_is_the_softmax() -> None:
    counts, (hidden, target) = zipf_counts(), batch()
    head = heads.build("ecoc", H, V, counts=counts, codebook="onehot", bits=V, samples=None).double()
    softmax = heads.build("softmax", H, V).double()
    with torch.no_grad():  # s_w . z / sqrt(V) = 2 z_w / sqrt(V) + const
        softmax.weight.copy_(head.output.weight * 2 / math.sqrt(V))
        softmax.bias.copy_(head.output.bias * 2 / math.sqrt(V) + head.model.log_prior)
    torch.testing.assert_close(head.log_prob(hidden), softmax.log_prob(hidden))
    torch.testing.assert_close(head(hidden, target), softmax(hidden, target), rtol=1e-6, atol=1e-6)


# Sampled losses -------------------------------------------------------------------------------------------------------


def test_proposal_weights_estimate_any_sum_without_bias() -> None:
    log_q = (zipf_counts(200) / zipf_counts(200).sum()).double().log()
    values = torch.randn(200, dtype=torch.float64)
    exact = float(log_q.exp() @ values)
    proposal = Proposal(log_q, 30)
    estimates = torch.stack([proposal.log_weight.double().exp() @ values[proposal()] for _ in range(4000)])
    error = estimates.std() / math.sqrt(len(estimates))
    assert abs(estimates.mean() - exact) < 4 * error
    independent = values[torch.multinomial(log_q.exp(), 4000 * 30, replacement=True)].view(4000, 30).mean(1)
    assert estimates.std() < 0.7 * independent.std()  # what certain tokens and slices are for


def test_proposal_takes_every_token_at_its_rate() -> None:
    q = zipf_counts(60).double() / zipf_counts(60).sum()
    proposal = Proposal(q.log(), 20)
    draws = torch.cat([proposal() for _ in range(5000)])
    share = draws.bincount(minlength=60) / 5000
    certain = proposal.certain
    assert (share[certain] == 1).all() and len(certain) > 0
    others = torch.ones(60, dtype=torch.bool)
    others[certain] = False
    expected = q[others] / q[others].sum() * proposal.drawn
    torch.testing.assert_close(share[others].double(), expected, rtol=0.15, atol=0.01)


def test_as_many_samples_as_tokens_are_all_tokens() -> None:
    proposal = Proposal(torch.full((17,), 1 / 17).log(), 17)
    assert proposal().sort().values.tolist() == list(range(17))
    torch.testing.assert_close(proposal.log_weight.exp().sum(), torch.tensor(1.0))


@pytest.mark.parametrize("case", ["sampled unigram", "sampled random", "ecoc likelihood", "hybrid likelihood"])
def test_sampled_gradients_converge_to_the_exact_one(case: str) -> None:
    hidden, target = batch()
    hidden.requires_grad_()
    exact_head = build(case)
    exact = gradient(exact_head.nll(hidden, target).mean(), exact_head, hidden)
    errors = []
    for samples in (3, 9, 16, V):
        head = build(case, samples=samples)
        average = torch.stack([gradient(head(hidden, target), head, hidden) for _ in range(60)]).mean(0)
        errors.append(float((average - exact).norm() / exact.norm()))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-6


def test_nce_gradients_converge_to_the_exact_one_when_scores_are_normalised() -> None:
    """NCE's limit is sum over w of (p_data - exp(s_w)) grad s_w, the exact gradient where Z = 1."""
    hidden, target = batch(rows=1)
    hidden.requires_grad_()
    errors = []
    for noise in (1.0, 30.0, 1000.0, 1e7):
        head = build("nce", samples=V, noise=noise)
        with torch.no_grad():
            head.bias -= head._scores(hidden).logsumexp(-1)
        exact = gradient(head.nll(hidden, target).mean(), head, hidden)
        errors.append(float((gradient(head(hidden, target), head, hidden) - exact).norm() / exact.norm()))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-5


def test_more_noise_samples_bring_nce_closer_to_its_expectation() -> None:
    hidden, target = batch()
    hidden.requires_grad_()
    exact = build("nce", samples=V, noise=50)
    expected = gradient(exact(hidden, target), exact, hidden)
    errors = []
    for samples in (2, 6, 18):
        head = build("nce", samples=samples, noise=50)
        spread = [float((gradient(head(hidden, target), head, hidden) - expected).norm()) for _ in range(40)]
        errors.append(sum(spread))
    assert errors[0] > errors[1] > errors[2]


def test_sparse_gradients_are_the_dense_ones() -> None:
    hidden, target = batch()
    gradients = []
    for sparse in (False, True):
        head = build("sampled unigram", sparse=sparse)
        torch.manual_seed(1)
        head(hidden, target).backward()
        assert head.weight.grad.is_sparse == sparse
        gradients.append(head.weight.grad.to_dense())
    torch.testing.assert_close(*gradients)


# Starting values, ties, ECOC's own ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", heads.NAMES)
@pytest.mark.parametrize("tree", ["two-level", "binary"])
def test_heads_start_at_the_unigram_distribution(name: str, tree: str) -> None:
    if name != "hierarchical" and tree == "binary":
        pytest.skip("one tree is enough for heads without a tree")
    options = {"tree": tree} if name == "hierarchical" else {}
    counts = zipf_counts()
    head = heads.build(name, H, V, counts=counts, **options)
    if isinstance(head, heads.ECOC | heads.Hybrid):  # their bits start anywhere: the prior is a buffer
        output = head.output if isinstance(head, heads.ECOC) else head.rest.output
        nn.init.zeros_(output.bias)
    uniform_free = head.log_prob(torch.zeros(H)).exp()
    torch.testing.assert_close(uniform_free, (counts / counts.sum()).float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "sampled", "nce"])
def test_tying_to_the_embedding_leaves_only_the_bias(name: str) -> None:
    head, embedding = heads.build(name, H, V, counts=zipf_counts()), nn.Embedding(V, H)
    head.tie(embedding.weight)
    assert head.num_parameters() == V and head.num_bytes() == 4 * V
    head(torch.randn(3, H), torch.arange(3)).backward()
    assert embedding.weight.grad is not None and embedding.weight.grad.abs().sum() > 0
    hidden = torch.randn(H)
    scores = embedding.weight @ hidden + head.bias
    torch.testing.assert_close(head.log_prob(hidden), scores.log_softmax(-1))


def test_ecoc_ties_to_a_code_embedding() -> None:
    head, embedding = heads.build("ecoc", H, V, bits=12), nn.Linear(12, H, bias=False)
    weight = nn.Parameter(embedding.weight.T.clone())
    head.tie(weight)
    assert head.num_parameters() == 12
    torch.testing.assert_close(head.latent_logits(torch.eye(H)), weight.T + head.output.bias)


def test_decoder_parameters_are_those_of_the_design() -> None:
    """bits x (hidden + 1), whatever V is."""
    for vocab in (1000, 5000):
        assert heads.build("ecoc", 128, vocab, bits=512).num_parameters() == 512 * 129
    assert heads.build("ecoc", 128, 1000, bits=512, layers=2).num_parameters() == 128 * 256 + 256 + 257 * 512
    mixed = heads.build("ecoc", 128, 1000, bits=24, objective="span-mass", mixture=16)
    assert mixed.num_parameters() == 51_600


def test_calibration_lowers_the_nll_of_bits_and_is_a_minimum() -> None:
    head, (hidden, target) = build("ecoc bits"), batch(rows=200)
    before = head.nll(hidden, target).mean()
    head.calibrate(hidden, target)
    after = head.nll(hidden, target).mean()
    assert after < before - 0.1
    for change in ([0.01, 0.0], [-0.01, 0.0], [0.0, 0.01], [0.0, -0.01]):
        head.model.calibration += torch.tensor(change, dtype=torch.float64)
        assert head.nll(hidden, target).mean() > after
        head.model.calibration -= torch.tensor(change, dtype=torch.float64)


def test_paper_probabilities_are_below_the_mass_and_sum_to_less_than_one() -> None:
    head, (hidden, _) = build("ecoc span-max"), batch(rows=1)
    everyone = torch.arange(V)
    rows = hidden.expand(V, H)
    paper, mass = (-head.paper_nll(rows, everyone)).exp(), (-head.nll(rows, everyone)).exp()
    assert (paper <= mass + 1e-12).all() and paper.sum() < 0.999
    torch.testing.assert_close(head(rows, everyone, reduction="none"), -paper.log())


@pytest.mark.parametrize(("bits", "mixture"), [(9, 1), (300, 1), (300, 2)])
def test_spans_score_all_tokens_the_same_with_and_without_gradient(bits: int, mixture: int) -> None:
    counts = zipf_counts(400)
    head = heads.build("ecoc", H, 400, counts=counts, objective="span-mass", bits=bits, mixture=mixture).double()
    for scale in (0.3, 5.0):
        hidden = scale * torch.randn(30, H, dtype=torch.float64)
        log_probs = head.log_prob(hidden)
        with torch.no_grad():
            torch.testing.assert_close(head.log_prob(hidden), log_probs.detach())
        expected, order = log_probs.sort(-1, descending=True)
        values, ids = head.topk(hidden, 5)
        torch.testing.assert_close(values, expected[:, :5])
        assert torch.equal(ids, order[:, :5]) and torch.equal(head.predict(hidden), order[:, 0])


def test_latent_logits_of_a_mixture_are_those_of_its_average() -> None:
    head, (hidden, _) = build("ecoc span-mass random, mixture"), batch(rows=2)
    output = head.output(hidden)
    parts, weight = output[:, :21].view(2, 3, 7).sigmoid(), output[:, 21:].softmax(-1)
    expected = (parts * weight.unsqueeze(-1)).sum(1)
    torch.testing.assert_close(head.latent_logits(hidden).sigmoid(), expected)


@pytest.mark.parametrize("case", ["hierarchical unigram", "hierarchical binary unigram"])
def test_tree_probabilities_are_products_along_the_latent_path(case: str) -> None:
    head, (hidden, target) = build(case), batch()
    code = head.code_of(target)
    logits = head.latent_logits(hidden, code)
    if head.latent == "categorical":
        log_probs = logits.log_softmax(-1).gather(-1, code.unsqueeze(-1)).squeeze(-1)
    else:
        log_probs = F.logsigmoid(torch.where(code, logits, -logits))
        leaf = head.leaf[target]
        log_probs[leaf < 2**head.depth, -1] = 0  # leaves a level higher have a turn less
    torch.testing.assert_close(-log_probs.sum(-1), head.nll(hidden, target))


@pytest.mark.parametrize("tree", ["two-level", "binary"])
def test_a_tree_can_be_given_its_order(tree: str) -> None:
    by_vectors = heads.build("hierarchical", H, V, tree=tree, order="embedding", vectors=word_vectors())
    given = heads.build("hierarchical", H, V, tree=tree, order=by_vectors.owner)
    given.load_state_dict(by_vectors.state_dict())
    hidden = torch.randn(3, H)
    assert torch.equal(given.log_prob(hidden), by_vectors.log_prob(hidden))


BAD_HEADS = {
    "unknown head": (lambda: heads.build("maxout", H, V), "name='maxout' is no head: choose one of softmax"),
    "unknown tree": (lambda: heads.build("hierarchical", H, V, tree="oak"), "tree='oak' is unknown"),
    "option of another head": (
        lambda: heads.build("adaptive", H, V, vectors=word_vectors(), bits=9),
        "vectors, bits: no option of head 'adaptive', which takes bias, cutoffs, div_value$",
    ),
    "option of none": (lambda: heads.build("hybrid", H, V, bit=9), "bit: no option of head 'hybrid', .* bits, .*freq"),
    "widths without spans": (lambda: heads.build("ecoc", H, V, widths="uniform"), "widths='uniform' is for span codes"),
    "smoothing with a sparse gradient": (
        lambda: build("nce", sparse=True)(*batch(), label_smoothing=0.1),
        "label_smoothing needs the gradient of all words",
    ),
    "no vocabulary": (lambda: heads.build("softmax", H, 0), "hidden_size and vocab_size must be at least 1"),
    "counts of another size": (lambda: heads.build("softmax", H, V, counts=torch.ones(3)), "counts must be 23 numbers"),
    "unsorted cutoffs": (lambda: heads.build("adaptive", H, V, cutoffs=[9, 3]), "cutoffs must be increasing"),
    "cutoffs beyond V": (lambda: heads.build("differentiated", H, V, cutoffs=[9, V]), "from 1 to 22, got"),
    "div_value": (lambda: heads.build("adaptive", H, V, div_value=0.5), "div_value must be at least 1"),
    "slices": (lambda: heads.build("differentiated", H, V, cutoffs=[9], slices=[4, 4]), "sum to hidden_size=6"),
    "no counts to draw from": (lambda: heads.build("sampled", H, V), "counts is needed for proposal='unigram'"),
    "proposal": (lambda: heads.build("nce", H, V, counts=zipf_counts(), proposal="x"), "proposal='x' is unknown"),
    "no samples": (lambda: heads.build("nce", H, V, counts=zipf_counts(), samples=0), "samples must be at least 1"),
    "no noise": (lambda: heads.build("nce", H, V, counts=zipf_counts(), noise=0), "noise must be above 0"),
    "order": (lambda: heads.build("hierarchical", H, V, order="size"), "order='size' is unknown"),
    "order with a token twice": (
        lambda: heads.build("hierarchical", H, V, order=torch.zeros(V).long()),
        "order must hold each of the 23 token ids once",
    ),
    "order without vectors": (lambda: heads.build("hierarchical", H, V, order="embedding"), "vectors is needed"),
    "vectors of another size": (
        lambda: heads.build("hierarchical", H, V, order="embedding", vectors=word_vectors(9)),
        r"vectors must have shape \(23, d\)",
    ),
    "classes": (lambda: heads.build("hierarchical", H, V, classes=V + 1), "classes must be from 1 to"),
    "objective": (lambda: heads.build("ecoc", H, V, objective="hinge"), "objective='hinge' is unknown"),
    "layers": (lambda: heads.build("ecoc", H, V, layers=3), "layers must be 1 or 2"),
    "mixture of codewords": (lambda: heads.build("ecoc", H, V, mixture=2), "mixture=2 needs a span objective"),
    "too few bits": (lambda: heads.build("ecoc", H, V, bits=4), "bits=4 cannot tell 23 tokens apart: use at least 5"),
    "span objective without spans": (
        lambda: heads.build("ecoc", H, V, objective="span-mass", codebook="random", bits=9),
        "objective='span-mass' needs a span codebook, got 'random': use codebook='span-unigram'",
    ),
    "codebook of another vocabulary": (
        lambda: heads.build("ecoc", H, V, codebook=codes.build("random", 9, 9)),
        "codebook is for 9 tokens, vocab_size is 23",
    ),
    "codebook and bits": (
        lambda: heads.build("ecoc", H, V, codebook=codes.build("random", V, 9), bits=10),
        "codebook is built already: leave out bits",
    ),
    "vectors of another size in hybrid": (
        lambda: heads.build("hybrid", H, V, vectors=word_vectors(V + 2)),
        r"vectors must have shape \(23, d\)",
    ),
    "NaN in vectors": (
        lambda: heads.build("hierarchical", H, V, order="embedding", vectors=word_vectors() * torch.nan),
        "vectors must be finite",
    ),
    "no samples at all": (lambda: heads.build("ecoc", H, V, samples=0), "samples must be at least 1, or None"),
    "no bits at all": (lambda: heads.build("ecoc", H, V, bits=0), "bits=0 cannot tell 23 tokens apart"),
    "hybrid of one word": (lambda: heads.build("hybrid", H, 1), "vocab_size must be at least 2 for hybrid"),
    "code_of outside": (lambda: build("hierarchical unigram").code_of(torch.tensor([-1])), "token id -1"),
    "code_of outside the tree": (lambda: build("hierarchical binary unigram").code_of(torch.tensor(V)), "token id 23"),
    "token_of no place": (
        lambda: build("hierarchical unigram").token_of(torch.tensor([99, 0])),
        "code must be .* with a class below 5",
    ),
    "token_of half a path": (
        lambda: build("hierarchical binary unigram").token_of(torch.zeros(3, 2)),
        r"code must have shape \(\.\.\., 5\)",
    ),
    "top_k of zero": (lambda: build("softmax").sample(batch()[0], top_k=0), "top_k must be at least 1"),
    "frequent": (lambda: heads.build("hybrid", H, V, frequent=V), "frequent must be from 1 to 22"),
    "calibrate": (lambda: build("ecoc likelihood").calibrate(*batch()), "nothing to calibrate: only 'bits' has"),
    "paper_nll": (lambda: build("ecoc bits").paper_nll(*batch()), "no error-checking codewords"),
    "tie to a tree": (lambda: build("adaptive").tie(nn.Parameter(torch.ones(V, H))), "no single weight to tie"),
    "tie of another shape": (lambda: build("softmax").tie(nn.Parameter(torch.ones(3, H))), "weight must have shape"),
    "tie ecoc of another shape": (lambda: build("ecoc bits").tie(nn.Parameter(torch.ones(3, H))), "code embedding"),
}


@pytest.mark.parametrize("bad", BAD_HEADS)
def test_bad_input_names_the_argument_and_the_fix(bad: str) -> None:
    call, message = BAD_HEADS[bad]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_state_of_another_codebook_is_refused() -> None:
    mine, other = (heads.build("ecoc", H, V, bits=12, seed=seed) for seed in (0, 1))
    with pytest.raises(RuntimeError, match="belongs to another codebook"):
        mine.load_state_dict(other.state_dict())
    model = nn.Sequential(nn.Linear(H, H), heads.build("ecoc", H, V, bits=12, seed=0))
    with pytest.raises(RuntimeError, match=r"1\.: the state_dict belongs to another codebook"):
        model.load_state_dict(
            {"0.weight": torch.ones(H, H), "0.bias": torch.ones(H)}
            | {f"1.{name}": value for name, value in other.state_dict().items()}
        )


def test_a_head_first_used_in_inference_mode_can_be_trained_later() -> None:
    from ecoc.codes.bits import _kept_byte_signs

    _kept_byte_signs.cache_clear()
    head, (hidden, target) = build("ecoc likelihood"), batch()
    with torch.inference_mode():
        head.nll(hidden, target)
    head.nll(hidden, target).mean().backward()
    head(hidden, target).backward()
    assert head.output.weight.grad is not None


def test_a_refused_state_changes_nothing() -> None:
    codebook = codes.build("random", V, 12)
    mine = heads.build("ecoc", H, V, codebook=codebook)
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    with pytest.raises(RuntimeError, match="another codebook"):
        mine.load_state_dict(heads.build("ecoc", H, V, bits=12, seed=1).state_dict())
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())
    assert torch.equal(codebook.packed, codes.build("random", V, 12).packed)


@pytest.mark.parametrize("name", ["sampled", "nce", "ecoc"])
def test_half_precision_draws_from_the_same_distribution(name: str) -> None:
    head = heads.build(name, H, 20_000, counts=zipf_counts(20_000), samples=300)
    proposal = head.model.proposal if name == "ecoc" else head.proposal
    torch.manual_seed(0)
    before = proposal()
    head.bfloat16()
    torch.manual_seed(0)
    assert torch.equal(proposal(), before) and proposal.cumulative.dtype == torch.float64


def test_a_device_without_float64_gets_none() -> None:
    """As Apple's: it refuses to be given any."""
    head = heads.build("ecoc", H, 20_000, counts=zipf_counts(20_000), samples=300)
    seen = []

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        assert tensor.dtype != torch.float64
        seen.append(tensor)
        return tensor

    head._apply(moved)
    proposal = head.model.proposal
    assert len(seen) > 8 and proposal.cumulative.dtype == torch.float64
    draws = proposal()
    assert len(draws) == 300 and draws.dtype == proposal.others.dtype

    def fails(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        head._apply(fails)
    assert proposal.cumulative.dtype == torch.float64
    head.share_memory()
    assert proposal.cumulative.is_shared() and head.to("meta").model.proposal.cumulative.device.type == "meta"


@pytest.mark.parametrize("name", ["softmax", "sampled", "ecoc", "hybrid"])
def test_losses_compile_without_a_warning(name: str) -> None:
    head = heads.build(name, H, 200, counts=zipf_counts(200)).double()
    hidden, target = torch.randn(5, H, dtype=torch.float64), torch.arange(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # torch's way with its own functions is deprecated
        torch.manual_seed(3)
        loss = torch.compile(head, backend="eager", fullgraph=True)(hidden, target)
    torch.manual_seed(3)
    torch.testing.assert_close(loss, head(hidden, target))


def test_shares_do_as_well_as_counts() -> None:
    counts = zipf_counts()
    by_count, by_share = (heads.build("ecoc", H, V, counts=c, bits=12) for c in (counts, counts / counts.sum()))
    torch.testing.assert_close(by_share.model.log_prior, by_count.model.log_prior)
    unseen = counts.clone()
    unseen[3] = 0
    prior = heads.build("ecoc", H, V, counts=unseen, bits=12).model.log_prior
    assert prior[3] == prior.min() and torch.isfinite(prior).all()


@pytest.mark.parametrize("case", ["softmax", "ecoc bits"])
def test_a_tied_state_has_the_keys_of_an_untied_one(case: str) -> None:
    untied, tied = build(case), build(case)
    keys = list(untied.state_dict())
    weight = untied.weight if case == "softmax" else untied.output.weight
    tied.tie(nn.Parameter(torch.zeros_like(weight)))
    assert list(tied.state_dict()) == keys
    size = tied.num_parameters()
    tied.load_state_dict(untied.state_dict(), assign=True)
    assert tied.num_parameters() == size == untied.num_parameters() - weight.numel()


def test_hybrid_calibrates_its_code() -> None:
    head, (hidden, target) = build("hybrid likelihood", objective="bits", samples=None), batch(rows=200)
    before = head.nll(hidden, target).mean()
    with torch.inference_mode():
        head.calibrate(hidden, target)
    assert head.nll(hidden, target).mean() < before
    fitted = head.rest.model.calibration.clone()
    frequent = torch.full_like(target, int(head.order[0]))
    head.calibrate(hidden, frequent)
    assert torch.equal(head.rest.model.calibration, fitted)
    head.calibrate(hidden.view(20, 10, -1), target.view(20, 10))
    torch.testing.assert_close(head.rest.model.calibration, fitted)
    with pytest.raises(ValueError, match="target has token id -100 outside the vocabulary"):
        head.calibrate(hidden, target.new_full((200,), -100))


def test_a_vocabulary_of_one_word_is_certain() -> None:
    for name, tree in (("hierarchical", "binary"), ("hierarchical", "two-level"), ("softmax", None), ("ecoc", None)):
        head = heads.build(name, H, 1, **({"tree": tree} if tree else {}))
        hidden = torch.randn(3, H, requires_grad=True)
        loss = head(hidden, torch.zeros(3, dtype=torch.long))
        loss.backward()
        assert loss.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("case", ["sampled unigram", "sampled random", "ecoc likelihood"])
@pytest.mark.parametrize("samples", [4, 11])
def test_the_estimate_of_the_normaliser_has_no_bias(case: str, samples: int) -> None:
    """exp(loss - exact loss) is the estimated Z over the exact one: its mean is 1."""
    head, (hidden, target) = build(case, samples=samples), batch()
    exact = head.nll(hidden, target)
    ratios = torch.stack([(head(hidden, target, reduction="none") - exact).exp() for _ in range(3000)])
    error = ratios.std(0) / math.sqrt(len(ratios))
    assert ((ratios.mean(0) - 1).abs() < 4.5 * error + 1e-6).all() and error.max() > 0


def test_losses_stay_finite_at_large_logits() -> None:
    for case in ("ecoc likelihood", "sampled unigram", "ecoc bits", "ecoc span-mass"):
        head, (hidden, target) = build(case, torch.float32), batch(torch.float32)
        loss = head(1e4 * hidden, target)
        loss.backward()
        assert torch.isfinite(loss) and all(torch.isfinite(p.grad).all() for p in head.parameters())


def test_bf16_autocast_normalises_over_the_scores_it_uses() -> None:
    head = heads.build("ecoc", 64, 5000, counts=zipf_counts(5000), bits=128)
    hidden, target = 5 * torch.randn(50, 64), torch.randint(0, 5000, (50,))
    with torch.autocast("cpu", torch.bfloat16):
        logits = head.latent_logits(hidden)
        nll = head.nll(hidden, target)
    torch.testing.assert_close(nll, head.model.nll(logits, target), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["hierarchical unigram", "hierarchical binary unigram"])
def test_latent_logits_follow_the_greedy_path_by_default(case: str) -> None:
    head, (hidden, _) = build(case), batch()
    logits = head.latent_logits(hidden)
    greedy = logits.argmax(-1) if head.latent == "categorical" else logits > 0
    torch.testing.assert_close(head.latent_logits(hidden, greedy), logits)
