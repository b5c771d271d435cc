# What measures, or repeats at length what a shorter test decides. The Makefile above includes this file.
FUZZTIME   ?= 10m
CHAOS      ?= 30
MESSAGES   ?= 20000
SEED       ?= 0
OUTAGE     ?= 30s
PROXY      ?= /tmp/spillway-proxy
OWN        := github.com/watermill-spillway/spillway
FACTS       = ./lab/proofs/facts ./pubsub/wmkafka ./pubsub/wmamqp ./pubsub/wmsql

.PHONY: lab facts modules floors conformance conformance-idempotency bench bench-peers footprint measured chaos chaos-order chaos-tables \
  chaos-outages test-clusters fuzz demo-observe proxy pictures

lab: ## the lab's own tests: documents, modules, alerts, migrations, the columns of Redis and NATS, short runs of measures and chaos
	@$(SERVICES) up
	$(SERVE) -p 1 ./lab/... $(NIGHTLY)

facts: ## what the code answers to in Watermill, the brokers and their clients, on real servers
	@$(SERVICES) up
	$(SERVE) -p 1 -count=1 -run '^TestFact' $(FACTS) # one by one: a fact of RabbitMQ stops its elections for 8 s

modules: ## each module by itself, at its own versions, and modules of users, from a proxy that is made of the tree
	$(GO) test -count=1 -timeout 15m ./lab/proofs/modules

floors: ## the library's tests with the oldest versions that its go.mod allows; make test has the newest ones
	@$(SERVICES) up
	GOWORK=off $(SERVE) -p 1 ./...

NEWEST     = internal/testing/services/newest.sh
ROOTS     ?= /var/tmp/spillway-roots
# A package of these, or some, on the servers of sid; those of RabbitMQ on 4.0 too.
ON_SID    ?= ./conformance ./pubsub/wmkafka ./pubsub/wmamqp ./pubsub/wmsql ./idempotency/... ./redrive/letters ./internal/sqlstore/... ./lab/proofs/columns
ON_TRIXIE ?= ./pubsub/wmamqp
# $(call newest,ROOT,servers,packages): mounts end with the servers, so nothing is left to unmount. The ports are of their own, or
# the tests would use servers of make services that answer there.
newest = ( export SPILLWAY_KAFKA_PORT=19492 SPILLWAY_AMQP_PORT=20072 SPILLWAY_POSTGRES_PORT=19832 SPILLWAY_MYSQL_PORT=19706; \
  export SPILLWAY_REDIS_PORT=19779 SPILLWAY_NATS_PORT=19622 SPILLWAY_SERVICES_ROOT=$(ROOTS)/$(1) SPILLWAY_SERVICES_FSYNC=off SPILLWAY_ROOTS=$(ROOTS) PATH=$(ROOTS)/sid/outside:$$PATH; \
  trap '$(SERVICES) down' EXIT; $(SERVICES) fresh $(2) && $(UNRACED) -p 1 -count=1 $(3) )
.PHONY: test-newest
test-newest: ## the adapters, the columns and the stores on the servers of today, as root on Debian: RabbitMQ 4.3 and all others of sid, then RabbitMQ 4.0
	@SPILLWAY_ROOTS=$(ROOTS) $(NEWEST) make && SPILLWAY_ROOTS=$(ROOTS) $(NEWEST) versions
	@status=0; $(call newest,sid,,$(ON_SID)) || status=1; $(call newest,trixie,rabbitmq,$(ON_TRIXIE)) || status=1; exit $$status

# The messages of its databases come from the Kafka of make services, its brokers' databases from the PostgreSQL.
CLUSTERS  ?= rabbitmq,postgres,transactions,sessions,mariadb,galera
.PHONY: test-clusters-newest
test-clusters-newest: ## test-clusters of CLUSTERS with the servers of sid: RabbitMQ 4.3, PostgreSQL 18, MariaDB 11.8, Galera, PgBouncer 1.26
	@SPILLWAY_ROOTS=$(ROOTS) $(NEWEST) make sid && SPILLWAY_ROOTS=$(ROOTS) $(NEWEST) versions $(ROOTS)/sid
	@$(SERVICES) up kafka postgres
	CGO_ENABLED=0 $(GO) build -o $(ROOTS)/sid/clusters ./lab/clusters
	$(NEWEST) run $(ROOTS)/sid /clusters -on $(CLUSTERS) $(FLAGS)

conformance: ## the suite of promises over all pub/subs, with outages of OUTAGE (default 30s), and its matrix
	@$(SERVICES) up >&2
	@SPILLWAY_CONFORMANCE_OUTAGE=$(OUTAGE) .ci/matrix -p 1 -timeout 30m ./conformance ./lab/proofs/columns

