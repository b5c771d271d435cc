# Two commands are enough: make demo, make test. make help lists the rest.
GO         ?= go
FUZZTIME   ?= 10m
CHAOS      ?= 30
MESSAGES   ?= 20000
SEED       ?= 0
OUTAGE     ?= 30s
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.7.0
SERVICES    = internal/testing/services/services.sh

# All packages of all modules in go.work.
NESTED      = cmd/redrive observe/prom observe/telemetry examples lab
ALL         = ./... $(NESTED:%=./%/...)

# Tests run in three lanes at the same time. Fault tests restart servers, so each lane has servers of its own: that of the
# brokers and that of the tables have all, that of the stores has PostgreSQL and MariaDB. Within a lane what restarts servers
# runs alone. The packages whose tests know of the servers, directly or through a helper, are found, once; one that is in no list
# is tested behind those of the tables.
SERVED  = $(eval SERVED := $$(shell $(GO) list -test -f '{{.ImportPath}} {{join .Deps " "}}' $(ALL) | sed -n 's|\.test .*/spillway/internal/services\b.*||p'))$(SERVED)
OTHERS  = $(filter-out $(SERVED) $(if $(CHANGED),,%/proofs/facts),$(shell $(GO) list $(ALL)))
# They read sources and run the go command, alone: there is nothing to race with.
READERS = %/proofs/documents %/proofs/layout %/proofs/licences %/proofs/modules
BROKERS = ./conformance ./pubsub/wmkafka ./pubsub/wmamqp ./observe/telemetry $(addprefix ./lab/measures/,kafka amqp redrive)
DEMOS   = $(addprefix ./examples/,kafka amqp redis nats nats/jetstream stages deploy outage) $(addprefix ./lab/measures/,stages order footprint)
TABLES  = ./pubsub/wmsql
STORES  = ./internal/sqlstore/delayed $(filter-out %/redrive/console,$(shell $(GO) list ./redrive/...)) ./idempotency/... ./middleware/crashlimit ./middleware/breaker ./internal/sqlstore/database/... ./internal/sqlstore/keytable ./internal/testing/testkit/... ./lab/measures/sql ./lab/measures/idempotency
BOTH    = $(filter-out $(shell $(GO) list $(BROKERS) $(DEMOS) $(TABLES) $(STORES) ./lab/proofs/columns ./lab/chaos ./internal/testing/services),$(SERVED))
# SQLite is C in the words of Go: watched for races, it takes ten times as long. What calls it is watched. make vet looks at the tests too. A program with the race detector sleeps for a second at its end, unless it is told not to.
# With memory for five times what is in use, tests spend about a tenth less of the processor.
RACE    = GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(GO) test -exec 'env GOGC=400' -race -gcflags=modernc.org/...=-race=false -vet=off -shuffle=on
# Facts about Watermill, the brokers and their clients are tested when a version changes: make facts records the versions that it passed with.
FACTS   = ./lab/proofs/facts ./pubsub/wmkafka ./pubsub/wmamqp ./pubsub/wmsql
MODULES = github.com/ThreeDotsLabs/watermill $(addprefix github.com/ThreeDotsLabs/watermill-,kafka/v3 amqp/v2 sql/v3) github.com/IBM/sarama github.com/rabbitmq/amqp091-go
KNOWN   = lab/proofs/facts/versions.txt
CHANGED = $(shell $(GO) list -m $(MODULES) | cmp -s - $(KNOWN) || echo changed)
NOFACTS = $(if $(CHANGED),,|^TestFact)
# Sarama has a race of its own when it opens a connection again (Broker.Open and Broker.Fetch): what cuts its connections is tested without.
RECONNECTING = TestConfirmedIsThere|TestSilentConnection|TestStagesExpelled
# What a column shows is its broker's doing. Our code under it is watched for races in the packages' own tests, and in the columns
# without a broker. So the columns run without, as the processes that they kill do: in a third of the time.
COLUMNS = TestKafka|TestAMQP|TestSQL
RACED   = TestGoChannel|TestBrokenPubSubs
UNRACED = SPILLWAY_EMBEDDED= $(GO) test -vet=off -shuffle=on -timeout 15m
SERVE   = SPILLWAY_EMBEDDED= $(RACE) -timeout 15m
served  = $(filter $(SERVED),$(shell $(GO) list $(1)))

