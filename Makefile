# «make» or «make help» says what there is. Go, git and make are all it takes.

SHELL := /bin/sh
.DEFAULT_GOAL := help

GO ?= go
# TEST_TIMEOUT is that of each package, FUZZ_TIME that of each target.
TEST_TIMEOUT ?= 40m
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
# So are Helm and its unit tests.
HELM_VERSION := v3.22.0
HELM := $(TOOLS)/helm-$(HELM_VERSION)/helm
HELM_UNITTEST_VERSION := v1.1.2
HELM_UNITTEST := $(TOOLS)/helm-unittest-$(HELM_UNITTEST_VERSION)/helm-unittest
CHART := charts/kuberelay

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
lint: $(GOLANGCI_LINT) chart-lint ## Run the linters of .golangci.yml, and those of the chart
	$(GOLANGCI_LINT) run ./...

.PHONY: chart-lint
chart-lint: $(HELM) $(HELM_UNITTEST) ## Lint the chart, and run its unit tests
	@for values in $(CHART)/ci/*-values.yaml; do \
		$(HELM) lint --strict --quiet --values "$$values" $(CHART) || exit 1; \
	done
	$(HELM_UNITTEST) --strict $(CHART)

$(GOLANGCI_LINT):
	@echo '==> building golangci-lint $(GOLANGCI_LINT_VERSION), once'
	GOBIN=$(@D) GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(HELM):
	@echo '==> building Helm $(HELM_VERSION), once' >&2
	GOBIN=$(@D) GOFLAGS= $(GO) install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

# It replaces a module by another, which «go install» does not do: it is built in its own folder.
$(HELM_UNITTEST):
	@echo '==> building helm-unittest $(HELM_UNITTEST_VERSION), once' >&2
	@mkdir -p $(@D)
	cd "$$($(GO) mod download -json github.com/helm-unittest/helm-unittest@$(HELM_UNITTEST_VERSION) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')" && \
		GOFLAGS= $(GO) build -trimpath -o $@ ./cmd/helm-unittest

# For the tests in Go.
.PHONY: which-helm which-helm-unittest
which-helm: $(HELM)
	@echo $(HELM)
which-helm-unittest: $(HELM_UNITTEST)
	@echo $(HELM_UNITTEST)

.PHONY: generate
generate: ## Write what is made: docs/configuration.md, docs/sizing.md, the chart's values, schema and README, and the copies of client-go
	@for page in config:configuration sizing:sizing; do \
		$(GO) run "./hack/$${page%:*}docs" >docs/page.tmp && mv docs/page.tmp "docs/$${page#*:}.md" || exit 1; \
	done
	$(GO) run ./hack/chartvalues $(CHART)
	$(GO) run ./hack/clientgo internal/clientgo

.PHONY: check-generated
check-generated: ## Fail if what «make generate» makes is out of date, or go.mod is
	@made=$$(mktemp) && trap 'rm -f "$$made"' EXIT && for page in config:configuration sizing:sizing; do \
		{ $(GO) run "./hack/$${page%:*}docs" >"$$made" && diff -u "docs/$${page#*:}.md" "$$made"; } || \
		{ echo "docs/$${page#*:}.md is out of date: run «make generate»" >&2; exit 1; }; \
	done
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && $(GO) run ./hack/chartvalues "$$made" && \
	(for file in $$(cd "$$made" && find . -type f); do diff -u "$(CHART)/$$file" "$$made/$$file" || exit 1; done) || \
	{ echo '$(CHART) is out of date: run «make generate»' >&2; exit 1; }
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && $(GO) run ./hack/clientgo "$$made" && \
	(for dir in "$$made"/*; do diff -ru "internal/clientgo/$${dir##*/}" "$$dir" || exit 1; done) || \
	{ echo 'internal/clientgo is not what client-go has: run «make generate»' >&2; exit 1; }
	@$(GO) mod tidy -diff || { echo 'go.mod or go.sum is out of date: run «go mod tidy»' >&2; exit 1; }

# SEEDS=n runs the seeds 1 to n, SEED=n the one; without either, every kind of fault once.
# SINK=kafka runs them over Kafka, REPLICAS=2 or 3 with so many forwarders that elect a leader.
.PHONY: torture
torture: ## Torture the forwarder with random faults (SEEDS=200, or SEED=17; SINK=kafka; REPLICAS=3) and write docs/reliability.md
	@$(GO) run ./hack/binaries
	SINK=$(or $(SINK),nats) REPLICAS=$(or $(REPLICAS),0) SEEDS=$(SEEDS) SEED=$(SEED) $(GO) test ./test/torture -run '^TestTorture$$' -count 1 -v -timeout 0 $(if $(SEED),,-report $(CURDIR)/docs/reliability.md)

