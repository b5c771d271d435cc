# Two commands are enough: make demo, make test. make help lists the rest.
GO         ?= go
FUZZTIME   ?= 10m
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.7.0

.DEFAULT_GOAL := help
.PHONY: help demo test build format vet staticcheck unit allocs bench fuzz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run real GitHub events through the dead letter channel, on an embedded pub/sub and SQLite
	@$(GO) run ./examples/webhooks

test: build format vet staticcheck unit allocs ## everything that decides: build, gofmt, vet, staticcheck, all tests with the race detector

build:
	$(GO) build ./...

format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed:" $$unformatted; exit 1; fi

vet:
	$(GO) vet ./...

staticcheck:
	$(GO) run $(STATICCHECK) ./...

unit:
	@.ci/need-cc
	CGO_ENABLED=1 $(GO) test -race -shuffle=on ./...

allocs: # pools forget at random under the race detector, so what counts allocations runs without it too
	$(GO) test -run 'Alloc' -shuffle=on ./middleware ./internal/chain ./internal/figures

bench: ## Go benchmarks, then the figures as JSON lines
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./...
	@$(GO) run ./internal/figures

fuzz: ## fuzz every target for FUZZTIME (default 10m) each
	@for package in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    echo "== $$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
	  done; \
	done
