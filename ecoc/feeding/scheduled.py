"""Scheduled sampling (Bengio et al. 2015)."""

from torch import Generator, Tensor, rand

from ecoc.feeding.policy import InputEmbedding, Policy, best_token
from ecoc.feeding.schedules import Schedule
from ecoc.heads import Head


class ScheduledSampling(Policy):
    """The policy from *Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks*.

    Each input is the model's own token with the schedule's probability, else the target. Works with every head: SS-SM,
    SS-AS, SS-HS, SS-ECOC.

    Args:
        head, embedding, schedule: As in :class:`Policy`.
        sampled: Draw the token from the model instead of taking the best one.
    """

    name = "scheduled"

    def __init__(self, head: Head, embedding: InputEmbedding, schedule: Schedule, *, sampled: bool = False) -> None:
        super().__init__(head, embedding, schedule)
        self.sampled = sampled

    def mixed(
        self, head: Head, embedding: InputEmbedding, hidden: Tensor, truth: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        choose = rand(len(truth), generator=generator, device=truth.device) < self.probability
        tokens = truth.clone()
        own = hidden[choose]
        tokens[choose] = head.sample(own, generator=generator) if self.sampled else best_token(head, own)
        return embedding(tokens), tokens != truth
