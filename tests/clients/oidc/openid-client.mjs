// A client by openid-client.
import * as client from "openid-client";
import { config, parameters } from "./settings.mjs";
import { signedBy, talk } from "./talk.mjs";

const pkceCodeVerifier = client.randomPKCECodeVerifier();
const [expectedNonce, expectedState] = [client.randomNonce(), client.randomState()];
let tokens;

async function begin() {
  return client.buildAuthorizationUrl(config, {
    ...parameters,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: "S256",
    nonce: expectedNonce,
    state: expectedState,
  });
}

await talk(begin, {
  async back(url) {
    const checks = { pkceCodeVerifier, expectedNonce, expectedState, idTokenExpected: true };
    tokens = await client.authorizationCodeGrant(config, new URL(url), checks);
    const claims = tokens.claims();
    const user = await client.fetchUserInfo(config, tokens.access_token, claims.sub);
    const asked = client.tokenIntrospection(config, tokens.access_token);
    const { active } = await asked.catch(({ error }) => ({ active: error }));
    return { claims, user, active, kid: signedBy(tokens.id_token) };
  },
  async refresh() {
    try {
      tokens = await client.refreshTokenGrant(config, tokens.refresh_token);
    } catch (refused) {
      // There is nothing left to revoke, which is no error.
      await client.tokenRevocation(config, tokens.refresh_token);
      throw refused;
    }
    return { claims: tokens.claims(), kid: signedBy(tokens.id_token) };
  },
  end(back) {
    const asked = { id_token_hint: tokens.id_token, post_logout_redirect_uri: back };
    return { end: client.buildEndSessionUrl(config, asked).href };
  },
});
