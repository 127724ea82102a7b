"""What is trained: a model, the batches it learns from, and the held-out text that says how good it is."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ecoc.data import Batches, CaptionBatch, CaptionBatches, CaptionData, Corpus, Vocabulary
from ecoc.metrics import Scores, caption_words, evaluate, evaluate_captions
from ecoc.models import Captioner, LanguageModel
from ecoc.models.language_model import detached
from ecoc.options import CaptionTrainOptions, TrainOptions

EVALUATION_BATCH = 10
CALIBRATION_TOKENS = 5000  # for the two numbers of objective `bits`


class Task(ABC):
    """A model and its data, in the shape that a :class:`~ecoc.training.trainer.Trainer` needs."""

    model: LanguageModel | Captioner
    vocabulary: Vocabulary

    @abstractmethod
    def __len__(self) -> int:
        """Batches in an epoch."""

    @abstractmethod
    def batches(self, epoch: int, step: int) -> Iterator[Any]:
        """The batches of an epoch from number `step` on."""

    @abstractmethod
    def loss(self, wrapped: nn.Module, batch: Any, state: Any) -> tuple[Tensor, Any]:
        """Loss of a batch by the model, which DDP may have wrapped, and the state to go on from."""

    @abstractmethod
    def tokens(self, batch: Any) -> int:
        """Tokens predicted in a batch of this process."""

    @abstractmethod
    def validate(self) -> Scores:
        """Scores on held-out data."""

    @abstractmethod
    def held_out(self) -> tuple[Tensor, Tensor]:
        """Hidden states ``(..., H)`` and targets of some held-out tokens."""

    @abstractmethod
    def digest(self) -> int:
        """A sum over the training data, to notice when it is another."""


class LanguageTask(Task):
    """A language model on a corpus.

    Args:
        options: How to train.
        corpus: The text.
        model: What to train.
        shard: Number of this process, and how many there are.
    """

    model: LanguageModel

    def __init__(
        self, options: TrainOptions, corpus: Corpus, model: LanguageModel, shard: tuple[int, int] = (0, 1)
    ) -> None:
        self.model, self.corpus, self.vocabulary, self.steps = model, corpus, corpus.vocabulary, options.bptt
        if options.batch >= len(corpus.train) or options.batch % shard[1]:
            raise ValueError(
                f"--batch must be below the {len(corpus.train)} tokens of the training text and divisible by "
                f"{shard[1]}, the number of processes, got {options.batch}"
            )
        self.training = Batches(corpus.train, options.batch, options.bptt, shard=shard)

    def __len__(self) -> int:
        return len(self.training)

    def batches(self, epoch: int, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        return self.training.starting_at(step)

    def loss(self, wrapped: nn.Module, batch: tuple[Tensor, Tensor], state: Any) -> tuple[Tensor, Any]:
        loss, state = wrapped(*batch, state)
        return loss, detached(state)

    def tokens(self, batch: tuple[Tensor, Tensor]) -> int:
        return batch[0].numel()

    def validate(self) -> Scores:
        rows = min(EVALUATION_BATCH, len(self.corpus.valid) - 1)
        return evaluate(self.model, Batches(self.corpus.valid, rows, self.steps, drop_last=False), thorough=False)

    def held_out(self) -> tuple[Tensor, Tensor]:
        stream = torch.tensor(self.corpus.valid[: CALIBRATION_TOKENS + 1], dtype=torch.long).unsqueeze(0)
        hidden, _ = self.model.hidden(stream[:, :-1])
        return hidden, stream[:, 1:]

    def digest(self) -> int:
        return zlib.crc32(self.corpus.train.data)


class CaptionTask(Task):
    """A captioner on captioned images.

    Args:
        options: How to train.
        data: The images.
        model: What to train.
        shard: Number of this process, and how many there are.
    """

    model: Captioner

    def __init__(
        self, options: CaptionTrainOptions, data: CaptionData, model: Captioner, shard: tuple[int, int] = (0, 1)
    ) -> None:
        self.model, self.vocabulary, self.world = model, data.vocabulary, shard[1]
        self.training = CaptionBatches(data, options.batch, seed=options.seed, shard=shard)
        self.validation = CaptionBatches(data, options.batch, split="val", shuffle=False)
        if not len(self.training):
            raise ValueError(f"{data.name} has fewer training captions than processes: give it more")

    def __len__(self) -> int:
        return len(self.training)

    def batches(self, epoch: int, step: int) -> Iterator[CaptionBatch]:
        return self.training.starting_at(step, epoch)

    def loss(self, wrapped: nn.Module, batch: CaptionBatch, state: Any) -> tuple[Tensor, None]:
        loss, _ = wrapped(batch.features, batch.inputs, batch.targets)
        if self.world > 1:  # DDP takes the mean over processes; each counts for the words it has
            words = torch.tensor(float(self.tokens(batch)))
            mine = words.clone()
            torch.distributed.all_reduce(words)
            loss = loss * (mine * self.world / words)
        return loss, None

    def tokens(self, batch: CaptionBatch) -> int:
        return int((batch.targets >= 0).sum())

    def validate(self) -> Scores:
        return evaluate_captions(self.model, self.validation)

    def held_out(self) -> tuple[Tensor, Tensor]:
        middle = next(self.validation.starting_at(len(self.validation) // 2))  # captions of the middle length
        return caption_words(self.model, middle)

    def digest(self) -> int:
        return self.training.digest()
