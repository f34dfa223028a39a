//! The history of the live sections: who changed them, when and why, and the return to an earlier one, as pages and as
//! calls.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::{Path, Query};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use rust_i18n::t;
use serde::{Deserialize, Serialize};
use serde_json::json;
use strum::VariantArray;
use utoipa::openapi::schema::ObjectBuilder;
use utoipa::{IntoParams, ToSchema};

use crate::config::LiveTexts;
use crate::db::DbError;
use crate::tuning::{ChangeCursor, CurrentLimits, Edit, LimitsChange, LiveSection, SaveError, SavedEdit};
use crate::web::console::confirm;
use crate::web::console::document::{
    self, Controls, DiffKind, DiffLine, DocumentSaved, Precondition, check, checked_reason, if_match,
    read_draft, record_save, save_response, save_unrecorded,
};
use crate::web::console::guard::{Admin, AdminForm, AdminRequest, Permitted};
use crate::web::console::{FormProblem, LONGEST_REASON, read_cursor, read_filter};
use crate::web::form::{FormPairs, value};
use crate::web::http::describe::{self, ChangeReason};
use crate::web::http::{
    ErrorKind, ErrorPage, Flash, Layout, Problem, Services, ServicesData, UnreadBody, WebError, WebResult,
};
use crate::web::second_step::refuse_while_upgrading;

const HERE: &str = "/admin/limits/history";
const A_PAGE: u32 = 20;
/// Pages of the whole history that are read for one of a part.
const MOST_READ: usize = 10;
/// In the place of a change: the newest of the reader's own.
const UNDO: &str = "undo";

/// What is listed together, so that nobody restores a limit by a change that answered an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum HistoryPart {
    /// Everything but the answers.
    Settings,
    /// `[access]`.
    Answers,
}

impl HistoryPart {
    /// The part that a URL names.
    fn named(text: &str) -> Self {
        if text == "answers" { Self::Answers } else { Self::Settings }
    }

    fn of(section: LiveSection) -> Self {
        if section == LiveSection::Access { Self::Answers } else { Self::Settings }
    }

