"""Exposure bias, measured: how the loss grows when a model is fed its own outputs."""

import torch

from ecoc.data import Batches
from ecoc.metrics.language import progress_of
from ecoc.models import LanguageModel


@torch.no_grad()
def free_running(
    model: LanguageModel,
    batches: Batches,
    sampled: bool = False,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> dict[str, object]:
    """Loss after 0, 1, ..., k of the model's own outputs in place of the text.

    Before each batch ``(rows, k + 1)`` the model has read all text up to there. It is then fed the first input and
    after that its own tokens, while the text's own next tokens are scored. The same tokens are scored fed with the
    text: their difference is what feeding its own outputs costs, and part of that no training can undo, since the text
    is not seen.

    Args:
        model: The model.
        batches: The text in batches of k + 1 steps.
        sampled: Draw the fed tokens from the model, instead of the most probable ones.
        generator: Source of the draws.
        progress: Show a bar.
    """
    was_training = model.training
    model.eval()
    steps = batches.steps
    own, text = torch.zeros(steps, dtype=torch.float64), torch.zeros(steps, dtype=torch.float64)
    state, rows = None, 0
    for inputs, targets in progress_of(batches, "feeding its own outputs", progress):
        if inputs.shape[1] < steps:  # the end of the text
            break
        branch, token = state, inputs[:, 0]
        for step in range(steps):
            hidden, branch = model.hidden(token.unsqueeze(1), branch)
            own[step] += model.head.nll(hidden[:, 0], targets[:, step]).double().sum().cpu()
            last = hidden[:, 0]
            token = model.head.sample(last, generator=generator) if sampled else model.head.predict(last)
        hidden, state = model.hidden(inputs, state)
        text += model.head.nll(hidden, targets).double().sum(0).cpu()
        rows += len(inputs)
    model.train(was_training)
    return {
        "fed": "sampled" if sampled else "best",
        "scored": rows,
        "loss": (own / rows).tolist(),
        "loss_fed_with_text": (text / rows).tolist(),
        "growth": ((own - text) / rows).tolist(),
    }
