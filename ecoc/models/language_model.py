"""A word-level language model: embedding, LSTM, any head."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ecoc.feeding import Policy
from ecoc.heads import ECOC, Head
from ecoc.models.embeddings import CodeEmbedding, TokenEmbedding
from ecoc.models.lstm import State, VariationalLSTM


class Output(NamedTuple):
    """What a forward pass gives: the training loss, and the state to go on from."""

    loss: Tensor
    state: State


class LanguageModel(nn.Module):
    """Predicts each token from those before it.

    Args:
        embedding: What enters: a :class:`TokenEmbedding` or :class:`CodeEmbedding`.
        lstm: The recurrent layers.
        head: What leaves: any head over the same vocabulary.
        tie: Share the embedding's weight with the head (softmax, sampled and nce with a token embedding, ecoc with a
            code embedding of its own codebook).
        feeding: What is fed in place of targets while training; None for targets alone.
        sequential: Feed step by step, each prediction made from what was fed before it. Otherwise all predictions come
            from a first pass that is fed targets, which is faster.

    Shapes:
        inputs, targets ``(batch, time)`` token ids.
    """

    def __init__(
        self,
        embedding: TokenEmbedding | CodeEmbedding,
        lstm: VariationalLSTM,
        head: Head,
        tie: bool = False,
        feeding: Policy | None = None,
        sequential: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.lstm = lstm
        self.head = head
        self.feeding = feeding
        self.sequential = sequential
        if feeding is not None:
            feeding.check_built_for(head, embedding)
        if tie:
            if isinstance(embedding, CodeEmbedding) != isinstance(head, ECOC):
                raise ValueError("tie needs a token embedding with a softmax, or a code embedding with an ecoc head")
            head.tie(embedding.get_parameter("weight"))

    def forward(self, inputs: Tensor, targets: Tensor, state: State | None = None) -> Output:
        """Training loss over all steps; the loss is computed here so that DDP sees every parameter."""
        if self.feeding is None:
            hidden, state = self.hidden(inputs, state)
            return Output(self.head(hidden, targets), state)
        hidden, state = self.fed(inputs, state)
        loss = self.head(hidden, targets)
        for parameter in self.feeding.parameters():  # a learned temperature, in an epoch that feeds targets alone
            loss = loss + 0.0 * parameter
        return Output(loss, state)

    def hidden(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Hidden states ``(batch, time, hidden)`` and the state after the last step, fed with `inputs`."""
        hidden, state = self.lstm(self.embedding(inputs), state)
        return hidden, state

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Hidden states ``(rows, hidden)`` and state after one more token ``(rows,)``."""
        hidden, state = self.hidden(tokens.unsqueeze(1), state)
        return hidden[:, 0], state

    def select(self, state: State, rows: Tensor) -> State:
        """The state of some rows, in that order."""
        h, c = state
        return h[:, rows], c[:, rows]

    def fed(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """As :meth:`hidden`, in training fed as the policy decides; the first input is always the target's."""
        policy = self.feeding
        if policy is None or not self.training or not policy.probability or inputs.shape[1] < 2:
            return self.hidden(inputs, state)
        masks = self.lstm.draw_masks(self.embedding(inputs[:, :1]))

        def run(vectors: Tensor, state: State | None) -> tuple[Tensor, State]:
            hidden, state = self.lstm(vectors, state, masks)
            return hidden, state

        return feed(policy, self.embedding, self.head, run, inputs, state, self.sequential)

    def num_parameters(self) -> dict[str, int]:
        """Trainable numbers of each part; a tied weight is the embedding's."""
        return {
            "embedding": sum(p.numel() for p in self.embedding.parameters()),
            "lstm": sum(p.numel() for p in self.lstm.parameters()),
            "decoder": self.head.num_parameters(),
        }

    def num_bytes(self) -> int:
        """Bytes on disk: all parameters, the packed codebook once, and other buffers."""
        return bytes_on_disk(self)


def bytes_on_disk(module: nn.Module) -> int:
    """Of all parameters and buffers, each once even if two parts share it."""
    tensors = {t.data_ptr(): t for t in module.state_dict(keep_vars=True).values() if t.numel()}
    return sum(t.numel() * t.element_size() for t in tensors.values())


def feed(
    policy: Policy,
    embedding: TokenEmbedding | CodeEmbedding,
    head: Head,
    run: Callable[[Tensor, Any], tuple[Tensor, Any]],
    inputs: Tensor,
    state: Any,
    sequential: bool,
    counted: Tensor | None = None,
) -> tuple[Tensor, Any]:
    """Hidden states of a decoder that is fed `inputs` ``(batch, time)`` mixed with its own predictions.

    The input of step t is a mix of ``inputs[:, t]``, which was the target of step t - 1, and what the head makes of the
    hidden state of step t - 1. `run` takes vectors ``(batch, time, size)`` and a state to hidden states and the state
    after them, with the same dropout masks in every call. Inputs that are not `counted` ``(batch, time)`` are padding.
    """
    counted = torch.ones_like(inputs, dtype=torch.bool) if counted is None else counted
    first = embedding(inputs[:, :1])
    if not sequential:
        with torch.set_grad_enabled(policy.differentiable and torch.is_grad_enabled()):
            guess, _ = run(embedding(inputs[:, :-1]), state)
        rest = policy(head, embedding, guess, inputs[:, 1:], counted[:, 1:])
        return run(torch.cat([first, rest.to(first.dtype)], 1), state)
    outputs, state = run(first, state)
    steps = [outputs]
    for truth, real in zip(inputs[:, 1:].unbind(1), counted[:, 1:].unbind(1), strict=True):
        vectors = policy(head, embedding, steps[-1][:, -1], truth, real)
        outputs, state = run(vectors.unsqueeze(1), state)
        steps.append(outputs)
    return torch.cat(steps, 1), state


def detached(state: State) -> State:
    """The state without its history: where backpropagation through time stops."""
    h, c = state
    return h.detach(), c.detach()
