"""redis-py asks everything there is to ask. Whatever is not as it should be ends it."""

import sys

import redis

PORT = int(sys.argv[1])


def example():
    # example begins
    import redis

    tollgate = redis.Redis(port=PORT, decode_responses=True)
    limited, limit, remaining, retry_after, reset_after = tollgate.execute_command("CL.THROTTLE", "alice", 15, 30, 60)
    if limited:
        print(f"429, try again in {retry_after} s")
    # example ends
    assert (limited, limit, remaining, retry_after, reset_after) == (0, 16, 15, -1, 2)


def expect(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def fields(reply):
    """Names and values, which are a list before RESP3."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))


def fails(error, text, *command):
    try:
        reply = client.execute_command(*command)
    except error as problem:
        assert str(problem).startswith(text), f"{command}: {problem}"
    else:
        raise AssertionError(f"{command} was answered with {reply!r}")


def throttled(key):
    replies = [client.execute_command("CL.THROTTLE", key, 2, 1, 3600) for _ in range(4)]
    expect(replies, [[0, 3, 2, -1, 3600], [0, 3, 1, -1, 7200], [0, 3, 0, -1, 10800], [1, 3, 0, 3600, 10800]])
    expect(client.execute_command("THROTTLE", key + "-crab", 1, 1, 60), [1, 1, 0, 60, 0])
    expect(client.execute_command("THROTTLE", key + "-crab", 1, 1, 60), [0, 1, 0, 60, 60])


def by_rules(ip):
    login = ["shop", 1, "op", "login", "ip", ip]
    first = fields(client.execute_command("CHECK", *login))
    expect((first["allowed"], first["status"], first["limit"], first["remaining"]), (1, 200, 2, 1))
    expect(fields(client.execute_command("PEEK", *login))["remaining"], 1)
    expect(fields(client.execute_command("CHECK", *login))["allowed"], 1)
    refused = fields(client.execute_command("CHECK", *login))
    expect((refused["allowed"], refused["status"], refused["rule"]), (0, 429, "logins"))
    expect((refused["reason"], refused["retry_after_ms"] > 1_790_000), ("over-limit", True))
    expect(client.execute_command("RESET.CLIENT", *login), 1)
    expect(fields(client.execute_command("CHECK", *login))["allowed"], 1)
    assert "logins: counts for " + ip in client.execute_command("EXPLAIN", *login)


def reserved(team):
    asked = ["shop", 600, 60_000, "op", "complete", "team", team]
    first = fields(client.execute_command("RESERVE", *asked))
    expect((first["allowed"], fields(client.execute_command("RESERVE", *asked))["allowed"]), (1, 0))
    expect(client.execute_command("SETTLE", first["reservation"], 150), "OK")
    second = fields(client.execute_command("RESERVE", *asked))
    expect(client.execute_command("REFUND", second["reservation"]), "OK")
    left = fields(client.execute_command("PEEK", "shop", 0, "op", "complete", "team", team))
    expect(left["remaining"], 850)
    fails(redis.ResponseError, "there is no such reservation", "REFUND", second["reservation"])


def pipelined(key):
    pipeline = client.pipeline(transaction=False)
    for _ in range(1000):
        pipeline.execute_command("CL.THROTTLE", key, 99, 1, 3600)
    replies = pipeline.execute()
    expect([reply[0] for reply in replies], [0] * 100 + [1] * 900)
    expect([reply[2] for reply in replies[:100]], list(range(99, -1, -1)))


def reconnected():
    before = client.client_id()
    client.execute_command("QUIT")
    expect(client.ping(), True)
    assert client.client_id() != before


def mistaken():
    fails(redis.ResponseError, "Cell error: Store error: Couldn't parse as integer: x", "CL.THROTTLE", "k", "x", 1, 1)
    fails(redis.ResponseError, "invalid max_burst", "THROTTLE", "k", "x", 1, 1)
    fails(redis.ResponseError, "unknown command 'get'", "GET", "k")
    fails(redis.ResponseError, "the cost is a whole number", "CHECK", "shop", "much")


def password():
    """A password that nobody asked for is refused by name, as redis-server does, and goes with the user `default`."""
    try:
        redis.Redis(port=PORT, password="secret", protocol=protocol).ping()
    except redis.AuthenticationError as problem:
        expect(protocol, 2)
        assert "called without any password configured" in str(problem)
    else:
        expect(protocol, 3)
    expect(redis.Redis(port=PORT, username="default", password="secret", protocol=protocol).ping(), True)


example()
for protocol in (2, 3):
    client = redis.Redis(port=PORT, protocol=protocol, decode_responses=True, client_name="test")
    expect(client.ping(), True)
    expect(client.client_getname(), "test")
    assert client.info()["tollgate_version"]
    throttled(f"python-{protocol}")
    by_rules(f"192.0.2.{protocol}")
    reserved(f"python-{protocol}")
    pipelined(f"python-many-{protocol}")
    reconnected()
    mistaken()
    password()
print("all is well")
