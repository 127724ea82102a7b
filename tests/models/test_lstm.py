"""The LSTM: one mask a sequence, and the same numbers by both paths."""

import pytest
import torch
from torch import Tensor, nn

from ecoc.models import VariationalLSTM
from ecoc.models.lstm import stepwise

B, T, E, H = 4, 7, 5, 6


def lstm(**options: float) -> VariationalLSTM:
    return VariationalLSTM(E, H, **{"layers": 2, "dropout": 0.0, "recurrent_dropout": 0.0, **options}).double()


def test_a_step_at_a_time_equals_torchs_layer() -> None:
    layer = nn.LSTM(E, H, batch_first=True).double()
    inputs = torch.randn(B, T, E, dtype=torch.float64, requires_grad=True)
    h, c = torch.randn(2, B, H, dtype=torch.float64)
    fused, (fused_h, fused_c) = layer(inputs, (h.unsqueeze(0), c.unsqueeze(0)))
    steps, (step_h, step_c) = stepwise(layer, inputs, (h, c), torch.ones_like(h))
    torch.testing.assert_close((steps, step_h, step_c), (fused, fused_h[0], fused_c[0]))
    weights = torch.randn_like(fused)
    gradients = [
        torch.autograd.grad((outputs * weights).sum(), [inputs, *layer.parameters()]) for outputs in (fused, steps)
    ]
    torch.testing.assert_close(*gradients)


def test_the_recurrent_mask_is_the_equations() -> None:
    layer = nn.LSTM(E, H, batch_first=True).double()
    inputs, mask = torch.randn(B, 2, E, dtype=torch.float64), (torch.rand(B, H) < 0.5).double() * 2
    h, c = torch.randn(2, B, H, dtype=torch.float64)
    outputs, _ = stepwise(layer, inputs, (h, c), mask)
    for step in range(2):
        cell = nn.LSTMCell(E, H).double()
        cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
        h, c = cell(inputs[:, step], (h * mask, c))
        torch.testing.assert_close(outputs[:, step], h)


def test_the_recurrence_has_the_gradient_of_its_finite_differences() -> None:
    layer = nn.LSTM(2, 3, batch_first=True).double()
    inputs, h, c = (torch.randn(2, *shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 2), (3,), (3,)))
    mask = torch.tensor([[0.0, 2.0, 2.0], [2.0, 0.0, 2.0]], dtype=torch.float64)

    def run(inputs: Tensor, h: Tensor, c: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs, (last_h, last_c) = stepwise(layer, inputs, (h, c), mask)
        return outputs, last_h, last_c

    assert torch.autograd.gradcheck(run, (inputs, h, c, *layer.parameters()))


def test_under_autocast_products_are_in_bf16_and_cells_are_not() -> None:
    torch.manual_seed(0)
    lstm, inputs = VariationalLSTM(16, 16, 1, 0.0, 0.2), torch.randn(4, 30, 16)
    masks, weight = lstm.draw_masks(inputs), torch.randn(4, 30, 16)
    found = []
    for enabled in (False, True):
        lstm.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            outputs, (h, c) = lstm(inputs, None, masks)
        (outputs * weight).sum().backward()
        assert outputs.dtype == h.dtype == c.dtype == torch.float32
        found.append([outputs.detach(), c.detach(), *(p.grad for p in lstm.parameters())])
    for exact, rounded in zip(*found, strict=True):
        error = (rounded - exact).norm() / exact.norm()
        assert 1e-5 < error < 0.02  # bf16 keeps 8 bits of a number


def test_the_fused_path_is_taken_whenever_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("step by step")

    monkeypatch.setattr("ecoc.models.lstm.stepwise", never)
    inputs = torch.randn(B, T, E, dtype=torch.float64)
    lstm(dropout=0.3)(inputs)
    lstm(dropout=0.3, recurrent_dropout=0.3).eval()(inputs)
    with pytest.raises(AssertionError, match="step by step"):
        lstm(recurrent_dropout=0.3)(inputs)


def test_one_mask_a_sequence() -> None:
    model = lstm(dropout=0.5, layers=1)
    constant = torch.ones(200, T, E, dtype=torch.float64)
    masks = model.draw_masks(constant)
    entering, leaving = masks.inputs[0], masks.outputs
    assert entering is not None and leaving is not None and masks.recurrent == [None]
    assert entering.shape == (200, E)  # one for all steps
    assert not (entering[0] == entering[1:]).all()  # another for another sequence
    assert set(entering.unique().tolist()) == {0.0, 2.0}
    assert abs(entering.mean() - 1) < 0.1
    outputs, _ = model(constant, None, masks)
    plain, _ = model.eval()(constant * entering.unsqueeze(1))
    assert torch.equal(outputs, plain * leaving.unsqueeze(1))


def test_outputs_are_dropped_but_the_state_that_goes_on_is_not() -> None:
    model = lstm(dropout=0.5)
    outputs, (h, _) = model(torch.randn(50, T, E, dtype=torch.float64))
    kept = outputs != 0
    assert torch.equal(kept, kept[:, :1].expand_as(kept))  # the same at every step
    assert 0.3 < kept.double().mean() < 0.7
    assert (h != 0).all()
    last_kept = kept[:, -1]
    torch.testing.assert_close(outputs[:, -1][last_kept], 2 * h[-1][last_kept], rtol=1e-12, atol=1e-12)


def test_forget_gates_start_open() -> None:
    model = VariationalLSTM(E, H, 2)
    torch.manual_seed(5)
    model.reset_parameters()
    torch.manual_seed(5)
    opened = torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(H)  # gates i, f, g, o
    for layer, size in zip(model.layers, (E, H), strict=True):
        torchs = nn.LSTM(size, H).state_dict()
        torchs["bias_ih_l0"] += opened
        for name, value in layer.state_dict().items():
            assert torch.equal(value, torchs[name])


def test_steps_with_the_same_masks_are_the_whole() -> None:
    model = lstm(dropout=0.5, recurrent_dropout=0.4)
    inputs = torch.randn(B, T, E, dtype=torch.float64)
    masks = model.draw_masks(inputs)
    whole, last = model(inputs, None, masks)
    state, steps = None, []
    for step in inputs.split(1, 1):
        outputs, state = model(step, state, masks)
        steps.append(outputs)
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state, last, rtol=1e-12, atol=1e-12)


def test_dropout_is_off_in_evaluation_and_state_carries_on() -> None:
    model = lstm(dropout=0.5, recurrent_dropout=0.5).eval()
    inputs = torch.randn(B, T, E, dtype=torch.float64)
    whole, last = model(inputs)
    first, state = model(inputs[:, :3])
    second, carried = model(inputs[:, 3:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(carried, last)


def test_masks_of_several_processes_are_those_of_one() -> None:
    inputs = torch.randn(B, T, E, dtype=torch.float64)
    model = lstm(dropout=0.4, recurrent_dropout=0.4)
    torch.manual_seed(3)
    whole, _ = model(inputs)
    halves = []
    for rank in range(2):
        model.shard = (rank, 2)
        torch.manual_seed(3)
        halves.append(model(inputs[rank * 2 : rank * 2 + 2])[0])
    torch.testing.assert_close(torch.cat(halves), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 0}, "layers must be at least 1"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"recurrent_dropout": -1}, "recurrent_dropout must be in"),
    ],
)
def test_bad_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lstm(**options)
