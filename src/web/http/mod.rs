//! Shared by all pages and calls. It names no feature.

pub mod access;
pub mod action;
pub mod api;
pub mod assets;
pub mod challenge;
pub mod client;
pub mod connections;
pub mod cookies;
pub mod csrf;
pub mod describe;
pub mod error_page;
pub mod extract;
pub mod headers;
pub mod locale;
pub mod message;
pub mod next;
pub mod observe;
pub mod page;
pub mod problem;
pub mod problem_kind;
pub mod services;

pub use action::{ActionRefusal, Actor, CountedAs};
pub use api::{ApiRequest, CaptchaSolution};
pub use challenge::ChallengeContext;
pub use client::{ClientAddress, TrustedProxies};
pub use cookies::Cookies;
pub use csrf::{Browser, Provenance};
pub use error_page::{ErrorKind, ErrorPage};
pub use extract::{SecretField, UnreadBody};
pub use locale::{Device, Locale, Moment, Wait};
pub use message::{Field, FieldErrors, Message};
pub use next::Next;
pub use page::{Flash, Layout, PageRequest, Requester, WebContext, app_data};
pub use problem::{CaptchaBody, CaptchaChallenge, InputError, Problem, ProblemBody, WebError, WebResult};
pub use services::{Services, ServicesData};
