from django.contrib.auth.views import LoginView
from django.urls import include, path
from django.views.generic import TemplateView

from shop import guard

urlpatterns = [
    path("", TemplateView.as_view(template_name="home.html")),
    path("accounts/login/", LoginView.as_view(authentication_form=guard.GuardedAuthenticationForm), name="login"),
    path("accounts/challenge/<slug:challenge>.png", guard.challenge_image, name="challenge"),
    path("accounts/", include("django.contrib.auth.urls")),
]
