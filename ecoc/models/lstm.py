r"""An LSTM with variational dropout (Gal and Ghahramani 2016)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

State = tuple[Tensor, Tensor]


class VariationalLSTM(nn.Module):
    r"""The LSTM from *A Theoretically Grounded Application of Dropout in Recurrent Neural Networks*.

    One dropout mask a sequence, the same at every step, on what enters a layer, on its recurrent connections, and on
    what leaves the last one:

    .. math::
        (i, f, g, o) &= W (x_t \circ m_x) + U (h_{t-1} \circ m_h) + b \\
        c_t &= \sigma(f) \circ c_{t-1} + \sigma(i) \circ \tanh(g), \qquad h_t = \sigma(o) \circ \tanh(c_t)

    Without recurrent dropout, and always in evaluation, a layer is one call of ``nn.LSTM``; with it, a loop over steps
    that gives the same numbers for the same mask. Parameters are those of ``nn.LSTM`` either way.

    Args:
        input_size: Size of an input.
        hidden_size: Size of a state.
        layers: Number of layers.
        dropout: Share dropped of each layer's inputs and of the last layer's outputs.
        recurrent_dropout: Share dropped of the recurrent connections.

    Shapes:
        inputs ``(batch, time, input_size)``; outputs ``(batch, time, hidden_size)``; a state is h and c, each
        ``(layers, batch, hidden_size)``.
    """

    def __init__(
        self, input_size: int, hidden_size: int, layers: int = 2, dropout: float = 0.2, recurrent_dropout: float = 0.2
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers must be at least 1, got {layers}")
        for name, share in (("dropout", dropout), ("recurrent_dropout", recurrent_dropout)):
            if not 0 <= share < 1:
                raise ValueError(f"{name} must be in [0, 1), got {share}")
        self.input_size, self.hidden_size = input_size, hidden_size
        self.dropout = dropout
        self.recurrent_dropout = recurrent_dropout
        sizes = [input_size] + [hidden_size] * (layers - 1)
        self.shard = (0, 1)  # of several processes, this one's number; see _mask
        self.layers = nn.ModuleList([nn.LSTM(size, hidden_size, batch_first=True) for size in sizes])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in self.layers:
            assert isinstance(layer, nn.LSTM)
            layer.reset_parameters()
            with torch.no_grad():  # remember at first: the forget gates start open (Jozefowicz et al. 2015)
                layer.get_parameter("bias_ih_l0")[self.hidden_size : 2 * self.hidden_size] += 1.0

    def forward(self, inputs: Tensor, state: State | None = None, masks: "Masks | None" = None) -> tuple[Tensor, State]:
        """Outputs for every step, and the state after the last; with `masks` to go on with those of earlier steps."""
        if state is None:
            zeros = inputs.new_zeros(len(self.layers), len(inputs), self.hidden_size)
            state = zeros, zeros
        if masks is None:
            masks = self.draw_masks(inputs)
        outputs, last = inputs, []
        for layer, h, c, dropped, recurrent in zip(self.layers, *state, masks.inputs, masks.recurrent, strict=True):
            assert isinstance(layer, nn.LSTM)
            outputs = outputs if dropped is None else outputs * dropped.unsqueeze(1)
            if recurrent is not None:
                outputs, (h, c) = stepwise(layer, outputs, (h, c), recurrent)
            else:
                outputs, (h, c) = fused(layer, outputs, (h, c))
            last.append((h, c))
        outputs = outputs if masks.outputs is None else outputs * masks.outputs.unsqueeze(1)
        return outputs, (torch.stack([h for h, _ in last]), torch.stack([c for _, c in last]))

    def draw_masks(self, inputs: Tensor) -> "Masks":
        """Dropout masks for sequences like `inputs` ``(batch, ..., input_size)``; none in evaluation."""
        sizes = [inputs.shape[-1]] + [self.hidden_size] * len(self.layers)
        entering = [self._mask(inputs, size, self.dropout) for size in sizes]
        recurrent = [self._mask(inputs, self.hidden_size, self.recurrent_dropout) for _ in self.layers]
        return Masks(entering[:-1], recurrent, entering[-1])

    def _mask(self, inputs: Tensor, size: int, dropout: float) -> Tensor | None:
        """A mask ``(batch, size)``; drawn for the batch of all processes, so that theirs is one process's batch."""
        if not (self.training and dropout):
            return None
        rank, world = self.shard
        rows = len(inputs)
        everyone = inputs.new_empty(rows * world, size).bernoulli_(1 - dropout).div_(1 - dropout)
        return everyone[rank * rows : (rank + 1) * rows]


