"""Every Python snippet of the README runs as it stands, in one go."""

import re
from pathlib import Path

import matplotlib
import pytest

README = Path(__file__).parents[1] / "README.md"


def test_every_snippet_runs(capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib.use("Agg")
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(snippets) >= 2
    names: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), names)
    out = capsys.readouterr().out
    assert "LayUp() on Fashion-MNIST subset, cnn: test accuracy" in out and "SyncSGD()" in out
    assert "Hogwild() on mine: test accuracy" in out
    assert "diverged" not in out


def test_every_command_it_names_exists() -> None:
    from minilayup.cli import app

    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    named = set(re.findall(r"^minilayup (\w+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert named and named <= commands
