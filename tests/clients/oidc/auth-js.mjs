// An application with Auth.js, and the cookies of a browser at it.
import { Auth } from "@auth/core";
import { settings } from "./settings.mjs";
import { talk } from "./talk.mjs";

const site = "https://shop.example";
const jar = new Map();
let kept;
const config = {
  ...settings,
  basePath: "/auth",
  secret: "of a test",
  trustHost: true,
  callbacks: {
    ...settings.callbacks,
    jwt: async (asked) => (kept = await settings.callbacks.jwt(asked)),
  },
};

async function ask(path, form) {
  const headers = { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join("; ") };
  const body = form && new URLSearchParams(form);
  const answer = await Auth(new Request(new URL(path, site), { method: form ? "POST" : "GET", headers, body }), config);
  for (const line of answer.headers.getSetCookie()) {
    const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
    if (value) jar.set(name, value);
    else jar.delete(name);
  }
  return answer;
}

async function begin() {
  const { csrfToken } = await (await ask("/auth/csrf")).json();
  return (await ask("/auth/signin/gatehouse", { csrfToken, callbackUrl: site })).headers.get("location");
}

async function told() {
  const user = await (await ask("/auth/session")).json();
  if (!user) return { refused: "signed out" };
  const [, payload] = kept.id_token.split(".");
  return { claims: JSON.parse(Buffer.from(payload, "base64url")), user };
}

await talk(begin, {
  async back(url) {
    const landed = (await ask(url)).headers.get("location");
    return landed === site ? told() : { refused: landed };
  },
  async refresh() {
    const { access_token } = kept;
    const now = await told();
    return kept?.access_token === access_token ? { refused: "it was not refreshed" } : now;
  },
  end(back) {
    const asked = new URLSearchParams({ id_token_hint: kept.id_token, post_logout_redirect_uri: back });
    return { end: `${settings.providers[0].issuer}/oauth/logout?${asked}` };
  },
});
