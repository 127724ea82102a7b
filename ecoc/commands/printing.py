"""Numbers as people read them."""

from typing import Any


def print_scores(scores: dict[str, Any]) -> None:
    """Scores for people, one a line."""
    for name, value in scores.items():
        if isinstance(value, dict):
            for part, number in value.items():
                shown = number["perplexity"] if isinstance(number, dict) else number
                print(f"{name} ({part}): {shown:.2f}")
        elif isinstance(value, str):
            print(f"{name}: {value}")
        elif value is not None:
            print(f"{name}: {value:,.4f}" if isinstance(value, float) else f"{name}: {value:,}")


def print_facts(facts: dict[str, object]) -> None:
    """Facts for people, one a line."""
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        print(f"{name.replace('_', ' ')}: {shown}")
