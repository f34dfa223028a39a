//! A form that is sent twice acts once: a double click, or a reload of a page that did not answer. The second gets the
//! answer of the first, if the browser, the form's token and everything else in it are the same.

use std::future::Future;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use serde::de::DeserializeOwned;
use serde::de::value::{Error, MapDeserializer};
use zeroize::Zeroize;

use crate::login::{FormAnswer, FormKey, FormStart, RepeatedForm, SessionToken};
use crate::request_id;
use crate::web::form::fields::{FormPairs, value};
use crate::web::kit::extract::UnreadBody;
use crate::web::kit::problem::{Problem, WebError, WebResult};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::{self, Flash, Visit};

/// Where the first form may have been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormReach {
    /// By this process. For what a flood sends, so that a refusal does not ask the database.
    ThisProcess,
    AnyInstance,
}

/// Reads a form and acts on it, unless the same form succeeded within the last minute. A success is a redirect, or
/// something created, which only the first answer shows.
pub async fn once<T, A>(
    visit: Visit,
    services: Shared,
    body: UnreadBody<FormPairs>,
    reach: FormReach,
    act: impl FnOnce(Visit, T, Shared) -> A + 'static,
) -> WebResult
where
    T: DeserializeOwned + 'static,
    A: Future<Output = WebResult> + 'static,
{
    let mut pairs = body.read_form().await?;
    let fields = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let form = T::deserialize(MapDeserializer::<_, Error>::new(fields));
    let ours = visit.admits_form(value(&pairs, "csrf_token"));
    let key = ours.then(|| recognise(&visit, &services, &pairs));
    // Half of a sign-in is nothing, and a flood that hangs up gets nothing hashed; but a CAPTCHA is used up by it.
    let challenged = ["captcha_id", "captcha_altcha"].iter().any(|name| !value(&pairs, name).is_empty());
    let may_outlast = reach == FormReach::AnyInstance || challenged;
    pairs.iter_mut().for_each(|(_, value)| value.zeroize());
    let form = form.map_err(|_| Problem::InvalidInput { errors: Vec::new() })?;
    let permit = may_outlast.then(|| services.forms.outlast()).flatten();
    // Boxed, because it goes one of two ways from here, and each would have room for all of it.
    let answered = Box::pin(request_id::keep(answer(visit, services, form, key, reach, act)));
    let Some(permit) = permit else { return answered.await };
    // A browser hangs up on the first of two clicks, and its answer is lost. What it began must not stay half done.
    let task = actix_web::rt::spawn(async move {
        let _permit = permit;
        answered.await
    });
    task.await.unwrap_or_else(|_| Err(Problem::Internal.into()))
}

async fn answer<T, A: Future<Output = WebResult>>(
    visit: Visit,
    services: Shared,
    form: T,
    key: Option<FormKey>,
    reach: FormReach,
    act: impl FnOnce(Visit, T, Shared) -> A,
) -> WebResult {
    let Some(key) = key else { return act(visit, form, services).await };
    let turn = match services.forms.begin(key).await? {
        FormStart::Repeated(again) => return Ok(repeated(&visit, &services, *again)),
        FormStart::First(turn) => turn,
    };
    let answer = act(visit.clone(), form, services.clone()).await;
    if let Ok(response) = &answer
        && let Some((done, token)) = success(&visit, response)
    {
        services.forms.finish(&turn, &done, token.as_ref()).await;
    } else if reach == FormReach::AnyInstance && may_be_repeated(&answer) {
        // As the second of two, it finds the name taken, and the code and the CAPTCHA used.
        if let Some(again) = services.forms.find_elsewhere(&turn).await? {
            return Ok(repeated(&visit, &services, again));
        }
    }
    answer
}

fn recognise(visit: &Visit, services: &Services, pairs: &[(String, String)]) -> FormKey {
    let mut parts: Vec<&[u8]> = vec![visit.browser.bytes(), visit.pattern().as_bytes()];
    parts.extend(pairs.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
    services.forms.recognise(&parts)
}

/// What is kept of an answer: where it leads, what is said there, and the session that it starts.
fn success(visit: &Visit, response: &HttpResponse) -> Option<(FormAnswer, Option<SessionToken>)> {
    let (location, flash) = match response.status() {
        StatusCode::SEE_OTHER => {
            let location = response.headers().get(LOCATION)?.to_str().ok()?;
            (
                location,
                set_cookie(response, visit.cookies().flash_name()).and_then(|flash| visit.read_flash(&flash)),
            )
        }
        StatusCode::CREATED => (visit.pattern(), Some(Flash::AlreadyMade)),
        _ => return None,
    };
    let token = set_cookie(response, visit.cookies().session_name());
    let flash = flash.map(|flash| flash.code().to_owned());
    let answer = FormAnswer { location: location.to_owned(), flash };
    Some((answer, token.and_then(|token| SessionToken::parse(&token))))
}

fn set_cookie(response: &HttpResponse, name: &str) -> Option<String> {
    response.cookies().find(|cookie| cookie.name() == name).map(|cookie| cookie.value().to_owned())
}

fn may_be_repeated(answer: &WebResult) -> bool {
    let status = match answer {
        Ok(response) => response.status(),
        Err(WebError::Answer(response)) => response.status(),
        Err(WebError::Problem(_)) => return false,
    };
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::CONFLICT].contains(&status)
}

fn repeated(visit: &Visit, services: &Services, again: RepeatedForm) -> HttpResponse {
    let flash = again.answer.flash.as_deref().and_then(Flash::named);
    let mut response = visit.see_other(&again.answer.location, flash);
    if let Some((token, account)) = again.session {
        visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
        visit.remember_device(&mut response, &account);
    }
    response
}