# The servers of another lane: $(call lane,name,number to add to each port).
FOLDER  = $(or $(SPILLWAY_SERVICES_DIR),/var/tmp/spillway-services-$(shell id -u))
lane    = SPILLWAY_SERVICES_DIR=$(FOLDER)-$(1) SPILLWAY_KAFKA_JARS=$(or $(SPILLWAY_KAFKA_JARS),$(FOLDER)) SPILLWAY_KAFKA_PORT=$$(($${SPILLWAY_KAFKA_PORT:-19092}+$(2))) SPILLWAY_AMQP_PORT=$$(($${SPILLWAY_AMQP_PORT:-19672}+$(2))) SPILLWAY_REDIS_PORT=$$(($${SPILLWAY_REDIS_PORT:-19379}+$(2))) SPILLWAY_POSTGRES_PORT=$$(($${SPILLWAY_POSTGRES_PORT:-19432}+$(2))) SPILLWAY_MYSQL_PORT=$$(($${SPILLWAY_MYSQL_PORT:-19306}+$(2))) SPILLWAY_NATS_FOLDER=$(or $(SPILLWAY_NATS_FOLDER),$(FOLDER)) SPILLWAY_AXE_FOLDER=$(or $(SPILLWAY_AXE_FOLDER),$(FOLDER)) SPILLWAY_NATS_PORT=$$(($${SPILLWAY_NATS_PORT:-19222}+$(2)))
IN_TABLES = $(call lane,tables,100)
IN_STORES = $(call lane,stores,200)

.DEFAULT_GOAL := help
.PHONY: help demo demo-kafka demo-amqp demo-redis demo-nats demo-sql demo-stages demo-redrive demo-outage demo-observe demo-deploy test check services services-down format vet staticcheck static stores-and-unit unit start served served-brokers served-tables served-stores embedded allocs conformance conformance-idempotency bench bench-kafka bench-sql bench-idempotency bench-stages chaos chaos-order test-clusters outage-campaign chaos-tables fuzz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run real GitHub events through the dead letter channel, on an embedded pub/sub and SQLite
	@$(GO) run ./examples/webhooks

demo-kafka: ## the same on Kafka and PostgreSQL, with the consumer killed in the middle; starts what it needs
	@$(SERVICES) up kafka postgres
	@$(GO) run ./examples/kafka

demo-amqp: ## the same on RabbitMQ and PostgreSQL
	@$(SERVICES) up rabbitmq postgres
	@$(GO) run ./examples/amqp

demo-redis: ## the same on Redis Streams and PostgreSQL
	@$(SERVICES) up redis postgres
	@$(GO) run ./examples/redis

demo-nats: ## the same on NATS JetStream and PostgreSQL
	@$(SERVICES) up nats postgres
	@$(GO) run ./examples/nats

demo-sql: ## the same on tables, everything about a message in one transaction: on PostgreSQL, then on MariaDB
	@$(SERVICES) up postgres mariadb
	@$(GO) run ./examples/sql
	@$(GO) run ./examples/sql -db mysql

demo-stages: ## a downstream that is down for 20 s: staged retry on Kafka and PostgreSQL, as a chart; -blocking shows it without
	@$(SERVICES) up kafka postgres
	@$(GO) run ./examples/stages

demo-redrive: ## an incident from the alert to its end, with the command redrive on Kafka and PostgreSQL; every message is counted by id; FLAGS=-practice leaves it to you
	@$(SERVICES) up kafka postgres
	@$(GO) run ./examples/incident $(FLAGS)

