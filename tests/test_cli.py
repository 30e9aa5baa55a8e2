"""The command line, as a person meets it: an answer or one sentence, never a traceback, and files that can be read."""

import json
import os
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from minilayup import exchanges, tasks
from minilayup.cli import app

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
METHODS = ["SGD", "SyncSGD", "Hogwild!", "PD-ASGD 1F:1B", "LayUp"]


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def refused(*arguments: object) -> str:
    """What was said, in one sentence on stderr; nothing was trained."""
    result = call(*arguments)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith("minilayup: ") and result.stderr.count("\n") == 1
    return result.stderr


# -- help and doctor ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_one_example(command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0
    assert result.stdout.count(f"Example: minilayup {command}") == 1


def test_help_names_all_commands() -> None:
    assert {"doctor", "race", "train", "exchanges", "bench", "lab"} <= set(COMMANDS)
    text = call("--help").stdout
    assert all(command in text for command in COMMANDS)


def test_doctor() -> None:
    result = call("doctor")
    assert result.exit_code == 0 and "torch" in result.stdout.lower()


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_as_a_module(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "minilayup", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Usage: minilayup" in done.stdout and done.stderr == ""


# -- train -------------------------------------------------------------------------------------------------------------
def test_train_prints_a_curve() -> None:
    result = call("train", "layup", "--model", "mlp", "--samples", 128)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["0", "64", "128"]
    assert all("samples" in line and " s  accuracy 0." in line for line in lines[:3])
    assert "LayUp() on Fashion-MNIST subset, mlp: test accuracy" in result.stdout


@pytest.mark.parametrize(
    ("method", "threads"), [("sgd", 1), ("sync-sgd", 3), ("hogwild", 3), ("pd-asgd", 3), ("layup", 3)]
)
def test_train_every_method(method: str, threads: int) -> None:
    workers = [] if method == "sgd" else ["--workers", 3]
    result = call("train", method, "--task", "quadratic", *workers, "--samples", 384, "--engine", "virtual")
    assert result.exit_code == 0 and f"{threads} thread" in result.stdout and "virtual s  loss" in result.stdout


def test_train_writes_result_and_trace(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = call("train", "layup", "--task", "quadratic", "--samples", 384, "--engine", "virtual", "--out", out)
    assert result.exit_code == 0 and str(out / "trace.json") in result.stdout
    assert sorted(path.name for path in out.iterdir()) == ["result.json", "trace.json"]
    saved = json.loads((out / "result.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert saved["samples"] == 384 and saved["settings"]["machine"]["cores"] >= 1
    rows = json.loads((out / "trace.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)["traceEvents"]
    assert {row["ph"] for row in rows} == {"M", "X"}


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_sgd_has_one_worker() -> None:
    result = call("train", "sgd", "--workers", 3, "--samples", 384)
    assert result.exit_code == 2 and "sgd has one worker" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["train", "layupp"], "method='layupp' is not known. Did you mean 'layup'?"),
        (["train", "layup", "--task", "cifar"], "task='cifar' is not known. Did you mean 'cifar10'?"),
        (["train", "layup", "--task", "quadratic", "--model", "cnn"], "task 'quadratic' has no model to choose."),
        (["train", "layup", "--model", "cnm"], "model='cnm' is not known. Did you mean 'cnn'?"),
        (["train", "layup", "--exchange", "averge"], "exchange='averge' is not known. Did you mean 'average'?"),
        (["train", "layup", "--workers", 0], "workers=0 is not allowed"),
        (["train", "pd-asgd", "--workers", 1], "workers=1 is not allowed: it must be a whole number, at least 2"),
        (["train", "sgd", "--samples", 0], "samples=0 is not allowed"),
        (["train", "sgd", "--lr", -1], "lr=-1.0 is not allowed"),
        (["train", "sgd", "--engine", "thread"], "engine='thread' is not known. Did you mean 'threads'?"),
        (["train", "sgd", "--device", "gpu"], "devices: 'gpu' cannot be used on this machine"),
        (["train", "sgd", "--skew", 2], "skew=2.0 is not allowed"),
        (["race", "--workers", 1], "a race needs workers >= 2"),
        (["race", "--model", "mpl"], "model='mpl' is not known. Did you mean 'mlp'?"),
        (["race", "--samples", -1], "samples=-1 is not allowed"),
        (["race", "--seeds", 0], "seeds=0 is not allowed"),
        (["race", "--engine", "virtaul"], "engine='virtaul' is not known. Did you mean 'virtual'?"),
        (["race", "--equal-rate", -1], "lr=-1.0 is not allowed"),
        (["exchanges", "--workers", 1], "workers=1 is not allowed: it must be a whole number, at least 2"),
        (["exchanges", "--samples", 1], "samples=1 is not allowed"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_bad_arguments_are_one_sentence(
    arguments: list[object], phrase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a race would write into runs/ here
    assert phrase in refused(*arguments)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    "arguments", [["train", "sgd", "--samples", "many"], ["race", "--worker", 2], ["rase"], ["train"]]
)
def test_what_typer_refuses_is_short_too(arguments: list[object]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2 and "Usage: " in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [["race"], ["train", "sgd"], ["exchanges"]], ids=" ".join)
def test_a_folder_that_cannot_be_written_is_refused_first(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threading.Thread.start", lambda thread: pytest.fail("something was started"))
    (tmp_path / "file").write_text("in the way")  # as root, nothing is read-only
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        said = refused(*command, "--out", out)
        assert f"out={str(out)!r} cannot be written to (" in said and "choose another folder" in said


def test_data_that_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINILAYUP_DATA", str(tmp_path))
    assert "is missing. Make it again with" in refused("train", "sgd")
    assert "CIFAR10 is not in" in refused("train", "sgd", "--task", "cifar10")


def test_divergence_is_one_sentence() -> None:
    assert "try a smaller learning rate" in refused("train", "sgd", "--task", "quadratic", "--lr", 1e20).lower()


# -- race --------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a small race, and what it printed."""
    out = tmp_path_factory.mktemp("race")
    result = call("race", "--engine", "virtual", "--model", "mlp", "--samples", 640, "--seeds", 1, "--workers", 2,
                       "--out", out)  # fmt: skip
    assert result.exit_code == 0
    return out, result.stdout


class Page(HTMLParser):
    """Tags with their attributes; fails where they are not closed in order."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_race_prints_two_tables(raced: tuple[Path, str]) -> None:
    out, text = raced
    for title in ("all workers equally fast", "thread 1 4 times slower"):
        assert f"Fashion-MNIST subset, mlp: {title}" in text
    assert all(text.count(f"\n{method}  ") == 2 for method in METHODS)
    assert str(out / "report.html") in text and sorted(p.name for p in out.iterdir()) == ["report.html", "results.json"]


def test_report_is_a_page_that_opens_offline(raced: tuple[Path, str]) -> None:
    text = (raced[0] / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    page = Page(text)
    for tag, attributes in page.found:
        assert tag not in ("script", "link", "img", "iframe", "object")
        for key, value in attributes.items():
            if key.rpartition(":")[2] in ("src", "href"):
                assert value.startswith("#")
    assert "@import" not in text and "url(http" not in text
    pictures = [attributes for tag, attributes in page.found if tag == "svg"]
    assert len(pictures) == 2 * (2 + len(METHODS))  # curves, staleness, and a timeline each, for both conditions
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in pictures)
    identifiers = [attributes["id"] for tag, attributes in page.found if tag == "svg" and "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    assert "prefers-color-scheme: dark" in text and "#123456" not in text  # all ink follows the page


def test_results_have_everything_to_redo_them(raced: tuple[Path, str]) -> None:
    saved = json.loads((raced[0] / "results.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert saved["arguments"] == {"workers": 2, "model": "mlp", "samples": 640, "seeds": 1, "engine": "virtual",
                                  "equal_rate": None}  # fmt: skip
    assert {"minilayup", "python", "torch", "platform", "cores"} <= saved["machine"].keys()
    assert [len(c["results"]) for c in saved["comparisons"]] == [5, 5]
    for comparison in saved["comparisons"]:
        assert list(comparison["results"]) == METHODS and "Learning rates" in comparison["notes"][0]
        for (run,) in comparison["results"].values():
            settings = run["settings"]
            assert settings["seed"] == 0 and settings["batch_size"] == 64 and "WarmUp" in settings["schedule"]
            assert settings["rule"].startswith("SGD(lr=") and "Virtual" in settings["engine"]
    slowed = saved["comparisons"][1]["results"]
    assert slowed["LayUp"][0]["settings"]["slow"] == {"1": 4.0} and slowed["SGD"][0]["settings"]["slow"] == {}


# The third run takes a billion samples: only an interrupt ends it.
SLOW_RACE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits "ignored"
import minilayup
module = sys.modules["minilayup.compare"]
from minilayup.cli import app
train, runs = module.train, []
def third(*arguments, **options):
    runs.append(1)
    if len(runs) == 3:
        options["samples"] = 10**9
        taken = arguments[0].train.batch
        def batch(rows):
            if len(taken_rows) == 5:
                print("third run is under way", flush=True)
            taken_rows.append(1)
            return taken(rows)
        taken_rows = []
        type(arguments[0].train).batch = lambda self, rows: batch(rows)
    return train(*arguments, **options)
module.train = third
app(sys.argv[1:])
"""


def interrupted(program: str, ready: str, *arguments: object) -> tuple[int, str, str]:
    """Exit code, output and errors of a program that got Ctrl-C once it had printed ``ready``."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        seen = ""
        for line in process.stdout:  # ends with the process, so this cannot hang for ever
            seen += line
            if ready in line:
                process.send_signal(signal.SIGINT)
                break
        output, errors = process.communicate(timeout=60)
        return process.returncode, seen + output, errors
    finally:
        process.kill()
        process.communicate()


def test_interrupted_race_keeps_what_was_finished(tmp_path: Path) -> None:
    code, output, errors = interrupted(
        SLOW_RACE, "third run is under way", "race", "--model", "mlp", "--samples", 64, "--seeds", 1, "--workers", 2,
        "--out", tmp_path,
    )  # fmt: skip
    assert "Traceback" not in output + errors
    assert code == 130, output + errors
    title = "Fashion-MNIST subset, mlp: all workers equally fast"
    assert f"Interrupted. Finished: {title}: SGD, 1 seed; {title}: SyncSGD, 1 seed." in output
    saved = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    finished = saved["comparisons"][0]["results"]
    assert {name: len(runs) for name, runs in finished.items()} == dict(zip(METHODS, [1, 1, 0, 0, 0], strict=True))
    assert saved["notes"] == ["Interrupted: what follows is what was finished."]
    assert saved["notes"][0] in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_interrupted_train_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("minilayup.engine.train", interrupt)
    result = call("train", "sgd", "--task", "quadratic")
    assert result.exit_code == 130 and result.stderr == "\nInterrupted.\n"


# -- exchanges ---------------------------------------------------------------------------------------------------------
def test_exchanges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tasks.fashion_mnist("mlp")
    (x, y), (test_x, test_y) = made.train.source, made.test.source
    small = tasks.Task(made.model, (x[:512], y[:512]), (test_x[:64], test_y[:64]), made.loss, made.accuracy)
    monkeypatch.setattr(exchanges, "fashion_mnist", lambda model: small)
    monkeypatch.setattr(exchanges, "GRID", (0.1,))
    conditions = exchanges.CONDITIONS
    monkeypatch.setattr(exchanges, "CONDITIONS", (conditions[0], conditions[3]))
    result = call("exchanges", "--workers", 2, "--samples", 192, "--seeds", 1, "--out", tmp_path)
    assert result.exit_code == 0
    saved = json.loads((tmp_path / "exchanges.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    names = list(exchanges.rules(2))
    assert list(saved["rules"]) == names and all(f"\n{name} " in result.stdout for name in names)
    assert saved["settings"]["workers"] == 2 and saved["settings"]["machine"]["cores"] >= 1
    assert "Virtual seconds" in result.stdout
