// A client by openid-client: node client.mjs PACKAGES ISSUER ID SECRET REDIRECT_URI AFTER_LOGOUT NOW, in seconds. It prints the address to which it
// sends a browser, reads the one at which the browser comes back, and prints what it learnt.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, issuer, id, secret, redirectUri, afterLogout, now] = process.argv.slice(2);
const entry = createRequire(join(packages, "package.json")).resolve("openid-client");
const client = await import(pathToFileURL(entry));

const say = (value) => console.log(JSON.stringify(value));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const authentication = { basic: client.ClientSecretBasic, post: client.ClientSecretPost, none: client.None };
const [method, value] = secret.split(/:(.*)/s);
// No TLS on this machine; and the signature of each ID token is checked, although it comes from the issuer itself.
const options = { execute: [client.allowInsecureRequests, client.enableNonRepudiationChecks] };
const clock = { [client.clockSkew]: Number(now) - Math.floor(Date.now() / 1000) };
const config = await client.discovery(new URL(issuer), id, clock, authentication[method](value), options);

const pkceCodeVerifier = client.randomPKCECodeVerifier();
const [expectedNonce, expectedState] = [client.randomNonce(), client.randomState()];
const to = client.buildAuthorizationUrl(config, {
  redirect_uri: redirectUri,
  scope: "openid profile email groups",
  code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
  code_challenge_method: "S256",
  nonce: expectedNonce,
  state: expectedState,
});
say({ to: to.href });

const back = new URL((await lines.next()).value);
const checks = { pkceCodeVerifier, expectedNonce, expectedState, idTokenExpected: true };
const first = await client.authorizationCodeGrant(config, back, checks);
const claims = first.claims();
const user = await client.fetchUserInfo(config, first.access_token, claims.sub);
const next = await client.refreshTokenGrant(config, first.refresh_token);
const told = { claims, user, refreshed: next.claims() };
if (method !== "none") {
  told.active = (await client.tokenIntrospection(config, next.access_token)).active;
}
const end = client.buildEndSessionUrl(config, {
  id_token_hint: next.id_token,
  post_logout_redirect_uri: afterLogout,
  state: "bye",
});
say({ ...told, end: end.href });

// Once its user has signed out, nothing is left.
await lines.next();
const refused = await client.refreshTokenGrant(config, next.refresh_token).catch((error) => error.error);
await client.tokenRevocation(config, next.refresh_token);
say({ refused });
process.exit(0);
