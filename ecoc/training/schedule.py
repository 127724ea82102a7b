"""How the learning rate moves: functions of how far training is, so that a resumed run needs no state."""

import math

NAMES = ("one-cycle", "plateau", "constant")


def one_cycle(progress: float, warm_up: float = 0.1, start: float = 0.04, end: float = 1e-3) -> float:
    """Factor on the learning rate at `progress` in [0, 1]: up in a cosine to 1, then down (Smith 2018)."""
    progress = min(1.0, max(0.0, progress))
    if progress < warm_up:
        return start + (1 - start) * (1 - math.cos(math.pi * progress / warm_up)) / 2
    return end + (1 - end) * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up))) / 2


def plateau(losses: list[float], factor: float = 0.25) -> float:
    """Factor after these validation losses, one an epoch: times `factor` for each that was no new best."""
    best, result = math.inf, 1.0
    for loss in losses:
        if loss >= best:
            result *= factor
        best = min(best, loss)
    return result
