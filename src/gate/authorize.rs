//! The rules of who may do what at an application: pure questions about its settings, a request and its visitor.

use std::time::Duration;

use crate::accounts::{AppVisitor, Groups, ProvedFactors};
use crate::clock::Micros;
use crate::config::{App, AppFactor, AppPart, AskedPath, Who};

/// Instances take the time from clocks of their own.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// A request to an application.
#[derive(Debug, Clone, Copy)]
pub struct AppRequest<'a> {
    pub method: &'a str,
    /// Path and query, as they were sent.
    pub target: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// To everybody, whoever it is: the application is not told of somebody whom it would not be told of elsewhere.
    Public,
    /// To somebody who signs in, or does so anew.
    SignInFirst,
    /// To somebody who proves that, or does so anew.
    FactorFirst(AppFactor),
    /// To somebody whose account has the second factor that it must have.
    SetupFirst,
    /// Signed in, but not to this.
    Forbidden,
}

/// Which age limit of a part a session exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooOld {
    SignIn,
    /// When the password was last entered. Entering it is a new sign-in, too.
    Password,
}

pub fn authorize(app: &App, asked: AppRequest<'_>, visitor: Option<&AppVisitor>, now: Micros) -> Verdict {
    let reads = matches!(asked.method, "GET" | "HEAD");
    match authorize_visitor(app, asked, visitor, now) {
        Verdict::Allowed => Verdict::Allowed,
        _ if reads && is_public(app, AskedPath::of(asked.target)) => Verdict::Public,
        refused => refused,
    }
}

fn authorize_visitor(app: &App, asked: AppRequest<'_>, visitor: Option<&AppVisitor>, now: Micros) -> Verdict {
    let parts = || parts_at(app, AskedPath::of(asked.target));
    let Some(visitor) = visitor.filter(|visitor| !visitor.must_change_password) else {
        return Verdict::SignInFirst;
    };
    if visitor.setup.is_some_and(|setup| setup.by <= now) {
        return Verdict::SetupFirst;
    }
    let admits = |who: &[Who]| admits(who, visitor.login.as_str(), &visitor.groups);
    if !admits(&app.who) || !parts().filter_map(|part| part.who.as_deref()).all(admits) {
        return Verdict::Forbidden;
    }
    if too_old(app, asked.target, visitor.signed_in_at, visitor.verified_at, now).is_some() {
        return Verdict::SignInFirst;
    }
    lacks_factor(app, asked.target, visitor.proved, now).map_or(Verdict::Allowed, Verdict::FactorFirst)
}

/// Whether somebody may sign in at an application as a client of OpenID Connect, which has no paths.
pub fn authorize_client(app: &App, visitor: &AppVisitor, now: Micros) -> Verdict {
    if visitor.must_change_password {
        Verdict::SignInFirst
    } else if visitor.setup.is_some_and(|setup| setup.by <= now) {
        Verdict::SetupFirst
    } else if !may_use(app, visitor.login.as_str(), &visitor.groups) {
        Verdict::Forbidden
    } else if visitor.proved.is_enough(app.factor) {
        Verdict::Allowed
    } else {
        Verdict::FactorFirst(app.factor)
    }
}

/// The strongest factor that these parts of an application ask for, and the least age up to which it is enough.
pub(super) fn factor_of<'a>(
    app: &App,
    parts: impl Iterator<Item = &'a AppPart>,
) -> (AppFactor, Option<Duration>) {
    parts.fold((app.factor, None), |(factor, least), part| {
        let aged = if part.factor_within.is_some() { AppFactor::Second } else { AppFactor::None };
        let least = least.into_iter().chain(part.factor_within).min();
        (factor.max(part.factor).max(aged), least)
    })
}

/// The factor that is to be proved first; None if what was proved is enough.
pub fn lacks_factor(app: &App, target: &str, proved: ProvedFactors, now: Micros) -> Option<AppFactor> {
    let (needed, least) = factor_of(app, parts_at(app, AskedPath::of(target)));
    let lately = proved.filter(|at| within(least, at, now));
    (!lately.is_enough(needed)).then_some(needed)
}

/// The parts that apply to a path: each of them has to be met.
pub(super) fn parts_at<'a>(app: &'a App, path: AskedPath<'_>) -> impl Iterator<Item = &'a AppPart> {
    app.parts.iter().filter(move |part| part.path.may_cover(path))
}

/// Whether everybody may read what is at a path. A part wins over `public`.
pub(super) fn is_public(app: &App, path: AskedPath<'_>) -> bool {
    app.public.iter().any(|public| public.covers(path)) && parts_at(app, path).next().is_none()
}

/// What is not recent enough for what is asked for.
pub fn too_old(
    app: &App,
    target: &str,
    signed_in_at: Micros,
    verified_at: Micros,
    now: Micros,
) -> Option<TooOld> {
    let path = AskedPath::of(target);
    let mut parts = parts_at(app, path);
    if !parts.all(|part| within(part.password_within, verified_at, now)) {
        return Some(TooOld::Password);
    }
    let mut parts = parts_at(app, path);
    (!parts.all(|part| within(part.signed_in_within, signed_in_at, now))).then_some(TooOld::SignIn)
}

/// Whether somebody may use an application at all.
pub fn may_use(app: &App, login: &str, groups: &Groups) -> bool {
    admits(&app.who, login, groups)
}

fn admits(who: &[Who], login: &str, groups: &Groups) -> bool {
    who.iter().any(|who| match who {
        Who::Everyone => true,
        Who::Group(group) => groups.contains(group),
        Who::Name(name) => name == login,
    })
}

/// A time in the future is not valid, except for small differences between clocks.
fn within(age: Option<Duration>, at: Micros, now: Micros) -> bool {
    age.is_none_or(|age| at <= now.plus(CLOCKS_DIFFER) && now.since(at) < age)
}
