// A client by oauth4webapi, which openid-client and Auth.js are made of.
import * as oauth from "oauth4webapi";
import { authentication, client, issuer, parameters } from "./settings.mjs";
import { signedBy, talk } from "./talk.mjs";

// There is no TLS between the processes of a test.
const options = { [oauth.allowInsecureRequests]: true };
const server = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, options));
const verifier = oauth.generateRandomCodeVerifier();
const [state, nonce] = [oauth.generateRandomState(), oauth.generateRandomNonce()];
let tokens;

async function begin() {
  const to = new URL(server.authorization_endpoint);
  to.search = new URLSearchParams({
    ...parameters,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    state,
    nonce,
  });
  return to;
}

/** Checks the signature, too, by keys that are kept. */
async function told(response, result) {
  tokens = result;
  await oauth.validateApplicationLevelSignature(server, response, options);
  return { claims: oauth.getValidatedIdTokenClaims(result), kid: signedBy(result.id_token) };
}

await talk(begin, {
  async back(url) {
    const sent = oauth.validateAuthResponse(server, client, new URL(url), state);
    const to = parameters.redirect_uri;
    const got = await oauth.authorizationCodeGrantRequest(server, client, authentication, sent, to, verifier, options);
    const checks = { expectedNonce: nonce, requireIdToken: true };
    const first = await told(got, await oauth.processAuthorizationCodeResponse(server, client, got, checks));
    const about = await oauth.userInfoRequest(server, client, tokens.access_token, options);
    return { ...first, user: await oauth.processUserInfoResponse(server, client, first.claims.sub, about) };
  },
  async refresh() {
    const got = await oauth.refreshTokenGrantRequest(server, client, authentication, tokens.refresh_token, options);
    return told(got, await oauth.processRefreshTokenResponse(server, client, got));
  },
  end(back) {
    const asked = new URLSearchParams({ id_token_hint: tokens.id_token, post_logout_redirect_uri: back });
    return { end: `${server.end_session_endpoint}?${asked}` };
  },
});
