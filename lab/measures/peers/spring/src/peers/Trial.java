package peers;

import java.nio.ByteBuffer;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** One run over a topic whose messages are numbered, of which some fail each time. */
final class Trial {
  private final int messages;
  private final int percent;
  private final CountDownLatch begins = new CountDownLatch(1);
  private final CountDownLatch done = new CountDownLatch(1);
  private final AtomicInteger failures = new AtomicInteger();
  private final boolean[] handled;
  private volatile long began;
  private volatile long last;
  private volatile int good;

  Trial(int messages, int percent) {
    this.messages = messages;
    this.percent = percent;
    this.handled = new boolean[messages];
  }

  /** Called with each message: good ones by one thread, that of the live topic, and failing ones by that of the retry topic too. */
  void handle(byte[] payload) {
    if (began == 0) {
      began = System.nanoTime();
      begins.countDown();
    }
    int number = ByteBuffer.wrap(payload).getInt();
    if (failing(number)) {
      failures.incrementAndGet();
      throw new IllegalStateException("the payment service is down");
    }
    if (!handled[number]) {
      handled[number] = true;
      last = System.nanoTime();
      good++;
      if (good == messages - bad()) {
        done.countDown();
      }
    }
  }

  private boolean failing(long number) {
    return (number + 1) * percent / 100 > number * percent / 100;
  }

  private int bad() {
    return (int) ((long) messages * percent / 100);
  }

  /** Returns when all good messages were handled, or when the limit has passed since the first delivery. */
  void await(int seconds) throws InterruptedException {
    if (!begins.await(2, TimeUnit.MINUTES)) {
      throw new IllegalStateException("no message came");
    }
    done.await(seconds, TimeUnit.SECONDS);
  }

  String result() {
    return "good=" + good + " failures=" + failures.get() + " nanos=" + (last - began);
  }
}
