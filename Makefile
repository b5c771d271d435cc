# Two commands are enough: make demo, make test. make help lists the rest.
GO         ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.7.0
SERVICES    = internal/testing/services/services.sh

# The modules of go.work. What decides are the tests of all but the lab, and the two readers of sources in it.
TESTED  = ./... $(addsuffix /...,$(addprefix ./,cmd/redrive observe/prom observe/telemetry examples))
ALL     = $(TESTED) ./lab/...
READERS = ./lab/proofs/documents ./lab/proofs/layout

# Tests run in four lanes at the same time, each with servers of its own, because fault tests restart servers. Within a lane
# what restarts servers runs alone. The packages whose tests know of the servers, directly or through a helper, are found,
# once; one that is in no list is tested behind those of the tables.
SERVED  = $(eval SERVED := $$(shell $(GO) list -test -f '{{.ImportPath}} {{join .Deps " "}}' $(TESTED) | sed -n 's|\.test .*/internal/testing/services\b.*||p'))$(SERVED)
BROKERS = ./conformance ./pubsub/wmkafka ./pubsub/wmamqp ./observe/telemetry
DEMOS   = $(addprefix ./examples/,kafka amqp stages deploy outage)
TABLES  = ./pubsub/wmsql
STORES  = ./internal/sqlstore/... $(filter-out %/redrive/console,$(shell $(GO) list ./redrive/...)) ./idempotency/... ./middleware/crashlimit/... ./middleware/breaker/... ./internal/testing/testkit/...
NIGHTLY = ./examples/redis/... ./examples/nats/...
listed  = $(shell $(GO) list $(1))
served  = $(filter $(SERVED),$(call listed,$(1)))
BOTH    = $(filter-out $(call listed,$(BROKERS) $(DEMOS) $(TABLES) $(STORES) $(NIGHTLY) ./internal/testing/services),$(SERVED))

# SQLite is C in the words of Go: watched for races, it takes ten times as long. What calls it is watched, its driver too: that
# one shares the code of sync.Map with all packages, which would see false races. make vet looks at the tests too. A program with the race detector sleeps for a second at its end, unless it is told not to. With memory for five
# times what is in use, tests spend about a tenth less of the processor.
RACE    = GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(GO) test -exec 'env GOGC=400' -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false -vet=off -shuffle=on -timeout 15m
SERVE   = SPILLWAY_EMBEDDED= $(RACE)
# What a column shows is its broker's doing: it runs without, as the processes do that it kills, in a third of the time.
UNRACED = SPILLWAY_EMBEDDED= $(GO) test -vet=off -shuffle=on -timeout 15m
COLUMNS = TestKafka|TestAMQP|TestSQL

# The servers of another lane: $(call lane,name,number to add to each port).
FOLDER  = $(or $(SPILLWAY_SERVICES_DIR),/var/tmp/spillway-services-$(shell id -u))
port    = SPILLWAY_$(1)_PORT=$$(($${SPILLWAY_$(1)_PORT:-$(2)}+$(3)))
lane    = SPILLWAY_SERVICES_DIR=$(FOLDER)-$(1) $(foreach p,KAFKA_JARS NATS_FOLDER AXE_FOLDER,SPILLWAY_$(p)=$(or $(SPILLWAY_$(p)),$(FOLDER))) \
  $(call port,KAFKA,19092,$(2)) $(call port,AMQP,19672,$(2)) $(call port,POSTGRES,19432,$(2)) $(call port,MYSQL,19306,$(2))

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check services services-down tidy static format vet staticcheck workflows unit allocs start \
  lane-brokers lane-columns lane-tables lane-stores api vulnerabilities release tag site

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-24s %s\n", $$1, $$2}' Makefile lab/lab.mk

demo: ## run real GitHub events through the dead letter channel, on an embedded pub/sub and SQLite
	@$(GO) run ./examples/webhooks

include lab/lab.mk # what measures and repeats: bench-%, chaos, clusters, facts ...

demo-sql: ## on tables, everything about a message in one transaction: on PostgreSQL, then on MariaDB
	@$(SERVICES) up postgres mariadb
	@$(GO) run ./examples/sql
	@$(GO) run ./examples/sql -db mysql

demo-kafka demo-incident demo-order demo-stages: NEEDS = kafka postgres
demo-order: ARGS = -demo
demo-amqp: NEEDS = rabbitmq postgres
demo-redis: NEEDS = redis postgres
demo-nats: NEEDS = nats postgres
demo-deploy: NEEDS = kafka
demo-%: ## one of examples, as in "make demo-kafka FLAGS=-h": kafka amqp redis nats stages incident order outage deploy api console
	@$(if $(NEEDS),$(SERVICES) up $(NEEDS))
	@$(GO) run ./examples/$* $(ARGS) $(FLAGS)

