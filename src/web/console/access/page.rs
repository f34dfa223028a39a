//! `/admin/access`: what is in force, each with a button that ends it, and a form for each answer.

use actix_web::HttpResponse;
use actix_web::web::{Form, Query};
use rust_i18n::t;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::{AccessSettings, moment_text};
use crate::tuning::{NotWritten, SaveError, SavedDraft};
use crate::web::console::LONGEST_REASON;
use crate::web::console::access::answer::AccessAnswer;
use crate::web::console::access::view::{AccessPage, AnswerForm, AnswerRow, PageWord};
use crate::web::console::confirm::carried::{self, FormPairs};
use crate::web::console::document::call::{read_draft, record_save, save_edit};
use crate::web::console::guard::Admin;
use crate::web::kit::flash::Flash;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::{WebError, WebResult};

const HERE: &str = "/admin/access";
const END: &str = "/admin/access/end";
/// Two operators may save at the same moment: an answer is added to whatever is in force by then.
const MOST_TRIES: u32 = 3;

/// `?do=deny&network=203.0.113.0/24`: shows that form first, filled in.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AccessQuery {
    #[serde(rename = "do")]
    wanted: String,
    network: String,
    prefix: String,
}

/// `GET /admin/access`
pub async fn show(visit: Visit, admin: Admin, query: Query<AccessQuery>, services: Shared) -> WebResult {
    let subject = |answer: AccessAnswer| match answer {
        AccessAnswer::Challenge => "",
        AccessAnswer::Deny | AccessAnswer::Allow => &query.network,
        AccessAnswer::Pause => &query.prefix,
    };
    let form = AccessAnswer::parse(&query.wanted).map(|answer| AnswerForm::chosen(answer, subject(answer)));
    page(&visit, &services, &admin, form, PageWord::None).await
}

/// `POST /admin/access`
pub async fn submit(visit: Visit, admin: Admin, pairs: Form<FormPairs>, services: Shared) -> WebResult {
    let value = |name| carried::value(&pairs, name);
    let answer = AccessAnswer::parse(value("do"));
    let form = |answer: AccessAnswer| {
        AnswerForm::typed(answer, value(answer.field()), value("span"), value("reason"))
    };
    if !visit.admits_form(value("csrf_token")) {
        admin.was_foreign(&services, visit.pattern());
        return page(&visit, &services, &admin, answer.map(form), PageWord::Expired).await;
    }
    let Some(answer) = answer else { return Ok(visit.see_other(HERE, None)) };
    let (mut form, subject) = (form(answer), value(answer.field()));
    let reason = form.reason.clone();
    let until = visit.now().plus(form.lasts().unwrap_or_default());
    let draft = |current: &AccessSettings| answer.added_to(current, subject, until, &reason);
    let now = visit.now();
    let current = services.live.snapshot().access.settings().in_force(now);
    form.check(visit.locale);
    let (tuning, wanted, from) = (services.tuning.clone(), draft(&current), admin.address());
    let checked = read_draft(&services, &admin, move |live| live.check(&tuning.access_edit(&wanted, from)?));
    if let Err(errors) = checked.await? {
        form.refused(visit.locale, errors);
    }
    if form.has_mistakes() {
        return page(&visit, &services, &admin, Some(form), PageWord::None).await;
    }
    let confirmed = carried::require(&visit, &services, &admin, HERE, &pairs).await?;
    let detail = json!({ "reason": reason, "answer": answer.shown(subject), "until": moment_text(until) });
    let result = async {
        match save(&visit, &services, &admin, ("access.save", detail), &reason, draft).await? {
            Ok(_) => Ok(visit.see_other(HERE, Some(Flash::AccessSaved))),
            Err(error) => {
                let word = match error {
                    SaveError::NotWritten(NotWritten::Invalid(errors)) => {
                        form.refused(visit.locale, errors);
                        PageWord::None
                    }
                    error => word(error)?,
                };
                page(&visit, &services, &admin, Some(form), word).await
            }
        }
    };
    let result = result.await;
    confirmed.finish(&visit, services.session_lasts, result)
}