class Masks(NamedTuple):
    """Dropout masks of one batch of sequences, each ``(batch, size)`` or None where nothing is dropped."""

    inputs: list[Tensor | None]  # of each layer
    recurrent: list[Tensor | None]
    outputs: Tensor | None  # of the last layer


def stepwise(layer: nn.LSTM, inputs: Tensor, state: State, mask: Tensor) -> tuple[Tensor, State]:
    """One layer, step by step, its recurrent connections multiplied by `mask` ``(batch, hidden)``."""
    weight, recurrent, bias, second_bias = layer.parameters()
    gates = nn.functional.linear(inputs.transpose(0, 1), weight, bias + second_bias)  # [time, batch, 4 hidden]
    device = inputs.device.type
    products = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else recurrent.dtype
    with torch.autocast(device, enabled=False):  # a cell is a sum over hundreds of steps and needs its digits
        gates, h, c, mask = (x.to(recurrent.dtype) for x in (gates, *state, mask))
        outputs, c = _Recurrence.apply(gates, recurrent, h, c, mask, products)
    return outputs.transpose(0, 1), (outputs[-1], c)


class _Recurrence(torch.autograd.Function):
    """The steps of one layer, with their gradient written out.

    Autograd adds up the gradient of U one small product a step; here it is one product over all steps, and a step
    takes a third of the operations. Products with U are computed in the type `products`, all else in that of U.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, recurrent: Tensor, h: Tensor, c: Tensor, mask: Tensor, products: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        steps, batch, size = len(gates), *h.shape
        gates, recurrent = gates.contiguous(), recurrent.to(products)
        acts = torch.empty_like(gates)  # sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        cells = torch.cat([c.unsqueeze(0), c.new_empty(steps, batch, size)])
        squashed, outputs = (c.new_empty(steps, batch, size) for _ in range(2))
        masked = c.new_empty(steps, batch, size, dtype=products)
        for t in range(steps):
            torch.mul(h, mask, out=masked[t])
            if products == acts.dtype:
                torch.addmm(gates[t], masked[t], recurrent.T, out=acts[t])
            else:
                torch.add(gates[t], masked[t] @ recurrent.T, out=acts[t])
            into, forget, new, out = acts[t].chunk(4, -1)
            acts[t, :, : 2 * size].sigmoid_()
            new.tanh_()
            out.sigmoid_()
            torch.mul(forget, cells[t], out=cells[t + 1]).addcmul_(into, new)
            torch.tanh(cells[t + 1], out=squashed[t])
            h = torch.mul(out, squashed[t], out=outputs[t])
        ctx.save_for_backward(acts, cells, squashed, masked, recurrent, mask)
        return outputs, cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_outputs: Tensor, by_cell: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, None]:
        acts, cells, squashed, masked, recurrent, mask = ctx.saved_tensors
        into, forget, new, out = acts.chunk(4, -1)
        slope = torch.cat(  # of c by i, f, g, and of h by o, before they are squashed
            [
                new * into * (1 - into),
                cells[:-1] * forget * (1 - forget),
                into * (1 - new * new),
                squashed * out * (1 - out),
            ],
            -1,
        ).unflatten(-1, (4, -1))
        through_cell = out * (1 - squashed * squashed)
        by_gates = torch.empty_like(acts)
        split = by_gates.unflatten(-1, (4, -1))
        by_h, by_c = torch.zeros_like(mask), by_cell.clone()
        for t in reversed(range(len(acts))):
            by_h += by_outputs[t]
            by_c.addcmul_(by_h, through_cell[t])
            torch.mul(slope[t, :, :3], by_c.unsqueeze(1), out=split[t, :, :3])
            torch.mul(slope[t, :, 3], by_h, out=split[t, :, 3])
            torch.mul(by_gates[t].to(recurrent.dtype) @ recurrent, mask, out=by_h)
            by_c *= forget[t]
        by_recurrent = by_gates.flatten(0, 1).to(masked.dtype).T @ masked.flatten(0, 1)
        return by_gates, by_recurrent.to(acts.dtype), by_h, by_c, None, None


def fused(layer: nn.LSTM, inputs: Tensor, state: State) -> tuple[Tensor, State]:
    """One layer in one call."""
    h, c = state
    # under autocast a CPU without bf16 has no such LSTM; a GPU has
    with torch.autocast(inputs.device.type, enabled=torch.is_autocast_enabled() and inputs.device.type != "cpu"):
        if inputs.device.type == "cpu":
            inputs, h, c = (x.to(layer.get_parameter("weight_hh_l0").dtype) for x in (inputs, h, c))
        outputs, (h, c) = layer(inputs, (h.unsqueeze(0), c.unsqueeze(0)))
    return outputs, (h.squeeze(0), c.squeeze(0))
