# make demo: set everything up and train once.   make test: everything that CI runs.
# make tables: rebuild outputs/ and the top of README.md from the table of record.   make docs: the reference of every function, into docs/.
# make bench: measure speed beside other libraries, on an otherwise idle machine, into outputs/.
PYTHON ?= python3
BIN = .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo test tables docs bench setup export check clean-venv

demo: setup
	papermill nbs/train.ipynb out.ipynb -p loss em

test: setup export check
	OMP_NUM_THREADS=1 nbdev_test --n-workers 2 --timing
	python -m pytest --cov=spml_nb --cov-report=term:skip-covered --cov-fail-under=90

tables: setup
	spml tables

docs: setup
	python -c 'from spml_nb.tools.reference import build; print(build())'

bench: setup
	papermill benchmarks/speed.ipynb out-speed.ipynb

setup: .venv/.ready

.venv/.ready: constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Notebooks are the source: exporting and cleaning them must change nothing that is committed.
export:
	nbdev_export
	nbdev_clean
	git diff --exit-code -- nbs spml_nb

check:
	ruff check

clean-venv:
	rm -rf .venv
