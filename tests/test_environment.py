"""environment.yml and pyproject.toml ask for the same packages, and what is installed satisfies both."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings tomli there
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))

CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # where conda-forge's name differs
CONDA_ONLY = {"python", "pip"}


def bounds(lines: list[str]) -> dict[str, SpecifierSet]:
    """Package name to allowed versions. "minilayup[lab]", an extra that takes in another, is not a package to find."""
    needs = [Requirement(line) for line in lines]
    return {need.name: need.specifier for need in needs if need.name != PROJECT["name"]}


RUN = bounds(PROJECT["dependencies"])
LAB = bounds(PROJECT["optional-dependencies"]["lab"])
DEV = bounds(PROJECT["optional-dependencies"]["dev"])
IN_CONDA = bounds([line for line in CONDA["dependencies"] if isinstance(line, str)])


def test_conda_forge_is_the_only_channel() -> None:
    assert CONDA["name"] == "minilayup"
    assert CONDA["channels"] == ["conda-forge"]


def test_conda_asks_for_what_pyproject_asks_for() -> None:
    wanted = {CONDA_NAMES.get(name, name): versions for name, versions in (RUN | LAB).items()}
    assert {name: versions for name, versions in IN_CONDA.items() if name not in CONDA_ONLY} == wanted


def test_conda_takes_the_same_python() -> None:
    assert IN_CONDA["python"] == SpecifierSet(PROJECT["requires-python"])


def test_pip_installs_minilayup_itself_and_nothing_else() -> None:
    assert [line for line in CONDA["dependencies"] if not isinstance(line, str)] == [{"pip": ["-e ."]}]


def test_this_python_is_new_enough() -> None:
    assert platform.python_version() in SpecifierSet(PROJECT["requires-python"], prereleases=True)


@pytest.mark.parametrize("name", [*RUN, *LAB, *DEV])
def test_what_is_installed_satisfies_the_bounds(name: str) -> None:
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name in RUN:
            raise
        pytest.skip(f"{name} is not installed: it belongs to an extra")
    assert (RUN | LAB | DEV)[name].contains(installed, prereleases=True)
    conda_name = CONDA_NAMES.get(name, name)
    if conda_name in IN_CONDA:
        assert IN_CONDA[conda_name].contains(installed, prereleases=True)
