# make demo       set everything up in .venv and train once: out.ipynb is the executed notebook
# make test       what a newcomer runs: every notebook and all tests but the slow ones, in minutes
# make test-all   everything, as continuous integration does
# make tables     rebuild outputs/ and the top of README.md from the table of record
# make types      what mypy and pyright find in the modules that people import
# make docs       one site that needs no network, into docs/: notebooks, results, the reference of every function
# make export     write the modules from their notebooks, after a change to one
# make bench      speed beside other libraries, on an otherwise idle machine, into outputs/
PYTHON ?= python3
BIN = .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests start some two hundred processes; without its compiled modules each would compile the package again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-all types tables docs bench setup check export notebooks clean-venv

demo: setup
	papermill nbs/train.ipynb out.ipynb -p loss em

test: setup check notebooks
	OMP_NUM_THREADS=1 python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: setup check notebooks
	OMP_NUM_THREADS=1 python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov=spml_nb --cov-report=term:skip-covered --cov-fail-under=90

tables: setup
	spml tables

types: setup
	python -m pytest tests/test_types.py

docs: setup
	python website/build.py

bench: setup
	papermill benchmarks/speed.ipynb out-speed.ipynb

setup: .venv/.ready

.venv/.ready: constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Exporting the notebooks and cleaning them must change nothing that is committed.
check: export
	git diff --exit-code -- nbs spml_nb
	test -z "$$(git ls-files --others --exclude-standard -- nbs spml_nb)"
	ruff format --check
	ruff check

export:
	nbdev_export
	ruff format --quiet nbs spml_nb
	nbdev_clean

notebooks:
	OMP_NUM_THREADS=1 nbdev_test --n-workers 2 --timing

clean-venv:
	rm -rf .venv