# Its last lines say what it was tested against. Without a server its tests are skipped; in CI that is a failure.
test: export SPILLWAY_SERVICES_FSYNC = off
test: ## everything that decides: gofmt, vet, staticcheck, all tests with the race detector, with real servers
	@.ci/need-cc
	@$(MAKE) --no-print-directory --output-sync=target -j2 start static # before the lanes: only one may install servers
	@$(MAKE) --no-print-directory --output-sync=target -j4 lane-columns lane-brokers lane-tables lane-stores
	@echo; echo "tested against:"; $(SERVICES) status kafka rabbitmq postgres mariadb && promtool --version | grep -m 1 promtool || { \
	  echo; echo "NOT TESTED against every server: see above"; test "$$CI" != true; }

test-all: test lab facts modules floors conformance conformance-idempotency chaos chaos-order chaos-tables test-clusters ## test, and what measures or repeats at length what a shorter test decides: each night, some hours

check: ## the quick part of test: no servers
	@.ci/need-cc
	@$(MAKE) --no-print-directory static
	SPILLWAY_EMBEDDED=1 $(RACE) $(TESTED)

services: ## start Kafka, RabbitMQ, Redis, PostgreSQL, MariaDB and NATS for tests and examples, installing what is missing
	@$(SERVICES) up

services-down: ## stop them
	@$(SERVICES) down
	@for lane in columns tables stores; do SPILLWAY_SERVICES_DIR=$(FOLDER)-$$lane $(SERVICES) down; done 2>/dev/null

tidy: ## go mod tidy in each module, which finds the others in the tree; floors only rise: write them lower by hand
	@.ci/tidy

static: format vet staticcheck workflows
workflows:
	@.ci/workflows
format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed:" $$unformatted; exit 1; fi
vet:
	$(GO) vet $(ALL)
staticcheck:
	$(GO) run $(STATICCHECK) $(ALL)

start:
	@status=0; $(SERVICES) fresh kafka rabbitmq postgres mariadb || status=1; $(SERVICES) install prometheus browser pgbouncer || status=1; \
	test $$status = 0 || { echo; echo "NOT EVERY SERVER IS THERE: what needs the others will be SKIPPED"; echo; test "$$CI" != true; }

# The lanes have no prerequisite: make notices the end of one late, if $(shell) waits for it meanwhile.
lane-brokers:
	$(SERVE) -skip '^($(COLUMNS))$$|^TestFact' -p 2 $(BROKERS)
	$(SERVE) -p 2 $(call served,$(DEMOS))
	$(SERVE) ./internal/testing/services

lane-columns:
	@$(call lane,columns,100) $(SERVICES) fresh kafka rabbitmq postgres mariadb || test "$$CI" != true
	$(call lane,columns,100) $(UNRACED) -run '^($(COLUMNS))$$' ./conformance
	@$(call lane,columns,100) $(SERVICES) down

lane-tables:
	@$(call lane,tables,200) $(SERVICES) fresh kafka rabbitmq postgres mariadb || test "$$CI" != true
	$(call lane,tables,200) $(SERVE) -skip '^TestFact' -p 1 $(call served,$(TABLES))
	$(call lane,tables,200) $(SERVE) -p 2 $(BOTH)
	@$(call lane,tables,200) $(SERVICES) down

lane-stores:
	@$(call lane,stores,300) $(SERVICES) fresh postgres mariadb || test "$$CI" != true
	$(call lane,stores,300) $(SERVE) -p 1 $(call served,$(STORES))
	@$(call lane,stores,300) $(SERVICES) down
	@$(MAKE) --no-print-directory unit allocs

unit:
	$(RACE) $(filter-out $(SERVED),$(call listed,$(TESTED)))
	$(GO) test -vet=off -shuffle=on $(READERS)

allocs: # pools forget at random under the race detector, so what counts allocations runs without it too
	$(GO) test -vet=off -run 'Alloc' -shuffle=on ./middleware/... ./internal/chain ./lab/measures

api: ## what changed in exported names since the last tag, or since BASE
	@.ci/api

vulnerabilities: ## what Go's database of vulnerabilities says of what the modules call; without the database it says so, and passes
	@.ci/vulnerabilities $(filter-out ./examples/...,$(TESTED))

release: ## redrive of VERSION into dist, for each platform, as deb, rpm and for Homebrew: the same bytes for everyone, with checksums and an SBOM
	@.ci/release $(VERSION)

tag: ## what to tag for VERSION, after a check that each module builds as users get it; it makes no tag
	@.ci/tag $(VERSION)

site: ## the documents as a site in dist/site, with every link checked
	@.ci/site
