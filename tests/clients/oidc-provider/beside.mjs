// The same requests to oidc-provider, which this starts, and to another provider: node beside.mjs PACKAGES ISSUER COOKIE SECRET.
// COOKIE is of a session at ISSUER. Prints {rows: [{what, theirs, ours}]}, a row for each request.
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, issuer, cookie, secret] = process.argv.slice(2);
// What it says at its start is not for standard output.
console.info = console.warn = () => {};
const entry = createRequire(join(packages, "package.json")).resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(entry));

const CALLBACK = "https://wiki.example/callback";
const VERIFIER = "a-verifier-of-at-least-forty-three-characters-1234567";
const CHALLENGE = createHash("sha256").update(VERIFIER).digest("base64url");

/// oidc-provider with the same clients, and an account that is signed in and has agreed.
async function anchor() {
  const server = createServer((request, response) => serve(request, response));
  let serve;
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const client = (client_id) => ({
    client_id,
    client_secret: secret,
    redirect_uris: [CALLBACK, "https://wiki.example/other"],
    grant_types: ["authorization_code", "refresh_token"],
  });
  const provider = new Provider(issuer, {
    clients: [client("wiki"), client("files")],
    claims: { openid: ["sub"], profile: ["name", "preferred_username"], email: ["email", "email_verified"] },
    cookies: { keys: ["a key of the cookies"], long: { sameSite: "none" } },
    enableHttpPostMethods: true,
    features: {
      devInteractions: { enabled: false },
      introspection: { enabled: true },
      revocation: { enabled: true },
    },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, preferred_username: sub }) }),
    // As ours: with PKCE for who wants it, and a refresh token for each code.
    pkce: { required: () => false },
    issueRefreshToken: async () => true,
    rotateRefreshToken: true,
    loadExistingGrant: async ({ oidc }) => {
      const grant = new provider.Grant({ accountId: oidc.session.accountId, clientId: oidc.client.clientId });
      grant.addOIDCScope("openid profile email offline_access");
      await grant.save();
      return grant;
    },
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
  });
  const handle = provider.callback();
  serve = (request, response) => {
    if (!request.url.startsWith("/interaction/")) return handle(request, response);
    return provider.interactionFinished(request, response, { login: { accountId: "ada" } });
  };
  return { name: "theirs", issuer, cookies: new Map(), close: () => server.close() };
}

async function send(at, path, { method = "GET", query, form, body, secret: by, bearer, headers = {}, stranger } = {}) {
  const url = new URL(path, at.issuer);
  for (const [name, value] of query ?? []) url.searchParams.append(name, value);
  const all = { ...headers };
  if (form) {
    [method, body] = ["POST", new URLSearchParams(form).toString()];
    all["content-type"] ??= "application/x-www-form-urlencoded";
  }
  if (by) all.authorization = `Basic ${Buffer.from(by.join(":")).toString("base64")}`;
  if (bearer) all.authorization = `Bearer ${bearer}`;
  if (!stranger && at.cookies.size > 0) {
    all.cookie = [...at.cookies].map((pair) => pair.join("=")).join("; ");
  }
  const answer = await fetch(url, { method, body, headers: all, redirect: "manual" });
  if (!stranger) {
    for (const line of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      if (value === "" || /expires=Thu, 01 Jan 1970|max-age=0/i.test(line)) at.cookies.delete(name);
      else at.cookies.set(name, value);
    }
  }
  const text = await answer.text();
  let json = {};
  try {
    json = JSON.parse(text);
  } catch {}
  return { status: answer.status, headers: answer.headers, json, text };
}

const AUTHORIZE = [
  ["client_id", "wiki"],
  ["redirect_uri", CALLBACK],
  ["response_type", "code"],
  ["scope", "openid"],
  ["state", "its state"],
  ["nonce", "its nonce"],
];

