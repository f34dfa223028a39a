// What each client here tells a test: a line of JSON where it sends a browser, and one for each line that it reads, which
// is a word and what goes with it.
import { createInterface } from "node:readline";

export async function talk(begin, acts) {
  acts.again = async () => ({ to: String(await begin()) });
  const say = (value) => console.log(JSON.stringify(value));
  say(await acts.again());
  for await (const line of createInterface({ input: process.stdin })) {
    const [word, value] = line.split(/ (.*)/s);
    try {
      say(await acts[word](value));
    } catch (error) {
      say({ refused: error.error ?? error.stack });
    }
  }
}

/** The key that signed a token, whose signature is checked elsewhere. */
export const signedBy = (token) => JSON.parse(Buffer.from(token.split(".")[0], "base64url")).kid;
