"""An image captioner: an image, an LSTM decoder, any head."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ecoc.feeding import Policy
from ecoc.heads import Head
from ecoc.models.embeddings import CodeEmbedding, TokenEmbedding
from ecoc.models.language_model import Output, bytes_on_disk, feed
from ecoc.models.lstm import Masks, State, VariationalLSTM

IMAGE = ("first", "state", "each", "attention")


class CaptionState(NamedTuple):
    """Where a decoder is: the LSTM's state, and what it looks at in every step, ``(batch, ..., size)`` or None; of a
    grid also the part of attention that does not change from step to step."""

    lstm: State
    image: Tensor | None
    keys: Tensor | None = None


class Captioner(nn.Module):
    r"""Says what is in an image, one word after the other (Vinyals et al. 2015).

    ============== ==========================================================================================
    image          how it enters
    ============== ==========================================================================================
    ``first``      as the input before the first word
    ``state``      as the first state of every layer
    ``each``       added to the input of every step
    ``attention``  added to the input of every step, as a mean over the cells of a grid, weighted by the state:
                   :math:`\operatorname{softmax}_i(v \cdot \tanh(W h_{t-1} + U g_i))` (Xu et al. 2015)
    ============== ==========================================================================================

    Args:
        encoder: Features of images to vectors ``(batch, size)``, or to grids ``(batch, cells, size)`` for attention.
        embedding: What words enter through, with vectors of the same size.
        lstm: The recurrent layers.
        head: What leaves.
        image: One of the above.
        feeding, sequential: As in :class:`~ecoc.models.LanguageModel`.

    Shapes:
        features as the encoder takes them, inputs and targets ``(batch, time)``; targets of -100 do not count.
    """

    def __init__(
        self,
        encoder: nn.Module,
        embedding: TokenEmbedding | CodeEmbedding,
        lstm: VariationalLSTM,
        head: Head,
        image: str = "first",
        feeding: Policy | None = None,
        sequential: bool = False,
    ) -> None:
        super().__init__()
        if image not in IMAGE:
            raise ValueError(f"image={image!r} is unknown: choose one of {', '.join(IMAGE)}")
        self.encoder, self.embedding, self.lstm, self.head = encoder, embedding, lstm, head
        self.image, self.feeding, self.sequential = image, feeding, sequential
        if feeding is not None:
            feeding.check_built_for(head, embedding)
        size, layers = lstm.hidden_size, len(lstm.layers)
        entering = lstm.input_size
        if image == "state":
            self.first_state = nn.Linear(entering, 2 * layers * size)
        elif image == "attention":
            self.look_from, self.look_at = nn.Linear(size, size), nn.Linear(entering, size, bias=False)
            self.relevance = nn.Linear(size, 1, bias=False)

    def forward(self, features: Tensor, inputs: Tensor, targets: Tensor) -> Output:
        """Training loss over all words; the loss is computed here so that DDP sees every parameter."""
        masks = self.lstm.draw_masks(self.embedding(inputs[:, :1]))
        state = self.begin(features, masks)

        def run(vectors: Tensor, state: CaptionState) -> tuple[Tensor, CaptionState]:
            return self._run(vectors, state, masks)

        policy = self.feeding
        if policy is None or not self.training or not policy.probability or inputs.shape[1] < 2:
            hidden, state = run(self.embedding(inputs), state)
        else:
            real = targets != -100
            hidden, state = feed(policy, self.embedding, self.head, run, inputs, state, self.sequential, real)
        loss = self.head(hidden, targets)
        for parameter in policy.parameters() if policy is not None else ():
            loss = loss + 0.0 * parameter
        return Output(loss, state.lstm)

    def begin(self, features: Tensor, masks: Masks | None = None) -> CaptionState:
        """The state before the first word, of images."""
        image = self.encoder(features)
        if image.ndim != (3 if self.image == "attention" else 2):
            wanted = "a grid (batch, cells, d)" if self.image == "attention" else "a vector (batch, d)"
            raise ValueError(f"image={self.image!r} needs {wanted} for each image, got {tuple(image.shape)}")
        if self.image == "first":
            _, state = self.lstm(image.unsqueeze(1), None, masks)
            return CaptionState(state, None)
        layers, size = len(self.lstm.layers), self.lstm.hidden_size
        if self.image == "state":
            h, c = self.first_state(image).view(len(image), 2, layers, size).permute(1, 2, 0, 3).tanh().unbind(0)
            return CaptionState((h, c), None)
        zeros = image.new_zeros(layers, len(image), size)
        return CaptionState((zeros, zeros), image, self.look_at(image) if self.image == "attention" else None)

    def hidden(self, inputs: Tensor, state: CaptionState) -> tuple[Tensor, CaptionState]:
        """Hidden states ``(batch, time, hidden)`` of words, and the state after the last."""
        return self._run(self.embedding(inputs), state, None)

    def advance(self, tokens: Tensor, state: CaptionState) -> tuple[Tensor, CaptionState]:
        """Hidden states ``(rows, hidden)`` and state after one more token ``(rows,)``."""
        hidden, state = self.hidden(tokens.unsqueeze(1), state)
        return hidden[:, 0], state

    def select(self, state: CaptionState, rows: Tensor) -> CaptionState:
        """The state of some rows, in that order."""
        h, c = state.lstm
        image, keys = (None if one is None else one[rows] for one in (state.image, state.keys))
        return CaptionState((h[:, rows], c[:, rows]), image, keys)

    def num_parameters(self) -> dict[str, int]:
        """Trainable numbers of each part."""
        decoder = self.head.num_parameters()
        parts = {name: getattr(self, name) for name in ("encoder", "embedding", "lstm")}
        result = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
        others = sum(p.numel() for p in self.parameters()) - sum(result.values()) - decoder
        return result | {"image": others, "decoder": decoder}

    def num_bytes(self) -> int:
        """Bytes on disk: all parameters, the packed codebook once, and other buffers."""
        return bytes_on_disk(self)

    def _run(self, vectors: Tensor, state: CaptionState, masks: Masks | None) -> tuple[Tensor, CaptionState]:
        """Hidden states of a decoder that is fed `vectors` ``(batch, time, size)``."""
        lstm_state, image, keys = state
        if self.image != "attention":
            entering = vectors if image is None else vectors + image.unsqueeze(1)
            hidden, lstm_state = self.lstm(entering, lstm_state, masks)
            return hidden, CaptionState(lstm_state, image)
        assert image is not None
        assert keys is not None
        masks = self.lstm.draw_masks(vectors) if masks is None else masks
        steps = []
        for vector in vectors.unbind(1):
            query = self.look_from(lstm_state[0][-1]).unsqueeze(1)
            weights = self.relevance(torch.tanh(query + keys)).squeeze(-1).softmax(-1)
            context = (weights.unsqueeze(1) @ image).squeeze(1)
            hidden, lstm_state = self.lstm((vector + context).unsqueeze(1), lstm_state, masks)
            steps.append(hidden)
        return torch.cat(steps, 1), CaptionState(lstm_state, image, keys)
