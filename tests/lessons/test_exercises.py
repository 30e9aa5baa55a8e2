"""The untouched copy passes no check, the reference passes all, and each planted mistake fails for its own reason."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from lessons import NOTEBOOKS, ROOT, load

from minilayup import ArgumentError, course
from minilayup.course.exercise import Exercise, Verdict, untouched
from minilayup.course.lesson import LESSONS

NUMBERS = [path.name[:2] for path in NOTEBOOKS]
IDS = [(number, f"{number}.{k}") for number in NUMBERS for k in (1, 2, 3)]


def references(number: str) -> dict[str, Any]:
    """The answers of ``notebooks/solutions/``."""
    path = ROOT / "notebooks" / "solutions" / f"lesson_{number}.py"
    names: dict[str, Any] = {"__name__": "solutions"}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), names)
    return {f"{number}.{k}": names[f"answer_{number}_{k}"] for k in (1, 2, 3)}


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_there_are_lessons():
    assert NUMBERS == [number for number in LESSONS]


@pytest.mark.parametrize("number", NUMBERS)
def test_two_exercises_are_graded_one_short_and_one_longer(number):
    exercises = course.open(number).exercises
    assert list(exercises) == [f"{number}.{k}" for k in (1, 2, 3)]
    first, second, third = exercises.values()
    assert first.graded and second.graded and not third.graded
    assert first.minutes <= 10 and second.minutes <= 30


@pytest.mark.parametrize("number, id", IDS)
def test_the_reference_passes(number, id):
    verdict = course.open(number).grade(id, references(number)[id])
    assert verdict.passed, str(verdict)
    assert verdict.expected and verdict.yours


@pytest.mark.parametrize("number, id", IDS)
def test_each_planted_mistake_fails_for_its_own_reason(number, id):
    lesson, mutants = course.open(number), load(number).MUTANTS[id]
    assert len(mutants) >= 3
    for name, (answer, word) in mutants.items():
        verdict = lesson.grade(id, answer)
        assert not verdict.passed, f"{id}: “{name}” passes"
        said = f"{verdict.yours} {verdict.hint}".lower()
        assert word.lower() in said, f"{id}: “{name}” is told {verdict}, which does not say {word!r}"


@pytest.mark.parametrize("number, id", IDS)
@pytest.mark.parametrize("stub", [..., None])
def test_an_untouched_stub_is_not_tried_yet(number, id, stub, capsys):
    lesson = course.open(number)
    lesson.check(id, stub)
    assert "not tried yet" in capsys.readouterr().out
    lesson.reveal(id)
    assert "try it once first" in capsys.readouterr().out


@pytest.mark.parametrize("number, id", IDS)
@pytest.mark.parametrize("nonsense", ["words", -1e9, [], {}, object(), float("nan"), lambda *a, **k: None, {"a": 1}])
def test_nonsense_is_told_so_and_fails(number, id, nonsense):
    verdict = course.open(number).grade(id, nonsense)
    assert not verdict.passed and verdict.yours


@pytest.mark.parametrize("number, id", IDS)
def test_a_solution_is_shown_after_one_attempt(number, id, capsys):
    lesson = course.open(number)
    answer, _ = next(iter(load(number).MUTANTS[id].values()))
    lesson.check(id, answer)
    printed = capsys.readouterr().out
    solution = lesson.solution(id)
    assert solution not in printed and f"answer_{number}_{id[-1]}" in solution
    lesson.reveal(id)
    assert solution in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_solution_is_outside_its_folder(path):
    """No run of five lines of a solution's code is in the notebook, the checks or the tests."""
    number = path.name[:2]
    solution = (ROOT / "notebooks" / "solutions" / f"lesson_{number}.py").read_text("utf-8")
    elsewhere = [path, ROOT / "minilayup" / "course" / f"lesson_{number}.py"]
    lines = [line.strip() for line in solution.splitlines() if line.strip() and not line.strip().startswith("#")]
    for other in elsewhere:
        text = "\n".join(line.strip(' "\\n,') for line in other.read_text("utf-8").replace('\\n"', '"').splitlines())
        for k in range(len(lines) - 4):
            window = "\n".join(lines[k : k + 5])
            if len(window) > 120:
                assert window not in text, f"{other.name} holds:\n{window}"


def test_the_lesson_is_named_and_refused_by_name():
    with pytest.raises(ArgumentError, match="not known"):
        course.open("4")
    with pytest.raises(ArgumentError, match=r"Did you mean"):
        course.open("00").check("00.11", 1)
    with pytest.raises(ArgumentError):
        course.open("00").reveal("00.9")


def test_what_an_answer_raises_is_in_the_verdict():
    def fails(answer: Any) -> Verdict:
        return answer()

    def wrong() -> Verdict:
        raise ZeroDivisionError("by nothing")

    verdict = Exercise("00.1", "one", "repair", 5, fails).grade(wrong)
    assert not verdict.passed and "ZeroDivisionError: by nothing" in verdict.yours and "wrong" in verdict.hint

    def stub() -> Verdict:
        raise NotImplementedError

    assert Exercise("00.1", "one", "repair", 5, fails).grade(stub).yours == "not tried yet"


@pytest.mark.parametrize("answer", [..., None, {"a": ...}, [], (1, ...), {}])
def test_what_counts_as_untouched(answer):
    assert untouched(answer)


@pytest.mark.parametrize("answer", [0, "", False, [1], {"a": 0}])
def test_what_counts_as_an_answer(answer):
    assert not untouched(answer)


def test_solutions_are_not_found_elsewhere(tmp_path: Path):
    lesson = course.open("00")
    lesson._folder = tmp_path
    assert lesson.solution("00.1")  # falls back on the checkout
