# make demo and make test work from a fresh clone: they set up all they need.
# PYTHON     the interpreter that makes .venv (3.11 or newer)
# PYTEST     more options for pytest, e.g. make test PYTEST='-k golden'
# SCHEDULER  a Dask scheduler for make sweep, e.g. tcp://host:8786; SWEEP: paths of tests, if not all slow ones
# RTLSTM_CACHE (environment)   where built simulators are kept; by default the user's cache folder

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3
PYTEST ?=
# A process for each core, of which each takes seconds to begin: 2 to 4.
JOBS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN || echo 2); echo $$((cores < 2 ? 2 : cores > 4 ? 4 : cores)))
MUTANTS ?= 40

# Most lines of Python in these folders: the number goes down, or up with a reason in the commit.
MOST_LINES := 98493
FOLDERS := rtlstm spec tools hdl sim host fpga boards gen train explore zoo cli bench
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Pinned, since on Linux a new release of torch pulls gigabytes of GPU libraries without being
# asked. The build without them is taken where the package index has it.
TORCH := torch==2.13.0

# Without byte code, each of some thousand processes would compile all that it imports: torch alone takes seconds.
unexport PYTHONDONTWRITEBYTECODE

TOOLS := iverilog g++ make perl

# What runs with the oldest packages: numbers, host, simulators, front door, front ends without torch.
OLDEST_TESTS := tests/spec tests/hdl/test_yosys.py tests/sim/test_icarus.py tests/sim/test_native.py \
  tests/host/test_run.py tests/host/test_stream.py tests/host/test_steps_gate.py tests/host/test_link_lines.py \
  tests/gen/frontends/test_onnx_layers.py tests/gen/frontends/test_tensors.py \
  tests/gen/frontends/test_hdf5.py tests/cli/test_command_help.py tests/cli/test_command_words.py \
  tests/cli/test_results.py tests/test_front_door.py

.PHONY: help setup system tcl riscv demo test test-all sweep test-oldest train-examples formal mutate lint types layers size docs wheels clean FORCE

help:
	@echo 'make demo      the worked example: model in, hardware proven, speech found'
	@echo 'make test      lint, types, layers and the tests (make test-all: the slow ones too)'
	@echo 'make sweep     the slow tests, as jobs that go on after a kill; SCHEDULER=tcp://HOST:PORT'
	@echo 'make mutate    changes of the hardware, and whether a test sees them; MUTANTS=40 of each of five builds'
	@echo 'make formal    the proofs about streams, queues, buffers, buses and the link'
	@echo 'make train-examples  networks trained in the arithmetic of the hardware; takes an hour'
	@echo 'make test-oldest  some tests with the oldest packages that pyproject.toml admits'
	@echo 'make docs      the pages of docs/ and the notebooks, which run, as a site in build/site'
	@echo 'make wheels    wheels of the whole and of the driver alone, installed and tried'
	@echo 'make setup     .venv with the tools for development; the others call it'
	@echo 'make clean     remove what was built; built simulators stay in the cache'

setup: build/setup-dev

# build/ holds the links of a strict editable install: the stamps beside them go when they go.
build/setup-dev: pyproject.toml build/files $(VENV)/pyvenv.cfg
	@echo 'setting up $(VENV) for development'
	@$(PIP) install -q --no-compile '$(TORCH)+cpu' 2>/dev/null || $(PIP) install -q --no-compile '$(TORCH)'
	@PYTHONWARNINGS=ignore $(PIP) install -q --no-compile -e '.[dev]' --config-settings editable_mode=strict
	@touch build/setup-demo $@

build/setup-demo: pyproject.toml build/files $(VENV)/pyvenv.cfg
	@echo 'setting up $(VENV) for the demo'
	@PYTHONWARNINGS=ignore $(PIP) install -q --no-compile -e '.[demo]' --config-settings editable_mode=strict
	@touch $@

# The set of files, not what they say: a strict editable install links each file by name.
build/files: FORCE
	@mkdir -p build
	@find $(FOLDERS) -type f ! -name '*.pyc' | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(VENV)/pyvenv.cfg: | system
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -q --no-compile --upgrade pip

