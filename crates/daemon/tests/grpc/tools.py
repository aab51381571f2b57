"""Asks a server, whose port is the argument, by nothing but what stock tools know and what it says of itself."""

import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}")

health = health_pb2_grpc.HealthStub(channel)
for service in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", "tollgate.v1.Tollgate"]:
    response = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    assert response.status == health_pb2.HealthCheckResponse.SERVING, service
watched = health.Watch(health_pb2.HealthCheckRequest(service="ratelimit"), timeout=10)
assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
watched.cancel()

database = ProtoReflectionDescriptorDatabase(channel)
assert set(database.get_services()) == {
    "envoy.service.ratelimit.v3.RateLimitService",
    "tollgate.v1.Tollgate",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}
pool = descriptor_pool.DescriptorPool(database)


def call(service, method, *requests):
    """Calls a method with messages of whichever type reflection says, given as dictionaries of fields."""
    found = pool.FindServiceByName(service).FindMethodByName(method)
    make = message_factory.GetMessageClass(found.input_type)
    read = message_factory.GetMessageClass(found.output_type).FromString
    path = f"/{service}/{method}"
    if found.client_streaming:
        stream = channel.stream_stream(path, request_serializer=make.SerializeToString, response_deserializer=read)
        return list(stream(iter([make(**request) for request in requests]), timeout=10))
    unary = channel.unary_unary(path, request_serializer=make.SerializeToString, response_deserializer=read)
    return unary(make(**requests[0]), timeout=10)


ENVOY = "envoy.service.ratelimit.v3.RateLimitService"
login = [{"key": "op", "value": "login"}, {"key": "ip", "value": "192.0.2.1"}]
asked = {"domain": "shop", "descriptors": [{"entries": login, "hits_addend": {"value": 2}}, {"entries": login[:1]}]}
response = call(ENVOY, "ShouldRateLimit", asked)
OK, OVER_LIMIT = response.DESCRIPTOR.enum_values_by_name["OK"].number, 2
assert response.overall_code == OK and [status.code for status in response.statuses] == [OK, OK], response
first = response.statuses[0]
assert (first.current_limit.requests_per_unit, first.current_limit.unit, first.current_limit.name) == (2, 2, "logins")
assert (first.limit_remaining, first.duration_until_reset.seconds) == (0, 60), first
own = {"requests_per_unit": 1, "unit": 4}
asked = {"domain": "shop", "descriptors": [{"entries": login, "limit": own}], "hits_addend": 5}
response = call(ENVOY, "ShouldRateLimit", asked)
assert response.overall_code == OVER_LIMIT and response.statuses[0].current_limit.unit == 4, response

OURS = "tollgate.v1.Tollgate"
attributes = [{"name": "op", "value": "login"}, {"name": "ip", "value": "192.0.2.9"}]
asked = {"namespace": "shop", "attributes": attributes}
answer = call(OURS, "Check", asked)
assert (answer.allowed, answer.status, answer.limit, answer.remaining, answer.wait_ms) == (True, 200, 2, 1, 0), answer
assert (answer.reset_after_ms, answer.rule, answer.reason) == (30000, "logins", "within-limits"), answer
assert not answer.HasField("retry_after_ms") and not answer.HasField("reservation"), answer
answers = call(OURS, "CheckMany", {"requests": [asked, asked]}).answers
assert [answer.allowed for answer in answers] == [True, False], answers
assert (answers[1].status, answers[1].retry_after_ms) == (429, 30000), answers
assert [answer.allowed for answer in call(OURS, "CheckStream", asked, asked)] == [False, False]
assert not call(OURS, "Peek", asked).allowed
explained = call(OURS, "Explain", asked)
assert "logins" in explained.text and explained.answer.reason == "over-limit", explained
assert call(OURS, "Reset", asked).buckets == 1
reserved = call(OURS, "Reserve", {**asked, "cost": 2, "expires_ms": 1000})
assert reserved.allowed and len(reserved.reservation) == 16, reserved
call(OURS, "Settle", {"reservation": reserved.reservation, "actual": 1})
assert call(OURS, "Check", {**asked, "cost": 0}).remaining == 1
reserved = call(OURS, "Reserve", asked)
call(OURS, "Refund", {"reservation": reserved.reservation})
try:
    call(OURS, "Refund", {"reservation": reserved.reservation})
    raise AssertionError("a reservation is settled once")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND, error
