r"""An LSTM with variational dropout (Gal and Ghahramani 2016)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

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
    h, c = state
    weight, recurrent, bias, second_bias = layer.parameters()
    from_inputs = nn.functional.linear(inputs, weight, bias + second_bias)
    outputs = []
    for gates in from_inputs.unbind(1):
        into, forget, new, out = (gates + (h * mask) @ recurrent.T).chunk(4, -1)
        c = forget.sigmoid() * c + into.sigmoid() * new.tanh()
        h = out.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs, 1), (h, c)


def fused(layer: nn.LSTM, inputs: Tensor, state: State) -> tuple[Tensor, State]:
    """One layer in one call."""
    h, c = state
    # under autocast a CPU without bf16 has no such LSTM; a GPU has
    with torch.autocast(inputs.device.type, enabled=torch.is_autocast_enabled() and inputs.device.type != "cpu"):
        if inputs.device.type == "cpu":
            inputs, h, c = (x.to(layer.get_parameter("weight_hh_l0").dtype) for x in (inputs, h, c))
        outputs, (h, c) = layer(inputs, (h.unsqueeze(0), c.unsqueeze(0)))
    return outputs, (h.squeeze(0), c.squeeze(0))
