"""What each client here tells a test, as talk.mjs does."""

import base64
import json
import sys
import traceback


def talk(begin, acts):
    def say(value):
        print(json.dumps(value), flush=True)

    acts["again"] = lambda: {"to": begin()}
    say(acts["again"]())
    for line in sys.stdin:
        word, _, value = line.rstrip("\n").partition(" ")
        try:
            say(acts[word](*([value] if value else [])))
        except Exception as error:
            say({"refused": getattr(error, "error", None) or traceback.format_exc()})


def part(token, number):
    """The header or the claims of a token, whose signature is checked elsewhere."""
    text = token.split(".")[number]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
