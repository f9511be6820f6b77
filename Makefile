# "make" or "make help" lists the targets. They need Go, git, and make. CONTRIBUTING.md lists what else some targets need.

SHELL := /bin/sh
.DEFAULT_GOAL := help

GO ?= go
# TEST_TIMEOUT is the timeout of each package. FUZZ_TIME is the number of inputs (20000x) or the time (10s) for each
# fuzz target.
TEST_TIMEOUT ?= 60m
TEST_FLAGS ?=
FUZZ_TIME ?= 20000x
FUZZ ?= cmd internal
OUTAGE ?= 10m

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
# These flags keep the image below 50 MB. They disable inlining in dependencies, except in the standard library, the clients of
# the buses and the compressor. They also omit the HTTP/2 implementation of net/http: client-go uses golang.org/x/net/http2.
# The Dockerfile repeats them.
SIZE_FLAGS := -tags nethttpomithttp2 -gcflags all=-l -gcflags std= -gcflags github.com/kuberelay/kuberelay/...= \
	-gcflags github.com/nats-io/nats.go/...= -gcflags github.com/segmentio/...= -gcflags github.com/klauspost/...=
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
BUILD = CGO_ENABLED=0 $(GO) build -trimpath $(SIZE_FLAGS) -ldflags '$(LDFLAGS)'

# Each version of the linter is built once, outside the project.
GOLANGCI_LINT_VERSION := v2.15.0
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kuberelay/tools
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint
# Helm and its unit test plugin are also built once.
HELM_VERSION := v3.22.0
HELM := $(TOOLS)/helm-$(HELM_VERSION)/helm
HELM_UNITTEST_VERSION := v1.1.2
HELM_UNITTEST := $(TOOLS)/helm-unittest-$(HELM_UNITTEST_VERSION)/helm-unittest
PROMTOOL_VERSION := v0.316.0
PROMTOOL := $(TOOLS)/promtool-$(PROMTOOL_VERSION)/promtool
CYCLONEDX_VERSION := v1.10.0
CYCLONEDX := $(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION)/cyclonedx-gomod
CHART := charts/kuberelay

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/forwarder
	$(BUILD) -o bin/forwarder ./cmd/forwarder

# TEST_PARALLEL is the number of packages that "make test" tests at once. Most tests wait for
# servers, so the number can exceed the number of CPUs. "make test" starts the slowest packages first.
TEST_PARALLEL ?= 4

# "make test" skips the tests whose names end in _Slow. "make test-slow" runs them.
SLOW := _Slow$$
SLOW_PACKAGES = $(shell grep -rl --include='*_test.go' '^func Test.*_Slow\b' . | xargs -n 1 dirname | sort -u)

# RUN_TESTS runs "go test" with the race detector and the arguments in $$@.
RUN_TESTS = echo '==> control plane for the tests: the first use builds it, which takes minutes'; \
	$(GO) run ./hack/binaries || exit; \
	if [ "$$($(GO) env CGO_ENABLED)" = 1 ]; then \
		set -- -race "$$@"; \
	else \
		echo '**********************************************************************'; \
		echo '** NO RACE DETECTOR: it needs a C compiler, and there is none, or     **'; \
		echo '** CGO_ENABLED is 0. Install one (Debian: apt-get install gcc;        **'; \
		echo '** Fedora: dnf install gcc; macOS: xcode-select --install).           **'; \
		echo '** The tests run without it now and cannot find data races.           **'; \
		echo '**********************************************************************'; \
	fi; \
	set -- -count 1 "$$@"; \
	echo "==> $(GO) test -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $$*"; \
	$(GO) test -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) "$$@"

.PHONY: test
test: ## Run the tests, with the race detector, against a real control plane
	@set -- -p $(TEST_PARALLEL) -skip '$(SLOW)' ./test/e2e ./internal/publish/kafka ./...; $(RUN_TESTS)
	@$(MAKE) --no-print-directory simulate SECONDS=30 SEEDS=20000 SINK=nats && $(MAKE) --no-print-directory simulate SECONDS=30 SEEDS=20000 SINK=kafka

