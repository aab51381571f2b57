// ioredis asks for INFO before anything else, and goes on with a password that nobody asked for.

import assert from "node:assert/strict";
import { Redis, ReplyError } from "ioredis";

const port = Number(process.argv[2]);

async function pipelined(client) {
  const pipeline = client.pipeline();
  for (let call = 0; call < 1000; call++) pipeline.call("CL.THROTTLE", "ioredis-many", 99, 1, 3600);
  const replies = await pipeline.exec();
  assert.deepEqual(replies.map(([, [limited]]) => limited), [...Array(100).fill(0), ...Array(900).fill(1)]);
}

async function reconnected(client) {
  const before = await client.client("ID");
  const ready = new Promise((resolve) => client.once("ready", resolve));
  client.stream.destroy();
  await ready;
  assert.notEqual(await client.client("ID"), before);
}

const client = new Redis({ port, connectionName: "test", password: "secret" });
assert.equal(await client.ping(), "PONG");
assert.equal(await client.client("GETNAME"), "test");
assert.deepEqual(await client.call("CL.THROTTLE", "ioredis", 0, 1, 60), [0, 1, 0, -1, 60]);
assert.deepEqual(await client.call("CL.THROTTLE", "ioredis", 0, 1, 60), [1, 1, 0, 60, 60]);
assert.equal((await client.call("CHECK", "shop", 1, "op", "login", "ip", "192.0.2.100"))[1], 1);
await pipelined(client);
await reconnected(client);
await assert.rejects(client.call("CL.THROTTLE", "k", "x", 1, 1), (error) => {
  return error instanceof ReplyError && error.message === "Cell error: Store error: Couldn't parse as integer: x";
});
await client.quit();
console.log("all is well");
