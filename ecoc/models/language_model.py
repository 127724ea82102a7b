"""A word-level language model: embedding, LSTM, any head."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

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

    Shapes:
        inputs, targets ``(batch, time)`` token ids.
    """

    def __init__(
        self, embedding: TokenEmbedding | CodeEmbedding, lstm: VariationalLSTM, head: Head, tie: bool = False
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.lstm = lstm
        self.head = head
        if tie:
            if isinstance(embedding, CodeEmbedding) != isinstance(head, ECOC):
                raise ValueError("tie needs a token embedding with a softmax, or a code embedding with an ecoc head")
            head.tie(embedding.get_parameter("weight"))

    def forward(self, inputs: Tensor, targets: Tensor, state: State | None = None) -> Output:
        """Training loss over all steps; the loss is computed here so that DDP sees every parameter."""
        hidden, state = self.hidden(inputs, state)
        return Output(self.head(hidden, targets), state)

    def hidden(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Hidden states ``(batch, time, hidden)`` and the state after the last step."""
        hidden, state = self.lstm(self.embedding(inputs), state)
        return hidden, state

    def num_parameters(self) -> dict[str, int]:
        """Trainable numbers of each part; a tied weight is the embedding's."""
        return {
            "embedding": sum(p.numel() for p in self.embedding.parameters()),
            "lstm": sum(p.numel() for p in self.lstm.parameters()),
            "decoder": self.head.num_parameters(),
        }

    def num_bytes(self) -> int:
        """Bytes on disk: all parameters, the packed codebook once, and other buffers."""
        tensors = {t.data_ptr(): t for t in self.state_dict(keep_vars=True).values() if t.numel()}
        return sum(t.numel() * t.element_size() for t in tensors.values())


def detached(state: State) -> State:
    """The state without its history: where backpropagation through time stops."""
    h, c = state
    return h.detach(), c.detach()


def moved(state: State, device: torch.device) -> State:
    """The state on another device."""
    h, c = state
    return h.to(device), c.to(device)
