# The parts of .ci/run. Each target may be run alone; ALL=1 adds what takes too long for every change.
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
MODULES  := $(patsubst %/,%,$(dir $(shell git ls-files '*go.mod')))
# What imports client-go takes minutes to compile.
SLOW     := $(if $(ALL),,contrib/k8s)
CONTRIB  := $(filter-out $(SLOW),$(filter contrib/% cmd/%,$(MODULES)))
EXAMPLES := $(filter docs/%,$(MODULES))
# The packages that have benchmarks: to link the tests of the others takes a minute, and runs nothing.
BENCHMARKED = $(addprefix ./,$(sort $(dir $(shell git grep -l '^func Benchmark' -- '*_test.go' ':!bench/peers' ':!contrib'))))
LIBRARY   = $$(go list ./... | grep -v -e /redistest -e /oracle/ -e /bench)

.PHONY: all lint test short race fuzz proof prove contrib docs site bench cross release

all: lint test race proof contrib docs site bench cross release

# What go vet finds, golangci-lint finds: its govet has all analyzers of it.
lint:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted"; exit 1; }
	@for m in $(filter-out $(SLOW),$(MODULES)); do \
		echo "lint $$m"; (cd $$m && go mod tidy -diff && $(GOLANGCI) run --allow-parallel-runners ./...) || exit 1; done

# As a user runs it: nothing in the environment but what turns a missing server into a failure.
test:
	env -u GOFLAGS -u REDLATCH_LONG -u REDLATCH_SEEDS REDLATCH_REQUIRE_REDIS=1 go test ./...

short:
	env -u REDLATCH_REQUIRE_REDIS go test -short ./...

# Fewer tests at a time, of two packages: the detector makes each of them several times as much work. Of the contract
# suite, which shows each promise on all primitives, two or three for each promise.
race:
	go test -race -vet=off -timeout 30m -p 2 -parallel 3 $$(echo "$(LIBRARY)" | grep -v /internal/contract)
	go test -race -vet=off -timeout 30m -short -parallel 3 ./internal/contract

# Every fuzz target for FOR, one after the other. What a target finds is a new file in its testdata/fuzz.
fuzz:
	@git grep -n '^func Fuzz' -- '*_test.go' | sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[^(]*).*|\1 \2|' | { \
		failed=; while read -r folder target; do \
			echo "fuzz $$target in $$folder"; \
			(cd $$folder && go test -vet=off -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(FOR),1m) -fuzzminimizetime 20x .) || failed="$$failed $$folder:$$target"; \
		done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }; }

# Everything in proof/: the same seeds and faults for every change. See proof/README.md for what runs at night.
proof:
	go -C proof test -vet=off -timeout 30m -p 1 $$(go -C proof list ./... | grep -v /proof/release)

# The proofs for FOR, and a page with what they covered and found. The next run of the same commit goes on.
prove:
	go -C proof run ./prove -for $(or $(FOR),10m)

contrib:
	@for m in $(CONTRIB); do (cd $$m && go test -vet=off -timeout 20m ./...) || exit 1; done

docs:
	grep -qxF 'go test ./...' README.md
	grep -qxF 'go -C docs/examples run ./flashsale' README.md
	@for m in $(EXAMPLES); do (cd $$m && go test -vet=off -timeout 20m ./...) || exit 1; done
	go -C docs/examples run ./flashsale | tail -n 20

# The pages as a site, in site/html. It fails if a link or an anchor leads nowhere. TAGS adds these versions.
site: bin/site/bin/zensical
	PATH="$$PWD/bin/site/bin:$$PATH" site/build.py $(TAGS)

bin/site/bin/zensical: site/requirements.txt
	python3 -m venv bin/site && bin/site/bin/pip install -q -r site/requirements.txt
	@touch $@

# Each benchmark once: it runs, and counts right. So does each peer, and other libraries' tests pass on redlatch.
bench:
	go test -short -vet=off -run '^$$' -bench . -benchtime 1x $(BENCHMARKED)
	go -C bench/peers test -vet=off -timeout 20m ./...
	go -C contrib/river test -vet=off -run '^$$' -bench . -benchtime 1x ./...

cross:
	GOOS=windows go vet ./...
	GOOS=darwin go build ./...
	GOARCH=386 go build ./...

# Each time anew, because Go's cache of test results does not see that a file of the release has changed.
release:
	go -C proof tool multimod verify
	go -C proof test -vet=off -timeout 20m -count 1 ./release
