"""The README's examples run as written."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import summary

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(code, id=f"{document.name}, example {number}")
    for document in DOCUMENTS
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.S), 1)
]


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Python beside a copy of the README, which an example reads; others write files, not for the repository."""
    shutil.copy(ROOT / "README.md", folder)
    line, environment = [sys.executable, *arguments], os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_the_readme_has_the_example_that_swaps_a_head() -> None:
    assert "nn.LSTM" in EXAMPLES[0].values[0] and "ecoc.heads.build" in EXAMPLES[0].values[0]


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs_as_written(code: str, tmp_path: Path) -> None:
    done = _run(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_commands_run_as_written(tmp_path: Path) -> None:
    """One after the other, with less time to train."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 5 and all(command[0] == "ecoc" for command in commands)
    for command in commands:
        shorter = ["4" if word == "90" else word for word in command[1:]]
        done = _run(["-m", "ecoc.cli", *shorter], tmp_path)
        assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_the_example_learns_something(tmp_path: Path) -> None:
    """The loss after the README's single pass is well below where it started."""
    code = EXAMPLES[0].values[0].replace("    loss.backward()", "    print('loss', loss.item())\n    loss.backward()")
    lines = _run(["-c", code], tmp_path).stdout.splitlines()
    losses = [float(line.split()[1]) for line in lines if line.startswith("loss")]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text(encoding="utf-8"))
    assert all((document.parent / link).exists() for link in links)


def test_the_readmes_table_is_that_of_the_committed_measurements() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = summary.markdown(json.loads(summary.RESULTS.read_text()))
    assert summary.with_table(readme, table) == readme