/// What comes of an authorization request: what the client is sent, a page of theirs that wants something, or a refusal.
async function authorize(at, changes = [], options = {}) {
  const changed = new Set(changes.map(([name]) => name));
  const query = AUTHORIZE.filter(([name]) => !changed.has(name)).concat(changes.filter(([, value]) => value !== ""));
  let answer = await send(at, new URL(at.known.authorization_endpoint).pathname, options.post ? { ...options, form: query } : { ...options, query });
  for (let step = 0; step < 6; step += 1) {
    const to = answer.headers.get("location");
    if (!to) return { told: `page ${answer.status}` };
    const url = new URL(to, at.issuer);
    if (url.origin !== at.issuer) {
      const sent = Object.fromEntries(url.hash ? new URLSearchParams(url.hash.slice(1)) : url.searchParams);
      const told = sent.error ?? (sent.code ? "code" : "nothing");
      const whole = sent.state === "its state" && sent.iss === at.issuer;
      return { told: whole ? told : `${told}, without state or iss`, code: sent.code };
    }
    if (options.stranger) {
      const onward = url.pathname === "/oauth/authorize";
      if (!onward) return { told: "asks to sign in" };
    }
    answer = await send(at, `${url.pathname}${url.search}`, options.stranger ? { stranger: true } : {});
  }
  return { told: "led in circles" };
}

const BY = ["wiki", secret];
const token = (at, form, by = BY, more = {}) =>
  send(at, new URL(at.known.token_endpoint).pathname, { form, secret: by, ...more });
const exchange = (at, code, more = {}, by = BY) =>
  token(at, { grant_type: "authorization_code", code, redirect_uri: CALLBACK, ...more }, by);
const refresh = (at, value, by = BY) => token(at, { grant_type: "refresh_token", refresh_token: value }, by);
const userinfo = (at, options) => send(at, new URL(at.known.userinfo_endpoint).pathname, options);
const granted = async (at) => (await exchange(at, (await authorize(at)).code)).json;
const told = ({ status, json }) => [status, json.error].filter(Boolean).join(" ");
const bearer = (answer) => {
  const error = /error="([^"]*)"/.exec(answer.headers.get("www-authenticate") ?? "");
  return [answer.status, error?.[1]].filter(Boolean).join(" ");
};
const lives = async (at, tokens) => {
  const [access, next] = [await userinfo(at, { bearer: tokens.access_token }), await refresh(at, tokens.refresh_token)];
  return `access ${access.status}, refresh ${next.status}`;
};

const ASKED = {};
for (const name of [
  "response_types_supported",
  "response_modes_supported",
  "grant_types_supported",
  "subject_types_supported",
  "id_token_signing_alg_values_supported",
  "token_endpoint_auth_methods_supported",
  "code_challenge_methods_supported",
  "scopes_supported",
  "claims_parameter_supported",
  "request_uri_parameter_supported",
  "authorization_response_iss_parameter_supported",
]) {
  ASKED[`discovery: ${name}`] = (at) => [at.known[name] ?? "–"].flat().join(" ");
}

for (const [what, changes, options] of [
  ["signed in", []],
  ["a stranger", [], { stranger: true }],
  ["as a form", [], { post: true }],
  ["client_id missing", [["client_id", ""]]],
  ["client_id unknown", [["client_id", "nobody"]]],
  ["redirect_uri missing", [["redirect_uri", ""]]],
  ["redirect_uri not registered", [["redirect_uri", `${CALLBACK}/`]]],
  ["redirect_uri with another query", [["redirect_uri", `${CALLBACK}?x=1`]]],
  ["redirect_uri twice", [["redirect_uri", CALLBACK], ["redirect_uri", CALLBACK]]],
  ["response_type missing", [["response_type", ""]]],
  ["response_type=token", [["response_type", "token"]]],
  ["response_type=x", [["response_type", "x"]]],
  ["response_mode=fragment", [["response_mode", "fragment"]]],
  ["response_mode=x", [["response_mode", "x"]]],
  ["scope missing", [["scope", ""]]],
  ["scope without openid", [["scope", "profile"]]],
  ["scope unknown besides", [["scope", "openid x"]]],
  ["scope twice", [["scope", "openid"], ["scope", "openid"]]],
  ["nonce missing", [["nonce", ""]]],
  ["prompt=none", [["prompt", "none"]]],
  ["prompt=none, a stranger", [["prompt", "none"]], { stranger: true }],
  ["prompt=none login", [["prompt", "none login"]]],
  ["prompt=x", [["prompt", "x"]]],
  ["max_age=-1", [["max_age", "-1"]]],
  ["max_age=x", [["max_age", "x"]]],
  ["max_age=10000", [["max_age", "10000"]]],
  ["id_token_hint=x", [["id_token_hint", "x"]]],
  ["claims=x", [["claims", "x"]]],
  ["claims", [["claims", '{"userinfo":{"name":{"essential":true}}}']]],
  ["display=x", [["display", "x"]]],
  ["request", [["request", "eyJhbGciOiJub25lIn0.e30."]]],
  ["request_uri", [["request_uri", "https://wiki.example/request"]]],
  ["registration", [["registration", "{}"]]],
  ["an unknown parameter", [["extra", "foobar"]]],
  ["PKCE", [["code_challenge", CHALLENGE], ["code_challenge_method", "S256"]]],
  ["PKCE, method missing", [["code_challenge", CHALLENGE]]],
  ["PKCE, method plain", [["code_challenge", CHALLENGE], ["code_challenge_method", "plain"]]],
  ["PKCE, challenge missing", [["code_challenge_method", "S256"]]],
  ["PKCE, challenge too short", [["code_challenge", "short"], ["code_challenge_method", "S256"]]],
]) {
  ASKED[`authorize: ${what}`] = async (at) => (await authorize(at, changes, options)).told;
}

