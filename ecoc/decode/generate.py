"""Text from a language model: greedy, sampled, or by beam search; works with every head."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ecoc.decode.beam import Beam, search
from ecoc.models import LanguageModel
from ecoc.models.lstm import State


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Args:
        temperature: 0 for the most probable token; otherwise as in :meth:`ecoc.heads.Head.sample`.
        top_k: Choose among the k best only.
        top_p: Choose among the fewest tokens that reach this probability.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None


PLAIN = Sampling()


@torch.no_grad()
def read(model: LanguageModel, prompt: Tensor, at_once: int = 256) -> tuple[Tensor, State]:
    """Last hidden state ``(batch, hidden)`` and state after a prompt ``(batch, time)`` of any length above 0."""
    state: State | None = None
    for part in prompt.split(at_once, 1):
        hidden, state = model.hidden(part, state)
    assert state is not None
    return hidden[:, -1], state


@torch.no_grad()
def generate(
    model: LanguageModel,
    prompt: Tensor,
    tokens: int,
    sampling: Sampling = PLAIN,
    generator: torch.Generator | None = None,
    banned: Tensor | None = None,
) -> Tensor:
    """Continue prompts ``(batch, time)`` by `tokens` tokens each, ``(batch, tokens)``.

    Args:
        model: The model, in evaluation mode.
        prompt: Token ids, at least one a row.
        tokens: How many to add.
        sampling: How to choose them.
        generator: Source of randomness.
        banned: Ids never to choose, such as that of ``<unk>``.
    """
    hidden, state = read(model, prompt)
    chosen = []
    for _ in range(tokens):
        token = _choose(model, hidden, sampling, generator, banned)
        chosen.append(token)
        outputs, state = model.hidden(token.unsqueeze(1), state)
        hidden = outputs[:, -1]
    return torch.stack(chosen, 1) if chosen else prompt.new_empty(len(prompt), 0)


def _choose(
    model: LanguageModel,
    hidden: Tensor,
    sampling: Sampling,
    generator: torch.Generator | None,
    banned: Tensor | None,
) -> Tensor:
    head = model.head
    if sampling.temperature == 0:
        if banned is None:
            return head.predict(hidden)
        ids = head.topk(hidden, min(len(banned) + 1, head.vocab_size))[1]
        allowed = ~torch.isin(ids, banned)
        return ids.gather(1, allowed.int().argmax(1, keepdim=True)).squeeze(1)
    token = head.sample(hidden, sampling.temperature, sampling.top_k, sampling.top_p, generator)
    if banned is None:
        return token
    for _ in range(20):  # draw again: exact, and cheap as banned tokens are few
        again = torch.isin(token, banned)
        if not again.any():
            return token
        token[again] = head.sample(hidden[again], sampling.temperature, sampling.top_k, sampling.top_p, generator)
    again = torch.isin(token, banned)
    token[again] = _choose(model, hidden[again], Sampling(temperature=0), generator, banned)
    return token


@torch.no_grad()
def beam_search(
    model: LanguageModel,
    prompt: Tensor,
    tokens: int,
    width: int = 5,
    end: int | None = None,
    length_power: float = 0.0,
    banned: Tensor | None = None,
) -> list[Beam]:
    """The `width` best continuations of one prompt ``(time,)``, best first.

    Args:
        model: The model, in evaluation mode.
        prompt: Token ids, at least one.
        tokens: Longest continuation.
        width: Beams kept.
        end: Token that finishes a continuation (it is kept in it).
        length_power: A beam's score is its log probability over its length to this power: 0 for the plain one.
        banned: Ids never to choose, such as that of ``<unk>``.
    """
    hidden, state = read(model, prompt.unsqueeze(0))
    return search(model, hidden, state, tokens, width, end, length_power, banned)[0]
