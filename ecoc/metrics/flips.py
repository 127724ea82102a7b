"""Does error correction correct? Words predicted although some bits are flipped at random."""

import torch

from ecoc.data import Batches
from ecoc.heads import ECOC
from ecoc.metrics.language import progress_of
from ecoc.models import LanguageModel

RATES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)


@torch.no_grad()
def bit_flips(
    model: LanguageModel,
    batches: Batches,
    rates: tuple[float, ...] = RATES,
    tokens: int = 10_000,
    seed: int = 1,
    progress: bool = False,
) -> dict[str, object]:
    """Share of right words when each predicted bit is flipped with a probability, and share of codewords that survive.

    Args:
        model: A language model with an ECOC head.
        batches: The text.
        rates: Probabilities of a flip.
        tokens: How many tokens of the text are looked at, at least.
        seed: Of the flips.
        progress: Show a bar.

    Returns:
        ``flips`` (the rates), ``accuracy`` (the model's word from its own flipped bits is that of the text),
        ``recovered`` (a token's flipped codeword still decodes to it, no model in between), ``tokens``,
        ``minimum_distance``.
    """
    head = model.head
    if not isinstance(head, ECOC):
        raise ValueError(f"bits can be flipped where bits are predicted: use --head ecoc, not {type(head).__name__}")
    was_training = model.training
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    right, recovered, seen, state = torch.zeros(len(rates)), torch.zeros(len(rates)), 0, None
    for inputs, targets in progress_of(batches, "flipping bits", progress):
        if state is not None:
            state = state[0][:, : len(inputs)], state[1][:, : len(inputs)]
        hidden, state = model.hidden(inputs, state)
        logits, wanted = head.latent_logits(hidden).flatten(0, 1), targets.flatten()
        chance = torch.rand(logits.shape, generator=generator)
        code = head.code_of(wanted)
        for place, rate in enumerate(rates):
            flipped = chance < rate
            right[place] += (head.predict_from(torch.where(flipped, -logits, logits)) == wanted).sum()
            recovered[place] += (head.token_of(code ^ flipped) == wanted).sum()
        seen += len(wanted)
        if seen >= tokens:
            break
    model.train(was_training)
    return {
        "flips": list(rates),
        "accuracy": (right / seen).tolist(),
        "recovered": (recovered / seen).tolist(),
        "tokens": seen,
        "minimum_distance": head.codebook.minimum_distance(),
    }