    /// What leads to it, behind a path.
    pub const fn query(self) -> &'static str {
        match self {
            Self::Settings => "",
            Self::Answers => "?of=answers",
        }
    }

    fn href(self) -> String {
        format!("{HERE}{}", self.query())
    }

    fn older(self, before: &ChangeCursor) -> String {
        let more = if self == Self::Answers { "of=answers&" } else { "" };
        format!("{HERE}?{more}before={before}")
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Settings => "history.settings",
            Self::Answers => "history.answers",
        }
    }

    /// The part of a change that was also recorded of the `other`.
    fn text(self, change: &LimitsChange, other: &LimitsChange) -> String {
        let others = change.others.as_deref().filter(|_| other.others.is_some()).unwrap_or_default();
        let parts = match self {
            Self::Settings => vec![change.apps.as_str(), &change.document, others],
            Self::Answers => vec![change.access.as_str()],
        };
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

/// `GET /admin/limits/history`
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let (part, before) =
        (HistoryPart::named(value(&query, "of")), ChangeCursor::parse(value(&query, "before")));
    let older = |before: &ChangeCursor| part.older(before);
    let layout = request.layout(before.as_ref().map_or_else(|| part.href(), older));
    let later = before.is_some();
    let current = request.services.tuning.current();
    let (changes, next) = changes(&request.services, &current, (part, before), A_PAGE).await?;
    let page = HistoryPage { layout, part, changes, older: next.as_ref().map(older), later };
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// At most `limit` changes of a part, each with its difference from the previous one, and the cursor of the next page.
pub async fn changes(
    services: &Services,
    current: &CurrentLimits,
    (part, mut before): (HistoryPart, Option<ChangeCursor>),
    limit: u32,
) -> Result<(Vec<ChangeRow>, Option<ChangeCursor>), DbError> {
    let first = before.is_none();
    let newest = services.tuning.history(None, 1).await?.pop();
    let in_force = newest.is_some_and(|newest| newest.version == current.version);
    let mut rows: Vec<ChangeRow> = Vec::new();
    for _ in 0..MOST_READ {
        let (found, earlier, next) = read(services, before, limit.max(A_PAGE)).await?;
        let before_it: Vec<_> =
            found.iter().skip(1).chain(&earlier).cloned().map(Some).chain([None]).collect();
        for (change, earlier) in found.into_iter().zip(before_it) {
            let texts = match &earlier {
                Some(earlier) => (part.text(earlier, &change), part.text(&change, earlier)),
                None => (String::new(), part.text(&change, &change)),
            };
            // What was in force before the first change can be restored, whatever it was.
            if texts.0 == texts.1 && earlier.is_some() {
                continue;
            }
            let diff = document::between(&texts.0, &texts.1);
            let current = first && rows.is_empty() && in_force;
            let cursor = change.cursor();
            rows.push(ChangeRow { change, part, diff, current });
            if rows.len() == limit as usize {
                return Ok((rows, earlier.map(|_| cursor)));
            }
        }
        before = next;
        if before.is_none() {
            break;
        }
    }
    Ok((rows, before))
}

/// At most `limit` changes, the one before them, and the cursor of the next page, if there is one.
async fn read(
    services: &Services,
    before: Option<ChangeCursor>,
    limit: u32,
) -> Result<(Vec<LimitsChange>, Option<LimitsChange>, Option<ChangeCursor>), DbError> {
    let mut found = services.tuning.history(before, limit + 1).await?;
    let earlier = (found.len() > limit as usize).then(|| found.pop()).flatten();
    let next = earlier.as_ref().and(found.last()).map(LimitsChange::cursor);
    Ok((found, earlier, next))
}

/// The newest change of the reader's own, after the one that it followed; None if others have changed much since.
pub async fn newest_of(request: &AdminRequest) -> Result<Option<[LimitsChange; 2]>, DbError> {
    let (found, reader) = (request.services.tuning.history(None, A_PAGE).await?, request.admin.id());
    let own = found.windows(2).find(|pair| pair[0].actor.as_deref() == Some(&reader));
    Ok(own.map(|pair| [pair[1].clone(), pair[0].clone()]))
}

/// `GET /admin/limits/history/{change}`: shows what a rollback would change, before it is done. In the place of a change,
/// `undo` stands for what the reader's own newest one followed.
pub async fn ask(request: AdminRequest, change: Path<String>, query: Query<FormPairs>) -> WebResult {
    let page = match change.as_str() {
        UNDO => match newest_of(&request).await? {
            Some([before, own]) => undo_page(&request, &before, &own).await?,
            None => return Ok(request.visit.see_other(HERE, None)),
        },
        id => rollback_page(&request, id, HistoryPart::named(value(&query, "of"))).await?,
    };
    Ok(request.visit.page(StatusCode::OK, &page))
}

async fn undo_page(
    request: &AdminRequest,
    before: &LimitsChange,
    own: &LimitsChange,
) -> Result<RollbackPage, WebError> {
    let differs = |part: &HistoryPart| part.text(before, own) != part.text(own, before);
    let part = HistoryPart::VARIANTS.iter().copied().find(differs).unwrap_or(HistoryPart::Settings);
    let mut page = rollback_page(request, &before.id, part).await?;
    // What others have saved meanwhile in other sections is not the reader's to undo here.
    let (then, saved) = (before.texts(), own.texts());
    page.parts.retain(|(section, _)| then.section(*section) != saved.section(*section));
    page.layout = request.layout(format!("{HERE}/{UNDO}"));
    let reason = own.reason.as_deref().unwrap_or_default();
    let told = t!("history.undo-reason", locale = request.visit.locale.code(), reason = reason);
    page.controls.reason = told.chars().take(LONGEST_REASON).collect();
    Ok(page)
}

async fn rollback_page(
    request: &AdminRequest,
    id: &str,
    part: HistoryPart,
) -> Result<RollbackPage, WebError> {
    let tuning = &request.services.tuning;
    let current = tuning.current();
    let version = current.version.clone();
    let change = tuning.change(id).await?.ok_or_else(|| nothing(request))?;
    let (then, live, saver) = (change.texts(), Arc::clone(&current.live), request.admin.saver());
    let parts = read_draft(&request.admin, move |handle| {
        let now = LiveTexts::read(&current.document, live.access.settings());
        let of = |section: &LiveSection| {
            let (now, then) = (now.section(*section)?, then.section(*section)?);
            let checked = (now != then)
                .then(|| handle.check(Edit::Restored(*section, then.clone(), saver)))?
                .map(|checked| checked.changed(&live, checked.live()).then(|| checked.texts()));
            // What cannot be restored is told when it is tried.
            let then = checked.map_or(Some(then), |texts| texts?.section(*section))?;
            Some((*section, document::between(&now, &then)))
        };
        LiveSection::VARIANTS.iter().filter(|it| HistoryPart::of(**it) == part).filter_map(of).collect()
    });
    Ok(RollbackPage {
        part,
        layout: request.layout(format!("{HERE}/{}{}", change.id, part.query())),
        parts: parts.await?,
        chosen: None,
        lacks_section: false,
        change,
        controls: Controls::at(&version),
    })
}

fn nothing(request: &AdminRequest) -> HttpResponse {
    ErrorPage::new(request.layout(HERE), ErrorKind::NotFound).respond(&request.visit)
}

/// Saves a section of an earlier change again, and records that. The other sections stay as they are. A token restores
/// limits only: what may write limits may not write another section by it.
/// Returns None if the history has no such change.
async fn roll_back(
    admin: &Admin,
    (id, section): (&str, LiveSection),
    seen: &str,
    reason: &str,
) -> Result<Option<Result<SavedEdit, SaveError>>, WebError> {
    const ACT: &str = "limits.rollback";
    if section != LiveSection::Limits && admin.token().is_some() {
        return Err(admin.refused_scope(ACT, "section").into());
    }
    let detail = json!({ "reason": reason, "from": seen, "change": id, "section": section.name() });
    let Some(change) = admin.services.tuning.change(id).await? else {
        record_save(admin, ACT, detail, &Err(SaveError::Invalid(Vec::new())));
        return Ok(None);
    };
    let toml = change.texts().section(section).ok_or_else(unrecorded)?;
    let checked = check(admin, Edit::Restored(section, toml, admin.saver())).await?;
    let factors = checked.as_ref().map(|checked| &checked.live().factors);
    if section == LiveSection::Factors && factors.is_ok_and(|factors| !factors.require.is_empty()) {
        refuse_while_upgrading(&admin.services).await?;
    }
    let saved = save_unrecorded(admin, checked, seen, reason).await;
    record_save(admin, ACT, detail, &saved);
    Ok(Some(saved))
}

/// An older version of this program has written the change.
fn unrecorded() -> Problem {
    Problem::wrong("section", "Was not recorded of this change; limits, access and apps were.".to_owned())
}

/// `POST /admin/limits/rollback`
pub async fn rollback(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let (controls, id) = (Controls::read(pairs), value(pairs, "change"));
    let section = LiveSection::named(value(pairs, "section"));
    let again = async |problem: FormProblem| -> WebResult {
        let part = section.map_or(HistoryPart::Settings, HistoryPart::of);
        let mut page = rollback_page(request, id, part).await?;
        page.chosen = section;
        page.lacks_section = section.is_none();
        page.layout.mistaken = page.lacks_section || problem == FormProblem::ReasonMissing;
        let status = problem.status();
        (page.controls.reason, page.controls.problem) = (controls.reason.clone(), Some(problem));
        Ok(request.visit.page(status, &page))
    };
    if !posted.is_ours() {
        return again(FormProblem::Expired).await;
    }
    let Some(section) = section.filter(|_| !controls.reason.is_empty()) else {
        return again(FormProblem::ReasonMissing).await;
    };
    let act = Box::pin(async {
        let which = (id, section);
        match roll_back(&request.admin, which, &controls.version, &controls.reason).await? {
            Some(Ok(saved)) => {
                let flash = document::told(&saved, Flash::LimitsRestored);
                Ok(request.visit.see_other(page_of(section), Some(flash)))
            }
            Some(Err(error)) => again(error.into()).await,
            None => Ok(nothing(request)),
        }
    });
    confirm::confirmed(&posted, act).await
}

/// Where a section is shown.
const fn page_of(section: LiveSection) -> &'static str {
    match section {
        LiveSection::Limits => "/admin/limits",
        LiveSection::Access => "/admin/access",
        LiveSection::Apps => "/admin/apps",
        LiveSection::Factors => "/admin/factors",
        LiveSection::Registration => "/admin/invitations",
        LiveSection::Brand
        | LiveSection::Login
        | LiveSection::Origins
        | LiveSection::Captcha
        | LiveSection::Sms
        | LiveSection::Mail => HERE,
    }
}

