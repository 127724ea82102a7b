"""What the decoder is fed next while it trains: policies against exposure bias.

>>> policy = ecoc.feeding.build("curriculum", head, embedding, Schedule("sigmoid", epochs=10))
>>> model = ecoc.models.LanguageModel(embedding, lstm, head, feeding=policy)
"""

from typing import Any

from ecoc.feeding.curriculum import CurriculumMixture
from ecoc.feeding.differentiable import DifferentiableMixture
from ecoc.feeding.policy import InputEmbedding, Policy
from ecoc.feeding.relaxations import binary_concrete, gumbel_softmax
from ecoc.feeding.scheduled import ScheduledSampling
from ecoc.feeding.schedules import Schedule, annealed_temperature, bit_thresholds
from ecoc.feeding.soft import SoftScheduledSampling
from ecoc.feeding.soft_curriculum import SoftCurriculumMixture
from ecoc.heads import Head

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        ScheduledSampling,
        SoftScheduledSampling,
        CurriculumMixture,
        SoftCurriculumMixture,
        DifferentiableMixture,
    )
}
NAMES = ("teacher", *POLICIES)

__all__ = [
    "NAMES",
    "POLICIES",
    "CurriculumMixture",
    "DifferentiableMixture",
    "InputEmbedding",
    "Policy",
    "Schedule",
    "ScheduledSampling",
    "SoftCurriculumMixture",
    "SoftScheduledSampling",
    "annealed_temperature",
    "binary_concrete",
    "bit_thresholds",
    "build",
    "gumbel_softmax",
]


def build(
    name: str, head: Head, embedding: InputEmbedding, schedule: Schedule | None = None, **options: Any
) -> Policy | None:
    """A policy by its name; ``teacher`` is None, for nothing is done.

    Args:
        name: ``teacher``, ``scheduled``, ``soft``, ``curriculum``, ``soft-curriculum`` or ``differentiable``.
        head: The head whose predictions are fed.
        embedding: The embedding they enter through.
        schedule: Probability of mixing by epoch; the paper's sigmoid by default.
        **options: Of the policy: ``temperature``, ``thresholds``, ``sampled``, ``candidates``, ``by_token``, ``flips``,
            ``straight_through``, ``classes``, ``words``.
    """
    if name not in NAMES:
        raise ValueError(f"feeding {name!r} is unknown: choose one of {', '.join(NAMES)}")
    if name == "teacher":
        if options:
            raise ValueError(f"feeding 'teacher' has no options: leave out {', '.join(options)}")
        return None
    try:
        return POLICIES[name](head, embedding, schedule or Schedule(), **options)
    except TypeError as error:
        raise ValueError(f"feeding {name!r} on {type(head).__name__}: {error}") from error
