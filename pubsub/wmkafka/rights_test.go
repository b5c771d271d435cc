package wmkafka

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	later "github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe"
)

// guarded is a Kafka with an authorizer, and the addresses and settings of a client without rights of its own.
type guarded struct {
	*cluster
	secured []string
	user    func(*sarama.Config)
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	brokers, secured := services.OwnKafka(t, "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"+
		"super.users=User:ANONYMOUS")
	c := &cluster{TB: t, brokers: brokers, topic: "orders-" + rand.Text(), group: "billing-" + rand.Text()}
	c.eventually("the broker takes an administrator", func() (taken bool) {
		var err error
		c.admin, err = connectAdmin(brokers, publisherDefaults())
		return err == nil
	})
	c.cleanup(c.admin.Close)
	c.producer = c.newProducer(func(*sarama.Config) {})
	for _, kind := range []sarama.AclResourceType{sarama.AclResourceTopic, sarama.AclResourceGroup, sarama.AclResourceCluster} {
		name := map[bool]string{true: "kafka-cluster", false: "*"}[kind == sarama.AclResourceCluster]
		resource := sarama.Resource{ResourceType: kind, ResourceName: name, ResourcePatternType: sarama.AclPatternLiteral}
		c.rule(resource, sarama.AclOperationAll, sarama.AclPermissionAllow)
	}
	roots := x509.NewCertPool()
	testkit.Require(t, roots.AppendCertsFromPEM(testkit.Must(os.ReadFile(secured.CA))), "no certificates")
	return &guarded{c, []string{secured.Host}, func(config *sarama.Config) {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, &tls.Config{RootCAs: roots}
		config.Net.SASL.Enable, config.Net.SASL.User, config.Net.SASL.Password = true, "spillway", services.Password
	}}
}

// rule says what the user may do with a resource. A broker that has just begun closes connections: each try has its own.
func (c *cluster) rule(resource sarama.Resource, operation sarama.AclOperation, permission sarama.AclPermissionType) {
	c.Helper()
	acl := sarama.Acl{Principal: "User:spillway", Host: "*", Operation: operation, PermissionType: permission}
	c.administer(func(a admin) error {
		return a.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: []*sarama.Acl{&acl}}})
	})
}

// administer does something until it is done.
func (c *cluster) administer(do func(admin) error) {
	c.Helper()
	c.eventually("the rights are set", func() bool {
		a, err := connectAdmin(c.brokers, publisherDefaults())
		if err != nil {
			return false
		}
		defer a.Close()
		return do(a) == nil
	})
}

// deny takes an operation away from the user, until the returned function gives it back.
func (g *guarded) deny(kind sarama.AclResourceType, name string, operation sarama.AclOperation) (allow func()) {
	g.Helper()
	resource := sarama.Resource{ResourceType: kind, ResourceName: name, ResourcePatternType: sarama.AclPatternLiteral}
	g.rule(resource, operation, sarama.AclPermissionDeny)
	return func() {
		g.administer(func(a admin) error {
			_, err := a.DeleteACL(sarama.AclFilter{ResourceType: kind, ResourceName: &name, Operation: sarama.AclOperationAny,
				ResourcePatternTypeFilter: sarama.AclPatternLiteral, PermissionType: sarama.AclPermissionDeny}, false)
			return err
		})
	}
}

// counting counts what a publisher refuses.
type counting struct {
	message.Publisher
	refused atomic.Int64
}

func (c *counting) Publish(topic string, messages ...*message.Message) error {
	err := c.Publisher.Publish(topic, messages...)
	if err != nil {
		c.refused.Add(1)
	}
	return err
}

