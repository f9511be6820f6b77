# «make» or «make help» says what there is. Go, git and make are all it takes.

SHELL := /bin/sh
.DEFAULT_GOAL := help

GO ?= go
# TEST_TIMEOUT is that of each package, FUZZ_TIME that of each target.
TEST_TIMEOUT ?= 20m
TEST_FLAGS ?=
FUZZ_TIME ?= 10s
OUTAGE ?= 10m

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# The linter is built once for each version, outside of the project.
GOLANGCI_LINT_VERSION := v2.15.0
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kuberelay/tools
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/forwarder
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/forwarder ./cmd/forwarder

.PHONY: test
test: ## Run every test, with the race detector, against a real control plane
	@echo '==> the control plane for the tests: built on first use, which takes minutes, and kept'
	@$(GO) run ./hack/binaries
	@race=-race; \
	if [ "$$($(GO) env CGO_ENABLED)" != 1 ]; then \
		race=; \
		echo '**********************************************************************'; \
		echo '** NO RACE DETECTOR: it needs a C compiler, and there is none, or     **'; \
		echo '** CGO_ENABLED is 0. Install one (Debian: apt-get install gcc;        **'; \
		echo '** Fedora: dnf install gcc; macOS: xcode-select --install).           **'; \
		echo '** The tests run without it now and cannot find data races.           **'; \
		echo '**********************************************************************'; \
	fi; \
	echo "==> $(GO) test $$race -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./..."; \
	$(GO) test $$race -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters of .golangci.yml
	$(GOLANGCI_LINT) run ./...

$(GOLANGCI_LINT):
	@echo '==> building golangci-lint $(GOLANGCI_LINT_VERSION), once'
	GOBIN=$(@D) GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

.PHONY: generate
generate: ## Write what is made from the code: docs/configuration.md
	$(GO) run ./hack/configdocs >docs/configuration.md.tmp
	mv docs/configuration.md.tmp docs/configuration.md

.PHONY: check-generated
check-generated: ## Fail if what is made from the code is out of date, or go.mod is
	@page=$$(mktemp) && trap 'rm -f "$$page"' EXIT && $(GO) run ./hack/configdocs >"$$page" && \
	diff -u docs/configuration.md "$$page" || { echo 'docs/configuration.md is out of date: run «make generate»' >&2; exit 1; }
	@$(GO) mod tidy -diff || { echo 'go.mod or go.sum is out of date: run «go mod tidy»' >&2; exit 1; }

# SEEDS=n runs the seeds 1 to n, SEED=n the one; without either, every kind of fault once.
# SINK=kafka runs them over Kafka.
.PHONY: torture
torture: ## Torture the forwarder with random faults (SEEDS=200, or SEED=17; SINK=kafka) and write docs/reliability.md
	@$(GO) run ./hack/binaries
	SINK=$(or $(SINK),nats) SEEDS=$(SEEDS) SEED=$(SEED) $(GO) test ./test/torture -run '^TestTorture$$' -count 1 -v -timeout 0 $(if $(SEED),,-report $(CURDIR)/docs/reliability.md)

LOSTACKS ?= 1000
.PHONY: lostacks
lostacks: ## Lose acknowledgements of Kafka at random moments (LOSTACKS=1000)
	$(GO) test ./internal/publish/kafka -run '^TestLostAcknowledgements$$' -count 1 -v -timeout 0 -lostacks=$(LOSTACKS)

.PHONY: outage
outage: ## Measure a bus that is down under change (OUTAGE=10m)
	$(GO) test -tags outage ./test/e2e -run '^TestLongOutage$$' -count 1 -v -timeout 0 -outage.for $(OUTAGE)

# ONCE=1 ends by itself.
.PHONY: demo
demo: ## Show it at work, on a control plane of its own (SINK=kafka: over a real Kafka broker)
	@echo '==> building the demo: a minute or two the first time'
	@$(GO) build -o bin/demo ./hack/demo
	@LDFLAGS='$(LDFLAGS)' SINK='$(SINK)' bin/demo

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZ_TIME (10s)
	@grep -rnoE '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' cmd internal | while IFS=: read -r file _ target; do \
		target=$${target#func }; package=./$$(dirname "$$file"); \
		echo "==> $$target in $$package, $(FUZZ_TIME)"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$package" </dev/null || exit 1; \
	done

.PHONY: clean
clean: ## Remove what was built here; the caches of the user stay
	rm -rf bin