# Installs what the shell's array `missing` names, or says what to install.
define INSTALL
  apt=(); \
  if command -v apt-get >/dev/null; then \
    if (( EUID == 0 )); then apt=(apt-get); \
    elif sudo -n true 2>/dev/null; then apt=(sudo -n apt-get); fi; \
  fi; \
  if (( ! $${#apt[@]} )); then \
    echo "Install $${missing[*]} with your system's package manager, then run make again." >&2; exit 1; \
  fi; \
  echo "installing $${missing[*]}"; \
  "$${apt[@]}" update -qq >/dev/null && \
  DEBIAN_FRONTEND=noninteractive "$${apt[@]}" install -qq -y --no-install-recommends "$${missing[@]}" >/dev/null || \
  { echo "Install $${missing[*]} by hand: apt-get could not." >&2; exit 1; };
endef

system:
	@missing=(); \
	for tool in $(TOOLS); do command -v "$$tool" >/dev/null || missing+=("$$tool"); done; \
	if ! command -v $(PYTHON) >/dev/null; then missing+=(python3 python3-venv); \
	elif $(PYTHON) -c '' 2>/dev/null && ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then missing+=(python3-venv); fi; \
	if (( $${#missing[@]} )); then $(INSTALL) fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Install Python 3.11 or newer and name it, for example make test PYTHON=python3.12.' >&2; exit 1; }

# The script for Vivado runs in Python's Tcl, which Debian packs by itself.
tcl: system
	@if [[ $$($(PYTHON) -c 'import sys; print(sys.base_prefix)') == /usr ]] && \
	  ! $(PYTHON) -c 'import tkinter' 2>/dev/null; then missing=(python3-tk); $(INSTALL) fi

# A slow test compiles a program for the CPU of a LiteX SoC.
riscv: system
	@if ! command -v riscv64-unknown-elf-gcc >/dev/null; then missing=(gcc-riscv64-unknown-elf); $(INSTALL) fi

demo: system build/setup-demo
	@$(BIN)/python examples/silero_vad/demo.py

# espeak-ng makes the speech that two of them train on.
train-examples: system build/setup-dev
	@if ! command -v espeak-ng >/dev/null; then missing=(espeak-ng); $(INSTALL) fi
	@$(BIN)/python examples/training/tasks.py adding digits silero silero_pruned gait gait_labelled uzmorph arabic keywords

lint: build/setup-dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo 'format with $(BIN)/ruff format .' >&2; exit 1; }
	@echo 'lint: ok'

# The paths of the installed links are turned into the files' own.
types: build/setup-dev
	@$(BIN)/mypy -p rtlstm $(addprefix -p rtlstm.,$(filter-out rtlstm,$(FOLDERS))) | sed 's,^build/__editable__[^/]*/rtlstm/,,'
	@MYPYPATH=examples:examples/training $(BIN)/mypy examples/*.py examples/*/*.py

# Not from the root, where the folder rtlstm/ would be taken for the whole package.
layers: build/setup-dev
	@cd build && $(CURDIR)/$(BIN)/lint-imports ../pyproject.toml --no-logo --no-cache > layers.log || \
	  { cat layers.log; exit 1; }
	@echo 'layers: ok'

size:
	@lines=$$(find $(FOLDERS) -name '*.py' -exec cat {} + | wc -l); \
	if (( lines > $(MOST_LINES) )); then \
	  echo "the packages must have at most $(MOST_LINES) lines of Python, not $$lines: make something simpler" >&2; exit 1; fi; \
	echo "size: ok, $$lines of $(MOST_LINES) lines"

# The notebooks run, too. Their simulators run for a moment only.
docs: build/setup-dev
	@RTLSTM_OPTIMISATION=-O1 $(BIN)/sphinx-build -q -W --keep-going -c docs -d build/site-cache . build/site
	@echo 'docs: build/site/index.html'

# ruff, mypy and import-linter run beside pytest and say only what is wrong: pytest's summary is the last line.
# Most simulators run for a moment only, and the other test process keeps the second core busy while one compiles.
# Each has one OpenMP thread: more would compete for the cores.
test: system tcl build/setup-dev
	@trap 'kill 0' INT; \
	($(MAKE) --no-print-directory lint types layers size >build/checks.log 2>&1 || { cat build/checks.log >&2; exit 1; }) & \
	failed=0; \
	RTLSTM_OPTIMISATION=-O1 RTLSTM_JOBS=1 OMP_NUM_THREADS=1 \
	  $(BIN)/pytest -q -n $(JOBS) --dist worksteal $(PYTEST) || failed=$$?; \
	wait $$! && exit $$failed

# The slow ones are jobs of their own: on JOBS processes or a cluster, and after a kill `make sweep` goes on.
test-all: test sweep

sweep: system riscv build/setup-dev
	@$(BIN)/python tests/support/sweep.py $(if $(SCHEDULER),--scheduler $(SCHEDULER),--workers $(JOBS)) -m slow $(SWEEP)

# What changes of the hardware the test of rare cases sees; jobs, as those of make sweep.
mutate: system build/setup-dev
	@PYTHONPATH=tests $(BIN)/python tests/support/mutation.py \
	  $(if $(SCHEDULER),--scheduler $(SCHEDULER),--workers $(JOBS)) --mutants $(MUTANTS)

# Each proof is a test; make test runs the quickest. One that was done is not done again.
formal: build/setup-dev
	@$(BIN)/pytest -v -n $(JOBS) --dist worksteal -m 'slow or not slow' tests/formal $(PYTEST)

# Installed from a copy, since build/ holds the links of the editable install.
test-oldest: system
	@rm -rf build/oldest
	@mkdir -p build/oldest/source
	@cp -r $(FOLDERS) pyproject.toml README.md LICENSE LICENSE-OUTPUT.txt build/oldest/source
	@$(PYTHON) -m venv build/oldest/env
	@build/oldest/env/bin/python packaging/oldest.py > build/oldest/requirements.txt
	@build/oldest/env/bin/python -m pip install -q --disable-pip-version-check -r build/oldest/requirements.txt
	@build/oldest/env/bin/python -m pip install -q --disable-pip-version-check --no-deps build/oldest/source
	@build/oldest/env/bin/pytest -q -p no:cacheprovider -n $(JOBS) $(OLDEST_TESTS) $(PYTEST)

# Each is installed in an environment of its own, with its dependencies, and tried there.
wheels: build/setup-dev
	@rm -rf build/wheels
	@mkdir -p build/wheels
	@$(BIN)/python packaging/build_wheel.py build/wheels
	@$(BIN)/python packaging/build_driver_wheel.py build/wheels
	@for wheel in build/wheels/*.whl; do $(BIN)/python packaging/smoke.py "$$wheel"; done

clean:
	rm -rf build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
