r"""Convolutional codes of rate 1/2 with Viterbi decoding, as in Oda et al., "Neural Machine Translation via Binary Code
Prediction" (2017).

The k message bits of a token's frequency rank run through a shift register of K - 1 bits that starts and ends at zero;
each step puts out two parities of the register, so a codeword has n = 2 (k + K - 1) bits:

.. math::
    c_{2t + j} = \bigoplus_{i = 0}^{K - 1} g_{j, i} \, m_{t - i}, \qquad j \in \{0, 1\}
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

# Generators of the largest free distance for each constraint length K (Larsen 1973), in octal as textbooks give them.
GENERATORS = {
    3: (0o5, 0o7),
    4: (0o15, 0o17),
    5: (0o23, 0o35),
    6: (0o53, 0o75),
    7: (0o133, 0o171),
    8: (0o247, 0o371),
    9: (0o561, 0o753),
}


@dataclass(frozen=True)
class Trellis:
    """States and outputs of the encoder with constraint length K: 2^(K - 1) states, two bits out a step."""

    constraint: int

    @property
    def memory(self) -> int:
        return self.constraint - 1

    @cached_property
    def outputs(self) -> Tensor:
        """Bool ``(2^K, 2)``: the two bits put out when the register (newest bit highest) reads as the row number."""
        register = torch.arange(2**self.constraint)
        return torch.stack([_parity(register & generator) for generator in GENERATORS[self.constraint]], -1)

    def encode(self, message: Tensor) -> Tensor:
        """Codewords ``(rows, 2 (k + K - 1))`` of message bits ``(rows, k)``, most significant first; both bool."""
        flushed = torch.nn.functional.pad(message.long(), (self.memory, self.memory))  # zeros before and after
        newest_last = flushed.unfold(-1, self.constraint, 1)  # [rows, k + K - 1, K]
        register = (newest_last << torch.arange(self.constraint)).sum(-1)
        return self.outputs[register].flatten(1)

    def viterbi(self, logits: Tensor) -> Tensor:
        """Most likely message, as an integer ``(rows,)``, under independent bits with log odds ``(rows, n)``."""
        steps, states = logits.shape[-1] // 2, 2**self.memory
        signs = self.outputs.to(logits) * 2 - 1
        gain = logits.unflatten(-1, (steps, 2)) @ signs.T  # [rows, steps, 2^K]
        # register = newest bit, then the state; the next state drops the register's oldest (lowest) bit
        score = torch.full((len(logits), states), -torch.inf, dtype=logits.dtype, device=logits.device)
        score[:, 0] = 0.0
        dropped = []
        for step in range(steps):
            into = (gain[:, step].unflatten(-1, (2, states)) + score.unsqueeze(1)).flatten(1)  # [rows, 2^K] by register
            score, choice = into.unflatten(-1, (states, 2)).max(-1)  # over the bit that is dropped
            dropped.append(choice)
        state = torch.zeros(len(logits), dtype=torch.long, device=logits.device)  # the register is flushed with zeros
        message = torch.zeros_like(state)
        for step in reversed(range(steps)):
            newest = state >> (self.memory - 1)
            if step < steps - self.memory:
                message |= newest << (steps - self.memory - 1 - step)
            state = ((state << 1) | dropped[step].gather(1, state.unsqueeze(1)).squeeze(1)) & (states - 1)
        return message


def convolutional_codewords(rank: Tensor, bits: int) -> tuple[Tensor, Trellis]:
    """Bool codewords ``(V, bits)`` and the trellis; the constraint length follows from `bits`."""
    message_bits = max(1, (len(rank) - 1).bit_length())
    lengths = {2 * (message_bits + constraint - 1): constraint for constraint in GENERATORS}
    if bits not in lengths:
        raise ValueError(
            f"bits={bits} is no length of a convolutional code over {len(rank)} tokens: choose one of {sorted(lengths)}"
        )
    trellis = Trellis(lengths[bits])
    return trellis.encode(integer_bits(rank.long(), message_bits)), trellis


def integer_bits(values: Tensor, bits: int) -> Tensor:
    """Binary digits of non-negative integers, most significant first, bool ``(..., bits)``."""
    return ((values.unsqueeze(-1) >> torch.arange(bits - 1, -1, -1, device=values.device)) & 1).bool()


def _parity(values: Tensor) -> Tensor:
    for shift in (8, 4, 2, 1):  # registers have at most 9 bits
        values = values ^ (values >> shift)
    return (values & 1).bool()
