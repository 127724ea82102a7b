r"""Two-level hierarchical softmax (Goodman 2001)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc.heads.head import at_least_float32, checked_counts, log_unigram
from ecoc.heads.layout import OrderedHead, laid_out


class HierarchicalSoftmax(OrderedHead):
    r"""The two-level hierarchical softmax from *Classes for Fast Maximum Entropy Training*.

    Tokens stand in an order and are cut into C classes of equal size; first the class, then the token in it:

    .. math:: p(w \mid h) = \operatorname{softmax}(A h + a)_{c(w)} \; \operatorname{softmax}(W^{c(w)} h + b^{c(w)})_w

    Rows with the same class share one small matrix product, so a step costs about 2 H sqrt(V) a token. Sorting rows by
    class makes a GPU wait for their numbers.

    Args:
        hidden_size: Size H of a hidden state.
        vocab_size: Number of tokens V.
        counts: How often each token occurs, ``(V,)``; biases then start at the unigram distribution.
        order: ``random``, ``unigram`` or ``embedding`` (by similarity to the most frequent token; needs vectors), or
            the token ids themselves in the order wanted, ``(V,)``.
        vectors: Word vectors ``(V, d)`` for the embedding order.
        classes: Number of classes C; by default the square root of V.
        seed: Seed of the random order.
        bias: Whether there are biases.

    Latent variables: the class and the token's place in it, ``code`` of shape ``(..., 2)``.
    """

    latent = "categorical"
    place: Tensor
    owner: Tensor

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        counts: Tensor | None = None,
        *,
        order: str | Tensor = "unigram",
        vectors: Tensor | None = None,
        classes: int | None = None,
        seed: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size)
        classes = math.isqrt(vocab_size - 1) + 1 if classes is None else classes
        if not 1 <= classes <= vocab_size:
            raise ValueError(f"classes must be from 1 to the vocabulary size {vocab_size}, got {classes}")
        counts = checked_counts(counts, vocab_size)
        owner, place = laid_out(order, vocab_size, counts, vectors, seed)
        self.register_buffer("owner", owner)
        self.register_buffer("place", place)
        self.size = -(-vocab_size // classes)
        self.classes = -(-vocab_size // self.size)  # without classes that would be empty
        self.class_weight = nn.Parameter(torch.empty(self.classes, hidden_size))
        self.word_weight = nn.Parameter(torch.empty(self.classes, self.size, hidden_size))
        self.class_bias = nn.Parameter(torch.empty(self.classes)) if bias else None
        self.word_bias = nn.Parameter(torch.empty(self.classes, self.size)) if bias else None
        self._log_share = (
            log_unigram(counts, vocab_size)[owner].float() if counts is not None else torch.zeros(vocab_size)
        )
        self._seal(self.owner)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size)
        nn.init.uniform_(self.class_weight, -bound, bound)
        nn.init.uniform_(self.word_weight, -bound, bound)
        if self.class_bias is None or self.word_bias is None:
            return
        # the last class may have places without a token; they stay out of every softmax (see _word_scores)
        share = F.pad(self._log_share, (0, self.classes * self.size - self.vocab_size), value=-torch.inf)
        share = share.view(self.classes, self.size)
        with torch.no_grad():
            self.class_bias.copy_(share.logsumexp(-1))
            self.word_bias.copy_(share.nan_to_num(neginf=0.0))

    def class_logits(self, hidden: Tensor) -> Tensor:
        """Scores ``(..., C)`` of the classes, before they are normalised."""
        return at_least_float32(F.linear(hidden, self.class_weight, self.class_bias))

    def _word_scores(self, products: Tensor, classes: Tensor) -> Tensor:
        """Scores in a class from its products with the hidden state ``(..., size)``: bias added, empty places -inf."""
        scores = products if self.word_bias is None else products + self.word_bias[classes]
        places = classes.unsqueeze(-1) * self.size + torch.arange(self.size, device=classes.device)
        return at_least_float32(scores).masked_fill(places >= self.vocab_size, -torch.inf)

    def word_logits(self, hidden: Tensor, classes: Tensor) -> Tensor:
        """Scores ``(N, size)`` of the words in a class for each row ``(N, H)``, not normalised; -inf for no word."""
        order = classes.argsort()
        sizes = classes.bincount(minlength=self.classes).tolist()
        groups = zip(hidden[order].split(sizes), self.word_weight.unbind(0), strict=True)
        # one product a class that occurs; with no row at all still one, so that the weight has a gradient
        products = [rows @ weight.T for number, (rows, weight) in enumerate(groups) if len(rows) or number == 0]
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        return self._word_scores(torch.cat(products)[back], classes)

    def _nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        classes, within = self.code_of(target).unbind(-1)
        class_loss = F.cross_entropy(self.class_logits(hidden), classes, reduction="none")
        return class_loss + F.cross_entropy(self.word_logits(hidden, classes), within, reduction="none")

    def _ordered_log_prob(self, hidden: Tensor) -> Tensor:
        products = F.linear(hidden, self.word_weight.flatten(0, 1)).unflatten(-1, (self.classes, self.size))
        everyone = torch.arange(self.classes, device=hidden.device)
        words = self._word_scores(products, everyone).log_softmax(-1)
        log_probs = self.class_logits(hidden).log_softmax(-1).unsqueeze(-1) + words
        return log_probs.flatten(1)

    def code_of(self, target: Tensor) -> Tensor:
        """Class and place in it, ``(..., 2)``."""
        self._ids_in_range(target)
        place = self.place[target]
        return torch.stack([place // self.size, place % self.size], -1)

    def token_of(self, code: Tensor) -> Tensor:
        """Token of a class and place ``(..., 2)``; a place without a token stands for the last one."""
        group, within = code[..., 0], code[..., 1]
        if (
            code.shape[-1] != 2
            or (group | within).lt(0).any()
            or (group >= self.classes).any()
            or (within >= self.size).any()
        ):
            raise ValueError(f"code must be (..., 2) with a class below {self.classes} and a place below {self.size}")
        return self.owner[(group * self.size + within).clamp(max=self.vocab_size - 1)]

    def follow(self, hidden: Tensor, code: Tensor, own: Tensor) -> Tensor:
        """The path of `code` ``(..., 2)``, but the best choice where `own`, bool ``(..., 2)``; in another class than
        that of `code`, always the best word."""
        rows, wanted, own = self._rows(hidden), code.reshape(-1, 2), own.reshape(-1, 2)
        classes = torch.where(own[:, 0], self.class_logits(rows).argmax(-1), wanted[:, 0])
        by_itself = own[:, 1] | (classes != wanted[:, 0])
        words = torch.where(by_itself, self.word_logits(rows, classes).argmax(-1), wanted[:, 1])
        return torch.stack([classes, words], -1).view(code.shape)

    def latent_logits(self, hidden: Tensor, code: Tensor | None = None) -> Tensor:
        """Logits of both choices, ``(..., 2, max(C, size))`` filled up with -inf; the second in the class of `code`,
        by default the most probable class."""
        rows = self._rows(hidden)
        class_scores = self.class_logits(rows)
        classes = class_scores.argmax(-1) if code is None else code[..., 0].reshape(-1)
        both = [class_scores, self.word_logits(rows, classes)]
        width = max(self.classes, self.size)
        filled = [F.pad(scores, (0, width - scores.shape[-1]), value=-torch.inf) for scores in both]
        return torch.stack(filled, 1).view(*hidden.shape[:-1], 2, width)
