package services

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// OwnKafka starts a Kafka of the test's own with these lines in its server.properties, and returns its addresses. Its
// listener with SASL is two ports behind: see Secured. It stops with the test. Without our Kafka the test is skipped.
func OwnKafka(t testing.TB, properties string) (brokers []string, secured TLS) {
	t.Helper()
	Kafka(t)                                                   // is it installed?
	folder, err := os.MkdirTemp("/var/tmp", "spillway-kafka-") // not below a folder that others must not enter
	if err != nil {
		t.Fatal(err)
	}
	port := freePorts(t, 4)
	jars := os.Getenv("SPILLWAY_KAFKA_JARS")
	if jars == "" {
		if jars = os.Getenv("SPILLWAY_SERVICES_DIR"); jars == "" {
			jars = fmt.Sprintf("/var/tmp/spillway-services-%d", os.Getuid())
		}
	}
	environment := []string{"SPILLWAY_SERVICES_DIR=" + folder, "SPILLWAY_KAFKA=", "SPILLWAY_KAFKA_JARS=" + jars,
		"SPILLWAY_KAFKA_PORT=" + strconv.Itoa(port), "SPILLWAY_KAFKA_PROPERTIES=" + properties}
	t.Cleanup(func() {
		if out, err := run("down", "kafka", environment...); err != nil {
			t.Errorf("services: stop Kafka: %v\n%s", err, out)
		}
		_ = os.RemoveAll(folder)
	})
	if out, err := run("up", "kafka", environment...); err != nil {
		t.Fatalf("services: start Kafka: %v\n%s", err, out)
	}
	at := func(beside int) string { return fmt.Sprintf("127.0.0.1:%d", port+beside) }
	tls := filepath.Join(folder, "kafka", "tls")
	return []string{at(0)}, TLS{CA: filepath.Join(tls, "ca.pem"), Cert: filepath.Join(tls, "client.pem"),
		Key: filepath.Join(tls, "client.key"), Host: at(2), Certified: at(3)}
}

// freePorts returns the first of n ports in a row that nobody listens at.
func freePorts(t testing.TB, n int) (first int) {
	t.Helper()
	for range 100 {
		start, err := strconv.Atoi(freePort(t))
		if err != nil {
			t.Fatal(err)
		}
		free := true
		for port := start + 1; port < start+n && free; port++ {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if free = err == nil; free {
				_ = listener.Close()
			}
		}
		if free {
			return start
		}
	}
	t.Fatal("services: no ports in a row are free")
	return 0
}
