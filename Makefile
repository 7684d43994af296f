# Every target works in a fresh clone: what it needs is fetched by Go, or installed by scripts/need.sh.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
export CGO_ENABLED := 0
GO        ?= go
BIN       := bin/tabellion
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X github.com/tabellion-mcp/tabellion.version=$(VERSION)
SHORT     := $(GO) test -short -count=1

.PHONY: all build run test quick test-real lint conformance bench bench-models kill-loop cuts histories model-queries fuzz race long clients clean

all: build

build: ## the static binary
	$(GO) build -trimpath -ldflags "$(LDFLAGS)" -o $(BIN) ./cmd/tabellion

run: build ## serve the example on loopback
	$(GO) run ./examples/harbourline/seed examples/harbourline/data/ferries.db
	$(BIN) serve --config examples/harbourline/tabellion.yaml

quick: ## unit tests without servers and long suites, under two minutes
	$(GO) vet ./...
	$(SHORT) $$($(GO) list ./... | grep -v -e /internal/access -e /internal/maintain -e /internal/transport/transfer -e /storetest \
		-e /internal/modeldiff -e /internal/modelserver -e /internal/modelaccess -e /internal/injection -e /internal/source/ -e /model/engine)

test: ## everything that must hold before a change lands
	scripts/test.sh

test-real: ## the tests that read real material: make test-real REAL=DIR
	@test -n "$(REAL)" || { echo "usage: make test-real REAL=DIR" >&2; exit 2; }
	TABELLION_REAL="$(abspath $(REAL))" $(GO) test -count=1 -v -run 'Real|JSONTestSuite|CanonicalizationPairs|NumberSequence|JSONSuite' ./internal/... | grep -v '^=== '

lint: ## vet, staticcheck and formatting
	scripts/lint.sh

conformance: ## the official MCP conformance suites
	scripts/conformance.sh

clients: ## the official Go SDK client and the inspector's command line against the program
	scripts/clients.sh

bench: build ## figures for docs/performance.md; raw lines go to bench/
	$(GO) run ./internal/bench -binary $(BIN) -out bench/$(shell date -u +%Y-%m-%d).jsonl

bench-models: build ## data models beside hand-written statements and the reference host; raw lines go to bench/
	$(GO) run ./internal/bench models -binary $(BIN) -out bench/$(shell date -u +%Y-%m-%d).jsonl

KILLS ?= 1000
kill-loop: ## KILLS=1000
	KILLS=$(KILLS) $(GO) test -count=1 -v -timeout 0 -run 'TestKillLoop$$' ./internal/durability

N ?= 2000
cuts: ## power cuts, N=2000
	CUTS=$(N) $(GO) test -count=1 -v -timeout 0 -run 'TestPowerCuts$$' ./internal/durability

HISTORIES ?= 200
histories: ## HISTORIES=200
	HISTORIES=$(HISTORIES) $(GO) test -count=1 -v -timeout 0 -run 'TestHistories$$' ./internal/durability

QUERIES ?= 5000
model-queries: ## random queries on every engine against the evaluator, QUERIES=5000
	QUERIES=$(QUERIES) $(GO) test -count=1 -v -timeout 0 ./internal/modeldiff

FUZZTIME ?= 60s
fuzz: ## each fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

race: ## the race detector, where cgo is available
	CGO_ENABLED=1 $(GO) test -short -race -count=1 ./...

long: race ## the long run before a release
	KILLS=300 CUTS=1000 HISTORIES=100 NTH=all $(GO) test -count=1 -v -timeout 0 ./internal/durability
	FULL=1 QUERIES=5000 $(GO) test -count=1 -v -timeout 0 ./internal/injection ./internal/modelaccess ./internal/modeldiff
	scripts/fuzz.sh 60s

clean:
	rm -rf bin
