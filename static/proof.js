// Computes a proof of work (ALTCHA, version 2; docs/challenges.md): derives a key with each counter from 0, until one
// starts with the given prefix. Says from time to time how far it may be, and at the end what was found.
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

// Several at a time: the browser computes each on a core of its own, as far as there are any. Each is as likely to hit as
// the one before, so how far it is cannot be known: said is how likely it was to have ended by now.
async function find(parameters) {
  const started = performance.now();
  const abreast = Math.min(navigator.hardwareConcurrency || 1, 4);
  const keys = 16 ** parameters.keyPrefix.length;
  // One in 10^17 takes longer.
  for (let first = 0; first < 40 * keys; first += abreast) {
    const counters = Array.from({ length: abreast }, (_, place) => first + place);
    const derived = await Promise.all(counters.map((counter) => derive(parameters, counter)));
    const place = derived.findIndex((key) => key.startsWith(parameters.keyPrefix));
    if (place >= 0) {
      return { counter: counters[place], derivedKey: derived[place], time: Math.round(performance.now() - started) };
    }
    postMessage({ likely: 1 - (1 - 1 / keys) ** (first + abreast) });
  }
  return undefined;
}

onmessage = async ({ data: { parameters } }) => {
  const found = await find(parameters).catch(() => undefined);
  postMessage({ found });
};
