// node-redis asks everything there is to ask. Whatever is not as it should be ends it.

import assert from "node:assert/strict";
import { ErrorReply, createClient } from "redis";

const port = Number(process.argv[2]);

async function example() {
  // example begins
  const tollgate = await createClient({ socket: { port } }).connect();
  const [limited, , , retryAfter] = await tollgate.sendCommand(["CL.THROTTLE", "alice", "15", "30", "60"]);
  if (limited) {
    console.log(`429, try again in ${retryAfter} s`);
  }
  // example ends
  assert.deepEqual([limited, retryAfter], [0, -1]);
  await tollgate.close();
}

// Names and values, which are a list before RESP3.
function fields(reply) {
  if (!Array.isArray(reply)) return reply;
  return Object.fromEntries(reply.flatMap((name, index) => (index % 2 ? [] : [[name, reply[index + 1]]])));
}

async function throttled(ask, key) {
  const replies = [];
  for (let call = 0; call < 4; call++) replies.push(await ask("CL.THROTTLE", key, 2, 1, 3600));
  const expected = [[0, 3, 2, -1, 3600], [0, 3, 1, -1, 7200], [0, 3, 0, -1, 10800], [1, 3, 0, 3600, 10800]];
  assert.deepEqual(replies, expected);
  assert.deepEqual(await ask("THROTTLE", `${key}-crab`, 1, 1, 60), [1, 1, 0, 60, 0]);
  assert.deepEqual(await ask("THROTTLE", `${key}-crab`, 1, 1, 60), [0, 1, 0, 60, 60]);
}

async function byRules(ask, ip) {
  const login = ["shop", 1, "op", "login", "ip", ip];
  const first = fields(await ask("CHECK", ...login));
  assert.deepEqual([first.allowed, first.status, first.limit, first.remaining], [1, 200, 2, 1]);
  assert.equal(fields(await ask("PEEK", ...login)).remaining, 1);
  assert.equal(fields(await ask("CHECK", ...login)).allowed, 1);
  const refused = fields(await ask("CHECK", ...login));
  assert.deepEqual([refused.allowed, refused.status, refused.rule], [0, 429, "logins"]);
  assert.ok(refused.reason === "over-limit" && refused.retry_after_ms > 1_790_000);
  assert.equal(await ask("RESET.CLIENT", ...login), 1);
  assert.equal(fields(await ask("CHECK", ...login)).allowed, 1);
  assert.ok((await ask("EXPLAIN", ...login)).includes(`logins: counts for ${ip}`));
}

async function reserved(ask, team) {
  const asked = ["shop", 600, 60_000, "op", "complete", "team", team];
  const first = fields(await ask("RESERVE", ...asked));
  assert.deepEqual([first.allowed, fields(await ask("RESERVE", ...asked)).allowed], [1, 0]);
  assert.equal(await ask("SETTLE", first.reservation, 150), "OK");
  const second = fields(await ask("RESERVE", ...asked));
  assert.equal(await ask("REFUND", second.reservation), "OK");
  assert.equal(fields(await ask("PEEK", "shop", 0, "op", "complete", "team", team)).remaining, 850);
  await fails(/^ERR there is no such reservation/, ask("REFUND", second.reservation));
}

// What is asked at once goes out as one pipeline.
async function pipelined(ask, key) {
  const asked = Array.from({ length: 1000 }, () => ask("CL.THROTTLE", key, 99, 1, 3600));
  const replies = await Promise.all(asked);
  assert.deepEqual(replies.map(([limited]) => limited), [...Array(100).fill(0), ...Array(900).fill(1)]);
  assert.deepEqual(replies.slice(0, 100).map((reply) => reply[2]), [...Array(100).keys()].reverse());
}

async function reconnected(client, ask) {
  const [before, ready] = [await ask("CLIENT", "ID"), new Promise((resolve) => client.once("ready", resolve))];
  await ask("QUIT");
  await ready;
  assert.equal(await client.ping(), "PONG");
  assert.notEqual(await ask("CLIENT", "ID"), before);
}

async function fails(text, reply) {
  await assert.rejects(reply, (error) => error instanceof ErrorReply && text.test(error.message));
}

async function mistaken(ask) {
  await fails(/^Cell error: Store error: Couldn't parse as integer: x$/, ask("CL.THROTTLE", "k", "x", 1, 1));
  await fails(/^ERR invalid max_burst$/, ask("THROTTLE", "k", "x", 1, 1));
  await fails(/^ERR unknown command 'get'/, ask("GET", "k"));
  await fails(/^ERR the cost is a whole number/, ask("CHECK", "shop", "much"));
}

await example();
for (const RESP of [2, 3]) {
  const client = createClient({ socket: { port }, RESP, name: "test" });
  // It tells of the connection that was ended on purpose.
  client.on("error", () => {});
  await client.connect();
  const ask = (...words) => client.sendCommand(words.map(String));
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.clientGetName(), "test");
  await throttled(ask, `node-${RESP}`);
  await byRules(ask, `198.51.100.${RESP}`);
  await reserved(ask, `node-${RESP}`);
  await pipelined(ask, `node-many-${RESP}`);
  await reconnected(client, ask);
  await mistaken(ask);
  await client.close();
  // A password that nobody asked for goes with the user `default`, as with redis-server.
  const withPassword = createClient({ socket: { port }, RESP, username: "default", password: "secret" });
  assert.equal(await (await withPassword.connect()).ping(), "PONG");
  await withPassword.close();
}
console.log("all is well");
