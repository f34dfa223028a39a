"""An authenticator of Yubico's library fido2: what it says is encoded by that, not by Gatehouse.

A line of JSON asks, a line of JSON answers, in the forms of the browser's `toJSON()`:
{"create": options, "origin": "https://…", "algorithm": -7} makes a passkey;
{"get": options, "origin": "https://…"} uses the one that was made last.
"""

import hashlib
import json
import os
import sys

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from fido2.cose import ES256, RS256, EdDSA
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import (
    Aaguid,
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
)

FLAG = AuthenticatorData.FLAG
VERIFIED = FLAG.UP | FLAG.UV


def p256():
    key = ec.generate_private_key(ec.SECP256R1())
    return ES256.from_cryptography_key(key.public_key()), lambda said: key.sign(said, ec.ECDSA(hashes.SHA256()))


def ed():
    key = ed25519.Ed25519PrivateKey.generate()
    return EdDSA.from_cryptography_key(key.public_key()), key.sign


def rsa_2048():
    key = rsa.generate_private_key(65537, 2048)
    return RS256.from_cryptography_key(key.public_key()), lambda said: key.sign(said, padding.PKCS1v15(), hashes.SHA256())


class Passkey:
    def __init__(self, options, algorithm):
        self.id, self.count = os.urandom(32), 1
        self.user = options["user"]["id"]
        self.cose, self.sign = {-7: p256, -8: ed, -257: rsa_2048}[algorithm]()

    def answer(self, response):
        name = websafe_encode(self.id)
        return {"id": name, "rawId": name, "type": "public-key", "clientExtensionResults": {}, "response": response}

    def create(self, options, origin):
        attested = AttestedCredentialData.create(Aaguid(os.urandom(16)), self.id, self.cose)
        data = authenticator_data(options["rp"]["id"], VERIFIED | FLAG.AT, self.count, attested)
        said = client_data(CollectedClientData.TYPE.CREATE, options, origin)
        made = AttestationObject.create("none", data, {})
        return self.answer({
            "clientDataJSON": websafe_encode(said),
            "attestationObject": websafe_encode(made),
            "transports": ["internal"],
        })

    def get(self, options, origin):
        self.count += 1
        data = authenticator_data(options["rpId"], VERIFIED, self.count)
        said = client_data(CollectedClientData.TYPE.GET, options, origin)
        return self.answer({
            "clientDataJSON": websafe_encode(said),
            "authenticatorData": websafe_encode(data),
            "signature": websafe_encode(self.sign(data + said.hash)),
            "userHandle": self.user,
        })


def authenticator_data(rp, flags, count, attested=b""):
    return AuthenticatorData.create(hashlib.sha256(rp.encode()).digest(), flags, count, attested)


def client_data(kind, options, origin):
    return CollectedClientData.create(kind, websafe_decode(options["challenge"]), origin)


def main():
    passkey = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "create" in asked:
            passkey = Passkey(asked["create"], asked["algorithm"])
            answer = passkey.create(asked["create"], asked["origin"])
        else:
            answer = passkey.get(asked["get"], asked["origin"])
        print(json.dumps(answer), flush=True)


main()