conformance-idempotency: ## the idempotent receiver: cases, kills, interleavings, by databases and stores, and their matrix
	@$(SERVICES) up postgres mariadb >&2
	@SPILLWAY_IDEMPOTENCY_KILLS=50 SPILLWAY_IDEMPOTENCY_MESSAGES=2000 SPILLWAY_IDEMPOTENCY_RUNS=100 \
	  .ci/matrix -timeout 15m -run '^Test(Matrix|Crash|Consumers|Model)$$' ./idempotency

bench-kafka: NEEDS = kafka
bench-amqp: NEEDS = rabbitmq
bench-pubsub: NEEDS = redis nats
bench-sql bench-idempotency bench-store: NEEDS = postgres mariadb
bench-console: NEEDS = postgres
bench-stages: NEEDS = kafka postgres mariadb
bench-redrive bench-order bench-pressure: NEEDS = kafka postgres
bench-%: ## figures as JSON lines, of one of lab/measures: kafka amqp sql pubsub idempotency store console redrive order pressure stages; FLAGS=-h
	@$(if $(NEEDS),$(SERVICES) up $(NEEDS) >&2)
	@$(GO) run ./lab/measures/$* $(FLAGS)

bench-peers: ## live messages a second of one Kafka partition while some fail: Spring Kafka, Watermill's own parts, Spillway
	@lab/measures/peers/need-jdk >&2
	@mvn -B -q -f lab/measures/peers/spring/pom.xml compile dependency:copy-dependencies -DincludeScope=runtime >&2
	@$(SERVICES) up kafka >&2
	@$(GO) run ./lab/measures/peers $(FLAGS)

bench: ## Go benchmarks, then the figures as JSON lines, the last one of an outage
	$(GO) test -run '^$$' -bench . -benchtime 200ms $(ALL)
	@$(GO) run ./lab/measures
	@$(GO) run ./examples/outage -figure

footprint: ## the sockets and goroutines of retry stages on Kafka and RabbitMQ, and how long a deploy interrupts them
	@$(SERVICES) up kafka rabbitmq >&2
	SPILLWAY_FOOTPRINT=1 $(GO) test -count=1 -v ./lab/internal/footprint

measured: start ## every figure of docs/measured.md, table by table, with versions and date, in about an hour; MEASURED="bench-kafka bench-order" chooses
	@.ci/measured $(MEASURED)

chaos: ## kill, cut and stop everything while MESSAGES (default 20000) flow on each broker, and account for every id; SEED repeats
	@$(SERVICES) up kafka rabbitmq postgres mariadb
	$(GO) run ./lab/chaos -messages $(MESSAGES) -seed $(SEED) $(FLAGS)

chaos-outages: ## the same with outages of a downstream that the handlers call, of up to a minute, behind the breaker
	@$(MAKE) --no-print-directory chaos FLAGS=-outages

chaos-order: ## kill and stop ordered consumers, restart the servers and add partitions while MESSAGES flow and in a silence, and judge effects and outputs of each key; SEED repeats
	@$(SERVICES) up kafka rabbitmq postgres mariadb
	$(GO) run ./examples/order -grow -restarts -messages $(MESSAGES) -seed $(SEED)
	$(GO) run ./examples/order -broker rabbitmq -restarts -sparse 6 -messages $(MESSAGES) -seed $(SEED)

chaos-tables: ## the campaigns that kill, cut and close on tables, CHAOS times as long (default 30)
	@$(SERVICES) up postgres mariadb
	SPILLWAY_CHAOS=$(CHAOS) $(RACE) -v -count=1 -timeout 2h -run 'Campaign|CommitAnswerLost|TestModel' ./pubsub/wmsql ./internal/order/sequence

test-clusters: ## nodes of clusters of brokers and databases, and a pooler, are killed, stopped, cut off and promoted while messages flow; FLAGS="-on kafka -round hang"
	@$(SERVICES) install kafka rabbitmq postgres mariadb pgbouncer
	$(GO) run ./lab/clusters $(FLAGS)

fuzz: ## fuzz every target for FUZZTIME (default 10m) each
	@.ci/fuzz $(FUZZTIME) $(ALL)

demo-observe: ## each alert fires and clears on a real router under faults, and every query of the dashboard has data; FLAGS=-panels prints it
	@$(GO) run ./lab/observe $(FLAGS)

proxy: ## a GOPROXY of the tree in PROXY (default /tmp/spillway-proxy), with all modules at v0.1.0
	@$(GO) run ./lab/proofs/modules/proxy -out $(PROXY)
	@echo "GOPROXY=file://$(PROXY),https://proxy.golang.org GOSUMDB=off GOWORK=off GOMODCACHE=\$$(mktemp -d) go install $(OWN)/cmd/redrive@v0.1.0"

pictures: ## take the pictures of the console in docs anew, of its demo in Chromium
	@$(SERVICES) install browser
	$(GO) test -count=1 ./examples/console -run TestPictures -update
