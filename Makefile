# Everything that the book needs, from a bare machine with Python 3.11 to 3.13, make and git.
#   make book PYTHON=python3.12      another interpreter
#   make book TORCH="..."            another build of torch (see README)
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help install dev book chapter serve lab test test-all check lint types unit pages bench clean publish

export PYTHON TORCH
PY := .venv/bin/python
THREADS := OMP_NUM_THREADS=1

help: ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' Makefile

install: ## make .venv and install everything the book and the notebooks need
	@sh tools/setup.sh

dev:
	@sh tools/setup.sh dev

book: install ## execute all chapters and build the site into _build/html
	@$(PY) tools/build.py

chapter: install ## build one chapter quickly: make chapter NAME=implicit_bias/descent
	@$(PY) tools/build.py --chapter "$(NAME)"

serve: book ## open the built book on localhost
	@$(PY) tools/serve.py _build/html

lab: install ## start JupyterLab; chapters open as notebooks
	@$(PY) -m jupyter lab --config=tools/lab/jupyter_server_config.py --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/book/intro.md

test: export SVMLIB_SCALE = test
test: dev lint types unit pages ## everything that must pass: lint, types, layers, unit tests, chapters, browser

test-all: export SVMBOOK_TESTS = all
test-all: test ## the same, and every notebook is executed again from an empty folder

check: dev lint types unit ## the quick half of make test: no book, no browser

lint: dev ## style, docstrings, and which module may import which
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/lint-imports --no-logo
	.venv/bin/numpydoc lint $$(find svmlib -name '*.py' -not -path 'svmlib/checks/*') svmlib/checks/registry.py

types: dev ## mypy, strict, over svmlib
	$(PY) -m mypy

unit: dev
	$(THREADS) $(PY) -m pytest tests -n 2 --dist worksteal --ignore tests/book --ignore tests/browser

pages: export SVMLIB_SCALE = test
pages: dev
	@$(PY) tools/browser.py
	@$(PY) tools/build.py
	$(THREADS) $(PY) -m pytest tests/book tests/browser -n 2 --dist worksteal

bench: dev ## timings (not part of the tests)
	$(THREADS) $(PY) -m pytest benchmarks -o python_files='bench_*.py' --benchmark-only

clean: ## remove everything built, with the execution cache
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

publish: book ## push the built site to the branch gh-pages of origin
	@sh tools/publish.sh _build/html
