"""What every feeding policy shares: when it mixes, how soft, through which door its mix enters, and what it counts."""

import math
from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn

from ecoc.feeding.schedules import Schedule, annealed_temperature
from ecoc.heads import ECOC, Head


class InputEmbedding(Protocol):
    """What turns tokens into inputs; a code embedding also has ``of_code`` and ``packed``."""

    def __call__(self, ids: Tensor) -> Tensor: ...


class Policy(nn.Module, ABC):
    """Decides what the decoder is fed in place of a target.

    A policy sees the hidden state that predicted a token and the token itself, the target of that step, and returns
    the vector to feed next. It knows nothing of later targets.

    Args:
        head: The head whose predictions are fed.
        embedding: The embedding they enter through.
        schedule: Probability of mixing by epoch.
        temperature: ``annealed`` (the paper's 0.01 to 2.5), ``learned``, or a number above 0.

    Shapes:
        hidden ``(..., H)``, truth ``(...)`` tokens; the result is ``(..., E)``.
    """

    name = ""
    differentiable = False  # whether gradients pass through what is fed
    uses_temperature = False

    def __init__(
        self, head: Head, embedding: InputEmbedding, schedule: Schedule, temperature: str | float = "annealed"
    ) -> None:
        super().__init__()
        self.where = f"feeding {self.name!r} on {type(head).__name__}"  # for messages
        self._built_for = _kind(head, embedding)
        self.schedule = schedule
        self.probability = self._probability(0)
        self.kind_of_temperature = temperature
        self.log_temperature: nn.Parameter | None = None
        self._number = 1.0
        self._set_up_temperature()
        self.by_code = takes_codes(head, embedding)
        self.fed, self.changed = 0, 0  # inputs since the last `take_counts`, and how many were not the target
        self.rank = 0  # of several processes, this one's number: each draws for rows of its own
        self.check(head, embedding)

    def check(self, head: Head, embedding: InputEmbedding) -> None:
        """Raise ValueError if the policy makes no sense for this head and embedding."""

    def check_built_for(self, head: Head, embedding: InputEmbedding) -> None:
        """Raise ValueError if it was built for a head or embedding of another kind or size."""
        if _kind(head, embedding) != self._built_for:
            raise ValueError(
                f"{self.where} was built for another head or embedding than the model's {type(head).__name__} and "
                f"{type(embedding).__name__}: build it with those of the model"
            )

    def at_epoch(self, epoch: int) -> None:
        """Move the schedules to this epoch, counted from 0."""
        self.probability = self._probability(epoch)
        if self.kind_of_temperature == "annealed":
            self._number = annealed_temperature(epoch, self.schedule.epochs, self.schedule.delta)

    def _probability(self, epoch: int) -> float:
        probability = self.schedule(epoch)
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"{self.where}: the schedule leaves [0, 1], it is {probability} in epoch {epoch}")
        return probability

    @property
    def temperature(self) -> Tensor | float:
        return self._number if self.log_temperature is None else self.log_temperature.exp()

    def forward(
        self, head: Head, embedding: InputEmbedding, hidden: Tensor, truth: Tensor, counted: Tensor | None = None
    ) -> Tensor:
        """Vectors to feed after the steps whose outputs were `hidden` and whose targets were `truth`; of inputs that
        are no padding, `counted` bool ``(...)``, the counts are kept."""
        rows, ids = hidden.reshape(-1, hidden.shape[-1]), truth.reshape(-1)
        generator = self._generator(hidden.device)
        vectors, changed = self.mixed(head, embedding, rows if self.differentiable else rows.detach(), ids, generator)
        real = torch.ones_like(changed) if counted is None else counted.reshape(-1)
        self.fed += int(real.sum())
        self.changed += int((changed & real).sum())
        return vectors.view(*truth.shape, -1)

    @abstractmethod
    def mixed(
        self, head: Head, embedding: InputEmbedding, hidden: Tensor, truth: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Vectors ``(N, E)`` for rows ``(N, H)`` and ``(N,)``, and which are not the target's, bool ``(N,)``."""

    def _generator(self, device: torch.device) -> torch.Generator:
        """Draws of one call; they take one number of torch's own, so that processes stay in step with each other."""
        seed = int(torch.randint(2**62, ()))
        return torch.Generator(device).manual_seed(seed + self.rank)

    def take_counts(self) -> tuple[int, int]:
        """How many inputs were fed since the last call, and how many of them were not the target."""
        counts = self.fed, self.changed
        self.fed, self.changed = 0, 0
        return counts

    def _set_up_temperature(self) -> None:
        kind, where = self.kind_of_temperature, self.where
        if not self.uses_temperature and kind != "annealed":
            raise ValueError(f"{where}: it has no temperature: leave it out")
        if kind == "learned":
            if not self.differentiable:
                raise ValueError(f"{where}: no gradient reaches its temperature: use 'differentiable' or 'soft'")
            self.log_temperature = nn.Parameter(torch.zeros(()))
        elif kind == "annealed":
            self._number = annealed_temperature(0, self.schedule.epochs, self.schedule.delta)
        else:
            try:
                self._number = float(kind)
            except ValueError:
                raise ValueError(f"{where}: temperature {kind!r} is unknown: annealed, learned or a number") from None
            if not 0.0 < self._number < math.inf:
                raise ValueError(f"{where}: temperature must be above 0 and finite, got {kind}")

    def extra_repr(self) -> str:
        return f"{self.name}, {self.schedule}, temperature={self.kind_of_temperature}"


def takes_codes(head: Head, embedding: InputEmbedding) -> bool:
    """Whether codes of the head can enter through the embedding: it is a code embedding of the same codebook."""
    packed = getattr(embedding, "packed", None)
    return isinstance(head, ECOC) and packed is not None and torch.equal(packed.cpu(), head.codebook.packed.cpu())


def _kind(head: Head, embedding: InputEmbedding) -> tuple[object, ...]:
    """What a policy depends on: the head's method, vocabulary, objective and width of a code, and how codes enter."""
    components = head.code_of(torch.zeros(1, dtype=torch.long)).shape[-1] if hasattr(head, "code_of") else 0  # type: ignore[operator]
    objective = getattr(head, "objective", None)
    return type(head), head.vocab_size, objective, components, takes_codes(head, embedding)


def changed_codes(head: ECOC, code: Tensor, target: Tensor, truth: Tensor) -> Tensor:
    """Which codes ``(N, n)``, bool or from 0 to 1, are not the target's: by their bits, or for span codes, of which a
    token has many, by their owner."""
    hard = code > 0.5
    if head.objective.startswith("span-"):
        return head.token_of(hard) != truth
    return (hard != target).any(-1)


def best_token(head: Head, hidden: Tensor) -> Tensor:
    """The token that a head predicts; for span codes the owner of the predicted bits, as in the paper, because a look
    at every token's mass would take longer than the training step."""
    if isinstance(head, ECOC) and head.objective.startswith("span-"):
        return head.token_of(head.latent_logits(hidden) > 0)
    return head.predict(hidden)