.PHONY: demo-order
demo-order: ## accounts whose deposits and withdrawals stay in order, on Kafka and PostgreSQL: calls fail, the bank goes away, the consumer is killed; FLAGS=-without shows it without Ordered
	@$(SERVICES) up kafka postgres
	@$(GO) run ./examples/order -demo $(FLAGS)

demo-outage: ## a downstream that goes away for 10 s under webhooks at a steady rate, as a chart; FLAGS=-without shows it without the breaker
	@$(GO) run ./examples/outage $(FLAGS)

demo-deploy: ## a rolling deploy of three instances on Kafka, whose handlers take 2 s, as a chart; FLAGS=-without shows it without the drain
	@$(SERVICES) up kafka
	@$(GO) run ./examples/deploy $(FLAGS)

demo-observe: ## each alert fires and clears on a real router under faults, and every query of the dashboard has data; FLAGS=-panels prints it
	@$(GO) run ./lab/observe $(FLAGS)

.PHONY: demo-api
demo-api: ## an incident that a program closes over HTTP alone, then the command redrive, embedded; a JSON line each
	@$(GO) run ./examples/api $(FLAGS)

.PHONY: api-client
api-client: ## a client that oapi-codegen makes of openapi.json works on dead letters; downloads the tool
	@$(GO) run ./examples/api -client

.PHONY: demo-console
demo-console: ## an incident for you and your browser: the console in a service, embedded; Ctrl-C ends it; FLAGS=-addr=127.0.0.1:9000
	@$(GO) run ./examples/console $(FLAGS)

.PHONY: pictures
pictures: ## take the pictures of the console in docs anew, of that demo in Chromium
	@$(SERVICES) install browser
	@$(GO) test -count=1 ./examples/console -run TestPictures -update

# Its last lines say what it was tested against. Without a server its tests are skipped; in CI that is a failure.
test: export SPILLWAY_SERVICES_FSYNC = off
test: ## everything that decides: gofmt, vet, staticcheck, all tests with the race detector, with real servers
	@.ci/need-cc
	@$(MAKE) --no-print-directory --output-sync=target -j2 start static # before the lanes: only one may install servers
	@$(MAKE) --no-print-directory --output-sync=target -j3 served-brokers served-tables stores-and-unit
	@echo; echo "tested against:"; $(SERVICES) status && promtool --version | grep -m 1 promtool || { \
	  echo; echo "NOT TESTED against every server: see above"; test "$$CI" != true; }

check: ## the quick part of test: no servers
	@.ci/need-cc
	@$(MAKE) --no-print-directory --output-sync=target -j2 static embedded

services: ## start Kafka, RabbitMQ, Redis, PostgreSQL, MariaDB and NATS for tests and examples, installing what is missing
	@$(SERVICES) up

services-down: ## stop them
	@$(SERVICES) down
	@$(IN_TABLES) $(SERVICES) down
	@$(IN_STORES) $(SERVICES) down postgres mariadb

OWN        := github.com/watermill-spillway/spillway
.PHONY: tidy
tidy: ## go mod tidy in each module, which finds the others in the tree; floors only rise: write them lower by hand
	@set -e; for module in . $(NESTED); do \
	  tree=$$(cd $$module && realpath --relative-to=. $(CURDIR)); \
	  ( cd $$module; own() { $(GO) mod edit $$(for m in "" /observe/prom /observe/telemetry /examples; do echo "-$$1=$(OWN)$$m@v0.1.0$${2:+=$$tree$$m}"; done); }; \
	    own replace tree; status=0; GOWORK=off $(GO) mod tidy || status=$$?; own dropreplace; exit $$status ); \
	done

static:
	@for step in format vet staticcheck; do $(MAKE) --no-print-directory $$step || exit 1; done

format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed:" $$unformatted; exit 1; fi

vet:
	$(GO) vet $(ALL)

staticcheck:
	$(GO) run $(STATICCHECK) $(ALL)

unit:
	$(RACE) -timeout 15m $(filter-out $(READERS),$(OTHERS))
	$(GO) test -vet=off -shuffle=on -timeout 15m $(filter $(READERS),$(OTHERS))

