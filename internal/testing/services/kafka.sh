# shellcheck shell=bash disable=SC2034,SC2154 # used by services.sh, which reads this file
# Kafka: one node in KRaft mode, broker and controller in one process, from Maven Central.
kafka_version=${SPILLWAY_KAFKA_VERSION:-3.9.1} # as in kafka-pom.xml and compose.yaml
kafka_port=${SPILLWAY_KAFKA_PORT:-19092}
kafka_address=127.0.0.1:$kafka_port
kafka_variable=SPILLWAY_KAFKA
kafka_user="" # runs as our user
kafka_signal=TERM
kafka_jars=${SPILLWAY_KAFKA_JARS:-$base}/kafka-$kafka_version # several sets of servers may share them

kafka_packages() {
  if ! command -v java >/dev/null; then echo -n "default-jre-headless "; fi
  if ! command -v openssl >/dev/null; then echo -n "openssl "; fi
  if [[ ! -d $kafka_jars ]] && ! command -v mvn >/dev/null; then echo "maven"; fi
}

kafka_fetch() {
  if [[ -d $kafka_jars ]]; then return; fi
  say "fetching Kafka $kafka_version from Maven Central"
  rm -rf "$kafka_jars.new"
  if ! mvn -B -q -f "$here/kafka-pom.xml" -Dkafka.version="$kafka_version" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$kafka_jars.new" </dev/null >"$base/kafka-fetch.log" 2>&1; then
    tail -n 20 "$base/kafka-fetch.log" >&2
    return 1
  fi
  mv "$kafka_jars.new" "$kafka_jars"
}

kafka_config() { # FOLDER DATA
  # Topics are not created by themselves: tests of missing destinations count on that. The internal topics have few
  # partitions because each one costs time at every start. After a crash a broker is let in again only when its old session
  # has ended: 9 s by default.
  cat >"$1/server.properties" <<TEXT
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((kafka_port + 1))
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$kafka_port,CONTROLLER://127.0.0.1:$((kafka_port + 1)),PASSWORDS://127.0.0.1:$((kafka_port + 2)),CERTIFICATES://127.0.0.1:$((kafka_port + 3))
advertised.listeners=PLAINTEXT://127.0.0.1:$kafka_port,PASSWORDS://127.0.0.1:$((kafka_port + 2)),CERTIFICATES://127.0.0.1:$((kafka_port + 3))
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PASSWORDS:SASL_SSL,CERTIFICATES:SSL
listener.name.passwords.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.passwords.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_spillway="spill:way@";
listener.name.passwords.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.passwords.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.certificates.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location=$1/tls/both.pem
ssl.truststore.type=PEM
ssl.truststore.location=$1/tls/ca.pem
inter.broker.listener.name=PLAINTEXT
log.dirs=$2
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
${SPILLWAY_KAFKA_PROPERTIES:-}
TEXT
  cat >"$1/log4j.properties" <<TEXT
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
TEXT
  mkdir -p "$1/tmp" # native libraries are unpacked here, and /tmp may be mounted noexec
}

kafka_jit=() # a broker that lives for minutes under tests is done before the second compiler pays
if [[ $fsync == off ]]; then kafka_jit=(-XX:TieredStopAtLevel=1); fi
kafka_java=(java "${kafka_jit[@]}" -Xms128m -Xmx512m -XX:+UseSerialGC -Dlog4j.configuration="file:$base/kafka/log4j.properties"
  -Djava.io.tmpdir="$base/kafka/tmp" -cp "$kafka_jars/*")

kafka_prepare() {
  certified kafka "$1" && kafka_config "$1" "$1/new" &&
    "${kafka_java[@]}" kafka.tools.StorageTool format -t c3BpbGx3YXktc2VydmljZQ -c "$1/server.properties" \
      --add-scram 'SCRAM-SHA-256=[name=spillway,password=spill:way@]' --add-scram 'SCRAM-SHA-512=[name=spillway,password=spill:way@]'
}

kafka_run() {
  certified kafka "$1"
  kafka_config "$1" "$1/data"
  launch kafka "${kafka_java[@]}" kafka.Kafka "$1/server.properties"
}

# A metadata request (version 1, no topics): it is ready when the answer names one broker, this one.
kafka_probe() {
  exec 3<>"/dev/tcp/127.0.0.1/$kafka_port"
  printf '\0\0\0\016\0\003\0\001\0\0\0\0\377\377\0\0\0\0' >&3
  [[ $(head -c 12 <&3 | od -An -v -tx1 | tr -d ' \n') == ????????0000000000000001 ]]
}
