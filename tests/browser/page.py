"""A notebook in a browser, as a reader sees it, driven with the keyboard."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from lab import PATIENCE, Lab
from scripts import (
    CUT_OFF,
    IDLE,
    INKS,
    NO_NAME,
    NOT_RUN,
    OPENED,
    OURS,
    OUTPUTS,
    QUIET_FOR_HALF_A_SECOND,
    RUN,
    SETTLED,
    STATE,
    TRACEBACKS,
    WATCH,
    WORDS,
)

SHOTS = os.environ.get("MINILAYUP_SCREENSHOTS")  # a folder for pictures of what was tested
KEYS = {"spinbutton": ("ArrowUp", "ArrowDown"), "slider": ("ArrowRight", "ArrowLeft"),
        "combobox": ("ArrowDown", "ArrowUp"), "button": ("Enter", "Enter"), "textbox": ("a", "b"),
        "checkbox": ("Space", "Space"), "radio": ("ArrowDown", "ArrowUp")}  # fmt: skip
"""What moves a control of each role, and what moves it back."""


class Notebook:
    """A notebook in JupyterLab, in a page of its own."""

    def __init__(self, browser: Any, lab: Lab, name: str) -> None:
        self.name, self.lab = name, lab
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.page.set_default_timeout(PATIENCE * 1000)
        self.console: list[str] = []
        self.outside: list[str] = []
        self.page.on("console", self._said_in_console)
        self.page.on("pageerror", self._error)
        self.page.on("request", self._request)
        self.cdp = self.page.context.new_cdp_session(self.page)
        self.cdp.send("Accessibility.enable")
        # A workspace of its own: no other notebook is opened with it.
        self.page.goto(f"{lab.url}/lab/workspaces/{quote(Path(name).stem)}/tree/{quote(name)}?token={lab.token}")
        said = self.page.wait_for_function(OPENED, arg=name).json_value()
        if said != "opened":
            pytest.fail(f"{name}: JupyterLab asks something when it opens the notebook: {said}")

    def _said_in_console(self, message: Any) -> None:
        if message.type == "error":
            self.console.append(f"{message.text} at {message.location.get('url')}")

    def _error(self, error: Any) -> None:
        """An exception in the page, unless all of its stack is JupyterLab's own: that is not ours to mend."""
        frames = [line for line in (error.stack or "").splitlines() if line.lstrip().startswith("at ")]
        if not frames or any("/static/lab/" not in line or "eval" in line for line in frames):
            self.console.append(f"{error}\n{error.stack}")

    def _request(self, request: Any) -> None:
        if request.url.startswith(("http:", "https:", "ws:", "wss:")) and not request.url.startswith(self.lab.url):
            self.outside.append(request.url)

    def close(self) -> None:
        """Close the page and end the kernel."""
        try:
            self.page.evaluate("() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.shutdown()")
        finally:
            self.page.context.close()

    # -- what the reader does ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all cells."""
        self.page.evaluate(RUN)
        self.page.wait_for_function("() => minilayupTest.ran !== null")
        self.idle()

    def idle(self) -> None:
        """Wait until the kernel has nothing to do and the page has shown what it did."""
        self.page.wait_for_function(IDLE)

    @property
    def figures(self) -> list[Any]:
        """The figures, as locators."""
        found = self.page.locator(".minilayup-figure")
        return [found.nth(k) for k in range(found.count())]

    def commit(self) -> None:
        """Commit to the prediction of each figure, with the keyboard."""
        for figure in self.figures:
            figure.get_by_role("button", name="Commit", exact=True).press("Enter")
            figure.locator(WORDS).wait_for(state="attached")
            self.idle()
            figure.evaluate("(figure, state) => { figure.dataset.start = figure.querySelector(state).value; }", STATE)

    def reset(self, figure: Any) -> None:
        """Press the figure's Reset button and wait until its settings are those of the beginning."""
        figure.get_by_role("button", name="Reset", exact=True).press("Enter")
        done = "([figure, state]) => figure.querySelector(state).value === figure.dataset.start"
        self.page.wait_for_function(done, arg=[figure.element_handle(), STATE])
        self.idle()

    def controls(self, figure: Any) -> list[list[Any]]:
        """For each control that is shown what can be focused of it: a number's box and slider, a list, buttons."""
        rows = figure.locator(":scope > :last-child > :first-child > :visible")
        parts = [rows.nth(k).locator("input, select, button, [role=slider]") for k in range(rows.count())]
        return [[row.nth(k) for k in range(row.count()) if row.nth(k).is_visible()] for row in parts if row.count()]

    def role(self, part: Any) -> str:
        """The role of an element, in the browser's accessibility tree."""
        return str(self._tree(part)[0]["role"]["value"])

    def press(self, figure: Any, part: Any, watched: str) -> None:
        """Move a control by one key press; returns when what ``watched`` selects has changed."""
        before = self._said(figure, watched)
        there, back = KEYS[self.role(part)]
        if part.evaluate("part => String(part.ariaValueNow ?? part.value) === (part.ariaValueMax ?? part.max)") or (
            part.evaluate("part => part.localName === 'select' && part.selectedIndex === part.options.length - 1")
        ):
            there = back  # it is at its end
        part.press(there)
        changed = "([figure, what, before]) => { const e = figure.querySelector(what);"
        changed += " return e && (e.value ?? e.textContent) !== before; }"
        try:
            self.page.wait_for_function(changed, arg=[figure.element_handle(), watched, before], timeout=30_000)
        except Exception:  # Playwright's own TimeoutError, which is not importable without Playwright
            pytest.fail(
                f"{self.name}: {there} on {self.describe(part)} does not change the figure's {watched}: {before}"
            )
        self.idle()

    def hold(self, figure: Any, part: Any) -> float:
        """Hold a control's keys down for two seconds, to and fro; the seconds from release to the last change."""
        self.reset(figure)
        self.page.evaluate(WATCH, figure.element_handle())
        part.focus()
        keys, held, n = KEYS[self.role(part)], "", 0
        end = time.monotonic() + 2
        while time.monotonic() < end:
            key = keys[n // 5 % 2]
            if held not in ("", key):
                self.page.keyboard.up(held)
            self.page.keyboard.down(key)  # again while it is down: the keyboard's repetition
            held, n = key, n + 1
            self.page.wait_for_timeout(30)
        self.page.keyboard.up(held)
        self.page.wait_for_function(QUIET_FOR_HALF_A_SECOND)
        settled = self.page.evaluate(SETTLED)
        assert settled is not None, f"{self.name}: holding {keys} on {self.describe(part)} changes nothing"
        return float(settled) / 1000

    def theme(self, name: str) -> None:
        """Switch to JupyterLab's "Light" or "Dark" theme."""
        self.page.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", f"JupyterLab {name}"
        )
        light = "true" if name == "Light" else "false"
        self.page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{light}'")

    def resize(self, width: int, height: int) -> None:
        """Make the window as wide and high as this in CSS pixels; a narrow one without the side panel."""
        self.page.set_viewport_size({"width": width, "height": height})
        if width < 700:
            self.page.evaluate("() => jupyterapp.shell.collapseLeft()")
        self._drawn()

    def _drawn(self) -> None:
        """Wait until the browser has laid the page out and drawn it."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def _said(self, figure: Any, what: str) -> str:
        return str(figure.locator(what).first.evaluate("e => e.value ?? e.textContent"))

    def describe(self, part: Any) -> str:
        """An element, in words."""
        node = self._tree(part)[0]
        return f"the {node['role']['value']} “{node.get('name', {}).get('value', '')}”"

    # -- what it sees: each a list of faults -------------------------------------------------------------------------

    def not_run(self) -> list[str]:
        """Cells that were not run."""
        return list(self.page.evaluate(NOT_RUN))

    def tracebacks(self) -> list[str]:
        """Outputs that show an error."""
        return list(self.page.evaluate(TRACEBACKS))

    def complaints(self) -> list[str]:
        """Errors in the kernel, those of widgets' callbacks included, which no output shows."""
        said = self.page.evaluate("() => minilayupTest.complaints")
        return [text for text in said if "Traceback" in text or "Error" in text or "Exception" in text]

    def unnamed_pictures(self) -> list[str]:
        """Pictures in outputs and Markdown without an accessible name."""
        self.page.evaluate("() => document.querySelectorAll('details').forEach(details => { details.open = true; })")
        pictures = self.page.locator(f"{OUTPUTS} :is(img, svg:not(svg svg, [data-icon])) >> visible=true")
        faults = []
        for picture in (pictures.nth(k) for k in range(pictures.count())):
            node = self._tree(picture)[0]
            if node["ignored"] or node.get("name", {}).get("value", "").strip() in ("", NO_NAME):
                faults.append(str(picture.evaluate("picture => picture.outerHTML.slice(0, 200)")))
        return faults

    def unnamed_controls(self) -> list[str]:
        """What can be focused in our figures and has no accessible name."""
        faults = []
        roots = self.page.locator(f"{OURS} >> visible=true")
        for root in (roots.nth(k) for k in range(roots.count())):
            nodes = [node for node in self._tree(root, whole=True) if not node["ignored"]]
            focusable = [
                node
                for node in nodes
                if any(p["name"] == "focusable" and p["value"].get("value") for p in node.get("properties", []))
            ]
            assert focusable, f"{self.name}: nothing of a figure is in the accessibility tree"
            for node in focusable:
                if not node.get("name", {}).get("value", "").strip():
                    faults.append(f"a {node['role']['value']} without a name")
        return faults

    def cut_off(self) -> list[str]:
        """Parts of figures that are wider than the output's area, or squeezed to nothing."""
        return [fault for figure in self.figures for fault in figure.evaluate(CUT_OFF)]

    def inks(self) -> list[tuple[str, str]]:
        """Colours of the figures' words and of what is behind them, as "#rrggbb"."""
        pairs = [pair for figure in self.figures for pair in figure.evaluate(INKS)]
        return [(_hex(ink), _hex(behind)) for ink, behind in pairs]

    def _tree(self, element: Any, whole: bool = False) -> list[dict[str, Any]]:
        """The element's node of the browser's accessibility tree, or all nodes from it downwards."""
        # Chromium leaves out what JupyterLab lets it skip outside the window.
        element.evaluate("element => element.scrollIntoView({block: 'center'})")
        self._drawn()
        element.evaluate("element => { window.minilayupElement = element; }")
        found = self.cdp.send("Runtime.evaluate", {"expression": "minilayupElement"})["result"]["objectId"]
        if whole:
            return list(self.cdp.send("Accessibility.queryAXTree", {"objectId": found})["nodes"])
        arguments = {"objectId": found, "fetchRelatives": False}
        return list(self.cdp.send("Accessibility.getPartialAXTree", arguments)["nodes"])

    # -- pictures for people -----------------------------------------------------------------------------------------

    def shoot(self, word: str, whole: bool = True) -> None:
        """Pictures of each figure, and of the whole notebook, if MINILAYUP_SCREENSHOTS names a folder."""
        if not SHOTS:
            return
        folder, stem, size = Path(SHOTS), Path(self.name).stem, self.page.viewport_size
        folder.mkdir(parents=True, exist_ok=True)
        self.resize(size["width"], 4000)
        for k, figure in enumerate(self.figures, 1):
            figure.scroll_into_view_if_needed()
            self._drawn()
            figure.screenshot(path=folder / f"{stem}-figure{k}-{word}.png")
        scroll = (
            "h => { const e = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer');"
        )
        scroll += " e.scrollTop = h; return [e.scrollTop, e.scrollHeight, e.clientHeight]; }"
        k, at = 0, 0
        while whole:
            top, height, seen = self.page.evaluate(scroll, at)
            self._drawn()
            k += 1
            self.page.screenshot(path=folder / f"{stem}-{word}-{k}.png")
            if at + seen >= height - 1 or top < at:
                break
            at += seen
        self.page.evaluate(scroll, 0)
        self.resize(size["width"], size["height"])


def _hex(colour: str) -> str:
    """ "rgb(1, 2, 3)" as "#010203"."""
    parts = colour[colour.index("(") + 1 :].rstrip(")").split(",")[:3]
    return "#" + "".join(f"{round(float(part)):02x}" for part in parts)
