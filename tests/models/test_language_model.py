"""Embeddings and the language model around any head."""

import math

import pytest
import torch
from torch import nn

from ecoc import codes, heads
from ecoc.models import CodeEmbedding, LanguageModel, TokenEmbedding, VariationalLSTM
from tests.heads.cases import V, zipf_counts

H = 32


def model(head: str = "ecoc", by_code: bool = True, tie: bool = False, **options: object) -> LanguageModel:
    codebook = codes.build("random", V, 16)
    if head == "ecoc":
        options["codebook"] = codebook
    embedding = CodeEmbedding(codebook, H) if by_code else TokenEmbedding(V, H)
    return LanguageModel(
        embedding, VariationalLSTM(H, H, 1), heads.build(head, H, V, counts=zipf_counts(), **options), tie
    )


def test_code_embedding_is_signs_times_matrix() -> None:
    codebook = codes.build("random", V, 16)
    embedding = CodeEmbedding(codebook, H)
    ids = torch.tensor([[3, 1], [0, 22]])
    signs = codebook.encode(ids).float() * 2 - 1
    torch.testing.assert_close(embedding(ids), signs @ embedding.weight / math.sqrt(16))
    torch.testing.assert_close(embedding.of_code(codebook.encode(ids)), embedding(ids))
    assert 0.7 < embedding(torch.arange(V)).std() < 1.3  # unit variance at the start


def test_token_embedding_can_start_from_vectors() -> None:
    vectors = torch.randn(V, 30)
    embedding = TokenEmbedding(V, 300, vectors)
    similarity = nn.functional.cosine_similarity(embedding.weight[:1], embedding.weight[1:])
    expected = nn.functional.cosine_similarity(vectors[:1], vectors[1:])
    assert torch.corrcoef(torch.stack([similarity, expected]))[0, 1] > 0.8  # a random projection keeps angles
    assert float(embedding.weight.detach().std()) == pytest.approx(300**-0.5, rel=0.05)


def test_vectors_of_a_table_start_at_length_one_or_as_asked() -> None:
    torch.manual_seed(0)
    assert float(TokenEmbedding(500, 64).weight.detach().norm(dim=1).mean()) == pytest.approx(1.0, rel=0.05)
    assert float(TokenEmbedding(500, 64, deviation=1.0).weight.detach().std()) == pytest.approx(1.0, rel=0.05)
    vectors = 7.0 * torch.randn(500, 64)
    assert float(TokenEmbedding(500, 64, vectors, 0.5).weight.detach().std()) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("name", heads.NAMES)
@pytest.mark.parametrize("by_code", [True, False])
def test_every_head_learns_a_repeating_text(name: str, by_code: bool) -> None:
    torch.manual_seed(0)
    learner = model(name, by_code)
    text = (torch.arange(400) * 5 % V).view(4, 100)
    optimiser = torch.optim.Adam(learner.parameters(), 0.02)
    learner.lstm.dropout = learner.lstm.recurrent_dropout = 0.0
    for _ in range(60):
        loss = learner(text[:, :-1], text[:, 1:]).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    hidden, _ = learner.hidden(text[:, :-1])
    assert learner.head.nll(hidden, text[:, 1:]).mean() < 0.5 * math.log(V)


def test_a_model_can_be_free_of_any_parameter_that_grows_with_the_vocabulary() -> None:
    shapes = [shape for p in model().parameters() for shape in p.shape]
    assert V not in shapes
    assert sum(model().num_parameters().values()) == sum(p.numel() for p in model().parameters())


def test_tied_weights_are_one_parameter() -> None:
    for learner in (model("softmax", by_code=False, tie=True), model("ecoc", tie=True)):
        sizes = learner.num_parameters()
        assert sum(sizes.values()) == sum(p.numel() for p in learner.parameters())
        assert sizes["decoder"] == (V if isinstance(learner.head, heads.Softmax) else 16)
    with pytest.raises(ValueError, match="tie needs a token embedding with a softmax"):
        model("softmax", by_code=True, tie=True)


def test_bytes_count_the_shared_codebook_once() -> None:
    learner = model()
    both = learner.embedding.packed.numel() + learner.head.num_bytes()
    own = sum(4 * p.numel() for name, p in learner.named_parameters() if not name.startswith("head"))
    assert learner.num_bytes() == both + own - learner.embedding.packed.numel()
