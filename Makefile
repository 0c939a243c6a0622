# Each target is one line that calls `breakeven`; `make demo` and `make test` do the whole set-up on a fresh machine.
PYTHON ?= python3
EXPERIMENT ?= experiments/trec.yaml
RUN ?= runs/$(notdir $(basename $(EXPERIMENT)))
VARIANT ?= student-int8
PROFILE ?= cpu
PORT ?= 8080
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready$(GPU)
EXTRAS := serve,otel,train,quantize,loadtests,report,dev

.PHONY: setup lock demo test test-long test-device check train distill export quantize serve loadtest report bench clean
setup: $(STAMP)
lock:
	rm -rf .lock && $(PYTHON) -m venv .lock
	.lock/bin/pip install --quiet torch==2.13.0 --editable '.[$(EXTRAS)]'
	{ echo '# Every version that `make setup` installs, as tried together. Made by `make lock`.'; .lock/bin/pip freeze --exclude-editable | sed 's/+cpu//; / @ /d'; } > requirements.lock
	rm -rf .lock
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
ifeq ($(GPU),1)
	$(BIN)/python -m pip uninstall --quiet --yes onnxruntime
	$(BIN)/python -m pip install --quiet 'onnxruntime-gpu[cuda,cudnn]'
endif
	touch $@

demo: setup
	$(BIN)/breakeven run experiments/trec.yaml
test: setup
	$(BIN)/python -m pytest -m 'not long and not device'
test-long: setup
	$(BIN)/python -m pytest -m long --timeout=3600
test-device: setup
	$(BIN)/python -m pytest -m device
check: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
train: setup
	$(BIN)/breakeven train teacher $(EXPERIMENT)
distill: setup
	$(BIN)/breakeven train student $(EXPERIMENT)
export: setup
	$(BIN)/breakeven export $(EXPERIMENT)
quantize: setup
	$(BIN)/breakeven quantize $(EXPERIMENT)
serve: setup
	$(BIN)/breakeven serve $(RUN)/bundle --variant $(VARIANT) --profile $(PROFILE) --port $(PORT)
loadtest: setup
	$(BIN)/breakeven loadtest $(EXPERIMENT)
report: setup
	$(BIN)/breakeven report $(RUN)
bench: setup
	$(BIN)/python benchmarks/serving/server_side.py $(RUN)/bundle --variant $(VARIANT) --texts $(RUN)/dataset/test.jsonl
clean:
	rm -rf $(VENV) runs