// Promise P1, decision 30: a right that is taken away under a running service is an outage: its messages are held, one
// line says what to do, and when it is given back all go on. No healthy message becomes a letter.
func TestRightsTakenAway(t *testing.T) {
	t.Parallel()
	const n = 20
	g := newGuarded(t)
	for name, row := range map[string]struct {
		kind      sarama.AclResourceType
		of        func(topic, group string) string
		operation sarama.AclOperation
	}{
		"write to the topic of outputs": {sarama.AclResourceTopic, func(t, _ string) string { return t + ".out" }, sarama.AclOperationWrite},
		"all of the topic of outputs":   {sarama.AclResourceTopic, func(t, _ string) string { return t + ".out" }, sarama.AclOperationAll},
		"write to the stage":            {sarama.AclResourceTopic, func(t, _ string) string { return t + ".billing.retry.1s" }, sarama.AclOperationWrite},
		"write to the letters":          {sarama.AclResourceTopic, func(t, _ string) string { return t + ".dlq" }, sarama.AclOperationWrite},
		"read the topic":                {sarama.AclResourceTopic, func(t, _ string) string { return t }, sarama.AclOperationRead},
		"read as the group":             {sarama.AclResourceGroup, func(_, g string) string { return g }, sarama.AclOperationRead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{TB: t, brokers: g.brokers, topic: "orders-" + rand.Text(), group: "billing-" + rand.Text(), admin: g.admin,
				producer: g.producer}
			c.create(c.topic, 1, nil)
			c.create(c.topic+".out", 1, nil)
			log := &testkit.Log{}
			shared := observe.Shared{Logger: log}
			open := func() *counting {
				pub := testkit.Must(NewPublisher(g.secured, PublisherConfig{Sarama: g.user, Shared: shared}))
				c.cleanup(pub.Close)
				return &counting{Publisher: pub}
			}
			waiting, subscribe, err := NewStages(g.secured, "shop-"+c.topic, SubscriberConfig{Sarama: g.user, Shared: shared},
				PublisherConfig{Sarama: g.user, Shared: shared})
			testkit.NoError(t, err)
			c.cleanup(waiting.Close)
			staged, dead, out := &counting{Publisher: waiting}, open(), open()
			ch := c.channel(spillway.Config{Publisher: dead, Logger: log, Retry: middleware.RetryConfig{Attempts: 1},
				Stages: &later.Config{Publisher: staged, Subscriber: subscribe, Stages: later.Delays(1e9)}})
			sub := testkit.Must(NewSubscriber(g.secured, c.group, SubscriberConfig{Sarama: g.user, Shared: shared}))
			c.cleanup(sub.Close)
			var seen sync.Map
			testkit.RunRouter(t, log, func(router *message.Router) {
				ch.Attach(router)
				_, err := ch.Stages().AddHandler(router, "billing", c.topic, sub, c.topic+".out", out, func(msg *message.Message) ([]*message.Message, error) {
					switch _, again := seen.LoadOrStore(msg.UUID, nil); {
					case msg.Metadata.Get("poison") != "":
						return nil, classify.Permanent(errors.New("no such customer"))
					case msg.Metadata.Get("later") != "" && !again:
						return nil, classify.Transient(errors.New("not now"))
					}
					return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
				})
				testkit.NoError(t, err)
			})
			send := func(prefix string) {
				for i := range n {
					record := identified(fmt.Sprint(prefix, i))
					record.Topic = c.topic
					switch i % 4 {
					case 1:
						record.Headers = append(record.Headers, header("later", "yes"))
					case 2:
						record.Headers = append(record.Headers, header("poison", "yes"))
					}
					c.produce(record)
				}
			}
			reader := testkit.Must(NewSubscriber(g.brokers, "reader-"+rand.Text(), SubscriberConfig{}))
			c.cleanup(reader.Close)
			ids := func(topic string) map[string]bool { // a lost session repeats some
				found := map[string]bool{}
				testkit.NoError(t, reader.Browse(context.Background(), topic, func(msg *message.Message) bool {
					found[msg.UUID] = true
					return true
				}))
				return found
			}
			size := func(topic string) int { return len(ids(topic)) }
			all := func(times int) bool {
				return size(c.topic+".out") == times*n*3/4 && size(c.topic+".dlq") == times*n/4
			}
			send("before-")
			state := func() string {
				return fmt.Sprint(size(c.topic+".out"), " outputs, ", size(c.topic+".dlq"), " letters, log ", log.Errors())
			}
			testkit.Eventually(t, "all is done before", func() bool { return all(1) }, state)
			allow := g.deny(row.kind, row.of(c.topic, c.group), row.operation)
			refused := func() int64 { return staged.refused.Load() + dead.refused.Load() + out.refused.Load() }
			before := len(log.Errors())
			send("during-")
			if row.operation == sarama.AclOperationRead {
				c.eventually("the log says so", func() bool { return len(log.Errors()) > before })
			} else {
				c.eventually("it is refused again and again", func() bool { return refused() >= 8 })
				lines := log.Lines(watermill.ErrorLogLevel, "denies this client a topic")
				testkit.Check(t, len(lines) == 1, "%d lines: %v", len(lines), lines)
			}
			allow()
			testkit.Eventually(t, "all is done in the end", func() bool { return all(2) }, state)
			letters := ids(c.topic + ".dlq")
			for i := range n {
				for _, prefix := range []string{"before-", "during-"} {
					id := fmt.Sprint(prefix, i)
					testkit.Check(t, letters[id] == (i%4 == 2), "%s among the letters: %t", id, letters[id])
				}
			}
		})
	}
}

