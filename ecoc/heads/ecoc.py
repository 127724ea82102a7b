r"""The error-correcting output code head of the paper."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc import codes
from ecoc.codes import Codebook, WordVectors
from ecoc.heads.codeword_model import CodewordModel
from ecoc.heads.head import Head, at_least_float32, checked_counts
from ecoc.heads.span_model import SpanModel

OBJECTIVES = ("likelihood", "bits", "span-mass", "span-max")


class ECOC(Head):
    r"""The output head from *Error-Correcting Neural Sequence Prediction*, and its normalised successor.

    The hidden state predicts n bits, :math:`z = W h + b`; a fixed codebook turns them into tokens. Its size and the
    cost of a training step do not grow with V.

    ==============  ==========================================  ==================================================
    objective       training loss                               probability
    ==============  ==========================================  ==================================================
    ``likelihood``  -log p, Z from N sampled tokens             log p(w) = log u(w) + s_w . z / sqrt(n) - log Z
    ``bits``        binary cross entropy on the codeword        the same with two factors fitted by ``calibrate``
    ``span-mass``   -log p                                      p(w) = mass of the token's span of codewords
    ``span-max``    BCE on the span's best codeword (paper's)   p(w) = mass of the token's span of codewords
    ==============  ==========================================  ==================================================

    Args:
        hidden_size: Size H of a hidden state.
        vocab_size: Number of tokens V.
        counts: How often each token occurs, ``(V,)``: the unigram distribution u, and the order of some codes.
        codebook: A :class:`~ecoc.codes.Codebook`, or the kind to build. By default ``semantic`` with vectors, else
            ``random``; for the span objectives ``span-unigram`` with counts, else ``span-random``.
        bits: Codeword length n of a codebook built here.
        vectors: Word vectors ``(V, d)`` of a codebook built here.
        seed: Seed of a codebook built here.
        objective: One of the above.
        samples: Sampled tokens N of ``likelihood``; None for the exact sum over V.
        mixture: Number K of factorial codes that are mixed (span objectives).
        layers: 1 for a linear map to the bits, 2 for H -> 2H -> n with GELU between.
        bias: Whether the map to the bits has a bias.
        widths: Of the spans of a codebook built here: ``frequency``, ``softmax``, ``linear`` or ``uniform``.

    Latent variables: the bits, ``code`` of shape ``(..., n)``, bool.

    Example:
        >>> head = ECOC(400, 267_735, counts, bits=128, vectors=vectors)
        >>> loss = head(hidden, target)
    """

    latent = "binary"

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        counts: Tensor | None = None,
        *,
        codebook: Codebook | str | None = None,
        bits: int | None = None,
        vectors: Tensor | WordVectors | None = None,
        seed: int = 0,
        objective: str = "likelihood",
        samples: int | None = 1000,
        mixture: int = 1,
        layers: int = 1,
        bias: bool = True,
        widths: str | None = None,
    ) -> None:
        super().__init__(hidden_size, vocab_size)
        by_span = objective.startswith("span-")
        _check_options(objective, mixture, layers, samples)
        counts = checked_counts(counts, vocab_size)
        if not isinstance(codebook, Codebook):
            kind = codebook or _default_kind(by_span, counts, vectors)
            length = _default_bits(vocab_size, by_span) if bits is None else bits
            codebook = codes.build(kind, vocab_size, length, counts, vectors, seed, widths)
        elif bits not in (None, codebook.bits) or widths is not None or vectors is not None:
            raise ValueError("codebook is built already: leave out bits, vectors and widths, or pass a kind")
        if codebook.vocab_size != vocab_size:
            raise ValueError(f"codebook is for {codebook.vocab_size} tokens, vocab_size is {vocab_size}: build another")
        self.codebook = codebook
        self.bits = codebook.bits
        self.objective = objective
        self.loss_is_nll = objective in ("likelihood", "span-mass")
        outputs = mixture * self.bits + (mixture if mixture > 1 else 0)
        self.hidden_layer = nn.Linear(hidden_size, 2 * hidden_size) if layers == 2 else None
        self.output = nn.Linear(hidden_size * layers, outputs, bias=bias)
        self.model: SpanModel | CodewordModel = (
            SpanModel(codebook, objective, mixture) if by_span else CodewordModel(codebook, objective, counts, samples)
        )
        prior = [self.model.log_prior] if isinstance(self.model, CodewordModel) else []
        self._seal(torch.tensor(list(bytes.fromhex(codebook.fingerprint))), *prior)

    def reset_parameters(self) -> None:
        for layer in (self.hidden_layer, self.output):
            if layer is not None:
                layer.reset_parameters()

    def tie(self, weight: nn.Parameter) -> None:
        """Use `weight` ``(n, H)``, a code embedding's, as the map to the bits."""
        if self.hidden_layer is not None or self.output.weight.shape != weight.shape:
            raise ValueError(
                f"weight must have shape ({self.bits}, {self.hidden_size}) to be tied to a one-layer ecoc head without "
                f"mixture, got {tuple(weight.shape)}: tie it to a code embedding of the same codebook"
            )
        self.output.weight, self.tied = weight, True

    def _tied_weight(self) -> Tensor:
        return self.output.weight

    @torch.no_grad()
    def calibrate(self, hidden: Tensor, target: Tensor) -> None:
        """Fit the two factors of objective ``bits`` on held-out hidden states; a few thousand are plenty."""
        if not isinstance(self.model, CodewordModel) or self.objective != "bits":
            raise ValueError(f"objective={self.objective!r} has nothing to calibrate: only 'bits' has")
        self.model.calibrate(self._predict_bits(self._finite(self._rows(hidden))), self._ids(hidden, target, None))

    def paper_nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        """-log of the best error-checking codeword's probability (span objectives), in the shape of `target`.

        The paper's way to a perplexity: over V it sums to less than 1, so it is valid but pessimistic.
        """
        if not isinstance(self.model, SpanModel):
            raise ValueError(f"objective={self.objective!r} has no error-checking codewords: use a span objective")
        output = self._predict_bits(self._finite(self._rows(hidden)))
        return self.model.paper_nll(output, self._ids(hidden, target, None)).view(target.shape)

    def code_of(self, target: Tensor) -> Tensor:
        """Codeword of each token, bool ``(..., n)``."""
        return self._codebook_on(target.device).encode(target)

    def latent_logits(self, hidden: Tensor) -> Tensor:
        """The bit logits z, ``(..., n)``: a bit is predicted set where its logit is positive.

        For ``bits`` and the span objectives they are the log odds of each bit (of a mixture, over all its parts). For
        ``likelihood`` they are not: there only s_w . z / sqrt(n) has a meaning as a log probability.
        """
        output = self._predict_bits(self._rows(hidden))
        if isinstance(self.model, SpanModel) and self.model.mixture > 1:
            logits, log_weight = self.model.parts(output)
            one, zero = ((F.logsigmoid(x) + log_weight.unsqueeze(-1)).logsumexp(1) for x in (logits, -logits))
            output = one - zero
        return output.view(*hidden.shape[:-1], self.bits)

    def expected_code(self, hidden: Tensor, temperature: Tensor | float = 1.0, k: int = 16) -> Tensor:
        """Mean codeword ``(..., n)``, numbers from 0 to 1, under the model at a temperature.

        ``likelihood``: over the k best tokens. The others model each bit by itself: the probability of each bit.
        """
        if self.objective != "likelihood":
            return (self.latent_logits(hidden) / temperature).sigmoid()
        _, log_probs, signs = self._codeword_candidates(self._rows(hidden), min(k, self.vocab_size))
        weights = (log_probs / temperature).softmax(-1).unsqueeze(-2)
        with torch.autocast(hidden.device.type, enabled=False):  # a bit's share needs more digits than bf16 has
            mean = (weights @ signs).squeeze(-2)
        return (mean / 2 + 0.5).view(*hidden.shape[:-1], self.bits)

    def bit_log_odds(self, hidden: Tensor) -> Tensor:
        """Log odds ``(..., n)`` that a bit of the next codeword is set, differentiable.

        ``likelihood``: under its distribution over the best token of each row and sampled ones, drawn as the loss draws
        them but at most 256; odds beyond 10 000 to 1 are cut off. The others model each bit by itself.
        """
        if not isinstance(self.model, CodewordModel) or self.objective != "likelihood":
            return self.latent_logits(hidden)
        signs = self.model.expected_signs(self._predict_bits(self._rows(hidden)))
        return torch.logit(signs / 2 + 0.5, eps=1e-4).view(*hidden.shape[:-1], self.bits)

    def _candidates(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        ids, log_probs, _ = self._codeword_candidates(hidden, k)
        return log_probs, ids

    def _codeword_candidates(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        if not isinstance(self.model, CodewordModel):
            raise ValueError(f"objective={self.objective!r} scores one token at a time: use topk")
        return self.model.candidates(self._predict_bits(hidden), k)

    def token_of(self, code: Tensor) -> Tensor:
        """Token that a word of n bits decodes to, ``(...)``: errors within the code's reach are corrected."""
        return self._codebook_on(code.device).decode(code)

    def predict_from(self, logits: Tensor) -> Tensor:
        """Token ``(...)`` of bit logits ``(..., n)``, which need not be the head's own: the best codeword, or for span
        objectives the owner of the predicted bits."""
        if isinstance(self.model, SpanModel):
            return self.token_of(logits > 0)
        return self.model.predict(logits.reshape(-1, self.bits)).view(logits.shape[:-1])

    def _predict_bits(self, hidden: Tensor) -> Tensor:
        if self.hidden_layer is not None:
            hidden = F.gelu(self.hidden_layer(hidden))
        return at_least_float32(self.output(hidden))

    def _codebook_on(self, device: torch.device) -> Codebook:
        if self.codebook.packed.device != device:
            self.codebook = self.codebook.to(device)
        return self.codebook

    def _token_loss(self, hidden: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        return self.model.loss(self._predict_bits(hidden), target, label_smoothing)

    def _nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        return self.model.nll(self._predict_bits(hidden), target)

    def _log_prob(self, hidden: Tensor) -> Tensor:
        return self.model.log_prob(self._predict_bits(hidden))

    def _topk(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        parts = [self.model.topk(self._predict_bits(part), k) for part in hidden.split(self._rows_at_once())]
        return torch.cat([values for values, _ in parts]), torch.cat([ids for _, ids in parts])

    def _predict(self, hidden: Tensor) -> Tensor:
        if isinstance(self.model, SpanModel):
            return super()._predict(hidden)
        return self.model.predict(self._predict_bits(hidden))

    def _sample(self, hidden: Tensor, generator: torch.Generator | None) -> Tensor:
        if not isinstance(self.model, SpanModel):
            return super()._sample(hidden, generator)
        # spans share out all words: draw the bits, and whoever owns the word is the draw
        logits, log_weight = self.model.parts(self._predict_bits(hidden))
        if self.model.mixture > 1 and len(hidden):
            part = torch.multinomial(log_weight.exp(), 1, generator=generator)
            logits = logits.gather(1, part.unsqueeze(-1).expand(-1, -1, self.bits))
        return self.token_of(torch.bernoulli(logits[:, 0].sigmoid(), generator=generator).bool())

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, objective={self.objective}, {self.codebook}"


def _check_options(objective: str, mixture: int, layers: int, samples: int | None) -> None:
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, or None for all tokens, got {samples}")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective={objective!r} is unknown: choose one of {', '.join(OBJECTIVES)}")
    if layers not in (1, 2):
        raise ValueError(f"layers must be 1 or 2, got {layers}")
    if mixture < 1 or (mixture > 1 and not objective.startswith("span-")):
        raise ValueError(f"mixture={mixture} needs a span objective (and at least 1), got objective={objective!r}")


def _default_kind(by_span: bool, counts: Tensor | None, vectors: Tensor | WordVectors | None) -> str:
    if by_span:
        return "span-random" if counts is None else "span-unigram"
    return "random" if vectors is None else "semantic"


def _default_bits(vocab_size: int, by_span: bool) -> int:
    """512 bits for codewords, less where V is small; 40 for spans, as the paper has it for Penn Treebank."""
    needed = max(1, (vocab_size - 1).bit_length())
    return max(needed, 40) if by_span else min(512, max(needed + 8, vocab_size // 4))