Object.assign(ASKED, {
  "token: a code": async (at) => {
    const answer = await exchange(at, (await authorize(at)).code);
    return [answer.status, ...Object.keys(answer.json).sort(), answer.headers.get("cache-control")].join(" ");
  },
  "token: no client": async (at) => told(await exchange(at, "x", {}, null)),
  "token: unknown client": async (at) => told(await exchange(at, "x", {}, ["nobody", secret])),
  "token: wrong secret": async (at) => told(await exchange(at, "x", {}, ["wiki", "x"])),
  "token: secret in the form": async (at) => {
    const { code } = await authorize(at);
    return told(await exchange(at, code, { client_id: "wiki", client_secret: secret }, null));
  },
  "token: secret in both": async (at) => told(await exchange(at, "x", { client_id: "wiki", client_secret: secret })),
  "token: no grant_type": async (at) => told(await token(at, { code: "x" })),
  "token: grant_type=password": async (at) => told(await token(at, { grant_type: "password", username: "ada", password: "x" })),
  "token: JSON": async (at) =>
    told(await token(at, undefined, BY, { method: "POST", body: '{"grant_type":"authorization_code"}', headers: { "content-type": "application/json" } })),
  "token: GET": async (at) => {
    const answer = await send(at, new URL(at.known.token_endpoint).pathname);
    return `${answer.status}`;
  },
  "token: code missing": async (at) => told(await token(at, { grant_type: "authorization_code", redirect_uri: CALLBACK })),
  "token: code unknown": async (at) => told(await exchange(at, "x")),
  "token: redirect_uri missing": async (at) => {
    const { code } = await authorize(at);
    return told(await token(at, { grant_type: "authorization_code", code }));
  },
  "token: redirect_uri of the client, but another": async (at) =>
    told(await exchange(at, (await authorize(at)).code, { redirect_uri: "https://wiki.example/other" })),
  "token: code of another client": async (at) => told(await exchange(at, (await authorize(at)).code, {}, ["files", secret])),
  "token: code_verifier without code_challenge": async (at) =>
    told(await exchange(at, (await authorize(at)).code, { code_verifier: VERIFIER })),
  "token: code_verifier missing": async (at) => {
    const { code } = await authorize(at, [["code_challenge", CHALLENGE], ["code_challenge_method", "S256"]]);
    return told(await exchange(at, code));
  },
  "token: the right one after a wrong code_verifier": async (at) => {
    const { code } = await authorize(at, [["code_challenge", CHALLENGE], ["code_challenge_method", "S256"]]);
    await exchange(at, code, { code_verifier: `${VERIFIER}x` });
    return told(await exchange(at, code, { code_verifier: VERIFIER }));
  },
  "token: a code twice": async (at) => {
    const { code } = await authorize(at);
    const first = (await exchange(at, code)).json;
    return `${told(await exchange(at, code))}; then ${await lives(at, first)}`;
  },
  "token: 64 at once with one code": async (at) => {
    const { code } = await authorize(at);
    const all = await Promise.all(Array.from({ length: 64 }, () => exchange(at, code)));
    return `${all.filter(({ status }) => status === 200).length} of 64`;
  },
  "refresh: unknown": async (at) => told(await refresh(at, "x")),
  "refresh: missing": async (at) => told(await token(at, { grant_type: "refresh_token" })),
  "refresh: by another client": async (at) => {
    const tokens = await granted(at);
    return `${told(await refresh(at, tokens.refresh_token, ["files", secret]))}; then ${await lives(at, tokens)}`;
  },
  "refresh: more scope": async (at) => {
    const { refresh_token } = await granted(at);
    const answer = await token(at, { grant_type: "refresh_token", refresh_token, scope: "openid email" });
    return [told(answer), answer.json.scope].filter(Boolean).join(", scope ");
  },
  "refresh: an access token": async (at) => told(await refresh(at, (await granted(at)).access_token)),
  "refresh: again after a lost answer": async (at) => {
    const tokens = await granted(at);
    await refresh(at, tokens.refresh_token);
    const again = await refresh(at, tokens.refresh_token);
    return again.status === 200 ? `200; then ${await lives(at, again.json)}` : `${told(again)}; signed out`;
  },
  "refresh: one that is two behind": async (at) => {
    const first = await granted(at);
    const second = (await refresh(at, first.refresh_token)).json;
    const third = (await refresh(at, second.refresh_token)).json;
    return `${told(await refresh(at, first.refresh_token))}; then ${await lives(at, third)}`;
  },
  "refresh: 64 at once with one token": async (at) => {
    const tokens = await granted(at);
    const all = await Promise.all(Array.from({ length: 64 }, () => refresh(at, tokens.refresh_token)));
    const good = all.filter(({ status }) => status === 200);
    const successors = new Set(good.map(({ json }) => json.refresh_token));
    const next = successors.size > 0 ? (await refresh(at, [...successors][0])).status : "none";
    return `${good.length} of 64, ${successors.size} successors; the next ${next}`;
  },
  "userinfo: GET": async (at) => bearer(await userinfo(at, { bearer: (await granted(at)).access_token })),
  "userinfo: POST": async (at) => bearer(await userinfo(at, { method: "POST", bearer: (await granted(at)).access_token })),
  "userinfo: token in the form": async (at) => bearer(await userinfo(at, { form: { access_token: (await granted(at)).access_token } })),
  "userinfo: token in the query": async (at) => bearer(await userinfo(at, { query: [["access_token", (await granted(at)).access_token]] })),
  "userinfo: no token": async (at) => bearer(await userinfo(at)),
  "userinfo: unknown token": async (at) => bearer(await userinfo(at, { bearer: "x" })),
  "userinfo: an ID token": async (at) => bearer(await userinfo(at, { bearer: (await granted(at)).id_token })),
  "userinfo: a refresh token": async (at) => bearer(await userinfo(at, { bearer: (await granted(at)).refresh_token })),
});

