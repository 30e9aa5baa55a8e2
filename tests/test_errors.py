"""Every refusal says what was given, what is allowed and, for names, the nearest valid one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from minilayup.errors import ArgumentError, DataError, choose, number, positive_int


def test_choose_returns_an_allowed_name_and_takes_any_iterable() -> None:
    assert choose("model", "cnn", ("mlp", "cnn")) == "cnn"
    assert choose("model", "cnn", {"cnn": 1}) == "cnn"
    assert choose("model", "cnn", (name for name in ["mlp", "cnn"])) == "cnn"


def test_choose_names_the_nearest() -> None:
    with pytest.raises(ArgumentError) as error:
        choose("model", "cnm", ["mlp", "cnn", "resnet18"])
    assert str(error.value) == ("model='cnm' is not known. Did you mean 'cnn'? Allowed: 'mlp', 'cnn', 'resnet18'.")
    with pytest.raises(ArgumentError, match="Did you mean 'resnet18'"):
        choose("model", "ResNet-18", ["mlp", "cnn", "resnet18"])


@pytest.mark.parametrize("given", ["xyzzy", "", None, 3, ["cnn"]])
def test_choose_without_a_near_name_gives_no_hint(given: object) -> None:
    with pytest.raises(ArgumentError) as error:
        choose("model", given, ["mlp", "cnn"])
    assert repr(given) in str(error.value) and "Did you mean" not in str(error.value)
    assert "Allowed: 'mlp', 'cnn'." in str(error.value)


@pytest.mark.parametrize("given", [3, np.int64(3), torch.tensor(3)])
def test_positive_int_takes_whole_numbers_of_any_kind(given: object) -> None:
    value = positive_int("workers", given)
    assert value == 3 and type(value) is int


def test_positive_int_at_its_border() -> None:
    assert positive_int("slack", 0, at_least=0) == 0
    with pytest.raises(ArgumentError, match=r"slack=-1 is not allowed: .* at least 0\."):
        positive_int("slack", -1, at_least=0)


BOOLS: list[Any] = [True, np.True_, torch.tensor(True)]


@pytest.mark.parametrize("given", [0, -2, 1.0, 2.5, "3", None, math.nan, [3], torch.tensor([1, 2]), *BOOLS])
def test_positive_int_refuses(given: object) -> None:
    with pytest.raises(ArgumentError, match=r"workers=.* at least 1"):
        positive_int("workers", given)


@pytest.mark.parametrize("given", [1, 1.0, np.float32(1), torch.tensor(1.0)])
def test_number_takes_numbers_of_any_kind(given: object) -> None:
    value = number("lr", given, 0, 1)
    assert value == 1.0 and type(value) is float


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf, "0.5", b"1", None, [0.5], 1j, 10**400, *BOOLS])
def test_number_refuses(given: object) -> None:
    with pytest.raises(ArgumentError, match=r"lr=.*finite number"):
        number("lr", given)


def test_number_borders_may_be_left_out() -> None:
    assert number("skew", 0, 0, 1) == 0
    for given, low_is_open, high_is_open in ((0, True, False), (1, False, True), (2, False, False)):
        with pytest.raises(ArgumentError):
            number("skew", given, 0, 1, open_low=low_is_open, open_high=high_is_open)
    with pytest.raises(ArgumentError, match=r"a finite number, above 0 and at most 1\.$"):
        number("skew", -1, 0, 1, open_low=True)
    with pytest.raises(ArgumentError, match=r"a finite number, below 1\.$"):
        number("skew", 1, high=1, open_high=True)
    with pytest.raises(ArgumentError, match=r"must be a finite number\.$"):
        number("lr", math.inf)


def test_errors_are_of_the_kinds_python_users_catch() -> None:
    assert issubclass(ArgumentError, ValueError) and issubclass(DataError, RuntimeError)
