package peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.core.env.PropertiesPropertySource;

/**
 * The Spring Kafka side of "make bench-peers". It reads one run a line, name=value pairs apart by a space, and answers each with one
 * line. One virtual machine makes all runs, so that it is warm.
 */
public final class Peer {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(run(properties(line)));
      System.out.flush();
    }
  }

  private static Properties properties(String line) {
    Properties properties = new Properties();
    for (String pair : line.trim().split(" ")) {
      String[] parts = pair.split("=", 2);
      properties.setProperty(parts[0], parts[1]);
    }
    return properties;
  }

  private static String run(Properties properties) throws Exception {
    Trial trial =
        new Trial(number(properties, "messages"), number(properties, "failing_percent"));
    try (AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext()) {
      context.getEnvironment().getPropertySources().addFirst(new PropertiesPropertySource("run", properties));
      context.registerBean(Trial.class, () -> trial);
      context.register(Retrying.class, Handler.class);
      context.refresh();
      trial.await(number(properties, "limit_s"));
    }
    return trial.result();
  }

  private static int number(Map<Object, Object> properties, String name) {
    return Integer.parseInt((String) properties.get(name));
  }
}