const introspect = async (at, value, by = BY) => {
  const answer = await send(at, new URL(at.known.introspection_endpoint).pathname, { form: { token: value }, secret: by });
  return answer.status === 200 ? `active ${answer.json.active}` : told(answer);
};
const revoke = (at, value, by = BY) =>
  send(at, new URL(at.known.revocation_endpoint).pathname, { form: { token: value }, secret: by });

Object.assign(ASKED, {
  "introspect: an access token": async (at) => introspect(at, (await granted(at)).access_token),
  "introspect: a refresh token": async (at) => introspect(at, (await granted(at)).refresh_token),
  "introspect: unknown": (at) => introspect(at, "x"),
  "introspect: of another client": async (at) => introspect(at, (await granted(at)).access_token, ["files", secret]),
  "introspect: no client": async (at) => introspect(at, "x", null),
  "introspect: token missing": (at) => introspect(at, ""),
  "revoke: unknown": async (at) => told(await revoke(at, "x")),
  "revoke: no client": async (at) => told(await revoke(at, "x", null)),
  "revoke: of another client": async (at) => {
    const tokens = await granted(at);
    return `${told(await revoke(at, tokens.refresh_token, ["files", secret]))}; then ${await lives(at, tokens)}`;
  },
  "revoke: a refresh token": async (at) => {
    const tokens = await granted(at);
    return `${told(await revoke(at, tokens.refresh_token))}; then ${await lives(at, tokens)}`;
  },
  "revoke: an access token": async (at) => {
    const tokens = await granted(at);
    return `${told(await revoke(at, tokens.access_token))}; then ${await lives(at, tokens)}`;
  },
});

const [name, value] = cookie.split(/=(.*)/s);
const theirs = await anchor();
const providers = [theirs, { name: "ours", issuer, cookies: new Map([[name, value]]) }];
for (const at of providers) {
  at.known = (await send(at, "/.well-known/openid-configuration")).json;
}
const rows = [];
for (const [what, ask] of Object.entries(ASKED)) {
  const row = { what };
  for (const at of providers) row[at.name] = await ask(at);
  rows.push(row);
}
theirs.close();
console.log(JSON.stringify({ rows }));
process.exit(0);