LOSTACKS ?= 1000
.PHONY: lostacks
lostacks: ## Lose acknowledgements of Kafka at random moments (LOSTACKS=1000)
	$(GO) test ./internal/publish/kafka -run '^TestLostAcknowledgements$$' -count 1 -v -timeout 0 -lostacks=$(LOSTACKS)

.PHONY: outage
outage: ## Measure a bus that is down under change (OUTAGE=10m)
	$(GO) test -tags outage ./test/e2e -run '^TestLongOutage$$' -count 1 -v -timeout 0 -outage.for $(OUTAGE)

# What it measures is in hack/bench/main.go. It wants the machine for itself, and takes about
# an hour as a whole; BENCH="sync latency" are parts of it, CONTENDERS="nats kafka" of sync.
.PHONY: bench
bench: ## Measure CPU, memory and latency beside the floor (PODS="20000 100000", BENCH=sync, ROUNDS=3, OUT=bench.md)
	@$(GO) run ./hack/binaries
	@$(GO) build -o bin/bench ./hack/bench
	@BENCH='$(BENCH)' PODS='$(PODS)' ROUNDS='$(ROUNDS)' CONTENDERS='$(CONTENDERS)' OUT='$(OUT)' bin/bench

COUNT ?= 6
MICROBENCH ?= ./internal/jsonscan ./internal/event ./internal/forward ./internal/projection ./internal/filter ./internal/jsoncompare ./internal/checkpoint ./internal/publish/...
.PHONY: microbench
microbench: ## Measure each step of an event by itself, as benchstat reads it (COUNT=6, MICROBENCH=./internal/event)
	@$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) -timeout 0 $(MICROBENCH)

HANDOVERS ?= 20
KILLS ?= 5
.PHONY: handover
handover: ## Measure handovers between two replicas (HANDOVERS=20), and kills of the leader (KILLS=5)
	@$(GO) run ./hack/binaries
	$(GO) test -tags handover ./test/e2e -run '^TestHandover$$' -count 1 -v -timeout 0 -handover.rounds $(HANDOVERS) -handover.kills $(KILLS)

# ONCE=1 ends by itself.
.PHONY: demo
demo: ## Show it at work, on a control plane of its own (SINK=kafka: over a real Kafka broker)
	@echo '==> building the demo: a minute or two the first time'
	@$(GO) build -o bin/demo ./hack/demo
	@LDFLAGS='$(LDFLAGS)' SINK='$(SINK)' bin/demo

IMAGE ?= kuberelay
IMAGE_TAG ?= $(or $(VERSION),dev)
IMAGE_ARGS = --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) --tag $(IMAGE):$(IMAGE_TAG) $(IMAGE_FLAGS)
# The commit's time is that of every file in the image, so that it comes out the same.
IMAGE_TIME = $(shell git log -1 --format=%ct 2>/dev/null)
.PHONY: image
image: ## Build the image (IMAGE, IMAGE_TAG, IMAGE_FLAGS) with buildah, podman or docker
	@if command -v buildah >/dev/null; then \
		set -- buildah $(BUILDAH_FLAGS) build $(if $(IMAGE_TIME),--timestamp $(IMAGE_TIME)); \
	elif command -v podman >/dev/null; then \
		set -- podman build $(if $(IMAGE_TIME),--timestamp $(IMAGE_TIME)); \
	elif command -v docker >/dev/null; then \
		set -- env SOURCE_DATE_EPOCH=$(IMAGE_TIME) docker build; \
	else \
		echo 'make image needs buildah, podman or docker, and finds none of them (Debian: apt-get install buildah)' >&2; \
		exit 1; \
	fi; \
	echo "$$@" $(IMAGE_ARGS) .; "$$@" $(IMAGE_ARGS) .

.PHONY: test-tools
test-tools: ## Run the tests that need more: buildah for the image, Python 3 for its subscriber
	$(GO) test -tags tools ./test/chart -count 1 -v -run '^(TestImage|TestImageWithoutTools|TestSidecar)$$'

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
