// Jedis asks everything there is to ask. Whatever is not as it should be ends it.

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.KeyValue;
import redis.clients.jedis.util.SafeEncoder;

public class Client {
  static int port;
  static Jedis client;

  @SuppressWarnings("unchecked")
  static void example() {
    // example begins
    Jedis tollgate = new Jedis("127.0.0.1", port);
    var reply = (List<Long>) tollgate.sendCommand(() -> "CL.THROTTLE".getBytes(), "alice", "15", "30", "60");
    if (reply.get(0) == 1) {
      System.out.printf("429, try again in %d s%n", reply.get(3));
    }
    // example ends
    expect(reply, List.of(0L, 16L, 15L, -1L, 2L));
    tollgate.close();
  }

  static Object ask(String command, Object... arguments) {
    String[] words = new String[arguments.length];
    for (int index = 0; index < words.length; index++) words[index] = arguments[index].toString();
    Object reply = client.sendCommand(() -> SafeEncoder.encode(command), words);
    return reply instanceof byte[] bytes ? SafeEncoder.encode(bytes) : reply;
  }

  static void expect(Object actual, Object expected) {
    if (!expected.equals(actual)) throw new AssertionError(actual + " is not " + expected);
  }

  // Names and values, which are a list before RESP3.
  static Map<String, Object> fields(Object reply) {
    Map<String, Object> fields = new HashMap<>();
    List<?> items = (List<?>) reply;
    for (int index = 0; index < items.size(); index++) {
      if (items.get(index) instanceof KeyValue<?, ?> pair) put(fields, pair.getKey(), pair.getValue());
      else put(fields, items.get(index), items.get(++index));
    }
    return fields;
  }

  static void put(Map<String, Object> fields, Object name, Object value) {
    fields.put(SafeEncoder.encode((byte[]) name), value instanceof byte[] text ? SafeEncoder.encode(text) : value);
  }

  static void throttled(String key) {
    List<Object> replies = new ArrayList<>();
    for (int call = 0; call < 4; call++) replies.add(ask("CL.THROTTLE", key, 2, 1, 3600));
    expect(replies, List.of(List.of(0L, 3L, 2L, -1L, 3600L), List.of(0L, 3L, 1L, -1L, 7200L),
        List.of(0L, 3L, 0L, -1L, 10800L), List.of(1L, 3L, 0L, 3600L, 10800L)));
    expect(ask("THROTTLE", key + "-crab", 1, 1, 60), List.of(1L, 1L, 0L, 60L, 0L));
    expect(ask("THROTTLE", key + "-crab", 1, 1, 60), List.of(0L, 1L, 0L, 60L, 60L));
  }

  static void byRules(String ip) {
    Object[] login = {"shop", 1, "op", "login", "ip", ip};
    Map<String, Object> first = fields(ask("CHECK", login));
    expect(List.of(first.get("allowed"), first.get("status"), first.get("remaining")), List.of(1L, 200L, 1L));
    expect(fields(ask("PEEK", login)).get("remaining"), 1L);
    expect(fields(ask("CHECK", login)).get("allowed"), 1L);
    Map<String, Object> refused = fields(ask("CHECK", login));
    expect(List.of(refused.get("allowed"), refused.get("status"), refused.get("rule"), refused.get("reason")),
        List.of(0L, 429L, "logins", "over-limit"));
    expect((Long) refused.get("retry_after_ms") > 1_790_000, true);
    expect(ask("RESET.CLIENT", login), 1L);
    expect(fields(ask("CHECK", login)).get("allowed"), 1L);
    expect(ask("EXPLAIN", login).toString().contains("logins: counts for " + ip), true);
  }

  static void reserved(String team) {
    Object[] asked = {"shop", 600, 60_000, "op", "complete", "team", team};
    Map<String, Object> first = fields(ask("RESERVE", asked));
    expect(List.of(first.get("allowed"), fields(ask("RESERVE", asked)).get("allowed")), List.of(1L, 0L));
    expect(ask("SETTLE", first.get("reservation"), 150), "OK");
    Map<String, Object> second = fields(ask("RESERVE", asked));
    expect(ask("REFUND", second.get("reservation")), "OK");
    expect(fields(ask("PEEK", "shop", 0, "op", "complete", "team", team)).get("remaining"), 850L);
    fails("ERR there is no such reservation", "REFUND", second.get("reservation"));
  }

  static void pipelined(String key) {
    Pipeline pipeline = client.pipelined();
    for (int call = 0; call < 1000; call++) {
      pipeline.sendCommand(() -> SafeEncoder.encode("CL.THROTTLE"), key, "99", "1", "3600");
    }
    List<Object> replies = pipeline.syncAndReturnAll();
    for (int call = 0; call < 1000; call++) {
      List<?> reply = (List<?>) replies.get(call);
      expect(reply.get(0), call < 100 ? 0L : 1L);
      expect(reply.get(2), Math.max(99L - call, 0L));
    }
  }

  static void fails(String text, String command, Object... arguments) {
    try {
      throw new AssertionError(command + " was answered with " + ask(command, arguments));
    } catch (JedisDataException problem) {
      expect(problem.getMessage().startsWith(text), true);
    }
  }

  static void mistaken() {
    fails("Cell error: Store error: Couldn't parse as integer: x", "CL.THROTTLE", "k", "x", 1, 1);
    fails("ERR invalid max_burst", "THROTTLE", "k", "x", 1, 1);
    fails("ERR unknown command 'get'", "GET", "k");
    fails("ERR the cost is a whole number", "CHECK", "shop", "much");
  }

  static Jedis connect(RedisProtocol protocol, String user, String password) {
    var config = DefaultJedisClientConfig.builder().protocol(protocol).user(user).password(password).clientName("test");
    return new Jedis("127.0.0.1", port, config.build());
  }

  static void reconnected(RedisProtocol protocol) {
    Object before = ask("CLIENT", "ID");
    ask("QUIT");
    try {
      throw new AssertionError("answered after the end: " + client.ping());
    } catch (JedisConnectionException ended) {
      client.close();
    }
    client = connect(protocol, null, null);
    expect(client.ping(), "PONG");
    expect(ask("CLIENT", "ID").equals(before), false);
  }

  public static void main(String[] arguments) {
    port = Integer.parseInt(arguments[0]);
    example();
    for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
      client = connect(protocol, null, null);
      expect(client.ping(), "PONG");
      expect(client.clientGetname(), "test");
      throttled("java-" + protocol);
      byRules("203.0.113." + protocol.ordinal());
      reserved("java-" + protocol);
      pipelined("java-many-" + protocol);
      reconnected(protocol);
      mistaken();
      client.close();
      // A password that nobody asked for goes with the user `default`, as with redis-server.
      try (Jedis withPassword = connect(protocol, "default", "secret")) {
        expect(withPassword.ping(), "PONG");
      }
    }
    System.out.println("all is well");
  }
}