pub struct ChangeRow {
    pub change: LimitsChange,
    pub part: HistoryPart,
    pub diff: Vec<DiffLine>,
    /// In force now, so there is no rollback to it.
    pub current: bool,
}

#[derive(Template)]
#[template(path = "pages/admin/history.html")]
pub struct HistoryPage {
    pub layout: Layout,
    pub part: HistoryPart,
    pub changes: Vec<ChangeRow>,
    pub older: Option<String>,
    /// The list does not begin with the newest change.
    pub later: bool,
}

/// Asks which section to restore, and why.
#[derive(Template)]
#[template(path = "pages/admin/rollback.html")]
pub struct RollbackPage {
    pub layout: Layout,
    pub part: HistoryPart,
    pub change: LimitsChange,
    /// The sections that differ, each with what restoring it would change.
    pub parts: Vec<(LiveSection, Vec<DiffLine>)>,
    /// The one that the form names already.
    pub chosen: Option<LiveSection>,
    /// It was sent without one.
    pub lacks_section: bool,
    pub controls: Controls,
}

impl RollbackPage {
    /// The only one to choose, unless another was chosen that does not differ any more.
    fn only(&self) -> Option<LiveSection> {
        let [(only, _)] = self.parts.as_slice() else { return None };
        Some(*only).filter(|only| self.chosen.is_none_or(|chosen| chosen == *only))
    }
}