/// `POST /admin/access/end`
pub async fn end(visit: Visit, admin: Admin, pairs: Form<FormPairs>, services: Shared) -> WebResult {
    let value = |name| carried::value(&pairs, name);
    if !visit.admits_form(value("csrf_token")) {
        admin.was_foreign(&services, visit.pattern());
        return page(&visit, &services, &admin, None, PageWord::Expired).await;
    }
    let Some(answer) = AccessAnswer::parse(value("do")) else { return Ok(visit.see_other(HERE, None)) };
    let (subject, was) = (value("subject"), value("was"));
    if services.live.overridden_access().contains(&answer.key()) {
        const WHY: &str = "it is set by an environment variable of the server; change it there";
        return page(&visit, &services, &admin, None, PageWord::NotSaved(WHY.to_owned())).await;
    }
    let confirmed = carried::require(&visit, &services, &admin, END, &pairs).await?;
    let reason = t!("answers.ended-reason", locale = visit.locale.code(), it = was);
    let reason: String = reason.chars().filter(|letter| !letter.is_control()).take(LONGEST_REASON).collect();
    let detail = json!({ "reason": reason, "answer": answer.shown(subject) });
    let draft = |current: &AccessSettings| answer.taken_from(current, subject);
    let result = async {
        match save(&visit, &services, &admin, ("access.end", detail), &reason, draft).await? {
            Ok(_) => Ok(visit.see_other(HERE, Some(Flash::AccessEnded))),
            Err(error) => page(&visit, &services, &admin, None, word(error)?).await,
        }
    };
    let result = result.await;
    confirmed.finish(&visit, services.session_lasts, result)
}

async fn save(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    (act, mut detail): (&str, Value),
    reason: &str,
    draft: impl Fn(&AccessSettings) -> Value,
) -> Result<Result<SavedDraft, SaveError>, Problem> {
    let mut tries = 0;
    loop {
        tries += 1;
        let current = services.tuning.current();
        let wanted = draft(&current.live.access.settings().in_force(visit.now()));
        let (tuning, from) = (services.tuning.clone(), admin.address());
        let edit = read_draft(services, admin, move |_| tuning.access_edit(&wanted, from)).await?;
        let saved = save_edit(services, admin, edit, &current.version, reason).await;
        let overtaken = matches!(saved, Err(SaveError::NotWritten(NotWritten::Stale { .. })));
        if !overtaken || tries == MOST_TRIES {
            detail["from"] = current.version.into();
            record_save(services, admin, act, detail, &saved);
            return Ok(saved);
        }
    }
}

/// Why nothing was saved, for the page.
fn word(error: SaveError) -> Result<PageWord, WebError> {
    Ok(match error {
        SaveError::NotWritten(NotWritten::Stale { .. }) | SaveError::NoSuchChange => PageWord::Stale,
        SaveError::NotWritten(NotWritten::Backend(reason)) => PageWord::NotSaved(reason),
        SaveError::NotWritten(NotWritten::Invalid(errors)) => {
            let said = errors.iter().map(|error| format!("{}: {}", error.field, error.message));
            PageWord::NotSaved(said.collect::<Vec<_>>().join("; "))
        }
        SaveError::Db(error) => return Err(error.into()),
    })
}

async fn page(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    form: Option<AnswerForm>,
    word: PageWord,
) -> Result<HttpResponse, WebError> {
    let now = visit.now();
    let settings = services.live.snapshot().access.settings().in_force(now);
    let mut rows = AnswerRow::all(&settings, now, visit.locale);
    let lines: Vec<String> = rows.iter().map(|row| row.line.clone()).collect();
    for (row, origin) in rows.iter_mut().zip(services.tuning.access_origins(&lines).await?) {
        row.set_by(origin);
    }
    let fixed = services.live.overridden_access();
    Ok(AccessPage::new(visit, admin.login(), rows, form, word, fixed).respond(visit))
}
