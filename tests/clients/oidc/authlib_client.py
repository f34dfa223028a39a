"""An application with Authlib and Django's sessions."""

import django
from django.conf import settings as django_settings

django_settings.configure(
    ALLOWED_HOSTS=["survey.example"],
    CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore
from django.test import RequestFactory

from settings import oauth
from talk import part, talk

CALLBACK = "https://survey.example/callback"
session = SessionStore()
kept = {}


def request(url):
    made = RequestFactory(SERVER_NAME="survey.example").get(url, secure=True)
    made.session = session
    return made


def begin():
    return oauth.gatehouse.authorize_redirect(request("/login"), CALLBACK)["Location"]


def told(token):
    kept.update(token)
    claims = oauth.gatehouse.parse_id_token(token, nonce=None)
    return {"claims": claims, "kid": part(token["id_token"], 0)["kid"]}


def back(url):
    token = oauth.gatehouse.authorize_access_token(request(url))
    return told(token) | {"claims": token["userinfo"], "user": oauth.gatehouse.userinfo(token=token)}


def refresh():
    asked = {"grant_type": "refresh_token", "refresh_token": kept["refresh_token"]}
    return told(oauth.gatehouse.fetch_access_token(**asked))


def end(to):
    asked = {"id_token_hint": kept["id_token"], "post_logout_redirect_uri": to}
    return {"end": oauth.gatehouse.logout_redirect(request("/logout"), **asked)["Location"]}


talk(begin, {"back": back, "refresh": refresh, "end": end})
