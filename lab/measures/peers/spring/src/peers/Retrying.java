package peers;

import static org.apache.kafka.clients.consumer.ConsumerConfig.AUTO_OFFSET_RESET_CONFIG;
import static org.apache.kafka.clients.consumer.ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG;
import static org.apache.kafka.clients.consumer.ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG;
import static org.apache.kafka.clients.producer.ProducerConfig.BOOTSTRAP_SERVERS_CONFIG;
import static org.apache.kafka.clients.producer.ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG;
import static org.apache.kafka.clients.producer.ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG;

import java.util.Map;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.retrytopic.RetryTopicConfigurationSupport;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * Spring's own defaults (concurrency 1, max.poll.records 500, offsets committed by batch, a producer that waits for all replicas and
 * is idempotent), except what a run needs: bytes, and the topic from its beginning. With seek=false the container keeps the rest of a
 * batch behind a failure, where by default it seeks and fetches the batch again.
 */
@Configuration
@EnableKafka
class Retrying extends RetryTopicConfigurationSupport {
  @Value("${brokers}")
  private String brokers;

  @Value("${seek}")
  private boolean seek;

  @Override
  protected void configureCustomizers(CustomizersConfigurer customizers) {
    customizers.customizeErrorHandler(handler -> handler.setSeekAfterError(seek));
  }

  @Bean
  ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory() {
    var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
    factory.setConsumerFactory(
        new DefaultKafkaConsumerFactory<>(
            Map.of(
                BOOTSTRAP_SERVERS_CONFIG, brokers,
                AUTO_OFFSET_RESET_CONFIG, "earliest",
                KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class,
                VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class)));
    return factory;
  }

  @Bean
  KafkaTemplate<byte[], byte[]> kafkaTemplate() {
    return new KafkaTemplate<>(
        new DefaultKafkaProducerFactory<>(
            Map.of(
                BOOTSTRAP_SERVERS_CONFIG, brokers,
                KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class,
                VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class)));
  }

  @Bean
  KafkaAdmin kafkaAdmin() { // makes the topics of the retry and of the dead letters
    return new KafkaAdmin(Map.of(BOOTSTRAP_SERVERS_CONFIG, brokers));
  }

  @Bean
  TaskScheduler scheduler() {
    return new ThreadPoolTaskScheduler();
  }
}
