# minilayup's daily commands. All they need is Python 3.10 or newer: the first one makes its own environment in .venv.
#
#   make race PYTHON=python3.12     PYTHON is the interpreter that .venv is made with
#   make test ARGS="-k hooks -x"    ARGS is handed on

PYTHON ?= python3
ARGS   ?=

VENV := .venv
PY   := $(VENV)/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help race lab test test-browser lint figures results bench clean environment
.NOTPARALLEL:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

race: $(VENV)/.run ## the methods side by side on real data: a table and report.html
	@$(PY) -m minilayup race $(ARGS)

lab: $(VENV)/.lab ## the notebooks, in JupyterLab
	@$(PY) -m minilayup lab $(ARGS)

test: $(VENV)/.dev ## the tests
	@$(PY) -m pytest $(ARGS)

test-browser: $(VENV)/.browser ## the notebooks in a real JupyterLab; needs Chromium (on Debian: apt install chromium)
	@$(PY) -m pytest -m browser -rs tests/browser $(ARGS)

lint: $(VENV)/.dev ## style, layout and types
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

figures: $(VENV)/.lab ## each lesson's static picture, and the stored numbers in its prose
	@$(PY) bench/figures.py

results: $(VENV)/.lab ## measure again what the lessons say (about an hour)
	@for lesson in bench/lessons/lesson_*.py; do $(PY) $$lesson || exit 1; done

bench: $(VENV)/.run ## the performance figures
	@$(PY) -m minilayup bench $(ARGS)

clean: ## remove what the tools leave behind; the environment stays (rm -r .venv removes it)
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

# One stamp for each set of packages, written when its installation is complete and out of date when pyproject.toml
# changes. A larger set contains the smaller ones.
$(VENV)/.run: pyproject.toml
	$(call install,.)
	@touch $(VENV)/.run

$(VENV)/.lab: pyproject.toml
	$(call install,.[lab])
	@touch $(VENV)/.run $(VENV)/.lab

$(VENV)/.dev: pyproject.toml
	$(call install,.[dev])
	@touch $(VENV)/.run $(VENV)/.lab $(VENV)/.dev

$(VENV)/.browser: pyproject.toml
	$(call install,.[browser])
	@touch $(VENV)/.run $(VENV)/.lab $(VENV)/.dev $(VENV)/.browser

# pip takes a package for installed even if it was stopped in the middle of it. So .unfinished stands in the environment
# while pip works, and an environment in which it still stands is made anew.
define install
	@$(whole) || $(MAKE) --no-print-directory environment
	@touch $(VENV)/.unfinished
	@echo "Installing minilayup and what it needs into $(VENV). The first time takes minutes: PyTorch is large."
	@$(PY) -m pip install -e "$(1)"
	@rm $(VENV)/.unfinished
endef

# The last thing that making an environment writes is pip's list of its own files.
whole = [ ! -e $(VENV)/.unfinished ] \
  && $(PY) -c "import sys, importlib.metadata as m; sys.exit(not m.files('pip'))" 2>/dev/null

environment:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" 2>/dev/null \
	  || { echo "minilayup needs Python 3.10 or newer, and '$(PYTHON)' is not. Name one: make race PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c "import venv, ensurepip" 2>/dev/null \
	  || { echo "'$(PYTHON)' has no venv module to make an environment with. On Debian: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