.PHONY: test-slow
test-slow: ## Run the slow tests: torture, planted bugs, long end-to-end tests
	@set -- -run '$(SLOW)' ./test/torture ./test/e2e $(SLOW_PACKAGES); $(RUN_TESTS)

.PHONY: lint
lint: $(GOLANGCI_LINT) chart-lint ## Run the linters of .golangci.yml and of the chart
	$(GOLANGCI_LINT) run ./...

.PHONY: chart-lint
chart-lint: $(HELM) $(HELM_UNITTEST) ## Lint the chart and run its unit tests
	@for values in $(CHART)/ci/*-values.yaml; do \
		$(HELM) lint --strict --quiet --values "$$values" $(CHART) || exit 1; \
	done
	$(HELM_UNITTEST) --strict $(CHART)

$(GOLANGCI_LINT):
	@echo '==> building golangci-lint $(GOLANGCI_LINT_VERSION) (once)'
	GOBIN=$(@D) GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(HELM):
	@echo '==> building Helm $(HELM_VERSION) (once)' >&2
	GOBIN=$(@D) GOFLAGS= $(GO) install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

# BUILD_MODULE builds a command in the directory of its module, for modules that "go install" rejects, for example because
# of a replace directive. $(1) is the module with its version, and $(2) has additional build flags.
BUILD_MODULE = mkdir -p $(@D) && cd "$$($(GO) mod download -json $(1) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')" && \
	GOWORK=off GOFLAGS= $(GO) build -trimpath $(2) -o $@ ./cmd/$(@F)

$(HELM_UNITTEST):
	@echo '==> building helm-unittest $(HELM_UNITTEST_VERSION) (once)' >&2
	$(call BUILD_MODULE,github.com/helm-unittest/helm-unittest@$(HELM_UNITTEST_VERSION))

# remove_all_sd leaves out Prometheus's service discovery, and with it the client libraries of the cloud providers.
$(PROMTOOL):
	@echo '==> building promtool $(PROMTOOL_VERSION) (once)' >&2
	$(call BUILD_MODULE,github.com/prometheus/prometheus@$(PROMTOOL_VERSION),-tags remove_all_sd)

$(CYCLONEDX):
	@echo '==> building cyclonedx-gomod $(CYCLONEDX_VERSION) (once)' >&2
	$(call BUILD_MODULE,github.com/CycloneDX/cyclonedx-gomod@$(CYCLONEDX_VERSION))

# The Go tests call these targets.
.PHONY: which-helm which-helm-unittest which-promtool
which-helm: $(HELM)
	@echo $(HELM)
which-helm-unittest: $(HELM_UNITTEST)
	@echo $(HELM_UNITTEST)
which-promtool: $(PROMTOOL)
	@echo $(PROMTOOL)

.PHONY: generate
generate: ## Generate docs/configuration.md, docs/metrics.md, docs/sizing.md, docs/schemas, and the chart's values, schema, README, and dashboards
	@for page in config:configuration metrics:metrics sizing:sizing; do \
		$(GO) run "./hack/$${page%:*}docs" >docs/page.tmp && mv docs/page.tmp "docs/$${page#*:}.md" || exit 1; \
	done
	$(GO) run ./hack/chartvalues $(CHART)
	$(GO) run ./hack/schemas docs/schemas
	$(GO) run ./hack/dashboards $(CHART)/files/dashboards

.PHONY: check-generated
check-generated: ## Fail if generated files or go.mod are out of date
	@made=$$(mktemp) && trap 'rm -f "$$made"' EXIT && for page in config:configuration metrics:metrics sizing:sizing; do \
		{ $(GO) run "./hack/$${page%:*}docs" >"$$made" && diff -u "docs/$${page#*:}.md" "$$made"; } || \
		{ echo "docs/$${page#*:}.md is out of date: run 'make generate'" >&2; exit 1; }; \
	done
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && for directory in chartvalues:$(CHART) schemas:docs/schemas dashboards:$(CHART)/files/dashboards; do \
		mkdir "$$made/$${directory%:*}" && $(GO) run "./hack/$${directory%:*}" "$$made/$${directory%:*}" && \
		(cd "$$made/$${directory%:*}" && find . -type f) | (while read -r file; do \
			diff -u "$${directory#*:}/$$file" "$$made/$${directory%:*}/$$file" || exit 1; \
		done) || { echo "$${directory#*:} is out of date: run 'make generate'" >&2; exit 1; }; \
	done
	@$(GO) mod tidy -diff || { echo 'go.mod or go.sum is out of date: run "go mod tidy"' >&2; exit 1; }
	@for module in kubestatemetrics prometheus; do \
		$(GO) -C "test/$$module" mod tidy -diff || { echo "test/$$module/go.mod or go.sum is out of date: run 'go -C test/$$module mod tidy'" >&2; exit 1; }; \
	done

# SECONDS=n runs histories for n seconds, SEEDS=n runs the first n histories, and both together end at the first limit. SEED=n runs one history. SINK=kafka uses Kafka instead of NATS.
# EXPLORE=1, with SECONDS or SEEDS, makes most histories branch off from earlier ones at new situations. SEED can be the path of a failed history, such as 17/120:4711.
.PHONY: simulate
simulate: ## Run the core against models of the cluster and the bus (SECONDS=60, SEEDS=10000, or SEED=17; SINK=kafka, EXPLORE=1)
	$(GO) run ./test/simulate/run -sink $(or $(SINK),nats) $(if $(SEED),-seed $(SEED)) $(if $(SEEDS),-seeds $(SEEDS)) $(if $(SECONDS),-time $(SECONDS)s) $(if $(EXPLORE),-explore)

# SEEDS=n runs the seeds 1 to n, SEED=n one seed, and SEED=n,m these seeds in this order. Without either, every kind of
# fault runs once. SINK=kafka uses Kafka. REPLICAS=2 or 3 runs that many forwarders, which elect a leader. CLUSTER=3 makes the
# bus a cluster of three servers.
# JOBS=n divides the seeds among n processes, each with its own control plane and bus.
JOBS ?= 1
TORTURE = SINK=$(or $(SINK),nats) REPLICAS=$(or $(REPLICAS),0) FOREIGN=$(FOREIGN) CLUSTER=$(CLUSTER) SEEDS=$(SEEDS) SEED=$(SEED) ../../bin/torture.test \
	-test.run '^TestTorture_Slow$$' -test.v -test.timeout 0 -results "$$results"
.PHONY: torture
torture: ## Run the forwarder with random faults and write docs/reliability.md (SEEDS=200, or SEED=17; SINK=kafka; REPLICAS=3; FOREIGN=1; CLUSTER=3; JOBS=2)
	@$(GO) run ./hack/binaries
	@$(GO) test -c -o bin/torture.test ./test/torture
	@results=$$(mktemp) && trap 'rm -f "$$results"' EXIT && cd test/torture && failed=0 && \
	{ seq $(JOBS) | xargs -P $(JOBS) -I % env SHARD=%/$(JOBS) $(TORTURE) || failed=1; } && \
	$(if $(SEED),,{ $(TORTURE) -report $(CURDIR)/docs/reliability.md || failed=1; } &&) exit $$failed

LOSTACKS ?= 1000
.PHONY: lostacks
lostacks: ## Test that Kafka stores each event once if acknowledgements are lost at random moments (LOSTACKS=1000)
	$(GO) test ./internal/publish/kafka -run '^TestLostAcknowledgements_Slow$$' -count 1 -v -timeout 0 -lostacks=$(LOSTACKS)

.PHONY: outage
outage: ## Measure an outage of the bus while objects change (OUTAGE=10m)
	$(GO) test -tags outage ./test/e2e -run '^TestLongOutage$$' -count 1 -v -timeout 0 -outage.for $(OUTAGE)

HOSTILE ?= 1h
.PHONY: hostile
hostile: ## Measure the forwarder's memory and latency while a hostile tenant creates objects (HOSTILE=1h)
	$(GO) test -tags hostile ./test/e2e -run '^TestHostileTenant$$' -count 1 -v -timeout 0 -hostile.for $(HOSTILE)

# hack/bench/main.go describes the benchmarks. Run them on an idle machine. Together, they take about an hour.
# BENCH="sync latency live frozen points page" selects benchmarks. CONTENDERS="nats kafka" selects the programs that
# the benchmark sync compares.
.PHONY: bench
bench: build ## Measure CPU, memory, and latency, and compare them with a minimal program (PODS="20000 100000", BENCH=sync, ROUNDS=3, OUT=bench.md)
	@$(GO) run ./hack/binaries
	@$(GO) build -o bin/bench ./hack/bench
	@BENCH='$(BENCH)' PODS='$(PODS)' ROUNDS='$(ROUNDS)' CONTENDERS='$(CONTENDERS)' OUT='$(OUT)' bin/bench

.PHONY: hub
hub: build ## Measure a NATS hub and a Kafka cluster with the copies of many clusters (CLUSTERS=50, PODS=1000, BENCH=hub-nats, OUT=hub.md)
	@$(GO) run ./hack/binaries
	@$(GO) build -o bin/bench ./hack/bench
	@BENCH='$(or $(BENCH),hub-nats hub-kafka)' PODS='$(or $(PODS),1000)' CLUSTERS='$(CLUSTERS)' OUT='$(OUT)' bin/bench

COUNT ?= 6
MICROBENCH ?= ./internal/jsonscan ./internal/event/... ./internal/forward ./internal/projection ./internal/filter ./internal/jsoncompare ./internal/ledger ./internal/checkpoint ./internal/publish/...
.PHONY: microbench
microbench: ## Measure each step of an event separately, for benchstat (COUNT=6, MICROBENCH=./internal/event)
	@$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) -timeout 0 $(MICROBENCH)

HANDOVERS ?= 20
KILLS ?= 5
.PHONY: handover
handover: ## Measure handovers between two replicas (HANDOVERS=20) and kills of the leader (KILLS=5)
	@$(GO) run ./hack/binaries
	$(GO) test -tags handover ./test/e2e -run '^TestHandover$$' -count 1 -v -timeout 0 -handover.rounds $(HANDOVERS) -handover.kills $(KILLS)

# With ONCE=1, the demo exits by itself. The demo and the forwarder have the same build flags, so that Go compiles their
# shared packages once.
.PHONY: demo
demo: ## Run the demo on its own control plane (SINK=kafka: with a real Kafka broker)
	@echo '==> building the forwarder and the demo: a minute or two the first time'
	@$(MAKE) --no-print-directory build
	@CGO_ENABLED=0 $(GO) build -trimpath $(SIZE_FLAGS) -o bin/demo ./hack/demo
	@SINK='$(SINK)' bin/demo

IMAGE ?= kuberelay
IMAGE_TAG ?= $(or $(VERSION),dev)
IMAGE_ARGS = --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) --tag $(IMAGE):$(IMAGE_TAG) $(IMAGE_FLAGS)
# Every file in the image has the time of the commit, so that the image is reproducible.
IMAGE_TIME = $(shell git log -1 --format=%ct 2>/dev/null)
.PHONY: image
image: ## Build the image (IMAGE, IMAGE_TAG, IMAGE_FLAGS) with buildah, podman, or docker
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

.PHONY: golden
golden: ## Store the NATS and Kafka files that this build writes, for the tests of later releases (VERSION=v1.2.3)
	@test ! -e 'test/e2e/testdata/golden/$(VERSION)' || { echo 'make golden: test/e2e/testdata/golden/$(VERSION) exists; a golden bus never changes' >&2; exit 1; }
	@$(GO) run ./hack/binaries
	$(GO) test ./test/e2e -run '^TestGoldenBuses_Slow$$' -count 1 -timeout $(TEST_TIMEOUT) -golden '$(VERSION)'

.PHONY: upgrade-test
upgrade-test: ## Test an upgrade from a commit or tag, and the downgrade, under load, on NATS and Kafka (FROM=v1.2.3)
	@test -n '$(FROM)' || { echo 'make upgrade-test: set FROM to a tag or a commit, such as FROM=v1.2.3' >&2; exit 1; }
	@$(GO) run ./hack/binaries
	@set -e; tmp=$$(mktemp -d); trap 'git worktree remove --force "$$tmp/source"; rm -rf "$$tmp"' EXIT; \
	git worktree add --quiet --detach "$$tmp/source" '$(FROM)'; \
	(cd "$$tmp/source" && $(GO) build -ldflags '-X main.version=$(FROM)' -o "$$tmp/forwarder" ./cmd/forwarder); \
	$(GO) test ./test/e2e -run '^TestUpgrade_Slow$$' -count 1 -timeout $(TEST_TIMEOUT) -earlier "$$tmp/forwarder"

# The same commit and the same version of Go give the same files. ARCHES="amd64" builds for one architecture.
ARCHES ?= amd64 arm64
.PHONY: release
release: $(HELM) $(CYCLONEDX) ## Build dist/: binaries for Linux, SBOMs, the chart, and SHA256SUMS (VERSION=v1.2.3)
	@echo '$(VERSION)' | grep -Eqx 'v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?' || \
		{ echo "make release: VERSION is '$(VERSION)', and a release needs a semantic version: tag the commit, or set VERSION=v1.2.3" >&2; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo 'make release: the work tree has changes that are not committed: commit or remove them' >&2; exit 1; }
	@rm -rf dist && mkdir dist
	for arch in $(ARCHES); do \
		file=dist/forwarder-$(VERSION)-linux-$$arch && \
		GOOS=linux GOARCH=$$arch $(BUILD) -o $$file ./cmd/forwarder && \
		$(CYCLONEDX) bin -json -noserial -notimestamp -version $(VERSION) -output $$file.cdx.json $$file || exit 1; \
	done
	$(HELM) package $(CHART) --version $(VERSION:v%=%) --app-version $(VERSION:v%=%) --destination dist
	$(GO) run ./hack/release -time "$$(git log -1 --format=%ct)" dist
	@cat dist/SHA256SUMS

.PHONY: test-tools
test-tools: test-samples ## Run the tests that need buildah, and those of test-samples
	$(GO) test -tags tools ./test/chart -count 1 -v -run '^(TestImage|TestImageWithoutTools|TestSidecar)$$'

.PHONY: test-samples
test-samples: ## Run the tests of the programs in examples that need Python 3, Maven, or npm
	$(GO) run ./hack/binaries
	$(GO) test -tags tools ./test/e2e -count 1 -v -timeout $(TEST_TIMEOUT) -run '^(TestExamples(RefuseCredentials|WhoseBusComesBackEmpty)|TestTable(Java|Python|Streams|TypeScript))$$'

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZ_TIME (20000x), or only the targets in some directories (FUZZ=internal/event)
	@grep -rnoE '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' $(FUZZ) | while IFS=: read -r file _ target; do \
		target=$${target#func }; package=./$$(dirname "$$file"); \
		echo "==> $$target in $$package, $(FUZZ_TIME)"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$package" </dev/null || exit 1; \
	done

.PHONY: clean
clean: ## Remove bin and dist, but not the cached tools
	rm -rf bin dist