.PHONY: facts
facts: start ## what the code answers to in Watermill and the brokers; make test runs it when a version changes
	$(SERVE) -count=1 -run '^TestFact' $(FACTS)
	@$(GO) list -m $(MODULES) > $(KNOWN)

.PHONY: modules
modules: ## each module by itself, at its own versions, and modules of users, from a proxy that is made of the tree
	$(GO) test -count=1 -timeout 15m ./lab/proofs/modules

.PHONY: floors
floors: start ## the library's tests with the oldest versions that its go.mod allows; make test has the newest ones
	GOWORK=off $(SERVE) -p 1 ./...

.PHONY: api
api: ## what changed in exported names since the last tag, or since BASE
	@.ci/api

.PHONY: vulnerabilities
vulnerabilities: ## what Go's database of vulnerabilities says of what the modules call; without the database it says so, and passes
	@.ci/vulnerabilities $(filter-out ./examples/... ./lab/...,$(ALL))

.PHONY: release
release: ## redrive of VERSION for each platform into dist: the same bytes for everyone, with checksums and an SBOM
	@.ci/release $(VERSION)

.PHONY: tag
tag: ## what to tag for VERSION, after a check that each module builds as users get it; it makes no tag
	@.ci/tag $(VERSION)

.PHONY: site
site: ## the documents as a site in dist/site, with every link checked
	@.ci/site

PROXY ?= /tmp/spillway-proxy
.PHONY: proxy
proxy: ## a GOPROXY of the tree in PROXY (default /tmp/spillway-proxy), with all modules at v0.1.0
	@$(GO) run ./lab/proofs/modules/proxy -out $(PROXY)
	@echo "GOPROXY=file://$(PROXY),https://proxy.golang.org GOSUMDB=off GOWORK=off GOMODCACHE=\$$(mktemp -d) go install $(OWN)/cmd/redrive@v0.1.0"

start:
	@status=0; $(SERVICES) fresh || status=1; $(SERVICES) install prometheus browser pgbouncer || status=1; \
	test $$status = 0 || { echo; echo "NOT EVERY SERVER IS THERE: what needs the others will be SKIPPED"; echo; test "$$CI" != true; }

served: start ## the tests that need servers, each lane after another
	@.ci/need-cc
	@$(MAKE) --no-print-directory served-brokers served-tables served-stores

# It has no prerequisite: make notices the end of one late, if $(shell) waits for it meanwhile, and then this lane begins behind another.
served-brokers:
	$(SERVE) -skip '^($(RECONNECTING)|$(COLUMNS))$$$(NOFACTS)' -p 2 $(BROKERS)
	$(UNRACED) -run '^($(RECONNECTING))$$' ./pubsub/wmkafka
	$(UNRACED) -skip '^($(RACED))$$' ./conformance ./lab/proofs/columns
	$(SERVE) -p 2 $(call served,$(DEMOS))
	$(SERVE) ./internal/testing/services

served-tables:
	@$(IN_TABLES) $(SERVICES) fresh || test "$$CI" != true
	$(IN_TABLES) $(SERVE) -skip '^$$$(NOFACTS)' -p 1 $(call served,$(TABLES))
	$(IN_TABLES) $(SERVE) -v -count=1 ./lab/chaos # with its JSON lines, and the seed in them; SPILLWAY_CHAOS_SEED repeats
	$(IN_TABLES) $(SERVE) -p 2 $(BOTH)
	@$(IN_TABLES) $(SERVICES) down

# The stores first: their tests run one package at a time, and what comes last should fill both cores.
stores-and-unit:
	@for step in served-stores unit allocs; do $(MAKE) --no-print-directory $$step || exit 1; done

served-stores:
	@$(IN_STORES) $(SERVICES) fresh postgres mariadb || test "$$CI" != true
	$(IN_STORES) $(SERVE) -p 1 $(call served,$(STORES))
	@$(IN_STORES) $(SERVICES) down postgres mariadb

embedded:
	SPILLWAY_EMBEDDED=1 $(RACE) $(ALL)

