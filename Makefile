# Two commands: `make fuzz` and `make test`. Both set up what they need.
ENGINE ?= sglang==0.5.23
TIME ?= 60s
SEED ?= 0
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: fuzz test bench lint clean

fuzz: $(STAMP)
	$(BIN)/specoracle fuzz --engine "$(ENGINE)" --max-time $(TIME) --seed $(SEED)

test: $(STAMP)
	$(BIN)/python -m pytest

bench: $(STAMP)
	$(BIN)/specoracle bench --engine "$(ENGINE)"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/specoracle corpus lint

# The lock pins everything; the project itself is added without looking for more.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: specoracle needs Python 3.11 or newer; name one with make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf $(VENV) out build dist *.egg-info
