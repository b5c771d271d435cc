// Package destination makes sure, through a publisher, that topics exist before the first message.
package destination

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
)

// initializer is poison.Initializer.
type initializer interface {
	InitializeTopics(topics ...string) error
}

// SourceInitializer is a poison.Initializer that makes topics to suit their source.
type SourceInitializer interface {
	InitializeTopicsFor(source string, topics ...string) error
}

// Initialize makes sure that the topics exist, which take what comes from source, if pub or a publisher inside it is a
// SourceInitializer or a poison.Initializer. It returns an error if pub hides one, or trims a topic. Of a
// publisher of Watermill's own modules that looks for its topics, it calls Publish without messages. Of any other
// publisher it assumes that the topics exist.
func Initialize(pub message.Publisher, source string, topics ...string) error {
	if safecall.IsNil(pub) {
		return errors.New("poison: the publisher is nil: it can make no topics")
	}
	if err := checkTrims(pub, topics...); err != nil {
		return err
	}
	if own, ok := decorated.As[SourceInitializer](pub); ok {
		return own.InitializeTopicsFor(source, topics...)
	}
	if own, ok := decorated.As[initializer](pub); ok {
		return own.InitializeTopics(topics...)
	}
	if err := Check(pub); err != nil {
		return err
	}
	return probe(pub, topics...)
}

// Notice logs, once, that topics could not be made sure of. The zero value is ready to use.
type Notice struct{ once sync.Once }

// Log logs that pub may have no topics of what, if pub can neither make nor find them.
func (n *Notice) Log(logger watermill.LoggerAdapter, pub message.Publisher, what string, topics ...string) {
	if _, ok := decorated.As[SourceInitializer](pub); ok {
		return
	}
	if _, ok := decorated.As[initializer](pub); ok {
		return
	}
	if _, s := stockOf(pub); s != nil {
		return
	}
	n.once.Do(func() {
		logging.NoInitializer.Write(logger, nil,
			logging.Fields{"of": what, "publisher": fmt.Sprintf("%T", pub), "topics": topics})
	})
}

// Check returns an error if pub hides an initializer, so that topics would not be made.
func Check(pub message.Publisher) error {
	if with, ok := pub.(interface{ CheckInitializer() error }); ok { // of poison.WithInitializer
		return with.CheckInitializer()
	}
	if _, ok := decorated.As[SourceInitializer](pub); ok {
		return nil
	}
	if _, ok := decorated.As[initializer](pub); ok {
		return nil
	}
	hidden := decorated.Hides[SourceInitializer](pub)
	if hidden == nil {
		hidden = decorated.Hides[initializer](pub)
	}
	if hidden == nil {
		return nil
	}
	return fmt.Errorf("%T hides the %s inside, so topics would not be made: give poison.WithInitializer(the decorated "+
		"publisher, the one inside), or with poison.TopicsExist if they are made otherwise", pub, hidden)
}