allocs: # pools forget at random under the race detector, so what counts allocations runs without it too
	$(GO) test -vet=off -run 'Alloc' -shuffle=on ./middleware ./middleware/stages ./internal/chain ./lab/measures ./middleware/crashlimit ./middleware/breaker

conformance: start ## the suite of promises over all pub/subs, with outages of OUTAGE (default 30s), and its matrix
	@results=$$(mktemp); trap 'rm -f "$$results"' EXIT; \
	SPILLWAY_CONFORMANCE_OUT=$$results SPILLWAY_CONFORMANCE_OUTAGE=$(OUTAGE) $(GO) test -p 1 -count=1 -timeout 30m ./conformance ./lab/proofs/columns; status=$$?; \
	$(GO) run ./conformance/internal/report $$results && exit $$status

conformance-idempotency: ## the idempotent receiver: cases, kills, interleavings, by databases and stores, and their matrix
	@$(SERVICES) up postgres mariadb >&2
	@results=$$(mktemp); trap 'rm -f "$$results"' EXIT; \
	SPILLWAY_CONFORMANCE_OUT=$$results SPILLWAY_IDEMPOTENCY_KILLS=50 SPILLWAY_IDEMPOTENCY_MESSAGES=2000 SPILLWAY_IDEMPOTENCY_RUNS=100 \
	$(GO) test -count=1 -timeout 15m -run '^Test(Matrix|Crash|Consumers|Model)$$' ./idempotency; status=$$?; \
	$(GO) run ./conformance/internal/report $$results && exit $$status

bench-kafka: ## what the protection costs on one Kafka partition, as JSON lines
	@$(SERVICES) up kafka >&2
	@$(GO) run ./lab/measures/kafka

.PHONY: bench-amqp
bench-amqp: ## good messages a second of a RabbitMQ queue while some fail, as JSON lines; FLAGS=-rounds=3
	@$(SERVICES) up rabbitmq >&2
	@$(GO) run ./lab/measures/amqp $(FLAGS)

bench-sql: ## what everything in one transaction costs on PostgreSQL and MariaDB, as JSON lines; FLAGS=-rounds=5
	@$(SERVICES) up postgres mariadb >&2
	@$(GO) run ./lab/measures/sql $(FLAGS)

.PHONY: bench-pubsubs
bench-pubsubs: ## what the protection costs on Redis Streams and NATS JetStream, as JSON lines
	@$(SERVICES) up redis nats >&2
	@$(GO) run ./lab/measures/pubsub

bench-idempotency: ## what the idempotent receiver costs in transaction mode, and how it grows with the keys, as JSON lines; FLAGS='-rounds=9 -keys=10000000'
	@$(SERVICES) up postgres mariadb >&2
	@$(GO) run ./lab/measures/idempotency $(FLAGS)

.PHONY: bench-store
bench-store: ## how long the questions to the store of dead letters take, and how many letters it takes a second, as JSON lines; FLAGS='-rows=1000000 -copies'
	@$(SERVICES) up postgres mariadb >&2
	@$(GO) run ./lab/measures/store $(FLAGS)

.PHONY: bench-console
bench-console: ## how long the pages of the console and its API take while 20 people click and 1,000,000 letters wait on PostgreSQL, as JSON lines; FLAGS=-round=30s
	@$(SERVICES) up postgres >&2
	@$(GO) run ./lab/measures/console $(FLAGS)

.PHONY: bench-redrive
bench-redrive: ## how fast campaigns and drains bring letters back from PostgreSQL to Kafka, and how true their rate is, as JSON lines; FLAGS=-rounds=2
	@$(SERVICES) up kafka postgres >&2
	@$(GO) run ./lab/measures/redrive $(FLAGS)

.PHONY: bench-order
bench-order: ## what the order of keys costs on one Kafka partition with PostgreSQL: lanes, parking, draining, as JSON lines; FLAGS=-rounds=3
	@$(SERVICES) up kafka postgres >&2
	@$(GO) run ./lab/measures/order $(FLAGS)

