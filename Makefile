# The pins live in pyproject.toml: [dependency-groups].
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# the shared cases stand beside the checkout where the project is built, and nowhere else
SUITES := tests $(if $(wildcard ../shared/cases),,--ignore=tests/shared_cases)
# pages are looked at in a real browser where there is one; .ci/run installs Debian's
BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
SUITES += $(if $(BROWSER),,--ignore=tests/browser)

# tests/kernels has Triton interpret its kernels, which must be said before a process imports it, so
# they have processes of their own
.PHONY: test lint fuzz zoo bench compile compile-knobs arm clang pythons docs clean

test: $(VENV)/test.installed
	$(if $(BROWSER),,@echo "no chromium here: tests/browser is left out")
	$(BIN)/python -m pytest -n 2 $(SUITES) --ignore=tests/kernels
	$(BIN)/python -m pytest -n 2 tests/kernels

lint: $(VENV)/lint.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the first takes the better part of an hour on one core, and says every thousand inputs how far it
# is: make fuzz FIRST=40000 INPUTS=60000 goes on from there
FIRST ?= 0
INPUTS ?= 100000
fuzz: $(VENV)/test.installed
	nice $(BIN)/python -m tests.fuzz.run --first $(FIRST) --inputs $(INPUTS)
	nice $(BIN)/python -m pytest -q tests/fuzz --hypothesis-profile=long

zoo: $(VENV)/test.installed
	$(BIN)/python tools/zoo.py

bench: $(VENV)/test.installed
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/profile_pick.py

# every Triton kernel of ours for the nine targets: a quarter of an hour on two cores
compile: $(VENV)/test.installed
	$(BIN)/attnctl smoke --compile-for all

# with every setting that tune would try: 13183 launches, five hours of one core; after an interrupt
# the same command goes on
compile-knobs: $(VENV)/test.installed
	$(BIN)/attnctl smoke --compile-for all --every-knob --journal compile-knobs.journal

# the processor's C++ kernels as 64-bit ARM code in an emulator: a minute or two on two cores
arm: $(VENV)/test.installed
	$(BIN)/python -m tests.kernels.cpu.arm

# the same kernels as Clang compiles them, on three threads: five minutes; CC names another than clang
clang: $(VENV)/test.installed
	$(BIN)/python -m tests.kernels.cpu.clang

# installed and imported whole by each of these that is here
PYTHONS ?= $(foreach minor,10 11 12 13,$(shell command -v python3.$(minor)))
pythons:
	$(PYTHON) tools/pythons.py $(PYTHONS)

docs: $(VENV)/test.installed
	$(BIN)/python tools/schemas.py
	$(BIN)/attnctl list --markdown > docs/support.md
	$(BIN)/attnctl explain --markdown > docs/codes.md
	$(BIN)/python tools/screens.py
	$(BIN)/python tools/blocks.py --write README.md docs/*.md

$(VENV)/%.installed: pyproject.toml tools/pins.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/pins.py $* > $(VENV)/$*.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . -r $(VENV)/$*.txt
	touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .mypy_cache .hypothesis