/// Changes on a page where nothing else is asked for, and at most.
const USUAL: u32 = 20;
const MOST: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryPageQuery {
    /// `next` of the page before.
    before: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "changes": [{
    "id": "1f0c2a9b3e5d7788", "at": "2026-11-21T10:00:00Z", "version": "5d1f0c2a9b3e", "previous": "a9b3e5d1f0c2",
    "actor": "3f0e", "login": "boss", "reason": "An attack on numbers of one operator.",
    "toml": "[limits.sms-phone]\nrules = [{ max = 1, window = \"1m\" }]\n"
}] }))]
struct LimitChanges {
    changes: Vec<LimitsChange>,
    /// For `before` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What was in force of everything live, newest first
#[utoipa::path(
    get,
    path = "/api/v1/admin/limits/history",
    operation_id = "listLimitChanges",
    tag = "admin",
    params(HistoryPageQuery),
    responses((status = 200, description = "A page of them.", body = LimitChanges)),
    extensions(("x-problems" = json!(["invalid-input"])))
)]
pub async fn api_history(
    _: Permitted,
    page: Query<HistoryPageQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let before = read_cursor(page.before.as_deref(), "before", ChangeCursor::parse)?;
    let size = |text: &str| text.parse().ok().filter(|size| (1..=MOST).contains(size));
    let limit = read_filter(page.limit.as_deref(), "limit", "Use 1 to 100.", size)?;
    let (changes, _, next) = read(&services, before, limit.unwrap_or(USUAL)).await?;
    Ok(HttpResponse::Ok().json(LimitChanges { changes, next: next.map(|next| next.to_string()) }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "change": "1f0c2a9b3e5d7788", "reason": "The attack is over." }))]
pub struct RollbackRequest {
    /// The id of a change in the history.
    change: String,
    /// What to restore of it; the limits if it is left out.
    #[schema(schema_with = sections)]
    section: Option<String>,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

fn sections() -> ObjectBuilder {
    describe::one_of(LiveSection::VARIANTS.iter().map(|section| section.name()))
}

/// Put a section of the history in force again
///
/// The other sections stay as they are. Entries of `access` that have ended are left out. With a token only the limits can
/// be restored.
#[utoipa::path(
    post,
    path = "/api/v1/admin/limits/rollback",
    operation_id = "rollBackLimits",
    tag = "admin",
    params(Precondition),
    request_body = RollbackRequest,
    responses(DocumentSaved),
    extensions(("x-problems" = json!(["precondition-required", "precondition-failed", "not-saved"])))
)]
pub async fn api_rollback(
    permitted: Permitted,
    request: HttpRequest,
    back: UnreadBody<RollbackRequest>,
) -> WebResult {
    let (admin, back) = permitted.read(back).await?;
    let seen = if_match(&request, &admin)?;
    let reason = checked_reason(&back.reason)?;
    let section = read_filter(back.section.as_deref(), "section", "Not a live section.", LiveSection::named)?;
    let saved =
        roll_back(&admin, (&back.change, section.unwrap_or(LiveSection::Limits)), &seen, reason).await?;
    let saved = saved.ok_or_else(|| Problem::wrong("change", "Not in the history; use an id from there."))?;
    Ok(save_response(saved)?)
}