.PHONY: bench-pressure
bench-pressure: ## what a forgotten transaction on PostgreSQL does to rates, dead rows and sizes, as JSON lines; FLAGS='-pinned=30m -interval=1m'
	@$(SERVICES) up kafka postgres >&2
	@$(GO) run ./lab/measures/pressure $(FLAGS)

bench-stages: ## what is left of the live throughput while messages fail and wait in stages, and how late they are, as JSON lines; FLAGS='-only=live_under_failure,all_failing -rounds=3 -stock=30s'
	@$(SERVICES) up kafka postgres mariadb >&2
	@$(GO) run ./lab/measures/stages $(FLAGS)

.PHONY: footprint
footprint: ## the sockets and goroutines of retry stages on Kafka and RabbitMQ, and how long a deploy interrupts them
	@$(SERVICES) up kafka rabbitmq >&2
	SPILLWAY_FOOTPRINT=1 $(GO) test -count=1 -v ./lab/measures/footprint

.PHONY: bench-peers
bench-peers: ## live messages a second of one Kafka partition while some fail: Spring Kafka, Watermill's own parts, Spillway, as JSON lines; FLAGS=-rounds=3
	@lab/measures/peers/need-jdk >&2
	@mvn -B -q -f lab/measures/peers/spring/pom.xml compile dependency:copy-dependencies -DincludeScope=runtime >&2
	@$(SERVICES) up kafka >&2
	@$(GO) run ./lab/measures/peers $(FLAGS)

# In the order of docs/measured.md. FLAGS are of one program each, so none are passed on.
MEASURED = bench bench-pubsubs bench-kafka bench-stages bench-peers bench-amqp bench-sql bench-redrive bench-idempotency bench-order \
           bench-pressure footprint bench-store bench-console
.PHONY: measured
measured: start ## every figure of docs/measured.md, table by table, with versions and date, in about an hour; MEASURED="bench-kafka bench-order" chooses
	@date -u '+measured on %F'; uname -srm; git describe --always --dirty 2>/dev/null || true; $(GO) version; $(SERVICES) status
	@status=0; for table in $(MEASURED); do echo; echo "== make $$table"; \
	  $(MAKE) --no-print-directory $$table FLAGS= || { echo "== make $$table failed"; status=1; }; done; exit $$status

bench: ## Go benchmarks, then the figures as JSON lines, the last one of an outage
	$(GO) test -run '^$$' -bench . -benchtime 200ms $(ALL)
	@$(GO) run ./lab/measures
	@$(GO) run ./examples/outage -figure

chaos: start ## kill, cut and stop everything while MESSAGES (default 20000) flow on each broker, and account for every id; SEED repeats
	$(GO) run ./lab/chaos -messages $(MESSAGES) -seed $(SEED)

outage-campaign: start ## the same with outages of a downstream that the handlers call, of up to a minute, behind the breaker
	$(GO) run ./lab/chaos -outages -messages $(MESSAGES) -seed $(SEED)

chaos-order: start ## kill and stop ordered consumers, restart the servers and add partitions while MESSAGES flow on Kafka, and judge effects and outputs of each key; SEED repeats
	$(GO) run ./examples/order -grow -restarts -messages $(MESSAGES) -seed $(SEED)

test-clusters: start ## nodes of clusters of brokers and databases, and a pooler, are killed, stopped, cut off and promoted while messages flow; FLAGS="-on kafka -round hang"
	$(GO) run ./lab/clusters $(FLAGS)

chaos-tables: start ## the campaigns that kill, cut and close on tables, CHAOS times as long (default 30)
	SPILLWAY_CHAOS=$(CHAOS) $(RACE) -v -count=1 -timeout 2h -run 'Campaign|CommitAnswerLost|TestModel' ./pubsub/wmsql ./internal/order/sequence

fuzz: ## fuzz every target for FUZZTIME (default 10m) each
	@for package in $$($(GO) list $(ALL)); do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    echo "== $$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
	  done; \
	done
