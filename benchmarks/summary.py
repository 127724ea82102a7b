"""The README's table from the benchmark's JSON.

python -m benchmarks.summary                # print it
python -m benchmarks.summary --write        # put it into the README
"""

import argparse
import json
from pathlib import Path

from benchmarks.heads import BASELINE

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "heads.json"
MARKS = ("<!-- benchmarks.summary -->", "<!-- end -->")


def markdown(results: dict) -> str:
    """Speed of a training step at each vocabulary size, and memory, size and use at the largest."""
    rows = {(row["vocab"], row["head"]): row for row in results["rows"]}
    sizes = sorted({vocab for vocab, _ in rows})
    largest = sizes[-1]
    columns = [f"step, V = {vocab:,}" for vocab in sizes] + ["extra memory", "parameters", "greedy step", "`nll`"]
    lines = ["| head | " + " | ".join(columns) + " |", "|---" + "|---:" * len(columns) + "|"]
    for head in dict.fromkeys(head for _, head in rows):
        row = rows[largest, head]
        ratios = (rows[vocab, BASELINE]["step_ms"] / rows[vocab, head]["step_ms"] for vocab in sizes)
        cells = [f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.1f}x" for ratio in ratios]
        cells += [f"{row['extra_mb']:,.0f} MB", f"{row['parameters']:,}"]
        cells += [f"{row['greedy_ms']:.2g} ms" if row["greedy_ms"] < 10 else f"{row['greedy_ms']:,.0f} ms"]
        cells += [f"{row['nll_ms']:,.0f} ms"]
        lines.append(f"| {head} | " + " | ".join(cells) + " |")
    setting = results["setting"]
    lines += [
        "",
        f"Steps are times faster than {BASELINE} in the same run (median of {setting['repeats']}, {setting['tokens']} "
        f"tokens, hidden size {setting['hidden']}, {setting['threads']} CPU threads, torch {setting['torch']}); the "
        f"other columns are for V = {largest:,}.",
    ]
    return "\n".join(lines)


def with_table(readme: str, table: str) -> str:
    """The README with the text between its marks replaced."""
    before, rest = readme.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the table in README.md")
    arguments = parser.parse_args()
    table = markdown(json.loads(RESULTS.read_text()))
    if not arguments.write:
        print(table)
        return
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
