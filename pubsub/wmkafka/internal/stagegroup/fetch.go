package stagegroup

import (
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

const (
	// A fetch does not wait at the broker, since heartbeats and commits use the same connection. Records of a stage are
	// read well before they are due, if the time between two fetches is a fraction of the delay.
	minFetchPause, maxFetchPause = 20 * time.Millisecond, 250 * time.Millisecond
	fetchFraction                = 8
	// fetchErrorPause is the wait after an error.
	fetchErrorPause = 500 * time.Millisecond
	// usualFetch is how much is fetched of a partition. Its backlog is little more than that.
	usualFetch, maxFetch = 128 << 10, 100 << 20
)

// fetchFrom fetches the partitions that a broker leads until the session ends. After a pause, or a call, it fetches
// again.
func (s *session) fetchFrom(leader int32, call <-chan struct{}) {
	steady := s.steady()
	for pause := time.Duration(0); s.rest(pause, call); {
		if !steady.goesOn() {
			pause = fetchErrorPause
			continue
		}
		request, asked, often := s.request(leader)
		if pause = often; request == nil {
			continue
		}
		broker, err := s.client.Broker(leader)
		var response *sarama.FetchResponse
		if err == nil {
			if response, err = broker.Fetch(request); err != nil {
				_ = broker.Close()
			}
		}
		if err != nil {
			s.fetchFailed(leader, "", err)
			pause = fetchErrorPause
			continue
		}
		if !steady.goesOn() { // the records may be another's
			pause = fetchErrorPause
			continue
		}
		more, failed := s.receive(leader, response, asked)
		switch {
		case failed:
			pause = fetchErrorPause
		case more:
			pause = 0
		}
	}
}

// rest waits for a pause, and after an error in any case for all of it. It returns false if the session ends.
func (s *session) rest(pause time.Duration, call <-chan struct{}) bool {
	if pause == 0 || pause == fetchErrorPause {
		return wait.For(s.ctx, pause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-call:
	case <-s.ctx.Done():
	}
	return s.ctx.Err() == nil
}

// hasRoom reports whether more of the partition is to be fetched. The session is locked.
func (p *part) hasRoom() bool {
	return p.bytes < usualFetch
}

// callFetcher has the broker's fetcher fetch at once if the partition was full, and is half empty now. The session is
// locked.
func (s *session) callFetcher(p *part) {
	if !p.full || p.bytes >= usualFetch/2 {
		return
	}
	p.full = false
	select {
	case s.fetchers[p.leader] <- struct{}{}:
	default:
	}
}

// request asks for all partitions that have room, and returns from which offset of each. It returns nil if none has.
func (s *session) request(leader int32) (request *sarama.FetchRequest, asked map[*part]int64, often time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	often = maxFetchPause
	config := s.client.Config()
	for _, c := range s.claims {
		often = min(often, max(c.topic.Stage.Delay/fetchFraction, minFetchPause))
		for _, p := range c.parts {
			if p.leader != leader || !p.hasRoom() || c.taking.Err() != nil {
				continue
			}
			if request == nil {
				request = &sarama.FetchRequest{Version: fetchVersion(config.Version), MaxBytes: maxFetch,
					Isolation: config.Consumer.IsolationLevel, SessionEpoch: -1}
				asked = make(map[*part]int64)
			}
			asked[p] = p.next
			request.AddBlock(c.topic.Name, p.partition, p.next, p.fetchSize, -1)
		}
	}
	return request, asked, often
}

// fetchVersion is the newest that this client knows of what the brokers do. Version 10 allows zstd.
func fetchVersion(v sarama.KafkaVersion) int16 {
	switch {
	case v.IsAtLeast(sarama.V2_1_0_0):
		return 10
	case v.IsAtLeast(sarama.V1_1_0_0):
		return 7
	default:
		return 4
	}
}

// receive takes the records of a response to what was asked, and reports whether there may be more at once.
func (s *session) receive(leader int32, response *sarama.FetchResponse, asked map[*part]int64) (more, failed bool) {
	now := time.Now()
	for topic, blocks := range response.Blocks {
		for partition, block := range blocks {
			s.mu.Lock()
			p := s.answered(leader, topic, partition, asked)
			switch {
			case p == nil:
			case block.Err != sarama.ErrNoError:
				failed = true
				s.mu.Unlock()
				s.refetch(leader, p, block.Err)
				continue
			default:
				got, err := p.take(block, s.client.Config().Consumer.IsolationLevel, now)
				if err != nil {
					failed = true
					logging.StageNotFetched.Write(s.config.Logger, err,
						logging.Fields{logging.Topic: topic, logging.Partition: partition})
				}
				s.launch(p, now)
				s.look(p)
				p.full = got && !p.hasRoom()
				more = more || got && !p.full
			}
			s.mu.Unlock()
		}
	}
	return more, failed
}

// answered returns the partition that goes on with the answer. A topic can have been left meanwhile, and taken again
// from a lower offset: then the messages between would be passed over. The session is locked.
func (s *session) answered(leader int32, topic string, partition int32, asked map[*part]int64) *part {
	p := s.part(topic, partition)
	if from, ok := asked[p]; p == nil || !ok || from != p.next || p.leader != leader {
		return nil
	}
	return p
}

func (s *session) part(topic string, partition int32) *part {
	if c := s.claims[topic]; c != nil {
		for _, p := range c.parts {
			if p.partition == partition {
				return p
			}
		}
	}
	return nil
}

// refetch finds out where to go on after an error of one partition.
func (s *session) refetch(leader int32, p *part, err error) {
	if errors.Is(err, sarama.ErrOffsetOutOfRange) {
		offset, asked := s.client.GetOffset(p.claim.topic.Name, p.partition, s.client.Config().Consumer.Offsets.Initial)
		if asked == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			logging.StageNotFetched.Write(s.config.Logger, err,
				logging.Fields{logging.Topic: p.claim.topic.Name, logging.Partition: p.partition,
					logging.Offset: p.next})
			p.next = offset
			return
		}
		err = errors.Join(err, asked)
	}
	s.fetchFailed(leader, p.claim.topic.Name, err)
}

// fetchFailed looks for the leaders of a topic, or of all topics, again. The session ends if a topic is gone.
func (s *session) fetchFailed(leader int32, topic string, err error) {
	if s.ctx.Err() != nil {
		return
	}
	logging.StageNotFetched.Write(s.config.Logger, err, logging.Fields{logging.Topic: topic, "broker": leader})
	s.mu.Lock()
	var topics []string
	for name := range s.claims {
		if topic == "" || topic == name {
			topics = append(topics, name)
		}
	}
	s.mu.Unlock()
	for _, name := range topics {
		if err := s.client.RefreshMetadata(name); errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			s.cancelGeneration()
			return
		}
		s.lead(name)
	}
}

// cancelGeneration makes the member join again, with the topics that are there then.
func (s *session) cancelGeneration() {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	s.group.change()
}

// lead notes the leaders of a topic's partitions, and fetches from them.
func (s *session) lead(topic string) {
	s.mu.Lock()
	c := s.claims[topic]
	s.mu.Unlock()
	if c == nil {
		return
	}
	for _, p := range c.parts {
		broker, err := s.client.Leader(topic, p.partition)
		if err != nil {
			continue // and comes back here, with the next error
		}
		s.mu.Lock()
		p.leader = broker.ID()
		call := s.fetchers[p.leader]
		begin := call == nil && s.ctx.Err() == nil
		if begin {
			call = make(chan struct{}, 1)
			s.fetchers[p.leader] = call
		}
		s.mu.Unlock()
		if begin {
			s.running.Go(func() { s.fetchFrom(broker.ID(), call) })
		}
	}
}
