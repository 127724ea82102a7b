r"""Differentiable latent variable mixture sampling, the paper's DLVMS."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ecoc.feeding.curriculum import CurriculumMixture
from ecoc.feeding.policy import InputEmbedding, changed_codes
from ecoc.feeding.relaxations import binary_concrete, gumbel_softmax
from ecoc.feeding.schedules import Schedule
from ecoc.heads import ECOC, Head, HierarchicalSoftmax


class DifferentiableMixture(CurriculumMixture):
    r"""The policy from *Error-Correcting Neural Sequence Prediction*, section Differentiable Latent Variable Sampling.

    As :class:`CurriculumMixture`, with relaxed samples in place of predicted bits, so that the loss of a step reaches
    the predictions that were fed before it:

    .. math:: Z = \sigma\big((\log \alpha + L) / \tau\big) \qquad
        Z_k = \operatorname{softmax}\big((\log \alpha + G) / \tau\big)_k

    ECOC: the left one, binary concrete, with log alpha the log odds of each bit; the relaxed code enters through the
    code embedding. For ``likelihood`` these are the log odds of the bit under the model's distribution over its best
    token and sampled ones, because single bit logits have no meaning of their own.

    Two-level hierarchical softmax: the right one, Gumbel-softmax, for the class and then for the word in it (in a class
    that is not the target's, always); the input is the average of word embeddings along the most probable relaxed
    paths, whose weights are made to sum to 1.

    Args:
        head, embedding, schedule, temperature, thresholds: As in :class:`CurriculumMixture`.
        straight_through: Feed hard samples, with the gradient of relaxed ones.
        classes, words: How many relaxed classes, and words in each, are kept (hierarchical).
    """

    name = "differentiable"
    differentiable = True
    uses_temperature = True

    def __init__(
        self,
        head: Head,
        embedding: InputEmbedding,
        schedule: Schedule,
        temperature: str | float = "annealed",
        *,
        thresholds: str | Tensor | Sequence[float] = "equal",
        straight_through: bool = False,
        classes: int = 4,
        words: int = 4,
    ) -> None:
        super().__init__(head, embedding, schedule, temperature, thresholds=thresholds)
        self.straight_through = straight_through
        if min(classes, words) < 1:
            raise ValueError(f"{self.where}: classes and words must be at least 1, got {classes} and {words}")
        self.classes, self.words = classes, words

    def check(self, head: Head, embedding: InputEmbedding) -> None:
        super().check(head, embedding)
        if not self.by_code and not isinstance(head, HierarchicalSoftmax):
            raise ValueError(
                f"feeding {self.name!r} feeds relaxed codes, which {type(head).__name__} cannot here: use --head ecoc "
                "with --input code, or --head hierarchical with two levels"
            )

    def mixed(
        self, head: Head, embedding: InputEmbedding, hidden: Tensor, truth: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        if isinstance(head, HierarchicalSoftmax):
            return self._mixed_path(head, embedding, hidden, truth, generator)
        assert isinstance(head, ECOC)
        target, choose = head.code_of(truth), self.chosen(truth, generator)
        sample = binary_concrete(head.bit_log_odds(hidden), self.temperature, self.straight_through, generator)
        code = torch.where(choose, sample, target.to(sample.dtype))
        return embedding.of_code(code), changed_codes(head, code, target, truth)  # type: ignore[attr-defined]

    def _mixed_path(
        self,
        head: HierarchicalSoftmax,
        embedding: InputEmbedding,
        hidden: Tensor,
        truth: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        target_class, target_word = head.code_of(truth).unbind(-1)
        own_class, own_word = self.chosen(truth, generator).unbind(-1)
        weights, classes = self._relaxed(
            head.class_logits(hidden), min(self.classes, head.classes), generator
        )  # [N, c]
        alone = F.one_hot(torch.zeros_like(truth), weights.shape[1]).to(weights.dtype)
        weights = torch.where(own_class.unsqueeze(1), weights, alone)
        classes = torch.where(own_class.unsqueeze(1), classes, target_class.unsqueeze(1))
        paths = classes.shape[1]
        second = head.word_logits(hidden.repeat_interleave(paths, 0), classes.flatten())
        word_weights, words = self._relaxed(second, min(self.words, head.size), generator)  # [N c, w]
        alone = F.one_hot(torch.zeros(len(words), dtype=torch.long, device=words.device), words.shape[1])
        # in a class that is not the target's, the target has no word
        own = (own_word.unsqueeze(1) | (classes != target_class.unsqueeze(1))).view(-1, 1)
        word_weights = torch.where(own, word_weights, alone.to(word_weights.dtype))
        words = torch.where(own, words, target_word.repeat_interleave(paths).unsqueeze(1))
        tokens = head.token_of(torch.stack([classes.flatten().unsqueeze(1).expand_as(words), words], -1))
        share = (weights.flatten().unsqueeze(1) * word_weights).view(len(truth), -1)  # [N, c w]
        tokens = tokens.view(len(truth), -1)
        vectors = (share.unsqueeze(1).to(hidden.dtype) @ embedding(tokens)).squeeze(1)
        best = tokens.gather(1, share.argmax(1, keepdim=True)).squeeze(1)
        return vectors, best != truth

    def _relaxed(self, logits: Tensor, kept: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The largest entries of a relaxed one-hot sample, made to sum to 1, and their places."""
        values, places = gumbel_softmax(logits, self.temperature, generator=generator).topk(kept)
        values = values / values.sum(-1, keepdim=True)
        if self.straight_through:  # the largest is the first
            values = F.one_hot(torch.zeros_like(places[:, 0]), kept) + (values - values.detach())
        return values, places
