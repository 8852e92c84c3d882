// nostr-tools uses the node at the address in its argument as any relay: publishes, queries,
// subscribes live, replaces, deletes; with `auth` as second argument, proves who it is first.
import assert from "node:assert/strict";
import { finalizeEvent, generateSecretKey, getPublicKey } from "nostr-tools/pure";
import { Relay, useWebSocketImplementation } from "nostr-tools/relay";
import WebSocket from "ws";

useWebSocketImplementation(WebSocket);

const [url, mode] = process.argv.slice(2);
const secret = generateSecretKey();
const pubkey = getPublicKey(secret);
const now = Math.floor(Date.now() / 1000);

const sign = (kind, content, tags = [], age = 0) =>
  finalizeEvent({ kind, content, tags, created_at: now - age }, secret);

const within = (what, promise) =>
  Promise.race([
    promise,
    new Promise((_, reject) => setTimeout(() => reject(new Error(`${what} in time`)), 30_000).unref()),
  ]);

const query = (relay, filter) =>
  within("EOSE", new Promise((resolve, reject) => {
    const found = [];
    const sub = relay.subscribe([filter], {
      onevent: (event) => found.push(event),
      oneose: () => { resolve(found); sub.close(); },
      onclose: (reason) => reject(new Error(reason)),
    });
  }));

const ids = (events) => events.map((event) => event.id);

async function likeAnyRelay(relay) {
  const first = sign(1, "first");
  await relay.publish(first);
  assert.deepEqual(ids(await query(relay, { authors: [pubkey], kinds: [1] })), [first.id]);
  await relay.publish(first); // Again: it is a duplicate, and that is fine.

  let sub;
  const second = sign(1, "second");
  const live = new Promise((resolve) => {
    sub = relay.subscribe([{ authors: [pubkey], kinds: [1] }], {
      onevent: (event) => event.id === second.id && resolve(event),
      oneose: () => relay.publish(second),
    });
  });
  assert.equal((await within("a live event", live)).content, "second");
  sub.close();

  const [older, newer] = [sign(0, '{"name":"a"}', [], 10), sign(0, '{"name":"b"}')];
  await relay.publish(newer);
  await relay.publish(older).catch(() => {});
  assert.deepEqual(ids(await query(relay, { authors: [pubkey], kinds: [0] })), [newer.id]);

  await relay.publish(sign(5, "", [["e", first.id]]));
  assert.deepEqual(ids(await query(relay, { authors: [pubkey], kinds: [1] })), [second.id]);
  await assert.rejects(relay.publish(first), "what was deleted is not taken again");

  const counted = await within("a count", relay.count([{ authors: [pubkey], kinds: [1] }], {}));
  assert.equal(counted, 1);

  const broken = { ...sign(1, "third"), content: "changed" };
  await assert.rejects(relay.publish(broken), /invalid/);
}

const relay = await within("a connection", Relay.connect(url));
if (mode === "auth") {
  const event = sign(1, "who am I");
  await assert.rejects(relay.publish(event), /auth-required/);
  await within("the proof", relay.auth(async (draft) => finalizeEvent(draft, secret)));
}
await likeAnyRelay(relay);
relay.close();
console.log("ok");
