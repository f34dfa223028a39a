"""Django's sign-in behind Gatehouse: copy this file, and see settings.py and urls.py for where its parts go.

Gatehouse is asked before a password is looked at, and is told how the attempt ended. Whatever it does not admit is
refused, and so is everything while it cannot be asked.
"""
import json
import logging

import urllib3
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpResponse
from django.views.decorators.cache import never_cache

log = logging.getLogger(__name__)

DEVICE_COOKIE = "guard_device"
DEVICE_SECONDS = 180 * 24 * 3600
TRIES_TO_SETTLE = 3

# Connections stay open. An attempt waits up to five seconds for others in flight at the same name.
http = urllib3.PoolManager(maxsize=10, timeout=6.0, retries=False)


class GatehouseError(Exception):
    """It did not decide. Without a status, it was not reached."""

    def __init__(self, message, status=None):
        super().__init__(message)
        self.status = status


def call(path, body):
    headers = {"Authorization": f"Bearer {settings.GATEHOUSE_TOKEN}"}
    try:
        answer = http.request("POST", f"{settings.GATEHOUSE_URL}/api/v1/attempts{path}", json=body, headers=headers)
        if answer.status == 204:
            return None
        content = answer.json()
    except (urllib3.exceptions.HTTPError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise GatehouseError(str(error)) from error
    if answer.status != 200:
        raise GatehouseError(f"{answer.status} {content.get('title')}", answer.status)
    return content


class Guard:
    """The attempt of one request."""

    def __init__(self, request):
        self.request = request
        self.attempt = None  # admitted, and not settled
        self.challenge = None
        self.retry_after = None
        self.refused = False
        self.device = None

    def admits(self, login):
        request = self.request
        question = {"login": login, "address": request.META["REMOTE_ADDR"]}
        if device := request.COOKIES.get(DEVICE_COOKIE):
            question["device"] = device
        if answer := request.POST.get("captcha_answer"):
            question["captcha"] = {"id": request.POST.get("captcha_id", ""), "answer": answer}
        try:
            decision = call("", question)
        except GatehouseError as error:
            log.error("an attempt was refused, because Gatehouse did not decide: %s", error)
            self.refused = error.status != 422  # nobody can have such a name: wrong, as any other
            return False
        self.attempt = decision["attempt"] if decision["decision"] == "go" else None
        self.refused = self.attempt is None
        captcha = decision.get("captcha", {})
        self.challenge = captcha.get("id") if "image" in captcha else None
        self.retry_after = decision.get("retry_after")
        return not self.refused

    def settle(self, outcome):
        attempt, self.attempt = self.attempt, None
        if attempt is None:
            return
        for _ in range(TRIES_TO_SETTLE):
            try:
                self.device = call(f"/{attempt}", {"outcome": outcome}).get("device") or self.device
                return
            except GatehouseError as error:
                log.error("the outcome of an attempt was not told to Gatehouse: %s", error)
                if error.status not in (None, 503):
                    return


class GuardMiddleware:
    """Gives each request a guard, and the browser the device that it is known by."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        request.guard = Guard(request)
        response = self.get_response(request)
        if request.guard.device:
            response.set_cookie(
                DEVICE_COOKIE,
                request.guard.device,
                max_age=DEVICE_SECONDS,
                secure=request.is_secure(),
                httponly=True,
                samesite="Lax",
            )
        return response


class GuardMixin:
    """For a backend that looks at passwords: asks before it looks, and tells how it ended."""

    def authenticate(self, request, username=None, password=None, **others):
        if password is None:
            return None  # not by password
        login = username or others.get(get_user_model().USERNAME_FIELD) or others.get("email")
        if not login:
            raise PermissionDenied("nobody to ask for: authenticate() names no user")
        if request is None:
            raise PermissionDenied("authenticate() needs the request: Gatehouse counts by its address")
        if not request.guard.admits(login):
            raise PermissionDenied
        outcome = "abandoned"  # if the database fails
        try:
            user = super().authenticate(request, username=username, password=password, **others)
            outcome = "failure" if user is None else "success"
            return user
        except PermissionDenied:
            outcome = "failure"
            raise
        finally:
            request.guard.settle(outcome)

    async def aauthenticate(self, request, **credentials):
        return await sync_to_async(self.authenticate)(request, **credentials)


class GuardedModelBackend(GuardMixin, ModelBackend):
    """Django's own accounts."""


class GuardedAuthenticationForm(AuthenticationForm):
    """Says what Gatehouse asks for."""

    def get_invalid_login_error(self):
        guard = self.request.guard
        if not guard.refused:
            return super().get_invalid_login_error()
        if guard.challenge:
            return ValidationError("Type the letters in the image, and your password once more.")
        if guard.retry_after:
            return ValidationError(f"Too many attempts. Wait {guard.retry_after} seconds, then try again.")
        return ValidationError("Signing in is not possible at the moment. Try again in a few minutes.")


@never_cache
def challenge_image(request, challenge):
    """The image, for browsers that do not reach Gatehouse."""
    try:
        answer = http.request("GET", f"{settings.GATEHOUSE_URL}/captcha/{challenge}.png")
    except urllib3.exceptions.HTTPError as error:
        raise Http404 from error
    if answer.status != 200:
        raise Http404
    return HttpResponse(answer.data, content_type="image/png")


class ForgiveAfterNewPassword:
    """Failures at a name end with a new password. Django tells this to its password validators."""

    def validate(self, password, user=None):
        pass

    def get_help_text(self):
        return ""

    def password_changed(self, password, user=None):
        try:
            call("/forgive", {"login": user.get_username()})
        except GatehouseError as error:
            log.error("failures stay, because Gatehouse cannot be told of a new password: %s", error)
