# Two commands: `make fuzz` and `make test`. Both set up what they need.
ENGINE ?= sglang==0.5.23
TIME ?= 60s
SEED ?= 0
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# Provisioned before the tests that use them: those have deadlines, a first download has none.
TESTED := $(addprefix sglang==,0.5.10 0.5.12 0.5.14 0.5.16 0.5.18 0.5.20 0.5.22 0.5.23) \
          $(addprefix vllm==,0.19.0 0.27.1 0.28.0 0.33.0)

.PHONY: fuzz test tools bench lint clean

fuzz: $(STAMP)
	$(BIN)/specoracle fuzz --engine "$(ENGINE)" --max-time $(TIME) --seed $(SEED)

test: $(STAMP) tools
	$(BIN)/python -m pytest --numprocesses 2 tests/unit tests/quality tests/snapshot
	$(BIN)/specoracle engines add $(TESTED)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile tests/e2e

# Tests need a browser (the report's pages) and a compiler with ninja (the n-gram trie that
# SGLang ships as C++). Where one is missing and we may install Debian's, we do; elsewhere
# the tests say what is missing.
tools:
	@need=""; \
	command -v chromium chromium-browser google-chrome >/dev/null || test -n "$$CHROMIUM" || need="chromium"; \
	command -v g++ >/dev/null || need="$$need g++"; command -v ninja >/dev/null || need="$$need ninja-build"; \
	test -z "$$need" || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$need >/dev/null; } || \
	  echo "missing and not to be installed here:$$need; the tests that need it will fail" >&2

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