// Decision 30: what can be known at the start is refused there.
func TestRightsAtTheStart(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.create(g.topic, 1, nil)
	g.create(g.topic+".dlq", 1, map[string]string{"retention.ms": "-1", "max.message.bytes": "1200000"})
	pub := testkit.Must(NewPublisher(g.secured, PublisherConfig{Sarama: g.user}))
	g.cleanup(pub.Close)
	subscribe := func() error {
		sub := testkit.Must(NewSubscriber(g.secured, g.group, SubscriberConfig{Sarama: g.user}))
		defer g.closes(sub)
		_, err := sub.Subscribe(t.Context(), g.topic)
		return err
	}
	initialize := func() error { return pub.InitializeTopicsFor(g.topic, g.topic+".dlq") }
	testkit.NoError(t, errors.Join(subscribe(), initialize()))
	for _, row := range []struct {
		kind      sarama.AclResourceType
		name      string
		operation sarama.AclOperation
		start     func() error
		says      string
	}{
		{sarama.AclResourceTopic, g.topic + ".dlq", sarama.AclOperationWrite, initialize, "no right to the operation Write"},
		{sarama.AclResourceTopic, g.topic, sarama.AclOperationRead, subscribe, "no right to the operation Read"},
		{sarama.AclResourceTopic, g.topic, sarama.AclOperationAll, subscribe, "no right to the operation Read"},
		{sarama.AclResourceGroup, g.group, sarama.AclOperationRead, subscribe, "consumer group"},
		{sarama.AclResourceGroup, g.group, sarama.AclOperationAll, subscribe, "consumer group"},
	} {
		allow := g.deny(row.kind, row.name, row.operation)
		g.eventually(fmt.Sprint("the start is refused without ", row.operation.String(), " on ", row.name), func() bool { return row.start() != nil })
		testkit.Says(t, row.start(), row.says)
		allow()
		g.eventually("it starts", func() bool { return row.start() == nil })
	}
}

// Promise P4, decision 17: a right to one stage topic that is taken away stops its own messages alone, and the log says so.
func TestRightsOfStage(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for _, operation := range []sarama.AclOperation{sarama.AclOperationRead, sarama.AclOperationAll} {
		d, log := newDesk(g.cluster), &testkit.Log{}
		one, other := "one-"+rand.Text(), "other-"+rand.Text()
		d.create(one, 1, nil)
		d.create(other, 1, nil)
		pub := d.publisher(PublisherConfig{})
		waiting, subscriber, err := NewStages(g.secured, d.group, SubscriberConfig{Sarama: g.user, Shared: observe.Shared{Logger: log}},
			PublisherConfig{Sarama: g.user})
		testkit.NoError(t, err)
		d.cleanup(waiting.Close)
		d.consume(subscriber, one)
		d.consume(subscriber, other)
		d.send(pub, one, "one-before")
		d.send(pub, other, "other-before")
		d.untilTaken(2)
		denies := func() int { return len(log.Lines(watermill.ErrorLogLevel, "denies this client a topic")) }
		allow := g.deny(sarama.AclResourceTopic, one, operation)
		d.eventually("the log says so", func() bool { return denies() == 1 })
		last := d.consume(testkit.Must(g.stagesOf(d)), other) // which is a rebalance
		d.eventually("both are members", func() bool { return len(d.generation(d.group)) == 2 })
		d.send(pub, one, "one-during")
		d.send(pub, other, "other-during")
		d.untilTaken(3)
		last()
		d.send(pub, other, "other-after")
		d.untilTaken(4)
		allow()
		d.untilTaken(5)
		testkit.Check(t, denies() == 1, "%d lines: %v", denies(), log.Errors())
	}
}

// stagesOf is another instance of a service.
func (g *guarded) stagesOf(d *desk) (instance, error) {
	waiting, subscriber, err := NewStages(g.secured, d.group, SubscriberConfig{Sarama: g.user}, PublisherConfig{Sarama: g.user})
	if err == nil {
		d.cleanup(waiting.Close)
	}
	return subscriber, err
}
