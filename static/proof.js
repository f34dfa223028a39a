// Computes a proof of work (ALTCHA, version 2; docs/challenges.md): derives a key with each counter from 0, until one
// starts with the given prefix. Says from time to time how many were tried, and at the end what was found.
"use strict";

const fromHex = (digits) => Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

async function derive({ algorithm, cost, keyLength, nonce, salt }, counter) {
  const start = fromHex(nonce);
  const password = new Uint8Array(start.length + 4);
  password.set(start);
  new DataView(password.buffer).setUint32(start.length, counter);
  const [name, hash] = algorithm.split("/");
  const key = await crypto.subtle.importKey("raw", password, name, false, ["deriveBits"]);
  const how = { name, hash, salt: fromHex(salt), iterations: cost };
  return toHex(new Uint8Array(await crypto.subtle.deriveBits(how, key, 8 * keyLength)));
}

// Several at a time: the browser computes each on a core of its own, as far as there are any.
async function find(parameters, most) {
  const started = performance.now();
  const abreast = Math.min(navigator.hardwareConcurrency || 1, 4);
  for (let first = 0; first <= most; first += abreast) {
    const counters = Array.from({ length: abreast }, (_, place) => first + place);
    const keys = await Promise.all(counters.map((counter) => derive(parameters, counter)));
    const place = keys.findIndex((key) => key.startsWith(parameters.keyPrefix));
    if (place >= 0) {
      return { counter: counters[place], derivedKey: keys[place], time: Math.round(performance.now() - started) };
    }
    postMessage({ tried: first + abreast });
  }
  return undefined;
}

onmessage = async ({ data: { parameters, most } }) => {
  const found = await find(parameters, most).catch(() => undefined);
  postMessage({ found });
};
