"""An application with mozilla-django-oidc, and a browser at it."""

import sys
import types

from django.conf import settings as django_settings

SITE = "https://journal.example"
known = {
    "ALLOWED_HOSTS": ["journal.example"],
    "CACHES": {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
    "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    "INSTALLED_APPS": ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
    "MIDDLEWARE": [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    "ROOT_URLCONF": "urls",
    "SECRET_KEY": "of a test",
    "SESSION_ENGINE": "django.contrib.sessions.backends.cache",
}
with open(sys.argv[1]) as printed:
    exec(printed.read(), known)
django_settings.configure(**{name: value for name, value in known.items() if name.isupper()})

import django

django.setup()

from django.contrib.auth.models import Group
from django.core.management import call_command
from django.http import JsonResponse
from django.test import Client
from django.urls import include, path

from talk import part, talk

journal = types.ModuleType("journal")
journal.oidc = types.ModuleType("journal.oidc")
with open(sys.argv[2]) as printed:
    exec(printed.read(), vars(journal.oidc))
sys.modules |= {"journal": journal, "journal.oidc": journal.oidc}


def home(request):
    user = request.user
    if not user.is_authenticated:
        return JsonResponse({})
    groups = [group.name for group in user.groups.all()]
    return JsonResponse({"sub": user.username, "name": user.first_name, "email": user.email, "groups": groups})


urls = types.ModuleType("urls")
urls.urlpatterns = [path("", home), path("oidc/", include("mozilla_django_oidc.urls"))]
sys.modules["urls"] = urls

call_command("migrate", verbosity=0)
Group.objects.create(name="staff")
browser = Client(SERVER_NAME="journal.example")


def begin():
    return browser.get("/oidc/authenticate/", secure=True)["Location"]


def user():
    told = browser.get("/", secure=True).json()
    if not told:
        return {"refused": "signed out"}
    token = browser.session["oidc_id_token"]
    return {"claims": part(token, 1), "user": told, "kid": part(token, 0)["kid"]}


def back(url):
    assert browser.get(url.removeprefix(SITE), secure=True)["Location"] == "/"
    return user()


def refresh():
    answer = browser.get("/", secure=True)
    return {"to": answer["Location"]} if answer.status_code == 302 else user()


def end(_):
    return {"end": browser.post("/oidc/logout/", secure=True)["Location"]}


talk(begin, {"back": back, "refresh": refresh, "end": end})
