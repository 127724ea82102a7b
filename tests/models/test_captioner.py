"""The captioner: how images enter, what it is fed, how it decodes."""

import pytest
import torch
from torch import Tensor

from ecoc import codes, feeding, heads
from ecoc.decode import search
from ecoc.models import Captioner, CodeEmbedding, FeatureEncoder, SmallCNN, TokenEmbedding, VariationalLSTM
from ecoc.models.captioner import IMAGE
from tests.heads.cases import zipf_counts

V, H, D, B, T, EOS = 17, 8, 5, 3, 6, 1


def small(image: str, head: str = "softmax", **more: object) -> Captioner:
    torch.manual_seed(0)
    lstm = VariationalLSTM(H, H, 2, dropout=0.0, recurrent_dropout=0.0)
    built = heads.build(head, H, V, zipf_counts(V))
    return Captioner(FeatureEncoder(D, H, 0.0), TokenEmbedding(V, H), lstm, built, image, **more).double()


def pictures(image: str, batch: int = B) -> Tensor:
    cells = (4,) if image == "attention" else ()
    return torch.randn(batch, *cells, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def words(batch: int = B) -> Tensor:
    return torch.randint(V, (batch, T + 1), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("image", IMAGE)
def test_steps_are_the_whole_and_rows_are_apart(image: str) -> None:
    model, features, inputs = small(image).eval(), pictures(image), words()[:, :-1]
    whole, _ = model.hidden(inputs, model.begin(features))
    state, steps = model.begin(features), []
    for tokens in inputs.unbind(1):
        hidden, state = model.advance(tokens, state)
        steps.append(hidden)
    torch.testing.assert_close(torch.stack(steps, 1), whole, rtol=1e-12, atol=1e-12)
    turned = torch.tensor([2, 0, 0])
    again, _ = model.hidden(inputs[turned], model.select(model.begin(features), turned))
    torch.testing.assert_close(again, whole[turned], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("image", IMAGE)
def test_every_word_depends_on_the_image_and_on_no_later_word(image: str) -> None:
    model, features, inputs = small(image).eval(), pictures(image), words()[:, :-1]
    hidden, _ = model.hidden(inputs, model.begin(features))
    other, _ = model.hidden(inputs, model.begin(features.flip(-1)))
    assert ((hidden - other).abs().amax(-1) > 1e-9).all()
    later = inputs.clone()
    later[:, 3:] = (later[:, 3:] + 1) % V
    changed, _ = model.hidden(later, model.begin(features))
    torch.testing.assert_close(changed[:, :3], hidden[:, :3], rtol=0, atol=0)
    assert ((changed[:, 3:] - hidden[:, 3:]).abs().amax(-1) > 1e-12).all()


def test_the_image_enters_as_said() -> None:
    features, inputs = pictures("first"), words()[:, :-1]
    first, each = small("first").eval(), small("each").eval()
    vector = first.encoder(features)
    hidden, _ = first.lstm(torch.cat([vector.unsqueeze(1), first.embedding(inputs)], 1))
    torch.testing.assert_close(first.hidden(inputs, first.begin(features))[0], hidden[:, 1:])
    hidden, _ = each.lstm(each.embedding(inputs) + each.encoder(features).unsqueeze(1))
    torch.testing.assert_close(each.hidden(inputs, each.begin(features))[0], hidden)


def test_attention_is_a_mean_of_cells_by_relevance() -> None:
    model, grid = small("attention").eval(), pictures("attention")
    inputs = words()[:, :2]
    cells = model.encoder(grid)
    hidden, state = None, (torch.zeros(2, B, H).double(), torch.zeros(2, B, H).double())
    for t in range(2):
        entering = []
        for row in range(B):
            query = model.look_from(state[0][-1, row])
            scores = torch.stack([model.relevance(torch.tanh(query + model.look_at(cell)))[0] for cell in cells[row]])
            shares = scores.exp() / scores.exp().sum()
            entering.append(
                model.embedding(inputs[row, t]) + sum(s * c for s, c in zip(shares, cells[row], strict=True))
            )
        hidden, state = model.lstm(torch.stack(entering).unsqueeze(1), state)
    found, _ = model.hidden(inputs, model.begin(grid))
    torch.testing.assert_close(found[:, 1], hidden[:, 0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("image", IMAGE)
@pytest.mark.parametrize("head", heads.NAMES)
def test_the_loss_is_that_of_the_words_that_count_and_reaches_every_parameter(head: str, image: str) -> None:
    model, ids = small(image, head), words()
    targets = ids[:, 1:].clone()
    targets[1, 4:] = -100
    torch.manual_seed(3)
    loss, _ = model(pictures(image), ids[:, :-1], targets)
    hidden, _ = model.hidden(ids[:, :-1], model.begin(pictures(image)))
    torch.manual_seed(3)
    assert loss.item() == pytest.approx(model.head(hidden[targets != -100], targets[targets != -100]).item(), rel=1e-9)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert sum(model.num_parameters().values()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize("image", IMAGE)
def test_policies_feed_a_captioner_too(image: str, sequential: bool) -> None:
    torch.manual_seed(0)
    codebook = codes.build("random", V, 12, zipf_counts(V))
    head, embedding = heads.build("ecoc", H, V, zipf_counts(V), codebook=codebook), CodeEmbedding(codebook, H)
    policy = feeding.build("curriculum", head, embedding, feeding.Schedule("constant", 1, 1.0))
    lstm = VariationalLSTM(H, H, 1, dropout=0.3, recurrent_dropout=0.3)
    model = Captioner(FeatureEncoder(D, H), embedding, lstm, head, image, policy, sequential).double()
    ids = words()
    loss, _ = model(pictures(image), ids[:, :-1], ids[:, 1:])
    loss.backward()
    fed, changed = policy.take_counts()
    assert torch.isfinite(loss) and fed == B * (T - 1) and changed > 0


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize("image", IMAGE)
def test_a_fed_captioner_runs_as_said(image: str, sequential: bool) -> None:
    torch.manual_seed(0)
    codebook = codes.build("random", V, 12, zipf_counts(V))
    head, embedding = heads.build("ecoc", H, V, zipf_counts(V), codebook=codebook), CodeEmbedding(codebook, H)
    schedule = feeding.Schedule("constant", 1, 1.0)
    policy = feeding.build("differentiable", head, embedding, schedule, temperature="learned")
    lstm = VariationalLSTM(H, H, 1, dropout=0.3, recurrent_dropout=0.3)
    model = Captioner(FeatureEncoder(D, H), embedding, lstm, head, image, policy, sequential).double()
    ids, seen = words(), []
    targets = ids[:, 1:].clone()
    targets[0, 2:] = -100  # a caption of two words
    lstm.register_forward_pre_hook(lambda module, arguments: seen.append((arguments[0].shape[1], arguments[2])))
    model(pictures(image), ids[:, :-1], targets)
    assert policy.take_counts()[0] == B * (T - 1) - (T - 2)
    lengths = [length for length, _ in seen][1 if image == "first" else 0 :]
    steps = [1] * T if sequential else [T - 1, T]
    assert lengths == ([1] * sum(steps) if image == "attention" else steps)
    assert all(masks is seen[0][1] for _, masks in seen) and seen[0][1].outputs is not None
    seen.clear()
    policy.probability = 0.0
    loss, _ = model(pictures(image), ids[:, :-1], targets)
    loss.backward()
    alone = {"first": 2, "attention": T}.get(image, 1)
    assert len(seen) == alone
    assert policy.log_temperature.grad == 0  # touched all the same, for DDP
    policy.probability = 1.0
    seen.clear()
    model.eval()(pictures(image), ids[:, :-1], targets)
    assert len(seen) == alone


@pytest.mark.parametrize("image", IMAGE)
def test_beams_of_images_are_those_of_each_alone(image: str) -> None:
    model = small(image).eval()
    features = pictures(image, 4)
    start = torch.full((4,), EOS)
    found = search(model, *model.advance(start, model.begin(features)), 7, 3, EOS)
    for row, beams in enumerate(found):
        alone = model.begin(features[row : row + 1])
        assert [b.tokens for b in search(model, *model.advance(start[:1], alone), 7, 3, EOS)[0]] == [
            b.tokens for b in beams
        ]


def test_features_of_any_scale_enter_alike() -> None:
    encoder, features = FeatureEncoder(300, H, 0.0).double(), torch.randn(500, 300, dtype=torch.float64)
    encoded = encoder(features)
    torch.testing.assert_close(encoder(40 * features - 7), encoded, rtol=1e-5, atol=1e-5)
    assert 0.5 < encoded.std() < 2 and not torch.allclose(encoded[0], encoded[1], atol=0.1)
    assert float(encoder.linear.weight.detach().std()) == pytest.approx(
        1.0, abs=0.1
    )  # Adam's steps are small beside them


@pytest.mark.parametrize("grid", [False, True])
def test_the_small_network_sees_where_things_are(grid: bool) -> None:
    torch.manual_seed(0)
    encoder = SmallCNN(H, (64, 64), grid)
    picture = torch.zeros(2, 64, 64, 3)
    picture[0, 8:20, 8:20], picture[1, 40:52, 40:52] = 1.0, 1.0  # the same thing at two places
    seen = encoder(picture)
    assert seen.shape == ((2, 16, H) if grid else (2, H)) and (seen[0] - seen[1]).abs().max() > 1e-3


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="image='last' is unknown: choose one of first"):
        small("last")
    with pytest.raises(ValueError, match=r"image='attention' needs a grid \(batch, cells, d\)"):
        small("attention").begin(pictures("first"))
    with pytest.raises(ValueError, match=r"image='first' needs a vector \(batch, d\)"):
        small("first").begin(pictures("attention"))
