"""One JupyterLab and one Chromium for all browser tests; each notebook is opened and run once.

They run with ``make test-browser``; elsewhere, and where Playwright or Chromium is missing, they are skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from page import Notebook

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "browser" not in config.option.markexpr:
        skip = pytest.mark.skip(reason="opens notebooks in a browser, which takes minutes: make test-browser")
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The system's Chromium, without a window."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
    )
    found = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if found is None:
        pytest.skip("there is no chromium, chromium-browser or google-chrome. On Debian: apt install chromium")
    flags = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=found, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on a copy of the notebooks."""
    server = Lab(tmp_path_factory.mktemp("lab"))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def notebook(request: pytest.FixtureRequest, chromium: Any, lab: Lab) -> Iterator[Notebook]:
    """The notebook that the parameter names, opened, all its cells run, all its predictions committed."""
    opened = Notebook(chromium, lab, request.param)
    try:
        opened.run()
        opened.commit()
        yield opened
    finally:
        opened.close()
