// Reads a challenge as JSON and writes its solution as the ALTCHA widget encodes it.
import { readFileSync } from "node:fs";
import { pbkdf2, solveChallenge } from "altcha/lib";

const { parameters, signature } = JSON.parse(readFileSync(0, "utf8"));
const solution = await solveChallenge({ challenge: { parameters, signature }, deriveKey: pbkdf2.deriveKey });
process.stdout.write(btoa(JSON.stringify({ challenge: { parameters, signature }, solution })));
