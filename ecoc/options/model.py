"""Options that language models and captioners share: head, decoder, feeding, training."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

from ecoc.options.checks import flag, in_range, one_of

HEADS = ("softmax", "sampled", "nce", "hierarchical", "adaptive", "differentiated", "ecoc", "hybrid")
CODED = ("ecoc", "hybrid")
KINDS = (
    "semantic",
    "random",
    "bch",
    "hadamard",
    "convolutional",
    "onehot",
    "span-random",
    "span-unigram",
    "span-embedding",
)

# which heads an option is for; given with another head it is a mistake, not a wish
_HEADS_OF_OPTION = {
    "objective": CODED,
    "samples": ("sampled", "nce", *CODED),
    "mixture": CODED,
    "predictor_layers": CODED,
    "proposal": ("sampled", "nce"),
    "order": ("hierarchical",),
    "tree": ("hierarchical",),
    "frequent": ("hybrid",),
}
_CODE_OPTIONS = ("codebook", "bits")

FEEDING = ("teacher", "scheduled", "soft", "curriculum", "soft-curriculum", "differentiable")
_LATENT = ("curriculum", "soft-curriculum", "differentiable")
_SCHEDULES = ("sigmoid", "constant", "linear", "exponential", "inverse-sigmoid")
_THRESHOLDS = ("equal", "rising", "falling")
_POLICIES_OF_OPTION = {
    "schedule": FEEDING[1:],
    "mixing": FEEDING[1:],
    "sequential": FEEDING[1:],
    "sampled": ("scheduled",),
    "thresholds": _LATENT,
    "temperature": ("soft", "soft-curriculum", "differentiable"),
    "straight_through": ("differentiable",),
    "by_token": ("curriculum",),
}


@dataclass
class ModelOptions:
    """What is trained, and how.

    Args:
        out: Folder of the run.
        head: softmax, sampled, nce, hierarchical, adaptive, differentiated, ecoc or hybrid.
        codebook: Kind of code: semantic, random, bch, hadamard, convolutional, onehot, span-random, span-unigram or
            span-embedding; or a folder that ecoc codebook build made. By default semantic (span-unigram for the span
            objectives).
        bits: Length of a codeword; 512 by default, 40 for the span codes.
        objective: likelihood (default), bits, span-mass or span-max.
        vectors: Where word vectors come from: contexts, skipgram or a word2vec or GloVe file; several joined by +.
        samples: Sampled tokens of ecoc likelihood, sampled softmax and NCE; 1000 by default.
        mixture: Number of codes that a span objective mixes.
        predictor_layers: Layers between hidden state and bits: 1 or 2.
        proposal: Where sampled softmax and NCE draw from: unigram or random.
        order: Order of words in hierarchical softmax: unigram, random or embedding.
        tree: Shape of hierarchical softmax: two-level or binary.
        frequent: Words in the softmax part of hybrid.
        input: token for a table of embeddings, code for embeddings made from codewords. By default code with ecoc,
            otherwise token.
        start_from_vectors: Start the embedding table from the word vectors.
        layers: LSTM layers.
        hidden: Size of a hidden state, and of an embedding.
        dropout: Share dropped of what enters each layer and leaves the last, one mask a sequence.
        recurrent_dropout: Share dropped of recurrent connections, one mask a sequence.
        feeding: What is fed while training: teacher (targets alone), scheduled (scheduled sampling), soft (expected
            embeddings), curriculum (CLVMS, codes mixed bit by bit), soft-curriculum (the same with codewords around the
            predicted one, weighted) or differentiable (DLVMS, the same with relaxed bits).
        schedule: How often predictions are fed, by epoch: sigmoid (default, the paper's), constant, linear,
            exponential or inverse-sigmoid; sigmoid, linear and exponential feed targets alone in the first epoch.
        mixing: Highest probability that a prediction (or a bit of it) is fed; 0.5 by default.
        sequential: Feed step by step, exactly; by default predictions come from a first pass over the targets (all
            policies).
        sampled: Draw tokens instead of taking the best ones (scheduled).
        thresholds: Factor on each bit's probability: equal (default), rising or falling from the first bit, of a span
            code the most significant, to the last (curriculum, soft-curriculum, differentiable).
        temperature: Of soft and relaxed predictions: annealed (default, 0.01 to 2.5), learned, or a number (soft,
            soft-curriculum, differentiable).
        straight_through: Feed hard samples with the gradient of relaxed ones (differentiable).
        by_token: Decode mixed codes to tokens instead of feeding the codes (curriculum).
        epochs: Passes over the training data.
        max_seconds: End training after this time, even inside an epoch. A run that has ended cannot be made longer.
        batch: Sequences in a batch.
        optimiser: adamw or sgd.
        lr: Highest learning rate; by default 0.004 for adamw, 20 for sgd.
        lr_schedule: one-cycle, plateau or constant.
        weight_decay: Weight decay.
        clip: Largest norm of the gradient.
        patience: Stop after this many epochs without a better validation perplexity; 0 to go on.
        bf16: Compute in bfloat16 where torch's autocast allows it.
        seed: Seed of everything random.
        threads: CPU threads; all cores by default.
        save_every: Steps between two checkpoints.
        tensorboard: Also write TensorBoard files.
        resume: Go on with a run that was stopped.
        overwrite: Replace a run that exists.
    """

    command: ClassVar[str] = ""  # that takes them
    out: str = ""
    head: str = "ecoc"
    codebook: str | None = None
    bits: int | None = None
    objective: str | None = None
    vectors: str | None = None
    samples: int | None = None
    mixture: int | None = None
    predictor_layers: int | None = None
    proposal: str | None = None
    order: str | None = None
    tree: str | None = None
    frequent: int | None = None
    input: str | None = None
    start_from_vectors: bool = False
    layers: int = 2
    hidden: int = 400
    dropout: float = 0.2
    recurrent_dropout: float = 0.2
    feeding: str = "teacher"
    schedule: str | None = None
    mixing: float | None = None
    sequential: bool = False
    sampled: bool = False
    thresholds: str | None = None
    temperature: str | None = None
    straight_through: bool = False
    by_token: bool = False
    epochs: int = 6
    max_seconds: float | None = None
    batch: int = 20
    optimiser: str = "adamw"
    lr: float | None = None
    lr_schedule: str = "one-cycle"
    weight_decay: float = 0.0
    clip: float = 0.25
    patience: int = 0
    bf16: bool = False
    seed: int = 1
    threads: int | None = None
    save_every: int = 500
    tensorboard: bool = False
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        self.given: frozenset[str] | None = None  # what was typed; by default whatever differs from the defaults
        one_of("head", self.head, HEADS)
        one_of("input", self.input, (None, "token", "code"))
        one_of("optimiser", self.optimiser, ("adamw", "sgd"))
        one_of("lr-schedule", self.lr_schedule, ("one-cycle", "plateau", "constant"))
        one_of("feeding", self.feeding, FEEDING)
        one_of("objective", self.objective, (None, "likelihood", "bits", "span-mass", "span-max"))
        one_of("proposal", self.proposal, (None, "unigram", "random"))
        one_of("order", self.order, (None, "unigram", "random", "embedding"))
        one_of("tree", self.tree, (None, "two-level", "binary"))
        in_range(self, 1, math.inf, "layers", "hidden", "epochs", "batch", "save_every", "threads")
        in_range(self, 1, 1_000_000, "bits", "samples", "mixture", "frequent")
        in_range(self, 1, 2, "predictor_layers")
        in_range(self, 0, math.inf, "weight_decay", "patience")
        in_range(self, 0, 2**63 - 1, "seed")
        in_range(self, 0, 0.99, "dropout", "recurrent_dropout")
        in_range(self, 1e-12, 1e6, "lr", "clip")
        in_range(self, 0.01, math.inf, "max_seconds")
        if self.vectors == "":
            raise ValueError("--vectors is empty: contexts, skipgram, a file, or several joined by +")
        if self.resume and self.overwrite:
            raise ValueError("--resume and --overwrite contradict each other: choose one")
        for name, heads in _HEADS_OF_OPTION.items():
            if getattr(self, name) is not None and self.head not in heads:
                raise ValueError(f"{flag(name)} is for {', '.join(heads)}, not for --head {self.head}: leave it out")
        self._check_together()
        self._check_feeding()
        for name in _CODE_OPTIONS:
            if getattr(self, name) is not None and not self.uses_code:
                raise ValueError(f"--{name} needs a code: use --head ecoc or hybrid, or --input code")

    def _check_together(self) -> None:
        """Options that are right by themselves and make no sense together."""
        by_span = (self.objective or "").startswith("span-")
        if self.samples is not None and self.head in CODED and self.objective not in (None, "likelihood"):
            raise ValueError(f"--samples is for --objective likelihood, not for {self.objective}: leave it out")
        if self.mixture is not None and not by_span:
            raise ValueError("--mixture is for --objective span-mass or span-max: leave it out")
        if by_span and self.codebook in KINDS and not self.codebook.startswith("span-"):
            raise ValueError(f"--objective {self.objective} needs a span code, not --codebook {self.codebook}")
        if self.start_from_vectors and self.by_code:
            raise ValueError("--start-from-vectors is for a table of embeddings: add --input token")

    def _check_feeding(self) -> None:
        """Options of the feeding policy, and whether it fits the head; named together, for either may be changed."""
        for name, policies in _POLICIES_OF_OPTION.items():
            value = getattr(self, name)
            if value is not None and value is not False and self.feeding not in policies:
                raise ValueError(
                    f"{flag(name)} is for --feeding {', '.join(policies)}, not for {self.feeding}: leave it out"
                )
        if self.feeding == "teacher":
            return
        try:
            one_of("schedule", self.schedule, (None, *_SCHEDULES))
            one_of("thresholds", self.thresholds, (None, *_THRESHOLDS))
            if self.mixing is not None and not 0 < self.mixing <= 1:
                raise ValueError(f"--mixing must be above 0 and at most 1, got {self.mixing}")
            _check_temperature(self.temperature, self.feeding)
            self._check_policy_fits()
        except ValueError as error:
            raise ValueError(f"--feeding {self.feeding} on --head {self.head}: {error}") from None

    def _check_policy_fits(self) -> None:
        if self.feeding in _LATENT and self.head not in ("ecoc", "hierarchical"):
            raise ValueError("it needs a head with latent variables (ecoc, hierarchical): use scheduled or soft")
        two_level = self.head == "hierarchical" and self.tree != "binary"
        by_code = self.head == "ecoc" and self.by_code
        if self.feeding == "soft-curriculum" and not by_code:
            raise ValueError("it feeds weighted codes: use --head ecoc with --input code")
        if self.feeding == "differentiable" and not (by_code or two_level):
            raise ValueError("it feeds relaxed codes: use --head ecoc with --input code, or a two-level hierarchical")
        by_span = (self.objective or "").startswith("span-")
        if self.feeding == "soft" and self.head == "ecoc" and by_span and not by_code:
            raise ValueError("with a span objective it feeds expected bits: use --input code")

    @property
    def by_code(self) -> bool:
        """Whether inputs are embedded by their codewords."""
        return self.input == "code" or (self.input is None and self.head == "ecoc")

    @property
    def uses_code(self) -> bool:
        return self.head in CODED or self.by_code

    @property
    def learning_rate(self) -> float:
        return self.lr if self.lr is not None else {"adamw": 0.004, "sgd": 20.0}[self.optimiser]

    def as_dict(self) -> dict[str, object]:
        """The command and all options but those of one call (resume, overwrite), for the run's config."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("resume", "overwrite")}
        return {"command": self.command} | values


def _check_temperature(given: str | None, feeding: str) -> None:
    if given in (None, "annealed") or (given == "learned" and feeding != "soft-curriculum"):
        return
    if given == "learned":
        raise ValueError("no gradient reaches its --temperature: use annealed or a number")
    try:
        number = float(given or "")
    except ValueError:
        raise ValueError(f"--temperature {given} is unknown: annealed, learned or a number") from None
    if not 1e-6 <= number <= 1e6:
        raise ValueError(f"--temperature must be above 0 (from 1e-6 to 1e6), got {given}")
