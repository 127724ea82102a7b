"""The contract every output head keeps: hidden state in, distribution over tokens out."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SCORE_BUDGET = 2**24  # rows x V scores held at once by evaluation: 64 MB in float32


class Head(nn.Module, ABC):
    """A distribution over ``vocab_size`` tokens given a hidden state of ``hidden_size`` numbers.

    A method writes :meth:`_log_prob`, and whatever of `_nll`, `_token_loss`, `_candidates`, `_topk`, `_predict` and
    `_sample` it can do without scoring all of V. Everything here takes hidden states of any leading shape ``(..., H)``
    and ids in the user's own order; the methods with an underscore get them as rows ``(N, H)`` and ``(N,)``, checked.

    Random draws of a training loss come from torch's global generator, as dropout's do.

    Shapes:
        hidden ``(..., H)``, target ``(...)`` integer ids.
    """

    loss_is_nll = True  # whether the training loss is -log p of the target, exactly or estimated

    def __init__(self, hidden_size: int, vocab_size: int) -> None:
        super().__init__()
        if hidden_size < 1 or vocab_size < 1:
            raise ValueError(f"hidden_size and vocab_size must be at least 1, got {hidden_size} and {vocab_size}")
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size
        self.tied = False  # whether the weight is the input embedding's

    def forward(
        self,
        hidden: Tensor,
        target: Tensor,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """Training loss.

        Args:
            hidden: Hidden states ``(..., H)``.
            target: Token ids ``(...)``.
            ignore_index: Targets with this id add nothing to the loss or its gradient.
            reduction: ``mean`` over the targets that count (0 if none does), ``sum``, or ``none`` for ``(...)``.
            label_smoothing: Share of the target taken away and spread evenly over the vocabulary.
        """
        if reduction not in ("none", "sum", "mean"):
            raise ValueError(f"reduction={reduction!r} is unknown: choose none, sum or mean")
        if not 0.0 <= label_smoothing <= 1.0:
            raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing}")
        rows = self._rows(hidden)
        ids = self._ids(hidden, target, ignore_index)
        scored = ids != ignore_index
        loss = self._token_loss(rows, ids.where(scored, 0), label_smoothing).masked_fill(~scored, 0.0)
        if reduction == "none":
            return loss.view(target.shape)
        return loss.sum() if reduction == "sum" else loss.sum() / scored.sum().clamp(min=1)

    def nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Exact -log p(target | hidden), normalised over V, in the shape of `target`."""
        rows = self._finite(self._rows(hidden))
        return self._nll(rows, self._ids(hidden, target, None)).view(target.shape)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Log probability of every token, ``(..., V)``; exp sums to 1."""
        rows = self._finite(self._rows(hidden))
        return self._by_rows(self._log_prob, rows).view(*hidden.shape[:-1], self.vocab_size)

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k most probable tokens, best first: ``(log_probs, ids)``, each ``(..., k)``."""
        if not 1 <= k <= self.vocab_size:
            raise ValueError(f"k must be from 1 to the vocabulary size {self.vocab_size}, got {k}")
        log_probs, ids = self._topk(self._finite(self._rows(hidden)), k)
        shape = (*hidden.shape[:-1], k)
        return log_probs.view(shape), ids.view(shape)

    def candidates(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k most probable tokens, all if there are fewer, as :meth:`topk` gives them; differentiable. The log
        probabilities may be of the tokens among themselves; ECOC's span objectives have none."""
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        log_probs, ids = self._candidates(self._rows(hidden), min(k, self.vocab_size))
        shape = (*hidden.shape[:-1], ids.shape[-1])
        return log_probs.view(shape), ids.view(shape)

    @torch.no_grad()
    def predict(self, hidden: Tensor) -> Tensor:
        """The most probable token, ``(...)``."""
        return self._predict(self._finite(self._rows(hidden))).view(hidden.shape[:-1])

    @torch.no_grad()
    def sample(
        self,
        hidden: Tensor,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw one token for each hidden state, ``(...)``.

        Args:
            hidden: Hidden states ``(..., H)``.
            temperature: Above 1 flattens the distribution, below 1 sharpens it.
            top_k: Draw among the k most probable tokens only.
            top_p: Draw among the fewest tokens whose probabilities (after temperature) reach this sum.
            generator: Source of randomness; torch's global one by default.
        """
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}: for the best token use predict")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {top_p}")
        rows = self._finite(self._rows(hidden))
        if temperature == 1.0 and top_k is None and top_p is None:
            return self._sample(rows, generator).view(hidden.shape[:-1])
        if top_k is None:
            log_probs, ids = self._by_rows(self._log_prob, rows), None
        else:
            log_probs, ids = self.topk(rows, min(top_k, self.vocab_size))
        choice = _draw(_nucleus(log_probs / temperature, top_p), generator)
        drawn = choice if ids is None else ids.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
        return drawn.view(hidden.shape[:-1])

    def tie(self, weight: nn.Parameter) -> None:
        """Use `weight`, the input embedding's, as the decoder's own; it is then not counted as the decoder's."""
        own = getattr(self, "weight", None)
        if own is None:
            raise ValueError(f"{type(self).__name__} has no single weight to tie: use softmax, sampled, nce or ecoc")
        if own.shape != weight.shape:
            raise ValueError(f"weight must have shape {tuple(own.shape)} to be tied, got {tuple(weight.shape)}")
        self.weight, self.tied = weight, True

    def num_parameters(self) -> int:
        """Trainable numbers of the decoder alone; a tied weight belongs to the input embedding."""
        return sum(p.numel() for p in self.parameters() if not (self.tied and p is self._tied_weight()))

    def num_bytes(self) -> int:
        """Bytes on disk: parameters of its own, packed codebook and other saved buffers."""
        tensors = {id(t): t for t in self.state_dict(keep_vars=True).values()}
        if self.tied:
            tensors.pop(id(self._tied_weight()))
        return sum(t.numel() * t.element_size() for t in tensors.values())

    def _tied_weight(self) -> Tensor:
        return self.get_parameter("weight")

    # What a method writes -------------------------------------------------------------------------------------------

    @abstractmethod
    def _log_prob(self, hidden: Tensor) -> Tensor:
        """Log probability of every token, ``(N, V)``."""

    def _nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        def nll(hidden: Tensor, target: Tensor) -> Tensor:
            return -self._log_prob(hidden).gather(1, target.unsqueeze(1)).squeeze(1)

        return self._by_rows(nll, hidden, target)

    def _token_loss(self, hidden: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        """Training loss of each row: the exact one, unless the method trains with another."""
        return self._smoothed(self._nll(hidden, target), hidden, label_smoothing)

    def _candidates(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, ids = self._log_prob(hidden).topk(k)
        return values, ids

    def _topk(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        parts = [self._candidates(part, k) for part in hidden.split(self._rows_at_once())]
        return torch.cat([values for values, _ in parts]), torch.cat([ids for _, ids in parts])

    def _predict(self, hidden: Tensor) -> Tensor:
        return self._topk(hidden, 1)[1].squeeze(1)

    def _sample(self, hidden: Tensor, generator: torch.Generator | None) -> Tensor:
        return self._by_rows(lambda rows: _draw(self._log_prob(rows), generator), hidden)

    # What methods share ---------------------------------------------------------------------------------------------

    def _smoothed(self, loss: Tensor, hidden: Tensor, label_smoothing: float) -> Tensor:
        """Mix in the mean loss over all tokens; scores all of V, so only when asked for."""
        if not label_smoothing:
            return loss
        return torch.lerp(loss, -self._log_prob(hidden).mean(-1), label_smoothing)

    def _rows_at_once(self) -> int:
        return max(1, SCORE_BUDGET // self.vocab_size)

    def _by_rows(self, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Apply `function` to a few rows at a time, so that memory does not grow with rows x V."""
        parts = [function(*part) for part in zip(*(t.split(self._rows_at_once()) for t in tensors), strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rows(self, hidden: Tensor) -> Tensor:
        if hidden.ndim < 1 or hidden.shape[-1] != self.hidden_size:
            raise ValueError(f"hidden must have shape (..., {self.hidden_size}), got {tuple(hidden.shape)}")
        return hidden.reshape(-1, self.hidden_size)

    def _finite(self, hidden: Tensor) -> Tensor:
        if not torch.isfinite(hidden).all():
            raise ValueError("hidden has NaN or infinite values: lower the learning rate or clip gradients in training")
        return hidden

    def _ids(self, hidden: Tensor, target: Tensor, ignore_index: int | None) -> Tensor:
        if target.shape != hidden.shape[:-1]:
            raise ValueError(
                f"target must have shape {tuple(hidden.shape[:-1])} to go with hidden, got {tuple(target.shape)}"
            )
        if target.is_floating_point() or target.dtype == torch.bool:
            raise ValueError(f"target must hold integer token ids, got {target.dtype}")
        ids = target.reshape(-1).long()
        self._ids_in_range(ids, ignore_index)
        return ids

    def _ids_in_range(self, ids: Tensor, ignore_index: int | None = None) -> None:
        # a look at the values would make a GPU wait; there, torch's own device assertion catches a bad id
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():
            outside = (ids < 0) | (ids >= self.vocab_size)
            if ignore_index is not None:
                outside &= ids != ignore_index
            if outside.any():
                way_out = "leave those rows out" if ignore_index is None else "give their id as ignore_index"
                raise ValueError(
                    f"target has token id {int(ids[outside][0])} outside the vocabulary [0, {self.vocab_size}): map "
                    f"such tokens to <unk>, or {way_out}"
                )

    # State: parameters mean nothing under another codebook or token order -------------------------------------------

    def _seal(self, *tensors: Tensor) -> None:
        """Keep a hash of what gives the parameters their meaning; loading a state with another one fails."""
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        self.register_buffer("seal", torch.tensor(list(digest.digest()), dtype=torch.uint8))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        mine, theirs = getattr(self, "seal", None), state_dict.get(f"{prefix}seal")
        if mine is not None and theirs is not None and not torch.equal(mine.cpu(), theirs.cpu()):
            # raised at once: torch collects messages but would load the head's parts all the same
            raise RuntimeError(
                f"{prefix or 'head'}: the state_dict belongs to another codebook or token order: build the head with "
                f"the codebook, counts and seed it was trained with"
            )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"hidden_size={self.hidden_size}, vocab_size={self.vocab_size}"


def at_least_float32(x: Tensor) -> Tensor:
    """Half-precision scores (autocast) as float32, in which sums over many tokens are safe; others as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def checked_counts(counts: Tensor | None, vocab_size: int) -> Tensor | None:
    """Counts as float64 ``(V,)``, or None."""
    if counts is None:
        return None
    counts = torch.as_tensor(counts).detach().cpu().double()
    if counts.shape != (vocab_size,) or not torch.isfinite(counts).all() or (counts < 0).any():
        raise ValueError(f"counts must be {vocab_size} numbers of at least 0, got shape {tuple(counts.shape)}")
    return counts


def log_unigram(counts: Tensor | None, vocab_size: int) -> Tensor:
    """Log unigram distribution, float64 ``(V,)``; a token never seen counts as the rarest one seen. Or uniform."""
    if counts is None or not counts.any():
        return torch.full((vocab_size,), -math.log(vocab_size), dtype=torch.float64)
    seen = counts.where(counts > 0, counts[counts > 0].min())
    return seen.log() - seen.sum().log()


def _draw(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    if not len(log_probs):
        return log_probs.new_empty(0, dtype=torch.long)
    return torch.multinomial(log_probs.softmax(-1), 1, generator=generator).squeeze(-1)


def _nucleus(log_probs: Tensor, top_p: float | None) -> Tensor:
    """Set all but the smallest set of tokens with probability `top_p` to -inf."""
    if top_p is None:
        return log_probs
    ordered, places = log_probs.log_softmax(-1).sort(-1, descending=True)
    mass_before = ordered.exp().cumsum(-1) - ordered.exp()
    outside = (mass_before >= top_p).scatter(-1, places, mass_before >= top_p)
    outside.scatter_(-1, places[..., :1], False)  # the best token always stays
    return log_probs.masked_fill(outside, -torch.inf)
