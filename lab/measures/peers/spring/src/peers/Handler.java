package peers;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.retry.annotation.Backoff;

/** The handler: one attempt, one retry topic, then the dead-letter topic, which has no consumer. */
class Handler {
  private final Trial trial;

  Handler(Trial trial) {
    this.trial = trial;
  }

  @RetryableTopic(
      attempts = "2",
      backoff = @Backoff(delayExpression = "${delay_ms}"),
      retryTopicSuffix = "${retry_suffix}",
      dltTopicSuffix = "${dlt_suffix}",
      autoStartDltHandler = "false")
  @KafkaListener(topics = "${topic}", groupId = "${group}")
  void handle(ConsumerRecord<byte[], byte[]> record) {
    trial.handle(record.value());
  }

  @DltHandler
  void dead(ConsumerRecord<byte[], byte[]> record) {}
}
