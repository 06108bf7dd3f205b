# Everything a contributor does, each in one word. Needs only Python >= 3.11 and make.
PYTHON ?= python3
# Another interpreter gets an environment of its own: make test PYTHON=python3.13
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN := $(VENV)/bin
BENCH := $(VENV)-bench
DOCS := $(VENV)-docs
RELEASE := $(VENV)-release
# The checkout's own interpreter settings must not change what is tested.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test browser suite quick test-full test-busy test-lowest test-pythons test-integrations check fuzz soak bench docs release pictures requirements clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

demo: $(VENV)/.core ## set up, take the tour, and look at the dashboard
	@$(BIN)/orbiter-memory demo

PYTEST = $(BIN)/python -m pytest -n 3 --dist worksteal

# Both at once: tests wait for servers now and then, and types are one process.
test: browser $(VENV)/.dev ## set up, then check and test everything a change can break
	@sh tests/browser/chromium.sh end $(VENV)
	@$(MAKE) --no-print-directory --jobs 2 check suite

suite: $(VENV)/.dev
	ORBITER_REQUIRE_SERVERS=1 $(PYTEST) -m "not full"

quick: $(VENV)/.dev ## the tests of a minute: no servers, no browser, nothing slow
	$(PYTEST) -m "not (postgres or redis or browser or slow or full)" $(addprefix --ignore=tests/,browser cli client crash dashboard docs embeddings episodic mcp packaging server transfer)

test-full: test ## also what guards the test kit alone, advisories, the lowest versions, and other Pythons
	ORBITER_REQUIRE_SERVERS=1 $(PYTEST) -m full
	$(BIN)/python -m tests.packaging.minimums
	@$(MAKE) --no-print-directory test-lowest test-pythons

test-busy: $(VENV)/.dev ## `make test` beside four busy loops: it must pass there, too
	$(BIN)/python tests/busy.py $(MAKE) test

test-lowest: $(VENV)/.dev ## test with the lowest versions of dependencies that are declared
	ORBITER_REQUIRE_SERVERS=1 sh tests/lowest.sh $(VENV)

# Each has an environment of its own.
PYTHONS ?= python3.12 python3.13
test-pythons: ## test on the other versions of Python (PYTHONS="python3.12 …")
	@for python in $(PYTHONS); do $(MAKE) --no-print-directory suite PYTHON=$$python || exit 1; done

# Frameworks conflict; each has an environment of its own, with the versions pinned beside its tests.
test-integrations: $(VENV)/.dev ## test each framework's adapter beside that framework alone, then its newest release
	$(BIN)/python tests/integrations/run.py $(VENV) $(FRAMEWORKS)

# Root gets the browser that pages are tested in, by apt, while everything else is set up.
browser:
	@sh tests/browser/chromium.sh begin $(VENV)

check: $(VENV)/.dev ## only format, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python models/minilm/scenes/check.py

fuzz: $(VENV)/.dev ## one million random histories: none may come out illegal
	$(BIN)/python -m benchmarks.legal --cases 1000000

soak: $(VENV)/.dev ## kill, cut off and starve the stores for hours; goes on where it was stopped (SCALE=0.1: a tenth)
	$(BIN)/python benchmarks/soak.py --scale $(or $(SCALE),1) $(if $(MINUTES),--minutes $(MINUTES))

bench: $(BENCH)/.ready ## measure against peers (DATA=folder adds LoCoMo, FULL=1 a million rows)
	$(BENCH)/bin/python benchmarks/run.py $(if $(DATA),--data $(DATA)) $(if $(FULL),--full)

# A warning of mkdocs is an error. The tools have an environment of their own, and load nothing when they build.
docs: $(DOCS)/.ready ## build the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict

release: $(RELEASE)/.ready ## build and check what would be uploaded, in dist; nothing is uploaded (RELEASE_KEY=… signs)
	$(RELEASE)/bin/python deploy/release.py

pictures: $(VENV)/.dev ## take the pictures of README and docs again, from the real program
	$(BIN)/python -m docs.build_pictures

requirements: $(VENV)/.core ## pin the tools anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --no-header --upgrade requirements-dev.in -o requirements-dev.txt
	$(BIN)/uv pip compile --quiet --universal --no-header --upgrade -c requirements-dev.txt requirements-bench.in -o requirements-bench.txt
	$(BIN)/uv pip compile --quiet --universal --no-header --upgrade requirements-docs.in -o requirements-docs.txt
	$(BIN)/uv pip compile --quiet --universal --no-header --upgrade requirements-release.in -o requirements-release.txt
	compile="$(BIN)/uv pip compile --quiet --universal --no-header --no-annotate --upgrade"; \
	for each in tests/integrations/frameworks/*.in; do \
		$$compile -c requirements-dev.txt $$each -o $${each%.in}.txt 2>/dev/null \
			|| $$compile $$each -o $${each%.in}.txt || exit 1; done # those that conflict stay apart

clean: ## remove the environments and caches
	rm -rf $(VENV) $(BENCH) $(DOCS) $(RELEASE) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

# uv installs the same set many times faster; where it cannot be had, or fails, pip does the work.
define install
	$(1)/bin/python -m pip install --quiet uv 2>/dev/null || true
	{ [ -x $(1)/bin/uv ] && $(1)/bin/uv pip install --quiet --compile-bytecode --python $(1)/bin/python $(2) 2>/dev/null; } \
		|| $(1)/bin/python -m pip install --quiet $(2)
endef

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; point at one with: make PYTHON=/path/to/python3.11 <target>"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The model is part of the checkout; installed editable, nothing of it is copied.
LOCAL := -e '.[local,server]' -e ./models/minilm

$(VENV)/.core: $(VENV)/bin/python pyproject.toml models/minilm/pyproject.toml
	@echo "installing it in $(VENV): this takes a minute, and only the first time"
	@$(call install,$(VENV),$(LOCAL))
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml models/minilm/pyproject.toml requirements-dev.txt
	@$(call install,$(VENV),-r requirements-dev.txt $(LOCAL))
	@touch $(VENV)/.core $@

$(BENCH)/.ready: requirements-dev.txt requirements-bench.txt pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	@$(call install,$(BENCH),-r requirements-dev.txt -r requirements-bench.txt $(LOCAL))
	@touch $@

$(DOCS)/.ready: requirements-docs.txt
	$(PYTHON) -m venv $(DOCS)
	@$(call install,$(DOCS),-r requirements-docs.txt)
	@touch $@

$(RELEASE)/.ready: requirements-release.txt
	$(PYTHON) -m venv $(RELEASE)
	@$(call install,$(RELEASE),-r requirements-release.txt)
	@touch $@
