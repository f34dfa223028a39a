"""An application with idpyoidc."""

from urllib.parse import parse_qsl, urlsplit

from idpyoidc.client.defaults import DEFAULT_OIDC_SERVICES
from idpyoidc.client.exception import OidcServiceError
from idpyoidc.client.oauth2.stand_alone_client import backchannel_logout
from idpyoidc.client.rp_handler import RPHandler

from settings import configuration
from talk import part, talk

ISSUER = configuration["issuer"]
SERVICES = DEFAULT_OIDC_SERVICES | {
    "end_session": {"class": "idpyoidc.client.oidc.end_session.EndSession"}
}
handler = RPHandler(
    base_url="https://survey.example",
    client_configs={ISSUER: configuration},
    services=SERVICES,
    key_conf={"key_defs": [{"type": "EC", "crv": "P-256", "use": ["sig"]}]},
)
kept = {}


def begin():
    return handler.begin(issuer_id=ISSUER)


def told(claims, token):
    kept["id_token"] = token
    return {"claims": claims, "kid": part(token, 0)["kid"]}


def back(url):
    got = handler.finalize(ISSUER, dict(parse_qsl(urlsplit(url).query)))
    kept["state"], kept["sub"] = got["state"], got["userinfo"]["sub"]
    token = handler.issuer2rp[ISSUER].get_context().cstate.get_set(got["state"], claim=["id_token"])
    return told(got["id_token"].to_dict(), token["id_token"]) | {"user": got["userinfo"].to_dict()}


def refresh():
    try:
        got = handler.refresh_access_token(kept["state"])
    except OidcServiceError as error:
        return {"refused": str(error)}
    return told(got["__verified_id_token"].to_dict(), got["id_token"])


def end(to):
    return {"end": handler.logout(kept["state"], post_logout_redirect_uri=to)["url"]}


def notice(body):
    client = handler.issuer2rp[ISSUER]
    # It was registered by hand, and not by a call that would have told.
    algorithm = configuration["id_token_signing_alg_values_supported"][0]
    client.get_context().registration_response = {"id_token_signed_response_alg": algorithm}
    return {"ended": kept["sub"] if backchannel_logout(client, request=body) == kept["state"] else None}


talk(begin, {"back": back, "refresh": refresh, "end": end, "notice": notice})
